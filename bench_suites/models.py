"""The models that the demonstration, the comparison and the tests run, by name. All weights are random, from a seed.

`build("resnet50", torch.bfloat16)` gives a model in evaluation mode and its inputs. `tiny=True` gives the same
architecture with a few narrow layers, for tests.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import timm
import torch
import transformers
from torch import nn

Inputs = tuple[tuple[torch.Tensor, ...], dict[str, torch.Tensor]]


@dataclass(frozen=True)
class Model:
    """A model ready to call as `model(*args, **kwargs)`. Float inputs have the dtype of the weights."""

    name: str
    module: nn.Module
    args: tuple[torch.Tensor, ...]
    kwargs: Mapping[str, torch.Tensor] = field(default_factory=dict)

    def to(self, dtype: torch.dtype) -> Model:
        """The same module, converted in place, with converted copies of the inputs."""
        args = tuple(_cast(a, dtype) for a in self.args)
        return Model(self.name, self.module.to(dtype), args, {k: _cast(v, dtype) for k, v in self.kwargs.items()})

    def __call__(self, function: Callable[..., Any] | None = None) -> Any:
        """The outputs of `function`, by default of the module itself, for these inputs."""
        return (self.module if function is None else function)(*self.args, **self.kwargs)


@dataclass(frozen=True)
class Recipe:
    """How to make a model: `module(tiny)` and `inputs(batch, tiny)`; `tolerance` is that of its suite for inference."""

    module: Callable[[bool], nn.Module]
    inputs: Callable[[int, bool], Inputs]
    tolerance: float = 1e-3


def _cast(value: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return value.to(dtype) if value.is_floating_point() else value


def _timm(name: str, **tiny_options: Any) -> Recipe:
    size = tiny_options.get("img_size", 64)
    return Recipe(
        module=lambda tiny: timm.create_model(name, pretrained=False, **(tiny_options if tiny else {})),
        inputs=lambda batch, tiny: ((torch.randn(batch, 3, *([size] * 2 if tiny else [224] * 2)),), {}),
    )


def _tokens(batch: int, length: int, vocabulary: int) -> torch.Tensor:
    return torch.randint(0, vocabulary, (batch, length))


def _hugging_face(architecture: str, config: str, full: dict[str, Any], tiny: dict[str, Any], length: int) -> Recipe:
    """A class of transformers. Names, not classes: transformers then imports the chosen architecture only."""

    def settings(small: bool) -> Any:
        return getattr(transformers, config)(**{**full, **(tiny if small else {}), "use_cache": False})

    def module(small: bool) -> nn.Module:
        built: nn.Module = getattr(transformers, architecture)(settings(small))
        return built

    def inputs(batch: int, small: bool) -> Inputs:
        vocabulary = settings(small).vocab_size
        tokens = {"input_ids": _tokens(batch, 16 if small else length, vocabulary)}
        if architecture.startswith("T5"):
            tokens["decoder_input_ids"] = _tokens(batch, 8 if small else length, vocabulary)
        return (), tokens

    return Recipe(module, inputs)


_TINY_BERT = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 128,
    "vocab_size": 512,
}
_TINY_GPT2 = {"n_embd": 64, "n_layer": 2, "n_head": 4, "vocab_size": 512, "bos_token_id": 0, "eos_token_id": 0}
_TINY_T5 = {"d_model": 64, "d_kv": 16, "d_ff": 128, "num_layers": 2, "num_heads": 4, "vocab_size": 512}
_SMALL_LLAMA = {
    "hidden_size": 512,
    "intermediate_size": 1408,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "vocab_size": 8192,
}
_TINY_LLAMA = {**_SMALL_LLAMA, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "vocab_size": 512}

RECIPES: Mapping[str, Recipe] = {
    "resnet50": _timm("resnet50", layers=(1, 1, 1, 1)),
    "mobilenetv3_large_100": _timm("mobilenetv3_large_100", depth_multiplier=0.3),
    "vit_base_patch16_224": _timm("vit_base_patch16_224", img_size=64, embed_dim=96, depth=2, num_heads=4),
    "swin_tiny_patch4_window7_224": _timm(
        "swin_tiny_patch4_window7_224", img_size=56, depths=(2, 2), num_heads=(2, 4), embed_dim=32
    ),
    "convnext_tiny": _timm("convnext_tiny", depths=(1, 1, 1, 1), dims=(32, 48, 64, 96)),
    "bert-base": _hugging_face("BertForMaskedLM", "BertConfig", {}, _TINY_BERT, 128),
    "gpt2": _hugging_face("GPT2LMHeadModel", "GPT2Config", {}, _TINY_GPT2, 128),
    "t5-small": _hugging_face("T5ForConditionalGeneration", "T5Config", {}, _TINY_T5, 128),
    "llama-small": _hugging_face("LlamaForCausalLM", "LlamaConfig", _SMALL_LLAMA, _TINY_LLAMA, 128),
}


def build(name: str, dtype: torch.dtype = torch.float32, *, batch: int = 1, tiny: bool = False, seed: int = 0) -> Model:
    """The model `name` in evaluation mode with random weights and inputs of `dtype`. Raises KeyError."""
    recipe = RECIPES[name]
    # A forked generator: the caller's random stream is not touched.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        module = recipe.module(tiny).eval().requires_grad_(False)
        _randomize_statistics(module)
        args, kwargs = recipe.inputs(batch, tiny)
    return Model(name, module, args, kwargs).to(dtype)


def _randomize_statistics(module: nn.Module) -> None:
    """Batch norms as after training: fresh ones (mean 0, variance 1) would hide a wrong use of them."""
    for part in module.modules():
        if isinstance(part, nn.modules.batchnorm._BatchNorm) and part.running_mean is not None:
            part.running_mean.normal_(0, 0.1)
            assert part.running_var is not None
            part.running_var.uniform_(0.5, 1.5)
