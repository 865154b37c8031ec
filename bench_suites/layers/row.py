"""What a row of the survey is: a module with inputs, named by its table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from bench_suites.suites.case import Call

Make = Callable[[], torch.Tensor]


@dataclass(frozen=True)
class Layer:
    """One module with inputs. `build` draws weights and inputs in float32 from torch's random stream.

    trained: the layer also runs with a gradient. low_precision: it also runs in bf16 and f16.
    random: it draws numbers, which are icpu's own, so that results are not compared.
    """

    name: str
    build: Callable[[], tuple[nn.Module, tuple[Any, ...]]]
    trained: bool = True
    low_precision: bool = True
    random: bool = False


def layer(
    name: str,
    make: Callable[[], nn.Module],
    *inputs: Sequence[int] | Make,
    trained: bool = True,
    low_precision: bool = True,
    random: bool = False,
) -> Layer:
    """A module; an input is drawn from a normal distribution where its shape is given, else made by the function."""

    def build() -> tuple[nn.Module, tuple[Any, ...]]:
        return make(), tuple(i() if callable(i) else torch.randn(*i) for i in inputs)

    return Layer(name, build, trained, low_precision, random)


def function(
    name: str,
    call: Callable[..., Any],
    *inputs: Sequence[int] | Make,
    trained: bool = True,
    low_precision: bool = True,
    random: bool = False,
) -> Layer:
    """A function of tensors."""
    return layer(name, lambda: Call(call), *inputs, trained=trained, low_precision=low_precision, random=random)


def integers(high: int, *shape: int) -> Make:
    """Numbers from 0 to below `high`."""
    return lambda: torch.randint(high, shape)


def positive(*shape: int) -> Make:
    """Numbers from 0.01 to 1."""
    return lambda: torch.rand(shape) * 0.99 + 0.01


def flags(*shape: int) -> Make:
    """Booleans, half of them true."""
    return lambda: torch.rand(shape) > 0.5


def channels_last(*shape: int) -> Make:
    """Images whose channels lie side by side."""
    return lambda: torch.randn(shape).to(memory_format=torch.channels_last)
