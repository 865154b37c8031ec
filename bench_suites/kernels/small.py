"""The corpus with inputs that stay in the second-level cache, as most tensors of a model with batch 1 do: icpu's and
stock Inductor's kernels in turns. Large inputs hide what a kernel computes behind what memory takes, and ends of rows
behind their middles."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from tabulate import tabulate

from bench_suites.backends import compiler
from bench_suites.kernels.bandwidth import seconds
from bench_suites.kernels.report import SLOW
from bench_suites.kernels.row import Size
from bench_suites.kernels.table import FAMILIES, Variant, variants

BACKENDS = ("icpu", "inductor")
ROUNDS, CALLS = 12, 8


@dataclass(frozen=True)
class Small:
    """One kernel: the seconds of the fastest whole calls."""

    name: str
    icpu: float
    stock: float

    @property
    def ratio(self) -> float:
        """How many times as fast as stock."""
        return self.stock / self.icpu


def measure(names: Sequence[str]) -> list[Small]:
    """The kernels of these names, with one thread, after two calls of each."""
    torch.set_num_threads(1)
    by_name = {variant.name: variant for family in FAMILIES for variant in variants(family)}
    with torch.no_grad():
        return [_measure(by_name[name]) for name in names]


def _measure(variant: Variant) -> Small:
    torch._dynamo.reset()
    inputs = variant.row.build(variant.dtype, Size.CACHED)
    calls = {name: _call(name, variant.row.function, inputs) for name in BACKENDS}
    times: dict[str, list[float]] = {name: [] for name in BACKENDS}
    for _ in range(ROUNDS):
        for name, call in calls.items():
            times[name] += [seconds(call) for _ in range(CALLS)]
    return Small(variant.name, *(min(times[name]) for name in BACKENDS))


def _call(backend: str, function: Callable[..., Any], inputs: Sequence[torch.Tensor]) -> Callable[[], object]:
    compiled = compiler(backend, lambda report: None, dynamic=False, eager_random=False)(function)

    def call() -> object:
        return compiled(*inputs)

    for _ in range(2):
        call()
    return call


def page(found: Sequence[Small]) -> str:
    """The table, slowest first, and what is slower than stock."""
    ordered = sorted(found, key=lambda kernel: kernel.ratio)
    rows = [(k.name, f"{k.stock * 1e6:.1f}", f"{k.icpu * 1e6:.1f}", f"{k.ratio:.2f}") for k in ordered]
    table = tabulate(rows, ("kernel", "stock us", "icpu us", "ratio"), tablefmt="github", disable_numparse=True)
    slow = [f"{k.name} {k.ratio:.2f}" for k in ordered if k.ratio < SLOW]
    return f"{table}\n\n{len(found)} kernels; slower than {SLOW} of stock: {', '.join(slow) or 'none'}"
