"""Artificial models that crash, hang, exhaust memory, fail or give a wrong number: for the tests of the runner."""

from __future__ import annotations

import functools
import os
import signal
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from bench_suites.suites.case import Case, Compile, Request, Row, Suite, compile_module


class Works(nn.Module):
    """A model that does nothing special."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """A pointwise function of f32[4, 8]."""
        return torch.sin(x) + 1


class Crashes(nn.Module):
    """Ends the process as a bad pointer would."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Does not return."""
        os.kill(os.getpid(), signal.SIGSEGV)
        return x


class Hangs(nn.Module):
    """Never answers."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Sleeps for an hour."""
        time.sleep(3600)
        return x


class Grows(nn.Module):
    """Takes memory until somebody stops it."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Keeps 64 MB more at every turn, up to 64 GB."""
        kept = []
        for _ in range(1000):
            kept.append(torch.ones(16 << 20))
            time.sleep(0.02)
        return x


class Stale(Works):
    """Works in eager mode; its compiled form is wrong from the second call on."""


class Raises(Works):
    """Works in eager mode; its compiled form fails when it is called."""


def compile_to_failure(module: nn.Module, compiler: Compile) -> Callable[..., Any]:
    """The module itself where nothing is compiled, else a function that raises."""

    def fail(x: torch.Tensor) -> torch.Tensor:
        raise RuntimeError("this model cannot be compiled")

    return module if compiler(module) is module else fail


def compile_to_one_right_call(module: nn.Module, compiler: Compile) -> Callable[..., Any]:
    """The module itself where nothing is compiled, else a function that is right at its first call only."""
    calls: list[int] = []

    def stale(x: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        return torch.sin(x) + len(calls)

    return module if compiler(module) is module else stale


class Differs(nn.Module):
    """Gives another number when it is compiled."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """A pointwise function."""
        return x + 2 if torch.compiler.is_compiling() else x + 1


class Fills(nn.Module):
    """Makes a tensor of the default dtype from the least number of its input's."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """A pointwise function."""
        return torch.maximum(torch.sin(x), torch.full((), torch.finfo(x.dtype).min))


class Counts(nn.Module):
    """Adds the mean of its inputs to a buffer, as a batch norm does in training."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(8))
        self.calls = nn.Buffer(torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """A pointwise function."""
        self.calls.add_(x.mean())
        return x * self.weight


class Remembers(nn.Module):
    """Makes a table for the rows of its first input, in place of a buffer of another shape."""

    table: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(8))
        self.register_buffer("table", torch.zeros(1, 1), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """A pointwise function."""
        if self.table.shape[0] != x.shape[0]:
            self.table = torch.arange(1, x.shape[0] + 1).to(x.dtype)[:, None]
        return x * self.weight * self.table


def _build(kind: type[nn.Module], request: Request) -> Case:
    special: dict[type[nn.Module], Callable[..., Any]] = {Raises: compile_to_failure, Stale: compile_to_one_right_call}
    compile_it = special.get(kind, compile_module)
    return Case(kind(), (torch.randn(4, 8),), compile=compile_it)


KINDS: dict[str, type[nn.Module]] = {
    "works": Works,
    "crashes": Crashes,
    "hangs": Hangs,
    "grows": Grows,
    "raises": Raises,
    "differs": Differs,
    "stale": Stale,
    "counts": Counts,
    "remembers": Remembers,
    "fills": Fills,
    "works_too": Works,
}

ODD = Suite(
    "odd",
    tuple(Row(name, functools.partial(_build, kind), modes=("inference", "training")) for name, kind in KINDS.items()),
    inference=1e-4,
    training=1e-4,
    low_precision=1e-3,
)
