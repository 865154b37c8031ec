"""Compiles generated kernels as the backend does, many per library and kept in its cache, and calls them on tensors."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Sequence
from functools import cache

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
    """Compiled kernels of one instruction set."""

    def __init__(self, isa: str, kernels: Iterable[Kernel], choices: Choices = DEFAULT) -> None:
        _prebuild(isa)
        sources = {kernel: generate(kernel, target(isa), choices) for kernel in kernels}
        addresses = addresses_of(sources.values(), target(isa), find_toolchain(sanitize=snapshot().cpp.sanitize))
        self._functions = {kernel: FUNCTION(addresses[source.symbol]) for kernel, source in sources.items()}

    def run(self, kernel: Kernel, *buffers: torch.Tensor, sizes: Sequence[int] = ()) -> int:
        """Call a kernel on the storage of tensors; returns its status."""
        begins = zip(buffers, starts(kernel), strict=True)
        pointers = (ctypes.c_void_p * max(len(buffers), 1))(*[b.data_ptr() + n * b.itemsize for b, n in begins])
        ints = (ctypes.c_int64 * max(len(sizes), 1))(*sizes)
        status = self._functions[kernel](pointers, ints)
        assert isinstance(status, int)
        return status
