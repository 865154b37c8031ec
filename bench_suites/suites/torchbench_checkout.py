"""Imports models from a checkout of pytorch/benchmark, with what they would download replaced by random values."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import sys
import types
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from unittest import mock

import timm
import torch
import torchvision
import transformers

from bench_suites.suites.case import Case, Request, Unavailable, own_loss, weighted_mean

CONFIGURATIONS: Mapping[str, Callable[[], Any]] = {
    "gpt2": transformers.GPT2Config,
    # Decoding, and so training, starts with the padding token, as the published configurations have it.
    "t5-small": lambda: transformers.T5Config(decoder_start_token_id=0),
    "t5-base": lambda: transformers.T5Config(
        d_model=768, d_ff=3072, num_layers=12, num_heads=12, decoder_start_token_id=0
    ),
    "facebook/bart-base": lambda: transformers.BartConfig(
        d_model=768,
        encoder_layers=6,
        decoder_layers=6,
        encoder_attention_heads=12,
        decoder_attention_heads=12,
        encoder_ffn_dim=3072,
        decoder_ffn_dim=3072,
    ),
    "albert-base-v2": lambda: transformers.AlbertConfig(
        hidden_size=768, num_attention_heads=12, intermediate_size=3072
    ),
    "distilbert-base-uncased": transformers.DistilBertConfig,
    "allenai/longformer-base-4096": lambda: transformers.LongformerConfig(
        attention_window=[512] * 12, max_position_embeddings=4098, vocab_size=50265
    ),
    "xlm-roberta-base": lambda: transformers.XLMRobertaConfig(vocab_size=250002, max_position_embeddings=514),
    "distil-whisper/distil-medium.en": lambda: transformers.WhisperConfig(
        d_model=1024,
        encoder_layers=6,
        decoder_layers=2,
        encoder_attention_heads=16,
        decoder_attention_heads=16,
        encoder_ffn_dim=4096,
        decoder_ffn_dim=4096,
    ),
}
"""The configurations that the models would download. distil-whisper has 6 of its 24 encoder layers."""

ABSENT = (
    *("boto3", "cpuinfo", "cv2", "distro", "gym", "gymnasium", "higher", "iopath", "kornia", "onnx", "sklearn"),
    *("sklearn.metrics", "tensorboardX"),
)
"""Packages that some of its files import without needing them for the network itself."""


def build(folder: str, name: str, batch: int | None, request: Request) -> Case:
    """The model `name` by its own class. Raises Unavailable where the class needs what is not here."""
    with checkout(folder), offline():
        try:
            module = importlib.import_module(f"torchbenchmark.models.{name}")
        except ImportError as error:
            raise Unavailable(f"needs {error.name}: {error}") from error
        model = module.Model(test="train" if request.training else "eval", device="cpu", batch_size=batch)
        network, inputs = model.get_module()
    torch.set_default_device(None)
    return case_of(network, inputs)


def case_of(network: Any, inputs: Any, note: str = "random weights") -> Case:
    """A case from what `get_module()` of a model gives."""
    if not isinstance(network, torch.nn.Module):
        network = Function(network)
    if isinstance(inputs, Mapping):
        loss = own_loss if "labels" in inputs else weighted_mean
        return Case(network, kwargs=dict(inputs), loss=loss, note=note)
    return Case(network, tuple(inputs), note=note)


class Function(torch.nn.Module):
    """A function of the repository as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: Any, **others: Any) -> Any:
        """The function of the inputs."""
        return self.function(*inputs, **others)


@contextlib.contextmanager
def checkout(folder: str) -> Iterator[None]:
    """Make the repository in `folder` importable, with empty modules for packages that are absent."""
    root = Path(folder).expanduser().resolve()
    if not (root / "torchbenchmark" / "models").is_dir():
        raise Unavailable(f"{root} is no checkout of pytorch/benchmark")
    sys.path.insert(0, str(root))
    absent = [name for name in ABSENT if name not in sys.modules and _is_absent(name.partition(".")[0])]
    sys.modules.update({name: _Absent(name) for name in absent})
    try:
        yield
    finally:
        sys.path.remove(str(root))
        # Others that ask whether these packages are there have to hear the truth.
        for name in absent:
            del sys.modules[name]


def _is_absent(package: str) -> bool:
    return package not in sys.modules and importlib.util.find_spec(package) is None


class _Absent(types.ModuleType):
    """A module whose every attribute is a stand-in class."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return mock.MagicMock


def network_module(folder: str, model: str, file: str) -> types.ModuleType:
    """One file of a model as a module, without running the model's own `__init__`, which looks for data."""
    root = Path(folder).expanduser().resolve()
    package = f"torchbenchmark.models.{model}"
    with checkout(folder):
        importlib.import_module("torchbenchmark.models")
        if package not in sys.modules:
            parent = types.ModuleType(package)
            parent.__path__ = [str(root / "torchbenchmark" / "models" / model)]
            sys.modules[package] = parent
        try:
            return importlib.import_module(f"{package}.{file}")
        except ImportError as error:
            raise Unavailable(f"needs {error.name}: {error}") from error


@contextlib.contextmanager
def offline() -> Iterator[None]:
    """Replace what needs a network: pretrained weights, configurations, graphs and images."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.dict(os.environ, {"HF_HUB_OFFLINE": "1", "HUGGING_FACE_HUB_TOKEN": "none"}))
        stack.enter_context(mock.patch.object(timm, "create_model", _without_weights(timm.create_model)))
        for name in torchvision.models.list_models(module=torchvision.models):
            function = getattr(torchvision.models, name)
            stack.enter_context(mock.patch.object(torchvision.models, name, _without_weights(function)))
        stack.enter_context(mock.patch.object(transformers.AutoConfig, "from_pretrained", staticmethod(_configuration)))
        stack.enter_context(mock.patch.object(torch, "load", _load(torch.load)))
        stack.enter_context(_rewriter())
        yield


@contextlib.contextmanager
def _rewriter() -> Iterator[None]:
    """The module of torch_geometric that made layers fit for compilers, which later releases do not need or have."""
    name = "torch_geometric.compile"
    module: Any = types.ModuleType(name)
    module.to_jittable = lambda model: model
    sys.modules[name] = module
    try:
        yield
    finally:
        del sys.modules[name]


def _without_weights(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        kept = {k: v for k, v in kwargs.items() if k not in ("pretrained", "weights")}
        return function(*args, **kept)

    return call


def _configuration(name: str, *args: Any, **kwargs: Any) -> Any:
    if name not in CONFIGURATIONS:
        raise Unavailable(f"its configuration {name!r} would be downloaded")
    return CONFIGURATIONS[name]()


def _load(load: Callable[..., Any]) -> Callable[..., Any]:
    """`torch.load`, with a random graph in place of the one that the graph networks download."""

    def call(file: Any, *args: Any, **kwargs: Any) -> Any:
        return random_graph() if str(file).endswith("sub_reddit.pt") else load(file, *args, **kwargs)

    return call


def random_graph(nodes: int = 2000, edges: int = 20000, features: int = 602) -> Any:
    """A graph with the features and classes of Reddit's, fewer nodes, and random edges."""
    try:
        data = importlib.import_module("torch_geometric.data")
    except ImportError as error:
        raise Unavailable("needs torch_geometric") from error
    return data.Data(
        x=torch.randn(nodes, features), edge_index=torch.randint(0, nodes, (2, edges)), y=torch.randint(0, 41, (nodes,))
    )
