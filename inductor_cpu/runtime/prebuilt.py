"""What is built once and makes every later compile shorter: the precompiled prelude, stand-ins for libraries, and the
functions of templates that many kernels call.

Kernels call functions of torch's library (SLEEF's) and of the C++ library, so that their own libraries have to name
both. All that the linker takes from them are their names, and reading torch's hundreds of MB takes as long as compiling
a small kernel, the C++ library's symbols a fifth of that: empty libraries of these names do as well.

The loops of a matrix product or of attention take three quarters and more of the time to compile a kernel that calls
them, and are the same in all: they become object files, one for each instance of a template, which kernels are linked
with. Each is made when it is first needed, once the prelude is precompiled: before, to read that for another file takes
as long as the instance does.

All lie in one folder of the cache, and a compile does without what is missing.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from inductor_cpu import paths
from inductor_cpu.ir.plan import Instance
from inductor_cpu.runtime.cache import KernelCache, content_key
from inductor_cpu.runtime.diagnosis import run_compiler
from inductor_cpu.runtime.process import LOW_PRIORITY, ProcessGroup
from inductor_cpu.runtime.toolchain import Toolchain
from inductor_cpu.targets.cpu import Target


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
            self.toolchain.identity,
            flags,
            self.target.isa.name,
            _folder_hash(self.prelude.parent),
            _folder_hash(paths.templates()),
        )


@dataclass(frozen=True)
class Prebuilt:
    """What a compile makes use of. `header`: the one that kernels include first, with its precompiled form beside it,
    else the prelude itself. `stubs`: the stand-ins for libraries; none for the libraries themselves. `instances`:
    whether those of templates are compiled by themselves."""

    header: Path
    stubs: tuple[Path, ...] = ()
    instances: bool = False


_CHECKED: set[Path] = set()
"""Files whose checksum this process has taken: once is enough."""


def usable_prebuilt(builder: Builder) -> Prebuilt:
    """What there is, and is sound."""
    header, stubs = prelude_header(builder), _stubs(builder)
    builder.cache.mark_used(header.parent)
    precompiled = _is_usable(builder.cache, builder.toolchain.precompiled(header))
    return Prebuilt(
        header if precompiled else builder.prelude,
        stubs if all(_is_usable(builder.cache, stub) for stub in stubs) else (),
        instances=precompiled,
    )


def discard_prebuilt(builder: Builder) -> None:
    """Delete all of it, to be made again."""
    header = prelude_header(builder)
    for made in (builder.toolchain.precompiled(header), *_stubs(builder), *header.parent.glob("*.o")):
        _CHECKED.discard(made)
        builder.cache.discard(made)


def prelude_header(builder: Builder) -> Path:
    """The header that is precompiled: it has its precompiled form beside it once that is built."""
    header, text = builder.cache.header_folder(builder.key) / "prelude.h", f"#include <{builder.prelude.name}>\n"
    try:
        written = header.read_text()
    except (OSError, UnicodeDecodeError):
        written = ""
    if written != text:
        builder.cache.write_text(header, text)
    return header


def prebuild(builder: Builder, processes: ProcessGroup) -> None:
    """Build into the cache what is not there, sound. Raises InternalError if something does not build."""
    tools, header = builder.toolchain, prelude_header(builder)
    made = tools.precompiled(header)
    with builder.cache.lock(f"header-{builder.key}", processes.check), builder.cache.scratch() as scratch:
        empty = Path(os.devnull)
        for stub in _stubs(builder):
            _make(builder, processes, stub, empty, tools.stub_command(empty, scratch / stub.name))
        command = tools.header_command(builder.target, header, builder.prelude.parent, scratch / made.name)
        _make(builder, processes, made, header, command)
        builder.cache.prune_headers(keep=builder.key)


def declarations(instances: Iterable[Instance]) -> str:
    """What a unit begins with for the compiler to take these from object files."""
    headers = dict.fromkeys(header for instance in instances for header in instance.headers)
    lines = [_include(header) for header in headers]
    return "".join([*lines, *(f"extern template {instance.declaration};\n" for instance in instances)])


def object_file(builder: Builder, prebuilt: Prebuilt, instance: Instance, processes: ProcessGroup) -> Path:
    """The object file of an instance, built if it is not there, sound. Raises InternalError if it does not build."""
    cache, tools = builder.cache, builder.toolchain
    path = cache.header_folder(builder.key) / f"{content_key(*instance.headers, instance.declaration)}.o"
    with cache.lock(f"{builder.key}-{path.name}", processes.check), cache.scratch() as scratch:
        if not _is_usable(cache, path):
            source, output = scratch / "instance.cpp", scratch / path.name
            cache.write_text(source, "".join(map(_include, instance.headers)) + f"template {instance.declaration};\n")
            include = builder.prelude.parent
            command = tools.object_command(builder.target, prebuilt.header, include, source, output)
            run_compiler(command, processes, cache, source, output, tools.time_limit)
            cache.store(output, path)
            _CHECKED.add(path)
    return path


def _include(header: str) -> str:
    return f'#include "{header}"\n'


def _make(builder: Builder, processes: ProcessGroup, path: Path, source: Path, command: Sequence[str]) -> None:
    """Build `path` by a command that writes a file of that name, unless it is there."""
    cache, output = builder.cache, Path(command[-1])
    if _is_usable(cache, path):
        return
    # It saves time later, and takes some: what is needed now goes first.
    run_compiler(command, processes, cache, source, output, builder.toolchain.time_limit, nice=LOW_PRIORITY)
    cache.store(output, path)
    _CHECKED.add(path)


def _stubs(builder: Builder) -> tuple[Path, ...]:
    folder = builder.cache.header_folder(builder.key)
    return tuple(folder / name for name in builder.toolchain.stub_names)


def _is_usable(cache: KernelCache, path: Path) -> bool:
    """Whether it is there, and sound."""
    if not path.exists() or (path not in _CHECKED and not cache.is_sound(path)):
        return False
    _CHECKED.add(path)
    return True


@lru_cache(maxsize=16)
def _folder_hash(folder: Path) -> str:
    """Content of every header in a folder. Read once per process."""
    files = sorted(folder.rglob("*.h"))
    return content_key(*(f"{path.relative_to(folder)}:{path.read_text()}" for path in files))
