"""The peaks of this machine, measured by `probes.cpp` in the same process as everything else."""

from __future__ import annotations

import ctypes
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from pathlib import Path

import pytest
import torch

from inductor_cpu.runtime.toolchain import find_toolchain
from inductor_cpu.targets.cpu import target_for

#: What multiplies each kind of operands, fastest first: the first that a CPU has sets its peak.
UNITS: Mapping[str, tuple[str, ...]] = {
    "bf16": ("amx_bf16", "dot_bf16", "fma_f32"),
    "int8": ("amx_int8", "vnni_int8", "madd_int8"),
    "fp32": ("fma_f32",),
}

#: Rounds of a try that take about a millisecond.
_ROUNDS = {
    "amx_bf16": 25_000,
    "amx_int8": 25_000,
    "dot_bf16": 125_000,
    "vnni_int8": 250_000,
    "madd_int8": 125_000,
    "fma_f32": 250_000,
}

#: Tries before the first that counts: enough for the system to give each thread a core.
_WARM_UP = 100


@lru_cache(maxsize=1)
def _probes() -> ctypes.CDLL:
    tools, source = find_toolchain(), Path(__file__).with_name("probes.cpp")
    torch.cpu._init_amx()
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "probes.so"
        command = [*tools.command, *tools.kernel_flags(target_for()), "-shared", str(source), "-o", str(library)]
        subprocess.run([*command, *tools.link_flags()], check=True)
        loaded = ctypes.CDLL(str(library))
    for name in (*_ROUNDS, "read_all"):
        getattr(loaded, name).restype = ctypes.c_double
    return loaded


@lru_cache(maxsize=16)
def _unit(kind: str, threads: int) -> str | None:
    """The fastest instructions that this CPU has for a kind of operands."""
    return next((u for u in UNITS[kind] if max(_measured(u, threads) for _ in range(_WARM_UP)) > 0), None)


def peak(kind: str, threads: int) -> float:
    """Operations a second on "bf16", "int8" or "fp32" in one short try now, of the fastest instructions that this CPU
    has for them. 0: it has none."""
    unit = _unit(kind, threads)
    return 0.0 if unit is None else _measured(unit, threads)


def its_peak(kind: str, threads: int) -> Callable[[], float]:
    """`peak` as a limit that takes turns with what it limits; the test is skipped where the CPU has none."""
    if _unit(kind, threads) is None:
        pytest.skip("no probe of this CPU's peak: it has neither AVX-512 nor AVX2")
    return partial(peak, kind, threads)


def _measured(unit: str, threads: int) -> float:
    return float(getattr(_probes(), unit)(threads, ctypes.c_int64(_ROUNDS[unit])))


def read(threads: int, tensors: list[torch.Tensor]) -> None:
    """Read the memory of contiguous tensors once."""
    for tensor in tensors:
        _probes().read_all(threads, ctypes.c_void_p(tensor.data_ptr()), ctypes.c_int64(tensor.nbytes))
