"""Artificial models that crash, hang, exhaust memory, fail or give a wrong number: for the tests of the runner."""

from __future__ import annotations

import functools
import os
import signal
import time

import torch
from torch import nn

from bench_suites.suites.case import Case, Request, Row, Suite


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


class Raises(nn.Module):
    """Fails when Dynamo traces it, and only then."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """A pointwise function."""
        if torch.compiler.is_compiling():
            raise RuntimeError("this model cannot be compiled")
        return x + 1


class Differs(nn.Module):
    """Gives another number when it is compiled."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """A pointwise function."""
        return x + 2 if torch.compiler.is_compiling() else x + 1


def _build(kind: type[nn.Module], request: Request) -> Case:
    return Case(kind(), (torch.randn(4, 8),))


KINDS: dict[str, type[nn.Module]] = {
    "works": Works,
    "crashes": Crashes,
    "hangs": Hangs,
    "grows": Grows,
    "raises": Raises,
    "differs": Differs,
    "works_too": Works,
}

ODD = Suite(
    "odd",
    tuple(Row(name, functools.partial(_build, kind), modes=("inference",)) for name, kind in KINDS.items()),
    inference=1e-4,
    training=1e-4,
    low_precision=1e-3,
)
