"""The page of the corpus: every kernel's time, its ratio to stock Inductor's, its bandwidth."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tabulate import tabulate

from bench_suites.timing import geometric_mean

WANTED_MEAN = 1.3
SLOW = 0.95
FULL = 0.8


@dataclass(frozen=True)
class Figure:
    """The fastest calls of one kernel in seconds, which others disturbed least; `moved` bytes, and the time that
    moving them takes at least and with plain stores. call: the function's time with tiny tensors, that is of the call
    and its guards. computing: of a streaming kernel, its time for as many bytes that lie in the L2 cache; None of
    others."""

    name: str
    icpu: float
    stock: float
    call: float
    moving: float
    plain: float
    computing: float | None
    moved: int

    @property
    def streaming(self) -> bool:
        """Whether the memory's bandwidth, or what the kernel computes, is the bound."""
        return self.computing is not None

    @property
    def ratio(self) -> float:
        """How many times faster than stock."""
        return self.stock / self.icpu

    @property
    def fraction(self) -> float:
        """Of the machine's bandwidth, by the kernel without its call."""
        return self.moving / (self.icpu - self.call)

    @property
    def plain_fraction(self) -> float:
        """Of the bandwidth that plain stores have, which leave results in the cache for their reader."""
        return self.plain / (self.icpu - self.call)

    @property
    def computes(self) -> float:
        """The share of the kernel's time that it would take with all data in the cache."""
        return (self.computing or 0.0) / (self.icpu - self.call)


def load(paths: Iterable[Path]) -> list[Figure]:
    """The figures in pytest-benchmark's files; a later file replaces what an earlier one says of a kernel."""
    found: dict[str, Figure] = {}
    for path in paths:
        for entry in json.loads(path.read_text())["benchmarks"]:
            extra = entry["extra_info"]
            found[extra["name"]] = Figure(icpu=entry["stats"]["min"], **extra)
    return list(found.values())


def page(figures: list[Figure]) -> str:
    """The table and what it comes to."""
    rows = [
        (
            f.name,
            f"{f.stock * 1e6:.0f}",
            f"{f.icpu * 1e6:.0f}",
            f"{f.ratio:.2f}",
            f"{f.call * 1e6:.0f}",
            f"{f.moved / (f.icpu - f.call) / 1e9:.1f}",
            f"{f.fraction:.0%}" + (" *" if f.streaming else ""),
            f"{f.plain_fraction:.0%}",
            f"{f.computes:.0%}" if f.streaming else "",
            ", ".join(_remarks(f)),
        )
        for f in figures
    ]
    headers = ("kernel", "stock us", "icpu us", "ratio", "call us", "GB/s", "of bandwidth", "of plain", "in cache", "")
    table = tabulate(rows, headers, tablefmt="github", disable_numparse=True, colalign=("left", *["right"] * 8, "left"))
    legend = "of plain: of the bandwidth of plain stores; in cache: the time for as many bytes in the L2 cache"
    return f"{table}\n\n(*: streaming; {legend})\n\n{summary(figures)}"


def summary(figures: list[Figure]) -> str:
    """A few lines: the geometric mean, what is slower than stock, what leaves bandwidth unused."""
    streaming = [f for f in figures if f.streaming]
    slow = sorted((f for f in figures if f.ratio < SLOW), key=lambda f: f.ratio)
    idle = sorted((f for f in streaming if f.fraction < FULL), key=lambda f: f.fraction)
    return "\n".join(
        [
            f"{len(figures)} kernels, geometric mean {geometric_mean(f.ratio for f in figures):.2f} times stock"
            f" (wanted: {WANTED_MEAN})",
            f"slower than {SLOW} of stock: " + (", ".join(f"{f.name} {f.ratio:.2f}" for f in slow) or "none"),
            f"streaming below {FULL:.0%} of bandwidth: {len(idle)} of {len(streaming)}"
            + "".join(
                f"\n  {f.name} {f.fraction:.0%}, of plain {f.plain_fraction:.0%}, in cache {f.computes:.0%}"
                for f in idle
            ),
            f"of these below {FULL:.0%} of plain stores' bandwidth and in cache, too: "
            + (", ".join(f.name for f in idle if max(f.plain_fraction, f.computes) < FULL) or "none"),
        ]
    )


def _remarks(figure: Figure) -> list[str]:
    remarks = ["slow"] if figure.ratio < SLOW else []
    if figure.streaming and figure.fraction < FULL:
        computes, cached = figure.computes >= FULL, figure.plain_fraction >= FULL
        remarks.append("computes" if computes else "stores to the cache" if cached else "idle")
    return remarks
