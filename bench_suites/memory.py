"""Peak memory of a call, from the kernel's own high-water mark."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import psutil

_T = TypeVar("_T")


def settle() -> int:
    """Give back what can be given back, and tell the resident bytes of this process."""
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
    return int(psutil.Process().memory_info().rss)


def peak_of(function: Callable[[], _T]) -> tuple[_T, int | None]:
    """What a call gives, and the largest number of resident bytes during it; None where the system keeps no such
    mark."""
    clear, status = Path("/proc/self/clear_refs"), Path("/proc/self/status")
    try:
        clear.write_text("5")
    except OSError:
        return function(), None
    result = function()
    lines = [line for line in status.read_text().splitlines() if line.startswith("VmHWM")]
    return result, int(lines[0].split()[1]) * 1024 if lines else None
