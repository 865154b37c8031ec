"""The CPU as a value: instruction sets, compiler flags that go with them, cores and cache sizes."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import torch

from inductor_cpu.errors import UserError

_AVX512 = frozenset({"avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512cd"})
_AVX2 = frozenset({"avx2", "fma", "f16c"})


@dataclass(frozen=True)
class Isa:
    """One instruction set that kernels are compiled for.

    `bits` is the width of a vector (0: scalar code). `flags` and `defines` go to the compiler; the defines select the
    branch of ATen/cpu/vec. `optional` pairs a CPU feature with the flag that is added where the CPU has it.
    """

    name: str
    bits: int
    needs: frozenset[str]
    flags: tuple[str, ...]
    defines: tuple[str, ...]
    optional: tuple[tuple[str, str], ...] = ()


_BASE_FLAGS = ("-mavx2", "-mfma", "-mf16c")

ISAS: tuple[Isa, ...] = (
    Isa(
        "avx512",
        512,
        _AVX512 | _AVX2,
        (*_BASE_FLAGS, "-mavx512f", "-mavx512dq", "-mavx512bw", "-mavx512vl", "-mavx512cd"),
        ("CPU_CAPABILITY=AVX512", "CPU_CAPABILITY_AVX512"),
        (
            ("avx512_vnni", "-mavx512vnni"),
            ("avx512_bf16", "-mavx512bf16"),
            ("amx_tile", "-mamx-tile"),
            ("amx_int8", "-mamx-int8"),
            ("amx_bf16", "-mamx-bf16"),
        ),
    ),
    Isa(
        "avx2",
        256,
        _AVX2,
        _BASE_FLAGS,
        ("CPU_CAPABILITY=AVX2", "CPU_CAPABILITY_AVX2"),
        (("avx_vnni", "-mavxvnni"),),
    ),
    Isa("scalar", 0, frozenset(), (), ("CPU_CAPABILITY=DEFAULT", "CPU_CAPABILITY_DEFAULT")),
)
"""Widest first."""

FEATURES: frozenset[str] = frozenset({"avx512_fp16", "amx_fp16", "avx_ne_convert"}).union(
    *(isa.needs for isa in ISAS), (name for isa in ISAS for name, _ in isa.optional)
)
"""The CPU features that this table asks about, spelled as in /proc/cpuinfo."""

_STEPS: tuple[tuple[str, frozenset[str]], ...] = (
    ("scalar", frozenset()),
    ("avx2", _AVX2),
    ("avx2_vnni", frozenset({"avx_vnni"})),
    ("avx512", _AVX512),
    ("avx512_vnni", frozenset({"avx512_vnni"})),
    ("avx512_bf16", frozenset({"avx512_bf16"})),
    ("amx", frozenset({"avx512_fp16", "amx_tile", "amx_int8", "amx_bf16"})),
    ("amx_fp16", frozenset({"amx_fp16"})),
)

LEVELS: Mapping[str, frozenset[str]] = {
    name: frozenset().union(*(more for _, more in _STEPS[: k + 1])) for k, (name, _) in enumerate(_STEPS)
}
"""Generations of CPUs, oldest first: the features of each and of all before it. Settings and reports name them."""

_CAPABILITY_FEATURES: Mapping[str, frozenset[str]] = {"AVX512": _AVX512 | _AVX2, "AVX2": _AVX2}

#: Of AMD's family 25, which has Zen 3 and Zen 4, the models that are Zen 4. ("Processor Programming Reference" of each)
_ZEN4_MODELS = (range(0x10, 0x20), range(0x60, 0xB0))

_DEFAULT_CACHES = {"l1": 32 << 10, "l2": 1 << 20, "l3": 16 << 20}


@dataclass(frozen=True)
class Target:
    """What kernels are compiled for.

    `cores` counts the CPUs this process may run on; `l1` (data), `l2` and `l3` are bytes per instance of the cache.
    `features` are the names in /proc/cpuinfo that matter here, whatever `isa` was chosen. `zen` is the generation of
    AMD's cores of that name, 0 for others; a virtual machine may hide instructions of the core, but not its habits.
    """

    isa: Isa
    cores: int
    l1: int
    l2: int
    l3: int
    cpu_name: str
    features: frozenset[str] = frozenset()
    zen: int = 0

    @property
    def flags(self) -> tuple[str, ...]:
        """Compiler flags of the instruction set, with those of the optional features this CPU has."""
        optional = (flag for feature, flag in self.isa.optional if feature in self.features)
        traits = {"ICPU_SLOW_GATHERS": self.has_slow_gathers, "ICPU_FOLLOWS_RUNS": self.follows_runs}
        defines = (*self.isa.defines, *(name for name, has in traits.items() if has and self.isa.bits > 0))
        return (*self.isa.flags, *optional, *(f"-D{name}" for name in defines))

    @property
    def has_slow_gathers(self) -> bool:
        """Whether instructions that gather and scatter are slower than a load or store for each lane, as on CPUs of
        AMD."""
        return "AMD" in self.cpu_name

    @property
    def follows_runs(self) -> bool:
        """Whether the processor itself fetches neighbours that follow one another faster than if it is asked for them,
        as Zen 4 does. Those before it are 1.1 times as fast if asked, in the mean."""
        return self.zen >= 4

    @property
    def gains_by_tiles_around_cache(self) -> bool:
        """Whether large results that are written in tiles were seen to gain by stores around the cache, as on CPUs of
        AMD."""
        return "AMD" in self.cpu_name

    @property
    def gains_by_small_products(self) -> bool:
        """Whether small products of floats were seen to be faster than the BLAS even if an operand is packed at each
        call, as with AVX-512 on CPUs of AMD."""
        return self.isa.bits == 512 and "AMD" in self.cpu_name

    def __str__(self) -> str:
        extra = " ".join(sorted(name for name, _ in self.isa.optional if name in self.features))
        kib = "/".join(str(size >> 10) for size in (self.l1, self.l2, self.l3))
        return f"{self.cpu_name}: {self.isa.name} ({extra or 'no extras'}), {self.cores} cores, caches {kib} KiB"


def parse_cpuinfo(text: str) -> tuple[str, frozenset[str]]:
    """Model name and features from the text of /proc/cpuinfo; an empty set if it lists no flags (not x86)."""
    name = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    flags = re.search(r"^flags\s*:\s*(.+)$", text, re.MULTILINE)
    features = frozenset(flags.group(1).split()) & FEATURES if flags else frozenset()
    return (name.group(1).strip() if name else "unknown CPU"), features


def zen_generation(text: str) -> int:
    """Which of AMD's Zen cores, from 1 on, the text of /proc/cpuinfo tells of; 0 for any other."""
    found = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in text.splitlines())}
    family, model = found.get("cpu family", ""), found.get("model", "")
    if found.get("vendor_id") != "AuthenticAMD" or not (family.isdecimal() and model.isdecimal()):
        return 0
    if int(family) == 0x17:
        return 2 if int(model) >= 0x30 else 1
    if int(family) == 0x19:
        return 4 if any(int(model) in models for models in _ZEN4_MODELS) else 3
    return 5 if int(family) >= 0x1A else 0


def best_isa(features: Iterable[str]) -> Isa:
    """The widest instruction set that these features allow."""
    have = frozenset(features)
    return next(isa for isa in ISAS if isa.needs <= have)


@lru_cache(maxsize=1)
def detect() -> Target:
    """This machine with its widest instruction set. Never fails: what cannot be read gets a modest default."""
    text = _read(Path("/proc/cpuinfo"))
    name, features = parse_cpuinfo(text)
    if not features:
        features = _CAPABILITY_FEATURES.get(torch.backends.cpu.get_cpu_capability(), frozenset())
    caches = _caches(Path("/sys/devices/system/cpu/cpu0/cache"))
    cores = len(os.sched_getaffinity(0))
    sizes = (caches["l1"], caches["l2"], caches["l3"])
    return Target(best_isa(features), cores, *sizes, name, features, zen_generation(text))


def target_for(simdlen: int | None = None, max_isa: str | None = None) -> Target:
    """This machine with vectors of `simdlen` bits: 512, 256, or 0 (1 too) for scalar code. None: the widest.

    max_isa: as if the CPU had at most the features of this one of `LEVELS`.

    Raises UserError if no instruction set has that width or the CPU lacks it.
    """
    machine = detect()
    if max_isa is not None:
        features = machine.features & LEVELS[max_isa]
        machine = replace(machine, isa=best_isa(features), features=features)
    if simdlen is None:
        return machine
    bits = 0 if simdlen == 1 else simdlen
    chosen = next((isa for isa in ISAS if isa.bits == bits), None)
    usable = ", ".join(str(isa.bits) for isa in ISAS if isa.needs <= machine.features)
    if chosen is None:
        raise UserError(
            f"cpp.simdlen={simdlen}: no instruction set of icpu has that width. This CPU can use: {usable}."
        )
    missing = sorted(chosen.needs - machine.features)
    if missing:
        raise UserError(
            f"cpp.simdlen={simdlen} needs {chosen.name}, and this CPU ({machine.cpu_name}) has no "
            f"{', '.join(missing)}. This CPU can use: {usable}."
        )
    return replace(machine, isa=chosen)


def _caches(folder: Path) -> dict[str, int]:
    """Bytes of the data caches that the kernel describes in `folder`."""
    sizes = dict(_DEFAULT_CACHES)
    for index in sorted(folder.glob("index*")):
        size = re.fullmatch(r"(\d+)([KM])", _read(index / "size").strip())
        level = f"l{_read(index / 'level').strip()}"
        if size and level in sizes and _read(index / "type").strip() != "Instruction":
            sizes[level] = int(size.group(1)) << {"K": 10, "M": 20}[size.group(2)]
    return sizes


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
