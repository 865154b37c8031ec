"""Turns, medians, spreads, and confidence intervals of ratios."""

from __future__ import annotations

import math
import random
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from inductor_cpu.runtime.background import wait_for_background_builds

RESAMPLES = 1000
CONFIDENCE = 0.95


def take_turns(functions: Mapping[str, Callable[[], Any]], rounds: int) -> dict[str, list[float]]:
    """Milliseconds of every call: `rounds` rounds in which each function runs once (A B C A B C), so that noise meets
    all of them alike. Each function has to be warm. What icpu builds beside the program is waited for: it takes the
    cores, and calls are faster with it."""
    wait_for_background_builds()
    times: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(rounds):
        for name, function in functions.items():
            start = time.perf_counter()
            function()
            times[name].append((time.perf_counter() - start) * 1e3)
    return times


def spread(times: Sequence[float]) -> tuple[float, float]:
    """The quartiles of `times`; of a single one, itself twice."""
    if len(times) < 2:
        return times[0], times[0]
    low, _, high = statistics.quantiles(times, n=4, method="inclusive")
    return low, high


def speedup(base: Sequence[float], other: Sequence[float]) -> tuple[float, float, float]:
    """How many times faster `other` is than `base` (ratio of medians), with its 95 % bootstrap interval.

    Rounds are resampled in pairs: both sides of a pair met the same load of the machine.
    """
    ratio = statistics.median(base) / statistics.median(other)
    source = random.Random(0)  # a fixed seed: a report repeats
    pairs = list(zip(base, other, strict=True))
    ratios = []
    for _ in range(RESAMPLES if len(pairs) > 1 else 0):
        sample = source.choices(pairs, k=len(pairs))
        ratios.append(statistics.median(b for b, _ in sample) / statistics.median(o for _, o in sample))
    if not ratios:
        return ratio, ratio, ratio
    ratios.sort()
    tail = (1 - CONFIDENCE) / 2
    return ratio, ratios[int(tail * len(ratios))], ratios[min(len(ratios) - 1, int((1 - tail) * len(ratios)))]


def geometric_mean(values: Iterable[float]) -> float:
    """Geometric mean of positive numbers; nan of none."""
    logs = [math.log(v) for v in values]
    return math.exp(statistics.fmean(logs)) if logs else math.nan
