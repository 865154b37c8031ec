"""The native executor: built once per machine and torch, then loaded; it runs execution plans.

It is two libraries. The executor itself runs kernels and can call operators as Python; the first call of a program
waits for it, so it includes only what compiles fast. The operators library calls operators through torch's dispatcher,
whose headers take longer to compile than the executor. It is built in the background, and plans use it from their next
call on. Where the cache has both, both are loaded at once.
"""

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
from inductor_cpu.runtime.process import LOW_PRIORITY, ProcessGroup
from inductor_cpu.runtime.toolchain import Toolchain

_EXECUTOR, _OPERATORS = "executor", "operators"
"""The two libraries: names of their sources, and beginnings of their names in the cache."""

_MODULES = {_EXECUTOR: "icpu_native", _OPERATORS: "icpu_operators"}

NOT_BUILT = "the operators library is not built yet"
"""Why a call that has a native form is made as Python, as the executor says it."""

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
    return _library(_EXECUTOR, cache, toolchain)


def operators_library(cache: KernelCache, toolchain: Toolchain) -> Path:
    """The same for the operators library that belongs to it."""
    return _library(_OPERATORS, cache, toolchain)


def _library(name: str, cache: KernelCache, toolchain: Toolchain) -> Path:
    """The two libraries share structs, so each is named by the sources of both."""
    folder = paths.native_sources()
    sources = "".join(f"{path.name}\\0{path.read_text()}" for path in sorted(folder.iterdir()) if path.is_file())
    python = f"{sysconfig.get_config_var('SOABI')} {sys.version}"
    # Not the compiler's path: `identity` says which compiler it is.
    flags = " ".join(toolchain.executor_command(Path(f"{name}.cpp"), Path("out.so"))[len(toolchain.command) :])
    return cache.library(f"{name}-{content_key(toolchain.identity, python, flags, sources)}")


def build_executor(cache: KernelCache, toolchain: Toolchain, processes: ProcessGroup) -> Path:
    """Build the executor unless a sound one is in the cache. Raises InternalError if it does not compile, and UserError
    if the machine is at fault."""
    return _build(_EXECUTOR, cache, toolchain, processes)


def build_operators(cache: KernelCache, toolchain: Toolchain, processes: ProcessGroup) -> Path:
    """The same for the operators library, with less priority: nobody waits for it, and kernels are built meanwhile."""
    return _build(_OPERATORS, cache, toolchain, processes, nice=LOW_PRIORITY)


def _build(name: str, cache: KernelCache, toolchain: Toolchain, processes: ProcessGroup, nice: int = 0) -> Path:
    library = _library(name, cache, toolchain)
    if cache.is_sound(library):
        return library
    with cache.lock(library.name, processes.check), cache.scratch() as scratch:
        if cache.is_sound(library):
            return library  # another process made it while we waited
        source, output = paths.native_sources() / f"{name}.cpp", scratch / library.name
        command = toolchain.executor_command(source, output)
        run_compiler(command, processes, cache, source, output, toolchain.time_limit, nice)
        cache.store(output, library)
    return library


class _Loader:
    """The modules, once per process: an extension cannot be loaded twice.

    `fault`: why there is no operators library, after an attempt to build it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.module: ModuleType | None = None
        self.has_operators = False
        self.fault: Exception | None = None
        self._tools: tuple[KernelCache, Toolchain]
        self._operators: Path

    def load(self, cache: KernelCache, toolchain: Toolchain) -> ModuleType:
        with self.lock:
            if self.module is None:
                self.module = _build_and_load(_EXECUTOR, cache, toolchain, ProcessGroup())
                self._tools, self._operators = (cache, toolchain), operators_library(cache, toolchain)
            if not self.has_operators and self._tools[0].is_sound(self._operators):
                self._use(_try_to_load(_OPERATORS, self._operators, self._tools[0]))
            return self.module

    def build_operators(self, processes: ProcessGroup) -> None:
        """Build the operators library for the executor that is loaded, and let that use it."""
        if self.module is None or self.has_operators:
            return
        try:
            cache, toolchain = self._tools
            if operators_library(cache, toolchain) != self._operators:
                raise UserError("the files of icpu have changed since this program started; start it again")
            build_operators(cache, toolchain, processes)  # without the lock: other graphs are compiled meanwhile
            with self.lock:
                if not self.has_operators:
                    self._use(_build_and_load(_OPERATORS, cache, toolchain, processes))
        except Exception as error:
            self.fault = error
            raise

    def _use(self, operators: ModuleType | None) -> None:
        if operators is None or self.module is None:
            return
        self.module.use_operators(operators.prepare)
        self.has_operators, self.fault = True, None

    def after_fork(self) -> None:
        """In the child: a thread that no longer exists may hold the lock."""
        self.lock = threading.Lock()


_LOADER = _Loader()
os.register_at_fork(after_in_child=_LOADER.after_fork)


def load_executor(cache: KernelCache, toolchain: Toolchain) -> ModuleType:
    """The extension module with the type `Plan`; built first if the cache has none. One per process. It calls operators
    natively if the cache has the operators library; else `lacks_operators` is true."""
    return _LOADER.load(cache, toolchain)


def lacks_operators() -> bool:
    """Whether plans call operators as Python, until `complete_executor`."""
    return not _LOADER.has_operators


def complete_executor(processes: ProcessGroup) -> None:
    """Build the operators library for the executor that this process has loaded, if it has, and use it: all plans from
    their next call on. Raises InternalError if it does not compile, and UserError if the machine is at fault; plans go
    on as before then, and `describe` says why."""
    _LOADER.build_operators(processes)


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
    """How each extern call of the plan is made from the next call on, in order."""
    rows = tuple(ExternPath(*row) for row in plan.describe())
    fault = _LOADER.fault
    if fault is None:
        return rows
    why = f"the operators library was not built: {fault}"
    return tuple(row._replace(why_python=why) if row.why_python == NOT_BUILT else row for row in rows)


def _build_and_load(name: str, cache: KernelCache, toolchain: Toolchain, processes: ProcessGroup) -> ModuleType:
    module = _try_to_load(name, _build(name, cache, toolchain, processes), cache)
    if module is not None:
        return module
    library = _build(name, cache, toolchain, processes)
    try:
        return _load(name, library)
    except ImportError as error:
        raise UserError(
            f"the native {name} was built and this system does not load it: {error}. If the disk of {cache.root} "
            "forbids to execute its files (mount option noexec), set ICPU_CACHE_DIR to a folder on another one."
        ) from error


def _try_to_load(name: str, library: Path, cache: KernelCache) -> ModuleType | None:
    """The module in `library`; nothing if it does not load, and then the cache forgets it."""
    try:
        return _load(name, library)
    except ImportError as error:
        # It may have been built on another system, against another libc.
        log.warning("the native %s %s does not load (%s); it is made again", name, library, error)
    cache.discard(library)
    return None


def _load(name: str, library: Path) -> ModuleType:
    path = loader_path(library)
    loader = ExtensionFileLoader(_MODULES[name], path)
    module = module_from_spec(ModuleSpec(_MODULES[name], loader, origin=path))
    loader.exec_module(module)
    if name == _EXECUTOR:
        _set_up(module)
    return module


def _set_up(executor: ModuleType) -> None:
    with _disable_current_modes():  # a compile runs under AOTAutograd's fake mode
        executor.check_tensor_layout(torch.zeros(1))
    executor.lower_pool_limit(memory_limit() // _KEPT)
