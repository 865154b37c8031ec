"""Functions of templates that kernels share: compiled by themselves, once, and linked to the kernels that call them."""

from __future__ import annotations

import os
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest

from inductor_cpu.errors import InternalError
from inductor_cpu.ir.plan import Instance, KernelSource
from inductor_cpu.runtime import compile as compile_module
from inductor_cpu.runtime import prebuilt as prebuilt_module
from inductor_cpu.runtime.cache import KernelCache, open_cache
from inductor_cpu.runtime.compile import load_kernels
from inductor_cpu.runtime.prebuilt import (
    Builder,
    declarations,
    object_file,
    prebuild,
    prelude_header,
    usable_prebuilt,
)
from inductor_cpu.runtime.process import ProcessGroup
from inductor_cpu.runtime.toolchain import Toolchain
from inductor_cpu.targets.cpu import target_for
from tests.runtime.support import kernel
from tests.runtime.test_compile import call

_TEMPLATE = """#pragma once
template <int n>
[[gnu::noinline]] int64_t times(int64_t value) { return n * value * PRELUDE_WAS_HERE; }
"""


def times(factor: int) -> Instance:
    return Instance(("part.h",), f"int64_t times<{factor}>(int64_t)")


def calls(factor: int, value: int) -> KernelSource:
    """A kernel that stores factor * value, by an instance of the template."""
    made = kernel(f"*(int64_t*)p[0] = times<{factor}>({value});", f"times {factor}")
    return KernelSource(made.symbol, made.label, f'#include "part.h"\n{made.code}', (times(factor),))


def calls_of_two(one: int, other: int, value: int) -> KernelSource:
    """A kernel that stores one * value + other * (value - 2), by two instances of the template."""
    made = kernel(f"*(int64_t*)p[0] = times<{one}>({value}) + times<{other}>({value} - 2);", "two")
    return KernelSource(made.symbol, made.label, f'#include "part.h"\n{made.code}', (times(one), times(other)))


@pytest.fixture
def builder(prelude: Path, tmp_path: Path, toolchain: Toolchain) -> Builder:
    """With a template beside its own prelude, and an empty cache."""
    own = tmp_path / "prelude" / prelude.name
    own.parent.mkdir()
    own.write_text(prelude.read_text())
    own.with_name("part.h").write_text(_TEMPLATE)
    return Builder(target_for(), own, open_cache(tmp_path / "cache"), toolchain)


@pytest.fixture(autouse=True)
def new_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a new process: nothing is loaded."""
    monkeypatch.setattr(compile_module, "_LOADED", compile_module._Loaded())


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The suffixes of what the compilers of a test make, in order."""
    seen: list[str] = []
    for module in (compile_module, prebuilt_module):
        original = module.run_compiler

        def counting(command: list[str], *rest: Any, original: Any = original, **more: Any) -> None:
            seen.append(Path(command[command.index("-o") + 1]).suffix)
            original(command, *rest, **more)

        monkeypatch.setattr(module, "run_compiler", counting)
    return seen


def load(builder: Builder, *sources: KernelSource, jobs: int = 1) -> list[int]:
    """The results of kernels."""
    addresses = load_kernels(sources, builder.target, builder.prelude, builder.cache, builder.toolchain, jobs)
    return [call(addresses[source.symbol]) for source in sources]


def objects(cache: KernelCache) -> list[Path]:
    return sorted((cache.root / "headers").rglob("*.o"))


def test_kernels_of_several_units_share_one_object_file(builder: Builder, compiled: list[str]) -> None:
    prebuild(builder, ProcessGroup())
    compiled.clear()
    assert load(builder, calls(3, 5), calls(3, 7), jobs=2) == [15, 21]
    assert load(builder, calls(3, 11)) == [33]
    assert compiled.count(".o") == len(objects(builder.cache)) == 1
    assert compiled.count(".so") == 3


def test_instances_that_one_unit_needs_are_made_at_the_same_time(
    builder: Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    prebuild(builder, ProcessGroup())
    original, both = prebuilt_module.run_compiler, threading.Barrier(2, timeout=60)

    def waiting(command: list[str], *rest: Any, **more: Any) -> None:
        if command[command.index("-o") + 1].endswith(".o"):  # not what is prebuilt in the background for other tests
            both.wait()
        original(command, *rest, **more)

    monkeypatch.setattr(prebuilt_module, "run_compiler", waiting)
    assert load(builder, calls_of_two(3, 4, 5), jobs=2) == [27]


def test_a_compile_marks_what_it_uses(builder: Builder) -> None:
    folder = prelude_header(builder).parent
    os.utime(folder, (1, 1))
    usable_prebuilt(builder)
    assert folder.stat().st_mtime > 1


def test_kernels_take_the_function_from_the_object_file(builder: Builder) -> None:
    prebuild(builder, ProcessGroup())
    load(builder, calls(3, 5))
    # Another function under the same name: a kernel that had its own would not see it.
    (made,) = objects(builder.cache)
    source = builder.cache.root / "tmp" / "other.cpp"
    source.write_text(
        "template <int n> int64_t times(int64_t value) { return -value; }\ntemplate int64_t times<3>(int64_t);\n"
    )
    output = source.with_name(made.name)
    command = builder.toolchain.object_command(
        builder.target, usable_prebuilt(builder).header, builder.prelude.parent, source, output
    )
    subprocess.run(command, check=True)
    builder.cache.store(output, made)
    prebuilt_module._CHECKED.clear()
    assert load(builder, calls(3, 8)) == [-8]


def test_each_instance_has_its_own_object_file(builder: Builder) -> None:
    prebuild(builder, ProcessGroup())
    assert load(builder, calls(3, 5), calls(4, 5)) == [15, 20]
    assert len(objects(builder.cache)) == 2


def test_without_precompiled_header_kernels_have_their_own_function(builder: Builder, compiled: list[str]) -> None:
    assert load(builder, calls(3, 5)) == [15]
    assert compiled == [".so"]


@pytest.mark.parametrize("damage", ["flip", "missing", "no checksum"])
def test_a_damaged_object_file_is_made_again(builder: Builder, compiled: list[str], damage: str) -> None:
    prebuild(builder, ProcessGroup())
    load(builder, calls(3, 5))
    (made,) = objects(builder.cache)
    match damage:
        case "flip":
            content = made.read_bytes()
            made.write_bytes(content[:-9] + bytes([content[-9] ^ 1]) + content[-8:])
        case "missing":
            made.unlink()
        case "no checksum":
            made.with_name(made.name + ".sha256").unlink()
    prebuilt_module._CHECKED.clear()
    compiled.clear()
    assert load(builder, calls(3, 6)) == [18]
    assert compiled == [".o", ".so"]


def test_an_instance_that_does_not_compile_tells_why(builder: Builder) -> None:
    prebuild(builder, ProcessGroup())
    wrong = Instance(("part.h",), "int64_t plus<3>(int64_t)")
    with pytest.raises(InternalError, match="plus"):
        object_file(builder, usable_prebuilt(builder), wrong, ProcessGroup())


def test_a_unit_declares_each_instance_behind_the_headers() -> None:
    both = [times(3), Instance(("part.h", "more.h"), "void f<int>()")]
    assert declarations(both) == (
        '#include "part.h"\n#include "more.h"\n'
        "extern template int64_t times<3>(int64_t);\nextern template void f<int>();\n"
    )
    assert declarations([]) == ""
