"""Times of alternative implementations, measured once per machine and remembered in the cache folder."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Mapping

import torch
from torch.utils._python_dispatch import _disable_current_modes

from inductor_cpu.errors import UserError
from inductor_cpu.runtime.cache import KernelCache, content_key

log = logging.getLogger("inductor_cpu.runtime")

_ROUNDS = 5
_ROUND_SECONDS = 2e-3


class Measurements:
    """Measured seconds by question, for one machine: a file `measured-<machine>.json` that all processes share."""

    def __init__(self, cache: KernelCache, cpu_name: str) -> None:
        self._cache = cache
        machine = content_key(cpu_name, str(torch.get_num_threads()), torch.__version__)
        self._path = cache.root / f"measured-{machine}.json"

    def seconds(
        self, question: str, candidates: Callable[[], Mapping[str, Callable[[], object]]]
    ) -> Mapping[str, float]:
        """Seconds of one call of each candidate; `candidates` is called only if the answer is not known."""
        known = self._read().get(question)
        if known is not None:
            return known
        with _disable_current_modes(), torch.no_grad():
            answer = _measure(candidates())
        try:
            with self._cache.lock(self._path.name), self._cache.scratch() as scratch:
                made = scratch / self._path.name
                self._cache.write_text(made, json.dumps({**self._read(), question: answer}, indent=1))
                self._cache.store(made, self._path)
        except UserError as error:
            log.warning("measurements are not kept: %s", error)
        return answer

    def _read(self) -> dict[str, dict[str, float]]:
        """What is known; nothing if the file is not as it was stored."""
        if not self._cache.is_sound(self._path):
            return {}
        try:
            content: dict[str, dict[str, float]] = json.loads(self._path.read_text())
        except (OSError, ValueError) as error:
            log.warning("the measurements in %s cannot be read and are made again: %s", self._path, error)
            return {}
        return content


def _measure(candidates: Mapping[str, Callable[[], object]]) -> dict[str, float]:
    """The best of several rounds, in which the candidates take turns."""
    best: dict[str, float] = {}
    for _ in range(_ROUNDS):
        for name, call in candidates.items():
            start, calls = time.perf_counter(), 0
            while time.perf_counter() - start < _ROUND_SECONDS or calls < 2:
                call()
                calls += 1
            best[name] = min(best.get(name, float("inf")), (time.perf_counter() - start) / calls)
    return best
