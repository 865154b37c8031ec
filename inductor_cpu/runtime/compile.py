"""From kernel sources to addresses: look up, compile what is missing in parallel, check, load."""

from __future__ import annotations

import ctypes
import os
import re
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from inductor_cpu.errors import IcpuError, UserError
from inductor_cpu.ir.plan import Instance, KernelSource
from inductor_cpu.runtime.cache import KernelCache, content_key, log
from inductor_cpu.runtime.diagnosis import TimeLimitError, run_compiler
from inductor_cpu.runtime.loading import loader_path
from inductor_cpu.runtime.prebuilt import (
    Builder,
    Prebuilt,
    declarations,
    discard_prebuilt,
    object_file,
    usable_prebuilt,
)
from inductor_cpu.runtime.process import Cancelled, ProcessGroup
from inductor_cpu.runtime.toolchain import Toolchain
from inductor_cpu.targets.cpu import Target

MAX_KERNELS_PER_UNIT = 25
_ATTEMPTS = 3
"""How often kernels are built that cannot be loaded then: another process may have deleted a damaged entry."""
_TURN = 0.5
"""Seconds after which somebody who waits for compilers looks for a signal."""


def load_kernels(
    sources: Sequence[KernelSource],
    target: Target,
    prelude: Path,
    cache: KernelCache,
    toolchain: Toolchain,
    jobs: int = 0,
    after_build: Callable[[], None] | None = None,
) -> dict[str, int]:
    """Addresses of all `sources` by symbol, compiling with at most `jobs` compilers at a time (0: one per core, <= 16).

    `after_build` is called when kernels had to be compiled, once they are. Raises InternalError, with the command, the
    compiler's first lines and the kept source, if a kernel does not build, and UserError if the machine is at fault.
    """
    builder = Builder(target, prelude, cache, toolchain)
    base = builder.key
    keys = {content_key(base, source.symbol, source.code): source for source in sources}
    with _LOADED.lock:
        addresses = {k: _LOADED.addresses[k] for k in keys if k in _LOADED.addresses}
    _load_stored(cache, {k: s for k, s in keys.items() if k not in addresses}, addresses)
    missing = {k: s for k, s in keys.items() if k not in addresses}
    log.info("kernels: %d, to be compiled: %d", len(keys), len(missing))
    if missing:
        _build_and_load(builder, base, missing, jobs or min(target.cores, 16), addresses)
        if after_build is not None:
            after_build()
    return {source.symbol: addresses[key] for key, source in keys.items()}


def _build_and_load(
    builder: Builder, base: str, wanted: dict[str, KernelSource], jobs: int, addresses: dict[str, int]
) -> None:
    refusals: list[str] = []
    for _ in range(_ATTEMPTS):
        missing = {k: s for k, s in wanted.items() if k not in addresses}
        if not missing:
            return
        _build(builder, base, missing, jobs)
        refusals = _load_stored(builder.cache, missing, addresses)
    lost = [s.label for k, s in wanted.items() if k not in addresses]
    if lost:
        raise UserError(
            f"kernels were built in {builder.cache.root} and this system does not load them "
            f"({refusals[-1] if refusals else 'they are gone again'}). If that disk forbids to execute its files "
            "(mount option noexec), set ICPU_CACHE_DIR to a folder on another one. Kernels: " + ", ".join(lost)
        )


def split_units(sources: dict[str, KernelSource], jobs: int) -> list[dict[str, KernelSource]]:
    """Groups of kernels, one per translation unit: as few as keep `jobs` compilers busy, all until the end, of similar
    length of code."""
    rounds = -(-len(sources) // (MAX_KERNELS_PER_UNIT * jobs))
    count = min(len(sources), rounds * jobs)
    units: list[dict[str, KernelSource]] = [{} for _ in range(count)]
    lengths = [0] * count
    for key, source in sorted(sources.items(), key=lambda item: (-len(item[1].code), item[0])):
        # The emptiest unit that has room.
        best = min((i for i in range(count) if len(units[i]) < MAX_KERNELS_PER_UNIT), key=lambda i: lengths[i])
        units[best][key] = source
        lengths[best] += len(source.code)
    return units


@dataclass
class _Loaded:
    """What this process has loaded. Libraries are never closed."""

    addresses: dict[str, int] = field(default_factory=dict)
    libraries: dict[Path, ctypes.CDLL] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)


_LOADED = _Loaded()


def _load_stored(cache: KernelCache, wanted: dict[str, KernelSource], addresses: dict[str, int]) -> list[str]:
    """Add to `addresses` those of `wanted` that the cache has. What is damaged or does not load is deleted; returns why
    libraries did not load."""
    refusals: list[str] = []
    by_library: dict[Path, list[str]] = {}
    for key in wanted:
        path = cache.library_of_kernel(key)
        if path is not None:
            by_library.setdefault(path, []).append(key)
    with _LOADED.lock:
        for path, keys in by_library.items():
            library = _open_library(cache, path, refusals)
            for key in keys if library is not None else ():
                function = getattr(library, wanted[key].symbol, None)
                address = ctypes.cast(function, ctypes.c_void_p).value if function is not None else None
                if address is not None:
                    addresses[key] = _LOADED.addresses[key] = address
    return refusals


def _open_library(cache: KernelCache, path: Path, refusals: list[str]) -> ctypes.CDLL | None:
    """The loaded library; None, and deleted, if it is not sound."""
    if path in _LOADED.libraries:
        return _LOADED.libraries[path]
    if not cache.is_sound(path):
        return None
    try:
        _LOADED.libraries[path] = ctypes.CDLL(loader_path(path), mode=os.RTLD_NOW | os.RTLD_LOCAL)
    except OSError as error:
        log.warning("the cache entry %s does not load (%s); it is made again", path, error)
        refusals.append(str(error))
        cache.discard(path)
        return None
    return _LOADED.libraries[path]


def _build(builder: Builder, base: str, missing: dict[str, KernelSource], jobs: int) -> None:
    """Compile `missing` into the cache, one translation unit per worker. Kills all compilers if one fails."""
    units = split_units(missing, jobs)
    prebuilt = usable_prebuilt(builder)
    processes = ProcessGroup()
    # Before the units, each of which would make those it needs one after the other, and wait for the other's.
    instances = _instances(missing.values(), prebuilt)
    with ThreadPoolExecutor(min(jobs, len(units) + len(instances)), thread_name_prefix="icpu-cxx") as pool:
        try:
            for instance in instances:
                pool.submit(_prepare_instance, builder, prebuilt, instance, processes)
            futures = [pool.submit(_build_unit, builder, base, unit, processes, prebuilt) for unit in units]
            _finish(futures)
        except BaseException:
            processes.cancel()
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _finish(futures: Sequence[Future[None]]) -> None:
    """Wait until all have ended, or raise what went wrong in one. In turns: a signal that comes just before Python
    waits, or to another thread, is heard of only after it."""
    while wait(futures, _TURN, FIRST_EXCEPTION).not_done:
        _raise_first(futures)
    _raise_first(futures)


def _raise_first(futures: Sequence[Future[None]]) -> None:
    """Raise what went wrong in those that have ended, and not that others were stopped because of it."""
    errors = [error for future in futures if future.done() and (error := future.exception()) is not None]
    for error in sorted(errors, key=lambda e: isinstance(e, Cancelled)):
        raise error


def _instances(kernels: Iterable[KernelSource], prebuilt: Prebuilt) -> list[Instance]:
    """What these kernels call of templates, each once, where it is compiled by itself."""
    called = dict.fromkeys(instance for kernel in kernels for instance in kernel.instances)
    return list(called) if prebuilt.instances else []


def _prepare_instance(builder: Builder, prebuilt: Prebuilt, instance: Instance, processes: ProcessGroup) -> None:
    """Build its object file. If that fails, so it does for the unit that needs it, which knows another way."""
    with suppress(IcpuError, Cancelled):
        object_file(builder, prebuilt, instance, processes)


def _build_unit(
    builder: Builder, base: str, unit: dict[str, KernelSource], processes: ProcessGroup, prebuilt: Prebuilt
) -> None:
    cache, library = builder.cache, builder.cache.library(content_key(base, *sorted(unit)))
    with cache.lock(library.name, processes.check), cache.scratch() as scratch:
        if all(cache.library_of_kernel(key) == library for key in unit) and cache.is_sound(library):
            return  # another process made it while we waited
        output, sources = scratch / library.name, list(unit.values())
        try:
            _compile_unit(builder, prebuilt, sources, output, processes)
        except IcpuError as error:
            # A prebuilt file that went bad, or that another process deleted, is no reason to fail.
            if prebuilt == Prebuilt(builder.prelude) or isinstance(error, TimeLimitError):
                raise
            _compile_unit(builder, Prebuilt(builder.prelude), sources, output, processes)
            log.warning("a compile works only without what was prebuilt for %s; it is made again", prebuilt.header)
            discard_prebuilt(builder)
        cache.store(output, library)
        cache.record_kernels(list(unit), library)


def _compile_unit(
    builder: Builder, prebuilt: Prebuilt, kernels: Sequence[KernelSource], output: Path, processes: ProcessGroup
) -> None:
    """One library from one source, which is written beside it."""
    tools, cache, source = builder.toolchain, builder.cache, output.with_suffix(".cpp")
    instances = _instances(kernels, prebuilt)
    objects = [object_file(builder, prebuilt, instance, processes) for instance in instances]
    texts = "\n".join(f"// {_comment(kernel.label)}\n{kernel.code}" for kernel in kernels)
    cache.write_text(source, declarations(instances) + texts)
    include = builder.prelude.parent
    command = tools.kernel_command(builder.target, prebuilt.header, include, source, output, prebuilt.stubs, objects)
    run_compiler(command, processes, cache, source, output, tools.time_limit)


def _comment(label: str) -> str:
    """A label in a safe alphabet: it comes from the model, and a newline or a backslash would end the comment."""
    return re.sub(r"[^\w .,:()<>=+-]", "_", label, flags=re.ASCII)


def _after_fork() -> None:
    """In the child: a thread that no longer exists may hold the lock."""
    _LOADED.lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)
