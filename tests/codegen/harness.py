"""Compiles generated kernels as the backend does, many per library and kept in its cache, and calls them on tensors."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cache
from typing import Any

import torch

from inductor_cpu.codegen.kernel import DEFAULT, generate
from inductor_cpu.codegen.starts import starts
from inductor_cpu.codegen.tuning import Choices
from inductor_cpu.config import snapshot
from inductor_cpu.ir.kernel import Kernel
from inductor_cpu.ir.plan import KernelSource
from inductor_cpu.paths import prelude
from inductor_cpu.runtime.cache import open_cache
from inductor_cpu.runtime.compile import load_kernels
from inductor_cpu.runtime.prebuilt import Builder, prebuild
from inductor_cpu.runtime.process import ProcessGroup
from inductor_cpu.runtime.toolchain import Toolchain, find_toolchain
from inductor_cpu.targets.cpu import Target, target_for
from tests.emulation.machine import emulated, emulated_avx2

BITS = {"scalar": 0, "avx2": 256, "avx512": 512}
FUNCTION = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)
Function = Callable[..., int]


def target(isa: str) -> Target:
    return target_for(BITS[isa])


def available() -> list[str]:
    """Instruction sets of this machine."""
    return [name for name, bits in BITS.items() if bits <= target_for().isa.bits]


@cache
def emulated_machine(isa: str) -> Target | None:
    """This machine with what it lacks for kernels of an instruction set; None without that. (Of AVX-512 every run of
    the tests would take too long: `python -m tests.emulation` emulates that, too.)"""
    if isa not in available():
        return None
    return {"avx512": emulated, "avx2": emulated_avx2}[isa](target(isa)) if isa != "scalar" else None


def alike_in_turns(names: Iterable[str], *dtypes: Sequence[torch.dtype]) -> list[tuple[str, torch.dtype]]:
    """What every run tries of names and dtypes: of each sequence of dtypes, which are handled alike, one for each name,
    the next one for the next."""
    return [(name, alike[number % len(alike)]) for number, name in enumerate(names) for alike in dtypes]


VECTORS = [isa for isa in available() if isa != "scalar"]
"""Those with vectors."""


def addresses_of(sources: Iterable[KernelSource], its_target: Target, toolchain: Toolchain) -> dict[str, int]:
    """Addresses of kernels by symbol, from the tests' cache, or compiled with as many compilers as the settings say."""
    return load_kernels(list(sources), its_target, prelude(), open_cache(), toolchain, snapshot().compile_threads)


@cache
def _prebuild(isa: str) -> None:
    """Precompile the prelude, which programs get in the background, but only those that call torch.compile: here it
    pays from the third unit on, and a file of tests has up to ten."""
    toolchain = find_toolchain(sanitize=snapshot().cpp.sanitize)
    prebuild(Builder(target(isa), prelude(), open_cache(), toolchain), ProcessGroup())


class Library:
    """Compiled kernels of one instruction set. rest: those that only `full` cases call, compiled then."""

    def __init__(
        self, isa: str, kernels: Iterable[Kernel], choices: Choices = DEFAULT, rest: Iterable[Kernel] = ()
    ) -> None:
        self._isa, self._choices, self._rest = isa, choices, list(rest)
        self._functions = self._compiled(kernels)

    def _compiled(self, kernels: Iterable[Kernel]) -> dict[Kernel, Function]:
        _prebuild(self._isa)
        its_target = target(self._isa)
        sources = {kernel: generate(kernel, its_target, self._choices) for kernel in kernels}
        addresses = addresses_of(sources.values(), its_target, find_toolchain(sanitize=snapshot().cpp.sanitize))
        return {kernel: FUNCTION(addresses[source.symbol]) for kernel, source in sources.items()}

    def run(self, kernel: Kernel, *buffers: torch.Tensor, sizes: Sequence[int] = ()) -> int:
        """Call a kernel on the storage of tensors; returns its status."""
        begins = zip(buffers, starts(kernel), strict=True)
        pointers = (ctypes.c_void_p * max(len(buffers), 1))(*[b.data_ptr() + n * b.itemsize for b, n in begins])
        ints = (ctypes.c_int64 * max(len(sizes), 1))(*sizes)
        if kernel not in self._functions:
            self._functions |= self._compiled(self._rest)
        status = self._functions[kernel](pointers, ints)
        assert isinstance(status, int)
        return status


def library_of(isa: str, kernels: Mapping[Any, Kernel], full: Collection[Any] = ()) -> Library:
    """Kernels by key; those with keys in `full` are called by `full` cases alone."""
    rest = [kernels[key] for key in full]
    return Library(isa, [kernel for key, kernel in kernels.items() if key not in full], rest=rest)
