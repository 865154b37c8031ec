"""Generation with a KV cache: `generate` of small models, whose step (the model's forward) is what is compiled.

The tokens are given, as in teacher forcing, so that two close logits cannot send two backends along different texts;
what is compared are the logits of every step.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Mapping
from typing import Any

import torch
import transformers
from torch import nn

from bench_suites.suites.case import Case, Compile, Request, Row

NEW_TOKENS = 8

_SMALL = {
    "hidden_size": 512,
    "intermediate_size": 1408,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 64,
    "vocab_size": 8192,
}
_TINY = {**_SMALL, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "vocab_size": 512}
_WHISPER = {
    "d_model": 256,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 512,
    "decoder_ffn_dim": 512,
    "vocab_size": 2048,
    "max_source_positions": 200,
    "num_mel_bins": 80,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 3,
}
_TINY_WHISPER = {**_WHISPER, "d_model": 64, "max_source_positions": 20, "num_mel_bins": 16, "vocab_size": 512}


class Generation(nn.Module):
    """`model.generate`, giving the logits of all steps, f[steps, batch, vocabulary]."""

    def __init__(self, model: nn.Module, cache: str) -> None:
        super().__init__()
        self.model = model
        self.cache = cache

    def forward(self, inputs: torch.Tensor, **others: torch.Tensor) -> torch.Tensor:
        """Generate after `inputs` (tokens, or features of speech)."""
        model: Any = self.model
        vocabulary = model.config.vocab_size
        settings = transformers.GenerationConfig(
            max_new_tokens=NEW_TOKENS,
            do_sample=False,
            use_cache=True,
            cache_implementation=self.cache,
            # The backend that is being measured compiles the step, not transformers on its own.
            disable_compile=True,
            output_logits=True,
            return_dict_in_generate=True,
            pad_token_id=0,
            decoder_start_token_id=getattr(model.config, "decoder_start_token_id", None),
        )
        output = transformers.GenerationMixin.generate(
            model,
            inputs,
            settings,
            prefix_allowed_tokens_fn=functools.partial(_next_token, vocabulary),
            **others,
        )
        return torch.stack(output.logits)


def _next_token(vocabulary: int, batch: int, tokens: torch.Tensor) -> list[int]:
    return [(7919 * tokens.shape[-1] + 31 * batch) % vocabulary]


def compile_step(module: nn.Module, compiler: Compile) -> Callable[..., Any]:
    """A generation on the same weights whose every step runs compiled code."""
    assert isinstance(module, Generation)
    twin = copy.copy(module.model)
    # An attribute of the instance hides the method, so that the loop calls what is compiled.
    twin.forward = compiler(module.model.forward)
    return Generation(twin, module.cache)


def _build(
    architecture: str, config: str, cache: str, full: Mapping[str, Any], tiny: Mapping[str, Any], request: Request
) -> Case:
    settings = getattr(transformers, config)(**(tiny if request.tiny else full))
    model = getattr(transformers, architecture)(settings)
    batch = request.batch or 1
    if architecture.startswith("Whisper"):
        inputs = torch.randn(batch, settings.num_mel_bins, 2 * settings.max_source_positions)
    else:
        inputs = torch.randint(4, settings.vocab_size, (batch, 16))
    note = f"{NEW_TOKENS} new tokens, {cache} KV cache, small configuration"
    return Case(Generation(model, cache), (inputs,), compile=compile_step, note=note)


def _row(name: str, architecture: str, config: str, cache: str, quick: bool = False) -> Row:
    full, tiny = (_WHISPER, _TINY_WHISPER) if architecture.startswith("Whisper") else (_SMALL, _TINY)
    build = functools.partial(_build, architecture, config, cache, full, tiny)
    return Row(name, build, quick=quick, modes=("inference",))


ROWS = (
    _row("Llama_generate", "LlamaForCausalLM", "LlamaConfig", "static", quick=True),
    _row("Llama_generate_dynamic", "LlamaForCausalLM", "LlamaConfig", "dynamic"),
    _row("Qwen_generate", "Qwen3ForCausalLM", "Qwen3Config", "static"),
    _row("Whisper_generate", "WhisperForConditionalGeneration", "WhisperConfig", "static"),
)
