"""The time that moving a kernel's bytes takes at least: a loop that only reads and writes as many."""

from __future__ import annotations

import ctypes
import subprocess
import tempfile
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path

import torch

from inductor_cpu.runtime.toolchain import find_toolchain

Probe = Callable[[], None]


@cache
def _library() -> ctypes.CDLL:
    """The compiled loop; it stays loaded after its file is gone."""
    source = Path(__file__).with_name("bandwidth.cpp")
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "bandwidth.so"
        flags = ["-std=c++20", "-O3", "-march=native", "-shared", "-fPIC"]
        subprocess.run([*find_toolchain().command, *flags, str(source), "-o", str(library)], check=True)
        loaded = ctypes.CDLL(str(library))
    loaded.move_bytes.argtypes = [ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int]
    loaded.move_bytes.restype = ctypes.c_float
    return loaded


def _buffer(size: int) -> tuple[torch.Tensor, int]:
    """Memory that has been touched, and a multiple of 64 in it with `size` bytes behind."""
    memory = torch.zeros(size + 64, dtype=torch.uint8)
    return memory, (memory.data_ptr() + 63) // 64 * 64


def seconds(function: Callable[[], object]) -> float:
    """Of one call."""
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def probe(read: int, written: int) -> Probe:
    """A function that reads and writes so many bytes, with the kind of stores that is the faster one here."""
    library = _library()
    source, from_address = _buffer(read)
    target, to_address = _buffer(written)

    def of(around_cache: bool) -> Probe:
        def move() -> None:
            library.move_bytes(from_address, read, to_address, written, around_cache)

        move.memory = (source, target)  # type: ignore[attr-defined]  # keeps it alive
        return move

    kinds = [of(False), of(True)]
    return min(kinds, key=lambda kind: min(seconds(kind) for _ in range(4)))
