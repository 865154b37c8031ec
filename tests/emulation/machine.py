"""A CPU with AVX-512 and AMX on one that lacks them: C++ functions in place of the instructions."""

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

#: What `tiles.h` stands for, what `avx512.h` does, and the one function for AVX2.
_TILES = frozenset({"amx_tile", "amx_int8", "amx_bf16", "avx512_bf16"})
_VECTORS = _AVX512.needs | {"avx512_vnni"}
_DOTS = frozenset({"avx_vnni"})


def emulated(machine: Target) -> Target | None:
    """`machine` with AVX-512, its bf16 instructions and AMX, as an Intel CPU; None if it has no AVX2.

    AVX-512 and its dot products of integers stay instructions where the CPU has them."""
    if not machine.features >= _AVX2.needs:
        return None
    has_vectors = machine.features >= _AVX512.needs
    features = machine.features | _TILES | _DOTS | (frozenset() if has_vectors else _VECTORS)
    isa = replace(_AVX512, flags=_flags(_AVX512 if has_vectors else _AVX2), optional=_real_extras(machine))
    return replace(machine, isa=isa, features=features, cpu_name="Intel(R) Xeon(R), emulated", zen=0)


def emulated_avx2(machine: Target) -> Target | None:
    """`machine` with vectors of AVX2 and the dot products that came after it; None if it has no AVX2."""
    if not machine.features >= _AVX2.needs:
        return None
    isa = replace(_AVX2, flags=_flags(_AVX2), optional=())
    return replace(machine, isa=isa, features=machine.features | _DOTS)


def is_emulated(machine: Target) -> bool:
    """Whether functions stand for some of its instructions."""
    return str(INCLUDE) in machine.isa.flags


def _flags(real: Isa) -> tuple[str, ...]:
    """Of what the CPU really has. The headers are part of every cache key by a definition."""
    version = hashlib.sha256(b"".join(path.read_bytes() for path in sorted(INCLUDE.iterdir()))).hexdigest()
    return (*real.flags, "-I", str(INCLUDE), f"-DEMULATION_{version}")


def _real_extras(machine: Target) -> tuple[tuple[str, str], ...]:
    """Features of AVX-512 that stay instructions where the CPU has them."""
    return tuple(pair for pair in _AVX512.optional if pair[0] == "avx512_vnni" and pair[0] in machine.features)


def take_for_emulated() -> None:
    """Make this process take its CPU for an emulated one, for good. Raises RuntimeError if it has no AVX2."""
    machine, avx2 = emulated(cpu.detect()), emulated_avx2(cpu.detect())
    if machine is None or avx2 is None:
        raise RuntimeError("AVX-512 is emulated with AVX2, which this CPU lacks")
    rows = {"avx512": machine.isa, "avx2": avx2.isa}
    cpu.ISAS = tuple(rows.get(isa.name, isa) for isa in cpu.ISAS)
    cpu.detect = lambda: machine  # type: ignore[assignment]
    torch.cpu._init_amx = lambda: True
