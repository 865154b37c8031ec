"""From kernel sources to addresses: look up, compile what is missing in parallel, check, load."""

from __future__ import annotations

import ctypes
import os
import shlex
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from inductor_cpu.errors import InternalError
from inductor_cpu.ir.plan import KernelSource
from inductor_cpu.runtime.cache import KernelCache, content_key, log
from inductor_cpu.runtime.process import ProcessGroup
from inductor_cpu.runtime.toolchain import Toolchain
from inductor_cpu.targets.cpu import Target

MAX_KERNELS_PER_UNIT = 25
COMPILE_TIMEOUT = 600.0
"""Seconds that one compiler may take."""


@dataclass(frozen=True)
class Builder:
    """What every kernel of one compile is built with. `prelude` is the header that comes before each kernel."""

    target: Target
    prelude: Path
    cache: KernelCache
    toolchain: Toolchain

    @property
    def key(self) -> str:
        """Everything that decides the bytes of a kernel's library, except its source."""
        flags = " ".join(self.toolchain.kernel_flags(self.target))
        return content_key(
            self.toolchain.identity, flags, self.target.isa.name, _folder_hash(self.prelude.parent.parent)
        )


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
    compiler's first lines and the kept source, if a kernel does not build.
    """
    builder = Builder(target, prelude, cache, toolchain)
    base = builder.key
    keys = {content_key(base, source.symbol, source.code): source for source in sources}
    with _LOADED.lock:
        addresses = {k: _LOADED.addresses[k] for k in keys if k in _LOADED.addresses}
    _load_stored(cache, {k: s for k, s in keys.items() if k not in addresses}, addresses)
    missing = {k: s for k, s in keys.items() if k not in addresses}
    if missing:
        _build(builder, base, missing, jobs or min(target.cores, 16))
        _load_stored(cache, missing, addresses)
        lost = [s.label for k, s in missing.items() if k not in addresses]
        if lost:
            raise InternalError(
                "runtime", f"kernels were built and cannot be loaded: {', '.join(lost)} (in {cache.root})"
            )
        if after_build is not None:
            after_build()
    return {source.symbol: addresses[key] for key, source in keys.items()}


def split_units(sources: dict[str, KernelSource], jobs: int) -> list[dict[str, KernelSource]]:
    """Groups of kernels, one per translation unit: as few as keep `jobs` compilers busy, of similar length of code."""
    count = min(len(sources), max(jobs, -(-len(sources) // MAX_KERNELS_PER_UNIT)))
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
    """What this process has loaded (libraries are never closed) and which precompiled headers it checked."""

    addresses: dict[str, int] = field(default_factory=dict)
    libraries: dict[Path, ctypes.CDLL] = field(default_factory=dict)
    headers: set[Path] = field(default_factory=set)
    lock: threading.Lock = field(default_factory=threading.Lock)


_LOADED = _Loaded()


def _load_stored(cache: KernelCache, wanted: dict[str, KernelSource], addresses: dict[str, int]) -> None:
    """Add to `addresses` those of `wanted` that the cache has. What is damaged or does not load is deleted."""
    by_library: dict[Path, list[str]] = {}
    for key in wanted:
        path = cache.library_of_kernel(key)
        if path is not None:
            by_library.setdefault(path, []).append(key)
    with _LOADED.lock:
        for path, keys in by_library.items():
            library = _open_library(cache, path)
            for key in keys if library is not None else ():
                function = getattr(library, wanted[key].symbol, None)
                address = ctypes.cast(function, ctypes.c_void_p).value if function is not None else None
                if address is not None:
                    addresses[key] = _LOADED.addresses[key] = address


def _open_library(cache: KernelCache, path: Path) -> ctypes.CDLL | None:
    """The loaded library; None, and deleted, if it is not sound."""
    if path in _LOADED.libraries:
        return _LOADED.libraries[path]
    if not cache.is_sound(path):
        return None
    try:
        _LOADED.libraries[path] = ctypes.CDLL(str(path), mode=os.RTLD_NOW | os.RTLD_LOCAL)
    except OSError as error:
        log.warning("the cache entry %s does not load (%s); it is made again", path, error)
        cache.discard(path)
        return None
    return _LOADED.libraries[path]


def _build(builder: Builder, base: str, missing: dict[str, KernelSource], jobs: int) -> None:
    """Compile `missing` into the cache, one translation unit per worker. Kills all compilers if one fails."""
    units = split_units(missing, jobs)
    check_header(builder)
    processes = ProcessGroup()
    with ThreadPoolExecutor(max_workers=min(jobs, len(units)), thread_name_prefix="icpu-cxx") as pool:
        try:
            for future in [pool.submit(_build_unit, builder, base, unit, processes) for unit in units]:
                future.result()
        except BaseException:
            processes.cancel()
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _build_unit(builder: Builder, base: str, unit: dict[str, KernelSource], processes: ProcessGroup) -> None:
    cache, library = builder.cache, builder.cache.library(content_key(base, *sorted(unit)))
    with cache.lock(library.name), cache.scratch() as scratch:
        if all(cache.library_of_kernel(key) == library for key in unit) and cache.is_sound(library):
            return  # another process made it while we waited
        source, output = scratch / f"{library.stem}.cpp", scratch / library.name
        text = "\n".join(f"// {s.label}\n{s.code}" for s in unit.values())
        source.write_text(text)
        header = prelude_header(builder)
        command = builder.toolchain.kernel_command(builder.target, header, builder.prelude.parent, source, output)
        run_compiler(command, processes, cache, source)
        cache.store(output, library)
        cache.record_kernels(list(unit), library)


def run_compiler(
    command: Sequence[str], processes: ProcessGroup, cache: KernelCache, source: Path, nice: int = 0
) -> None:
    """Run one compiler. Raises InternalError that has the command, the first lines it said and the kept source."""
    outcome = processes.run(command, COMPILE_TIMEOUT, nice)
    if outcome.code == 0:
        return
    ended = f"ran longer than {COMPILE_TIMEOUT:.0f} s" if outcome.timed_out else f"ended with code {outcome.code}"
    kept = cache.keep_failed(source.name, source.read_text())
    shown = shlex.join(str(kept) if word == str(source) else word for word in command)
    cache.keep_failed(f"{source.stem}.log", f"{shown}\n\n{outcome.stderr}")
    first = "\n".join([line for line in outcome.stderr.splitlines() if line.strip()][:12])
    raise InternalError("runtime", f"the C++ compiler {ended}.\nsource: {kept}\ncommand: {shown}\n{first}")


def prelude_header(builder: Builder) -> Path:
    """The header that kernels include first. Its precompiled form is beside it if that was built."""
    folder = builder.cache.header_folder(builder.key)
    header = folder / "prelude.h"
    if not header.exists():
        builder.cache.write_text(header, f"#include <{builder.prelude.name}>\n")
    return header


def check_header(builder: Builder) -> bool:
    """Whether there is a precompiled prelude; a damaged one is deleted. Its checksum is taken once per process."""
    made = builder.toolchain.precompiled(prelude_header(builder))
    if not made.exists() or (made not in _LOADED.headers and not builder.cache.is_sound(made)):
        return False
    _LOADED.headers.add(made)
    return True


def precompile(builder: Builder, processes: ProcessGroup) -> None:
    """Precompile the prelude into the cache, unless a sound one is there. Raises InternalError if it does not build."""
    header, cache = prelude_header(builder), builder.cache
    made = builder.toolchain.precompiled(header)
    with cache.lock(f"header-{builder.key}"), cache.scratch() as scratch:
        if check_header(builder):
            return
        output = scratch / made.name
        command = builder.toolchain.header_command(builder.target, header, builder.prelude.parent, output)
        # It saves a later compile most of a second, and costs several: what is needed now goes first.
        run_compiler(command, processes, cache, header, nice=10)
        cache.store(output, made)
        _LOADED.headers.add(made)
        cache.prune_headers(keep=builder.key)


@lru_cache(maxsize=16)
def _folder_hash(folder: Path) -> str:
    """Content of every template. Read once per process."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return content_key(*(f"{path.relative_to(folder)}:{path.read_text()}" for path in files))
