"""What a suite is made of: rows that build cases, and the tolerances of a suite.

A row is one line of a table: a name and how to build it. A case is a built model with one set of inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import nn

Mode = Literal["inference", "training"]
Compile = Callable[[Callable[..., Any]], Callable[..., Any]]


class Unavailable(Exception):
    """A model that cannot be built here (a missing package, checkout or file); the message says why."""


@dataclass(frozen=True)
class Request:
    """How a model is wanted. `batch` None: the row's own; `tiny`: the same architecture with few narrow layers."""

    mode: Mode = "inference"
    batch: int | None = None
    tiny: bool = False
    torchbench_dir: str | None = None

    @property
    def training(self) -> bool:
        """Whether the model is built for a training step."""
        return self.mode == "training"


class Call(nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: Any) -> Any:
        """The function of the inputs."""
        return self.function(*inputs)


def weighted_mean(output: Any) -> torch.Tensor:
    """A scalar loss of any output: the mean of each floating tensor times fixed weights, added up.

    Weights, because a plain mean of a normalized output has no gradient to check.
    """
    parts = [t for t in tensors(output) if t.is_floating_point() and t.requires_grad]
    total = torch.zeros(())
    for part in parts:
        weights = torch.cos(torch.arange(part.numel(), dtype=torch.float32)).reshape(part.shape).to(part.dtype)
        total = total + (part * weights).mean()
    return total


def own_loss(output: Any) -> torch.Tensor:
    """The loss that the model computed from its labels."""
    loss: torch.Tensor = output["loss"] if isinstance(output, Mapping) else output.loss
    return loss


def compile_module(module: nn.Module, compiler: Compile) -> Callable[..., Any]:
    """The whole model as one compiled callable."""
    return compiler(module)


@dataclass(frozen=True)
class Case:
    """A model with inputs: `function(*args, **kwargs)`, where `function` is `module` or what `compile` makes of it.

    `compile(module, compiler)` may compile a part only (the step of a generation loop). `loss(output)` is the scalar of
    a training step. `note` tells what differs from the published model.
    """

    module: nn.Module
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    loss: Callable[[Any], torch.Tensor] = weighted_mean
    compile: Callable[[nn.Module, Compile], Callable[..., Any]] = compile_module
    note: str = ""


@dataclass(frozen=True)
class Row:
    """One model of a suite. `batch` is the default batch size, `quick` puts it into the ten-minute selection."""

    name: str
    build: Callable[[Request], Case]
    batch: int = 1
    quick: bool = False
    modes: tuple[Mode, ...] = ("inference", "training")


@dataclass(frozen=True)
class Suite:
    """Rows with the tolerances of `torch._dynamo.utils.same` for them; `low_precision` is for bf16, fp16 and AMP."""

    name: str
    rows: tuple[Row, ...]
    inference: float
    training: float
    low_precision: float

    def tolerance(self, mode: Mode, dtype: str) -> float:
        """The tolerance of a run."""
        base = self.training if mode == "training" else self.inference
        return base if dtype == "float32" else max(base, self.low_precision)


def tensors(output: Any) -> list[torch.Tensor]:
    """The tensors in a model's output, in order; a class that is no container gives its attributes."""
    if isinstance(output, torch.Tensor):
        return [output]
    if isinstance(output, Mapping):
        return [t for item in output.values() for t in tensors(item)]
    if isinstance(output, list | tuple):
        return [t for item in output for t in tensors(item)]
    if hasattr(output, "__dict__") and not isinstance(output, nn.Module | type):
        return [t for item in vars(output).values() for t in tensors(item) if t is not output]
    return []
