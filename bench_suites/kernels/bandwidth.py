"""The time that moving a kernel's bytes takes at least: a loop that only reads, updates and writes as many.

It reads and updates the tensors that the kernel does, so that both meet the same pages and caches, and writes memory of
its own, once with plain stores (which read a line before they write it) and once around the cache: the faster counts.
"""

from __future__ import annotations

import ctypes
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch

from bench_suites.kernels.row import Inputs, size_of
from inductor_cpu.runtime.toolchain import find_toolchain

LINE = 64
READ, UPDATE, WRITE = range(3)


@dataclass(frozen=True)
class Traffic:
    """What a kernel must move at least.

    read, updated: tensors that are read, or read and written in place, once from end to end; gathered: bytes that are
    read of a part of some tensor; written: bytes of results, and of parts of tensors."""

    read: Inputs
    updated: Inputs
    gathered: int
    written: int

    @property
    def bytes(self) -> int:
        """Bytes read and bytes written."""
        return size_of(self.read) + 2 * size_of(self.updated) + self.gathered + self.written


class _Stream(ctypes.Structure):
    _fields_ = (("first", ctypes.c_void_p), ("lines", ctypes.c_int64), ("kind", ctypes.c_int64))


@cache
def _library() -> ctypes.CDLL:
    """The compiled loop; it stays loaded after its file is gone."""
    source = Path(__file__).with_name("bandwidth.cpp")
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "bandwidth.so"
        flags = ["-std=c++20", "-O3", "-march=native", "-fopenmp", "-shared", "-fPIC"]
        subprocess.run([*find_toolchain().command, *flags, str(source), "-o", str(library)], check=True)
        loaded = ctypes.CDLL(str(library))
    loaded.move_bytes.argtypes = [ctypes.c_void_p, ctypes.c_int64, ctypes.c_int, ctypes.c_int]
    loaded.move_bytes.restype = ctypes.c_int64
    return loaded


def _stream(tensor: torch.Tensor, size: int, kind: int) -> _Stream:
    """The whole lines in the first `size` bytes of a tensor that has no gaps."""
    first = (tensor.data_ptr() + LINE - 1) // LINE * LINE
    return _Stream(first, max(size - (first - tensor.data_ptr()), 0) // LINE, kind)


def seconds(function: Callable[[], object]) -> float:
    """Of one call."""
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


@dataclass(frozen=True)
class Probe:
    """Functions that move so much: with the kind of stores that is the faster one here, and with plain stores."""

    fastest: Callable[[], None]
    plain: Callable[[], None]


def probe(traffic: Traffic) -> Probe:
    """How this traffic is moved with nothing to compute, by as many threads as torch has at this time."""
    library, threads = _library(), torch.get_num_threads()
    own = [torch.zeros(size + LINE, dtype=torch.uint8) for size in (traffic.gathered, traffic.written)]
    streams = [
        *(_stream(t, size_of((t,)), READ) for t in traffic.read),
        *(_stream(t, size_of((t,)), UPDATE) for t in traffic.updated),
        *(_stream(t, t.numel(), kind) for t, kind in zip(own, (READ, WRITE), strict=True) if t.numel() > LINE),
    ]
    table = (_Stream * len(streams))(*streams)

    def of(around_cache: bool) -> Callable[[], None]:
        def move() -> None:
            library.move_bytes(ctypes.addressof(table), len(streams), threads, around_cache)

        move.memory = (table, own, traffic)  # type: ignore[attr-defined]  # keeps it alive
        return move

    plain, around_cache = of(False), of(True)
    return Probe(min(plain, around_cache, key=lambda kind: min(seconds(kind) for _ in range(6))), plain)
