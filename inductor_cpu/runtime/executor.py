"""The native executor: built once per machine and torch, then loaded; it runs execution plans."""

from __future__ import annotations

import os
import sys
import sysconfig
import threading
from collections.abc import Mapping
from importlib.machinery import ExtensionFileLoader, ModuleSpec
from importlib.util import module_from_spec
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, Protocol

import torch
from torch.utils._python_dispatch import _disable_current_modes

from inductor_cpu import paths
from inductor_cpu.errors import InternalError, UserError
from inductor_cpu.ir.plan import ExecutionPlan, Reg, Slot
from inductor_cpu.runtime.cache import KernelCache, content_key, log
from inductor_cpu.runtime.diagnosis import run_compiler
from inductor_cpu.runtime.loading import loader_path
from inductor_cpu.runtime.memory_limit import memory_limit
from inductor_cpu.runtime.process import ProcessGroup
from inductor_cpu.runtime.toolchain import Toolchain

_MODULE = "icpu_native"

#: Of the memory that the process may take, the part that is kept for later calls at most.
_KEPT = 8


class ExternPath(NamedTuple):
    """How one extern call of a plan is made: `path` is "native" (the dispatcher, from C++) or "python"."""

    label: str
    path: str
    why_python: str
    reason: str


class RunnablePlan(Protocol):
    """A loaded plan. Calling it with one list empties the list and returns the results as a new list.

    Any number of threads may call it at once. Errors of operators have the type that eager gives them."""

    _boxed_call: bool

    def __call__(self, inputs: list[Any]) -> list[Any]: ...

    def run(self, inputs: list[Any]) -> list[Any]: ...

    def describe(self) -> list[tuple[str, str, str, str]]: ...


def executor_library(cache: KernelCache, toolchain: Toolchain) -> Path:
    """Where the executor of this source, compiler, torch and Python is, once built."""
    folder = paths.native_sources()
    sources = "".join(f"{path.name}\\0{path.read_text()}" for path in sorted(folder.iterdir()) if path.is_file())
    python = f"{sysconfig.get_config_var('SOABI')} {sys.version}"
    # Not the compiler's path: `identity` says which compiler it is.
    flags = " ".join(toolchain.executor_command(Path("executor.cpp"), Path("out.so"))[len(toolchain.command) :])
    return cache.library(f"executor-{content_key(toolchain.identity, python, flags, sources)}")


def build_executor(cache: KernelCache, toolchain: Toolchain, processes: ProcessGroup) -> Path:
    """Build the executor unless a sound one is in the cache. Raises InternalError if it does not compile, and UserError
    if the machine is at fault."""
    library = executor_library(cache, toolchain)
    if cache.is_sound(library):
        return library
    with cache.lock(library.name, processes.check), cache.scratch() as scratch:
        if cache.is_sound(library):
            return library  # another process made it while we waited
        source, output = paths.native_sources() / "executor.cpp", scratch / library.name
        command = toolchain.executor_command(source, output)
        run_compiler(command, processes, cache, source, output, toolchain.time_limit)
        cache.store(output, library)
    return library


class _Loader:
    """The module, once per process: an extension cannot be loaded twice."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.module: ModuleType | None = None

    def load(self, cache: KernelCache, toolchain: Toolchain) -> ModuleType:
        with self.lock:
            if self.module is None:
                self.module = _build_and_load(cache, toolchain)
            return self.module

    def after_fork(self) -> None:
        """In the child: a thread that no longer exists may hold the lock."""
        self.lock = threading.Lock()


_LOADER = _Loader()
os.register_at_fork(after_in_child=_LOADER.after_fork)


def load_executor(cache: KernelCache, toolchain: Toolchain) -> ModuleType:
    """The extension module with the type `Plan`; built first if the cache has none. One per process."""
    return _LOADER.load(cache, toolchain)


def build(
    plan: ExecutionPlan, addresses: Mapping[str, int], executor: ModuleType, profile: bool = False
) -> RunnablePlan:
    """Load `plan` into the executor. `addresses` maps each kernel's symbol to its address (see `compile.load_kernels`).

    `profile` records every kernel, also if the profiler starts in the middle of a call. Raises InternalError if the
    plan is malformed."""
    try:
        runnable: RunnablePlan = executor.Plan(plan, dict(addresses), Slot, Reg, profile=profile)
    except (ValueError, TypeError, KeyError, IndexError, AttributeError) as error:
        raise InternalError("runtime", f"the execution plan cannot be loaded: {error}") from error
    return runnable


def describe(plan: RunnablePlan) -> tuple[ExternPath, ...]:
    """How each extern call of the plan is made, in order."""
    return tuple(ExternPath(*row) for row in plan.describe())


def _build_and_load(cache: KernelCache, toolchain: Toolchain) -> ModuleType:
    library = build_executor(cache, toolchain, ProcessGroup())
    try:
        return _load(library)
    except ImportError as error:
        # It may have been built on another system, against another libc.
        log.warning("the native executor %s does not load (%s); it is made again", library, error)
    cache.discard(library)
    library = build_executor(cache, toolchain, ProcessGroup())
    try:
        return _load(library)
    except ImportError as error:
        raise UserError(
            f"the native executor was built and this system does not load it: {error}. If the disk of {cache.root} "
            "forbids to execute its files (mount option noexec), set ICPU_CACHE_DIR to a folder on another one."
        ) from error


def _load(library: Path) -> ModuleType:
    path = loader_path(library)
    loader = ExtensionFileLoader(_MODULE, path)
    module = module_from_spec(ModuleSpec(_MODULE, loader, origin=path))
    loader.exec_module(module)
    with _disable_current_modes():  # a compile runs under AOTAutograd's fake mode
        module.check_tensor_layout(torch.zeros(1))
    module.lower_pool_limit(memory_limit() // _KEPT)
    return module
