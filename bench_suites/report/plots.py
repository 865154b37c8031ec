"""Plots as SVG text that takes its text colour from the page, so that they are readable in light and in dark."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib

matplotlib.use("svg")

from matplotlib import pyplot

from bench_suites.report.figures import Group, memory_ratios, speedups, values

TEXT = "#0a0b0c"
"""Stands for the page's text colour: replaced in the SVG."""

COLOURS = ("#3b82c4", "#d9822b", "#4fa35a", "#b05fc0", "#c04848", "#8a8a3a")
WIDTH = 7.2
ROW = 0.17
LINEAR_RANGE = 50.0
"""From the least value to the largest: beyond, the scale is logarithmic, or the small ones could not be read (the
memory of a model of a few kilobytes is hundreds of times eager's)."""

PLOT_STYLE: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "bench_suites",
    "font.size": 8,
    "text.color": TEXT,
    "axes.labelcolor": TEXT,
    "axes.edgecolor": TEXT,
    "xtick.color": TEXT,
    "ytick.color": TEXT,
    "axes.spines.top": False,
    "axes.spines.right": False,
}

Series = Mapping[str, Mapping[str, tuple[float, float, float]]]
"""By backend, by model: a value and the ends of its interval."""


def speedup_plot(group: Group) -> str | None:
    """Bars of the ratios over eager with their intervals, sorted by the last backend's; None without figures."""
    series = {
        backend: {s.model: (s.ratio, s.low, s.high) for s in speedups(group, backend)}
        for backend in group.backends
        if backend != "eager"
    }
    return _bars(series, "times as fast as eager", line=1.0)


def compile_plot(group: Group) -> str | None:
    """Bars of the seconds of the first call."""
    series = {b: _plain(values(group, b, "first_call_s")) for b in group.backends if b != "eager"}
    return _bars(series, "seconds of the first call")


def memory_plot(group: Group) -> str | None:
    """Bars of the peak memory of a call over eager's."""
    series = {b: _plain(memory_ratios(group, b)) for b in group.backends if b != "eager"}
    return _bars(series, "peak memory of a call, eager = 1", line=1.0)


def _plain(found: Mapping[str, float]) -> dict[str, tuple[float, float, float]]:
    return {model: (value, value, value) for model, value in found.items()}


def _bars(series: Series, label: str, line: float | None = None) -> str | None:
    series = {backend: found for backend, found in series.items() if found}
    if not series:
        return None
    leader = list(series.values())[-1]
    models = list(
        dict.fromkeys([*sorted(leader, key=lambda m: leader[m][0]), *(m for s in series.values() for m in s)])
    )
    step = ROW * len(series)
    with matplotlib.rc_context(PLOT_STYLE):
        figure, axes = pyplot.subplots(figsize=(WIDTH, 0.8 + (step + 0.06) * len(models)), layout="constrained")
        thickness = 0.8 / len(series)
        for number, (backend, found) in enumerate(series.items()):
            _one_backend(axes, models, found, backend, number, thickness, len(series))
        axes.set_yticks(range(len(models)), models)
        axes.set_ylim(-0.6, len(models) - 0.4)
        axes.set_xlabel(label)
        if _range(series) > LINEAR_RANGE:
            axes.set_xscale("log")
            axes.xaxis.set_major_formatter("{x:g}")
            axes.xaxis.set_minor_formatter("")
        axes.margins(x=0.02)
        if line is not None:
            axes.axvline(line, color=TEXT, linewidth=0.8)
        axes.grid(axis="x", color=TEXT, alpha=0.15)
        # On the left: a narrow screen shows that part of the plot first.
        figure.legend(loc="outside upper left", ncols=len(series), frameon=False)
        text = io.StringIO()
        figure.savefig(text, format="svg", transparent=True, metadata={"Date": None})
        pyplot.close(figure)
    return _inline(text.getvalue())


def _range(series: Series) -> float:
    found = [value for of_backend in series.values() for value, _, _ in of_backend.values()]
    return max(found) / min(found) if min(found) > 0 else 1.0


def _one_backend(
    axes: Any,
    models: Sequence[str],
    found: Mapping[str, tuple[float, float, float]],
    backend: str,
    number: int,
    thickness: float,
    count: int,
) -> None:
    places = [models.index(m) + (number - (count - 1) / 2) * thickness for m in found]
    heights = [v[0] for v in found.values()]
    whiskers = [[v[0] - v[1] for v in found.values()], [v[2] - v[0] for v in found.values()]]
    clipped = [[max(0.0, w) for w in side] for side in whiskers]
    axes.barh(
        places,
        heights,
        height=thickness,
        label=backend,
        color=COLOURS[number % len(COLOURS)],
        xerr=clipped if any(w for side in clipped for w in side) else None,
        error_kw={"elinewidth": 0.7, "ecolor": TEXT, "capsize": 0},
    )


def _inline(svg: str) -> str:
    """The SVG as a part of a page: without its XML head, and with the page's text colour."""
    return re.sub(re.escape(TEXT), "currentColor", svg[svg.index("<svg") :], flags=re.IGNORECASE)
