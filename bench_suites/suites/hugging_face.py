"""Hugging Face: classes of `transformers` with default configurations, no dropout, and random weights.

Models that do not fit in 16 GB three times (eager, fp64, compiled) have fewer layers, and their cases say so.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
import transformers

from bench_suites.suites.case import Case, Request, Row, Suite, own_loss
from bench_suites.suites.generation import ROWS as GENERATION

Task = Literal["tokens", "seq2seq", "classify", "layout", "speech"]

TOKENS = 128
TINY_TOKENS = 16


@dataclass(frozen=True)
class Model:
    """One row: the class and its configuration class, what the configuration changes, and the kind of inputs."""

    name: str
    architecture: str
    config: str
    task: Task = "tokens"
    settings: Mapping[str, Any] = field(default_factory=dict)
    tiny: Mapping[str, Any] = field(default_factory=dict)
    note: str = ""
    quick: bool = False
    tokens: int = TOKENS


_DECODER = {"is_decoder": True}
_SMALL_DECODER = {
    "hidden_size": 1024,
    "intermediate_size": 2816,
    "num_hidden_layers": 4,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
    "vocab_size": 32000,
}
_SMALL = "4 layers of 1024, vocabulary of 32,000"

MODELS = (
    Model("AlbertForMaskedLM", "AlbertForMaskedLM", "AlbertConfig"),
    Model(
        "AllenaiLongformerBase",
        "LongformerForMaskedLM",
        "LongformerConfig",
        settings={"attention_window": 64},
        tiny={"attention_window": [16, 16]},
        note="attention window of 64",
        tokens=256,
    ),
    Model("BartForCausalLM", "BartForCausalLM", "BartConfig"),
    Model("BertForMaskedLM", "BertForMaskedLM", "BertConfig", quick=True),
    Model(
        "BlenderbotForCausalLM",
        "BlenderbotForCausalLM",
        "BlenderbotConfig",
        settings={"decoder_layers": 4, "encoder_layers": 1},
        note="4 of 24 decoder layers",
    ),
    Model("BlenderbotSmallForCausalLM", "BlenderbotSmallForCausalLM", "BlenderbotSmallConfig"),
    Model("CamemBert", "CamembertForMaskedLM", "CamembertConfig"),
    Model(
        "DebertaV2ForMaskedLM",
        "DebertaV2ForMaskedLM",
        "DebertaV2Config",
        settings={"num_hidden_layers": 6},
        note="6 of 24 layers",
    ),
    Model("DistilBertForMaskedLM", "DistilBertForMaskedLM", "DistilBertConfig", quick=True),
    Model("DistillGPT2", "GPT2LMHeadModel", "GPT2Config", settings={"n_layer": 6}, quick=True),
    Model("ElectraForCausalLM", "ElectraForCausalLM", "ElectraConfig", settings=_DECODER),
    Model("GPT2ForSequenceClassification", "GPT2ForSequenceClassification", "GPT2Config", "classify"),
    Model("GoogleFnet", "FNetForMaskedLM", "FNetConfig"),
    Model("LayoutLMForMaskedLM", "LayoutLMForMaskedLM", "LayoutLMConfig", "layout"),
    Model("M2M100ForConditionalGeneration", "M2M100ForConditionalGeneration", "M2M100Config", "seq2seq"),
    Model("MBartForCausalLM", "MBartForCausalLM", "MBartConfig"),
    Model("MegatronBertForCausalLM", "MegatronBertForCausalLM", "MegatronBertConfig", settings=_DECODER),
    Model(
        "MobileBertForMaskedLM",
        "MobileBertForMaskedLM",
        "MobileBertConfig",
        tiny={"intra_bottleneck_size": 32, "embedding_size": 32, "true_hidden_size": 32},
    ),
    Model("OPTForCausalLM", "OPTForCausalLM", "OPTConfig", tiny={"word_embed_proj_dim": 64}),
    Model("PLBartForCausalLM", "PLBartForCausalLM", "PLBartConfig"),
    Model("PegasusForCausalLM", "PegasusForCausalLM", "PegasusConfig"),
    Model("RobertaForCausalLM", "RobertaForCausalLM", "RobertaConfig", settings=_DECODER),
    Model("T5ForConditionalGeneration", "T5ForConditionalGeneration", "T5Config", "seq2seq"),
    Model("T5Small", "T5ForConditionalGeneration", "T5Config", "seq2seq", settings={"num_layers": 4}),
    Model("TrOCRForCausalLM", "TrOCRForCausalLM", "TrOCRConfig"),
    Model("XGLMForCausalLM", "XGLMForCausalLM", "XGLMConfig", settings={"num_layers": 12}, note="12 of 24 layers"),
    Model("XLNetLMHeadModel", "XLNetLMHeadModel", "XLNetConfig"),
    Model("YituTechConvBert", "ConvBertForMaskedLM", "ConvBertConfig"),
    Model("Llama", "LlamaForCausalLM", "LlamaConfig", settings=_SMALL_DECODER, note=_SMALL, quick=True),
    Model("Qwen", "Qwen3ForCausalLM", "Qwen3Config", settings={**_SMALL_DECODER, "head_dim": 64}, note=_SMALL),
    Model("Gemma", "Gemma2ForCausalLM", "Gemma2Config", settings={**_SMALL_DECODER, "head_dim": 64}, note=_SMALL),
    Model("Mistral", "MistralForCausalLM", "MistralConfig", settings=_SMALL_DECODER, note=_SMALL),
    Model(
        "Whisper",
        "WhisperForConditionalGeneration",
        "WhisperConfig",
        "speech",
        tiny={"max_source_positions": 50, "num_mel_bins": 16, "decoder_start_token_id": 1, "pad_token_id": 0},
    ),
)

NARROW: Mapping[str, Any] = {
    "hidden_size": 64,
    "d_model": 64,
    "n_embd": 64,
    "dim": 64,
    "embedding_size": 64,
    "intermediate_size": 128,
    "d_ff": 128,
    "d_inner": 128,
    "hidden_dim": 128,
    "ffn_dim": 128,
    "encoder_ffn_dim": 128,
    "decoder_ffn_dim": 128,
    "d_kv": 16,
    "head_dim": 16,
    "num_hidden_layers": 2,
    "num_layers": 2,
    "n_layers": 2,
    "n_layer": 2,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "num_attention_heads": 4,
    "num_heads": 4,
    "n_heads": 4,
    "n_head": 4,
    "num_key_value_heads": 2,
    "attention_heads": 4,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "vocab_size": 512,
}
"""What makes a configuration small, as far as it has such a setting."""


def configuration(config: str, settings: Mapping[str, Any], tiny: Mapping[str, Any] | None) -> Any:
    """The configuration `config` with `settings`, without dropout; narrow with the changes `tiny` unless None."""
    kind = getattr(transformers, config)
    default = kind()
    narrow = {} if tiny is None else {**{k: v for k, v in NARROW.items() if hasattr(default, k)}, **tiny}
    dropout = {k: 0.0 for k, v in default.to_dict().items() if "drop" in k and isinstance(v, float)}
    tokens = {}
    if tiny is not None:
        # The special tokens have to be inside of the small vocabulary.
        names = ("pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id")
        tokens = {k: i for i, k in enumerate(names) if getattr(default, k, None) is not None}
    return kind(**{**settings, **tokens, **narrow, **dropout, "use_cache": False})


def _build(model: Model, request: Request) -> Case:
    config = configuration(model.config, model.settings, model.tiny if request.tiny else None)
    if model.task == "seq2seq" and getattr(config, "decoder_start_token_id", None) is None:
        config.decoder_start_token_id = 0
    if model.task == "classify":
        config.pad_token_id = config.vocab_size - 1
    module = getattr(transformers, model.architecture)(config)
    batch = request.batch or 2
    inputs = _inputs(model.task, config, batch, TINY_TOKENS if request.tiny else model.tokens)
    if model.architecture.startswith("Longformer") and request.tiny:
        inputs = _inputs(model.task, config, batch, 48)
    if not request.training:
        inputs.pop("labels")
    elif "decoder_input_ids" in inputs:
        # The model makes them from the labels.
        inputs.pop("decoder_input_ids")
    return Case(module, kwargs=inputs, loss=own_loss, note=model.note)


def _inputs(task: Task, config: Any, batch: int, length: int) -> dict[str, Any]:
    vocabulary = config.vocab_size
    # The last id is kept free: it is the padding of the classifier.
    ids = torch.randint(4, vocabulary - 1, (batch, length))
    labels = torch.randint(4, vocabulary - 1, (batch, length))
    if task == "speech":
        features = torch.randn(batch, config.num_mel_bins, 2 * config.max_source_positions)
        return {"input_features": features, "decoder_input_ids": ids, "labels": labels}
    inputs: dict[str, Any] = {"input_ids": ids, "labels": labels}
    if task == "seq2seq":
        inputs["decoder_input_ids"] = labels
    elif task == "classify":
        inputs["labels"] = torch.randint(0, config.num_labels, (batch,))
    elif task == "layout":
        corner = torch.randint(0, 500, (batch, length, 2))
        inputs["bbox"] = torch.cat([corner, corner + torch.randint(1, 500, (batch, length, 2))], dim=-1)
    return inputs


ROWS = tuple(Row(m.name, functools.partial(_build, m), batch=2, quick=m.quick) for m in MODELS)

HUGGING_FACE = Suite("huggingface", (*ROWS, *GENERATION), inference=1e-3, training=1e-2, low_precision=1e-3)
