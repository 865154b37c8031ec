"""A CPU with AVX-512 and AMX on one that lacks them: functions of C++ in place of the instructions."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import torch

from inductor_cpu.targets import cpu
from inductor_cpu.targets.cpu import Isa, Target

INCLUDE = Path(__file__).with_name("include")

VARIABLE = "TESTS_EMULATE"
"""Environment variable: where it is set, tests take this machine for an emulated one (`python -m tests.emulation`)."""

_AVX512 = next(isa for isa in cpu.ISAS if isa.name == "avx512")
_AVX2 = next(isa for isa in cpu.ISAS if isa.name == "avx2")

#: What `tiles.h` stands for, and what `avx512.h` does.
_TILES = frozenset({"amx_tile", "amx_int8", "amx_bf16", "avx512_bf16"})
_VECTORS = _AVX512.needs | {"avx512_vnni"}


def emulated(machine: Target) -> Target | None:
    """`machine` with what it lacks of AVX-512 and AMX, as an Intel CPU; None if it has no AVX2 either.

    What the CPU has stays instructions."""
    if not machine.features >= _AVX2.needs:
        return None
    has_vectors = machine.features >= _AVX512.needs
    features = machine.features | _TILES | (frozenset() if has_vectors else _VECTORS)
    isa = _emulated_isa(_AVX512 if has_vectors else _AVX2)
    return replace(machine, isa=isa, features=features, cpu_name="Intel(R) Xeon(R), emulated")


def is_emulated(machine: Target) -> bool:
    """Whether functions stand for some of its instructions."""
    return any(flag == str(INCLUDE) for flag in machine.isa.flags)


def _emulated_isa(real: Isa) -> Isa:
    """AVX-512 with the flags of what the CPU really has. The headers are part of every cache key by a definition."""
    version = hashlib.sha256(b"".join(path.read_bytes() for path in sorted(INCLUDE.iterdir()))).hexdigest()
    own = ("-I", str(INCLUDE), f"-DEMULATION_{version}")
    vnni = tuple(pair for pair in real.optional if pair[0] == "avx512_vnni")
    return replace(_AVX512, flags=(*real.flags, *own), optional=vnni)


def take_for_emulated() -> None:
    """Make this process take its CPU for an emulated one, for good. Raises RuntimeError if it has no AVX2."""
    machine = emulated(cpu.detect())
    if machine is None:
        raise RuntimeError("AVX-512 is emulated with AVX2, which this CPU lacks")
    cpu.ISAS = tuple(machine.isa if isa.name == "avx512" else isa for isa in cpu.ISAS)
    cpu.detect = lambda: machine  # type: ignore[assignment]
    torch.cpu._init_amx = lambda: True
