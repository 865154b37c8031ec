"""The peaks of this machine, measured by `probes.cpp` in the same process as everything else."""

from __future__ import annotations

import ctypes
import subprocess
import tempfile
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

import torch

from inductor_cpu.runtime.toolchain import find_toolchain
from inductor_cpu.targets.cpu import target_for

#: What multiplies each kind of operands, fastest first: the first that a CPU has sets its peak.
UNITS: Mapping[str, tuple[str, ...]] = {
    "bf16": ("amx_bf16", "dot_bf16", "fma_f32"),
    "int8": ("amx_int8", "vnni_int8", "madd_int8"),
    "fp32": ("fma_f32",),
}

#: Rounds that take a few milliseconds.
_ROUNDS = {
    "amx_bf16": 100_000,
    "amx_int8": 100_000,
    "dot_bf16": 500_000,
    "vnni_int8": 1_000_000,
    "madd_int8": 500_000,
    "fma_f32": 1_000_000,
}

#: Enough for the system to give each thread a core.
_REPEATS = 40


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
def peak(kind: str, threads: int) -> float:
    """Operations a second on "bf16", "int8" or "fp32", of the fastest instructions that this CPU has for them: the best
    of short tries. 0: it has none."""
    return next((found for unit in UNITS[kind] if (found := _measured(unit, threads)) > 0), 0.0)


def _measured(unit: str, threads: int) -> float:
    probe = getattr(_probes(), unit)
    return max(probe(threads, ctypes.c_int64(_ROUNDS[unit])) for _ in range(_REPEATS))


def read(threads: int, tensors: list[torch.Tensor]) -> None:
    """Read the memory of contiguous tensors once."""
    for tensor in tensors:
        _probes().read_all(threads, ctypes.c_void_p(tensor.data_ptr()), ctypes.c_int64(tensor.nbytes))
