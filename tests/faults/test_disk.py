"""Disks that are full, read-only, gone or damaged."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from inductor_cpu.errors import UserError
from inductor_cpu.runtime import cache as cache_module
from inductor_cpu.runtime import compile as compile_module
from inductor_cpu.runtime import executor as executor_module
from inductor_cpu.runtime import prebuilt as prebuilt_module
from inductor_cpu.runtime.cache import KernelCache, open_cache, private_cache
from inductor_cpu.runtime.compile import load_kernels
from inductor_cpu.runtime.executor import build_executor
from inductor_cpu.runtime.measurements import Measurements
from inductor_cpu.runtime.prebuilt import Builder, Prebuilt, prebuild, usable_prebuilt
from inductor_cpu.runtime.process import ProcessGroup
from inductor_cpu.runtime.toolchain import STANDARD_LIBRARY, TORCH_LIBRARY, Toolchain
from inductor_cpu.targets.cpu import target_for
from tests.faults.support import compiler, leftovers, libraries, toolchain_of
from tests.runtime.conftest import Load
from tests.runtime.support import kernel

SOURCE = kernel("*(int64_t*)p[0] = 2;", "disk")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 400 KiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=400k,mode=700", "none", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("only root can make a disk")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(folder: Path) -> Path:
    path = folder / "filler"
    with contextlib.suppress(OSError), path.open("wb", buffering=0) as file:  # until there is no space left
        while True:
            file.write(bytes(4096))
    return path


def test_a_full_disk_is_a_user_error_and_after_making_room_all_is_well(disk: Path, load: Load) -> None:
    cache = open_cache(disk / "cache")
    filler = fill(disk)
    with pytest.raises(UserError, match=r"No space left on device.*Free space"):
        load(SOURCE, cache=cache)
    assert leftovers(cache) == []
    assert libraries(cache) == []
    filler.unlink()
    assert load(SOURCE, cache=cache)[SOURCE.symbol]


def test_a_disk_that_fills_while_the_compiler_runs_is_a_user_error(
    disk: Path, prelude: Path, tmp_path: Path, toolchain: Toolchain
) -> None:
    cache = open_cache(disk / "cache")
    script = f'cat /dev/zero > {disk}/filler 2>/dev/null; exec $REAL "$@"'
    tools = toolchain_of(compiler(tmp_path, script))
    with pytest.raises(UserError, match="Free space"):
        load_kernels([SOURCE], target_for(), prelude, cache, tools)
    assert leftovers(cache) == []
    (disk / "filler").unlink()
    assert load_kernels([SOURCE], target_for(), prelude, cache, toolchain)


def test_a_disk_that_becomes_read_only_is_a_user_error_and_a_new_process_does_without(
    disk: Path, load: Load, caplog: pytest.LogCaptureFixture
) -> None:
    cache = open_cache(disk / "cache")
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    with pytest.raises(UserError, match=r"Read-only file system.*ICPU_CACHE_DIR"):
        load(SOURCE, cache=cache)
    cache_module._open.cache_clear()
    other = open_cache(disk / "cache")
    assert other.root != cache.root
    assert "Read-only file system" in caplog.text
    assert load(SOURCE, cache=other)[SOURCE.symbol]
    cache_module._remove(other.root, os.getpid())


def test_a_disk_that_forbids_execution_is_a_user_error(disk: Path, load: Load) -> None:
    subprocess.run(["mount", "-o", "remount,noexec", str(disk)], check=True)
    with pytest.raises(UserError, match=r"noexec.*ICPU_CACHE_DIR"):
        load(SOURCE, cache=open_cache(disk / "cache"))


def test_a_limit_of_file_sizes_is_a_user_error(cache: KernelCache, prelude: Path, tmp_path: Path) -> None:
    tools = toolchain_of(compiler(tmp_path, 'ulimit -f 1; $REAL "$@"'))
    with pytest.raises(UserError, match="ulimit -f"):
        load_kernels([SOURCE], target_for(), prelude, cache, tools)
    assert libraries(cache) == []


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
def test_a_write_that_fails_half_way_leaves_nothing(
    cache: KernelCache, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def fail(*_: Any) -> None:
        raise OSError(number, os.strerror(number))

    path = cache.root / "kernels" / "key"
    monkeypatch.setattr(cache_module.os, "replace", fail)
    with pytest.raises(UserError, match=os.strerror(number)):
        cache.write_text(path, "text")
    monkeypatch.undo()
    assert not path.exists()
    assert leftovers(cache) == []


def test_a_cache_that_is_deleted_while_the_program_runs_is_made_again(cache: KernelCache, load: Load) -> None:
    shutil.rmtree(cache.root)
    assert load(SOURCE, cache=cache)[SOURCE.symbol]
    assert cache.root.stat().st_mode & 0o777 == 0o700


def test_no_folder_for_temporary_files_is_a_user_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(cache_module.tempfile, "tempdir", str(tmp_path / "gone"))
    with pytest.raises(UserError, match="set TMPDIR"):
        private_cache()


def test_what_a_machine_that_went_down_left_is_deleted(cache: KernelCache) -> None:
    old, new = cache.root / "tmp" / "old", cache.root / "tmp" / "new"
    old.mkdir()
    (old / "file").touch()
    new.mkdir()
    os.utime(old, (0, time.time() - 2 * 86400))
    KernelCache(cache.root)
    assert leftovers(cache) == ["new"]
    new.rmdir()


def flip(path: Path, position: float) -> None:
    """Change one bit. A new file, for this process may have the old one mapped."""
    content = bytearray(path.read_bytes())
    content[int(len(content) * position)] ^= 1
    path.unlink()
    path.write_bytes(bytes(content))


@pytest.mark.parametrize("position", [0.0, 0.3, 0.999])
def test_a_library_with_a_flipped_bit_is_made_again(cache: KernelCache, load: Load, position: float) -> None:
    load(SOURCE, cache=cache)
    (name,) = libraries(cache)
    flip(cache.root / "libs" / name, position)
    compile_module._LOADED.addresses.clear()
    compile_module._LOADED.libraries.clear()
    assert load(SOURCE, cache=cache)[SOURCE.symbol]
    assert cache.is_sound(cache.root / "libs" / name)


def test_an_index_that_names_another_library_is_not_believed(cache: KernelCache, load: Load) -> None:
    load(SOURCE, cache=cache)
    other = kernel("*(int64_t*)p[0] = 3;", "other")
    load(other, cache=cache)
    names = [path.read_text() for path in (cache.root / "kernels").iterdir()]
    for path, name in zip((cache.root / "kernels").iterdir(), reversed(names), strict=True):
        path.write_text(name)
    compile_module._LOADED.addresses.clear()
    addresses = load(SOURCE, other, cache=cache)
    assert addresses[SOURCE.symbol] != addresses[other.symbol]


@pytest.mark.parametrize("damage", ["flip", "truncate", "no checksum", "other owner"])
def test_a_damaged_executor_is_built_again(
    cache: KernelCache, toolchain: Toolchain, damage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fake(command: list[str], *_: Any) -> None:
        Path(command[command.index("-o") + 1]).write_bytes(b"a new executor")

    monkeypatch.setattr(executor_module, "run_compiler", fake)
    library = build_executor(cache, toolchain, ProcessGroup())
    match damage:
        case "flip":
            flip(library, 0.5)
        case "truncate":
            library.write_bytes(b"a new")
        case "no checksum":
            library.with_name(library.name + ".sha256").unlink()
        case "other owner":
            library.chmod(0o666)
    assert build_executor(cache, toolchain, ProcessGroup()) == library
    assert library.read_bytes() == b"a new executor"
    assert library.stat().st_mode & 0o777 == 0o600
    assert cache.is_sound(library)


def test_an_executor_of_another_system_is_built_again_once(
    cache: KernelCache, toolchain: Toolchain, monkeypatch: pytest.MonkeyPatch
) -> None:
    builds: list[str] = []

    def fake(command: list[str], *_: Any) -> None:
        builds.append("build")
        Path(command[command.index("-o") + 1]).write_bytes(b"not for this libc")

    monkeypatch.setattr(executor_module, "run_compiler", fake)
    with pytest.raises(UserError, match=r"does not load it.*ICPU_CACHE_DIR"):
        executor_module._Loader().load(cache, toolchain)
    assert builds == ["build", "build"]


@pytest.mark.parametrize("damage", ["flip", "truncate", "no checksum", "text"])
def test_a_damaged_precompiled_header_is_not_used(
    cache: KernelCache, prelude: Path, toolchain: Toolchain, damage: str
) -> None:
    builder = Builder(target_for(), prelude, cache, toolchain)
    prebuild(builder, ProcessGroup())
    header = usable_prebuilt(builder).header
    made = toolchain.precompiled(header)
    assert made.exists()
    match damage:
        case "flip":
            flip(made, 0.5)
        case "truncate":
            made.write_bytes(made.read_bytes()[:1000])
        case "no checksum":
            made.with_name(made.name + ".sha256").unlink()
        case "text":
            made.unlink()
            header.write_text("#include <nonsense>\n")
    prebuilt_module._CHECKED.clear()
    assert usable_prebuilt(builder).header == prelude
    assert load_kernels([SOURCE], target_for(), prelude, cache, toolchain)
    prebuild(builder, ProcessGroup())
    assert usable_prebuilt(builder).header == header
    assert header.read_text() == f"#include <{prelude.name}>\n"


@pytest.mark.parametrize("damage", ["flip", "missing"])
@pytest.mark.parametrize("library", [TORCH_LIBRARY, STANDARD_LIBRARY])
def test_stand_ins_for_libraries_are_not_used_with_a_damaged_one(
    cache: KernelCache, prelude: Path, toolchain: Toolchain, damage: str, library: str
) -> None:
    if library not in toolchain.stub_names:
        pytest.skip(f"{toolchain.version} links {library} itself")
    builder = Builder(target_for(), prelude, cache, toolchain)
    prebuild(builder, ProcessGroup())
    stubs = usable_prebuilt(builder).stubs
    (stub,) = (stub for stub in stubs if stub.name == library)
    if damage == "flip":
        flip(stub, 0.5)
    else:
        stub.unlink()
    prebuilt_module._CHECKED.clear()
    assert usable_prebuilt(builder).stubs == ()
    assert load_kernels([SOURCE], target_for(), prelude, cache, toolchain)
    prebuild(builder, ProcessGroup())
    assert usable_prebuilt(builder).stubs == stubs


def test_a_precompiled_header_damaged_while_the_program_runs_is_given_up(
    cache: KernelCache, prelude: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    # The compiler crashes on the precompiled header, which was sound when it was checked.
    crash = 'case "$*" in *"-shared"*prelude.h*) echo "internal compiler error: crash" >&2; exit 4;; esac'
    order = 'case "$*" in *prelude.h*-shared*) echo "internal compiler error: crash" >&2; exit 4;; esac'
    tools = toolchain_of(compiler(tmp_path, f'{crash}\n{order}\nexec $REAL "$@"'))
    builder = Builder(target_for(), prelude, cache, tools)
    prebuild(builder, ProcessGroup())
    assert load_kernels([SOURCE], target_for(), prelude, cache, tools)
    assert "works only without what was prebuilt" in caplog.text
    caplog.clear()  # it is expected here only
    assert usable_prebuilt(builder) == Prebuilt(prelude)


@pytest.mark.parametrize("damage", ['{"question": {"a": "x"}}', "{", "[]", "\x00\x00", ""])
def test_damaged_measurements_are_made_again(cache: KernelCache, damage: str) -> None:
    calls: list[str] = []

    def candidates() -> dict[str, Any]:
        calls.append("measured")
        return {"a": lambda: None}

    measurements = Measurements(cache, "cpu")
    first = measurements.seconds("question", candidates)
    assert measurements.seconds("question", candidates) == first
    assert calls == ["measured"]
    (path,) = cache.root.glob("measured-*.json")
    path.write_text(damage)
    assert measurements.seconds("question", candidates)["a"] > 0
    assert calls == ["measured", "measured"]
    assert measurements.seconds("question", candidates)["a"] > 0
    assert calls == ["measured", "measured"]


def test_measurements_that_cannot_be_kept_are_used_with_a_warning(
    cache: KernelCache, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: Any) -> None:
        raise UserError("the disk is full")

    monkeypatch.setattr(KernelCache, "store", full)
    assert Measurements(cache, "cpu").seconds("question", lambda: {"a": lambda: None})["a"] > 0
    assert "the disk is full" in caplog.text


def test_another_isa_version_or_flag_never_takes_an_entry(
    cache: KernelCache, prelude: Path, toolchain: Toolchain, tmp_path: Path
) -> None:
    other_prelude = tmp_path / "other" / "icpu.h"
    other_prelude.parent.mkdir()
    other_prelude.write_text(prelude.read_text() + "\n")
    verbose = Toolchain(("g++", "-DX"), *list(vars(toolchain).values())[1:])
    newer = Toolchain(toolchain.command, toolchain.family, "gcc 99", *list(vars(toolchain).values())[3:])
    builders = [
        Builder(target_for(), prelude, cache, toolchain),
        Builder(target_for(0), prelude, cache, toolchain),
        Builder(target_for(), other_prelude, cache, toolchain),
        Builder(target_for(), prelude, cache, verbose),
        Builder(target_for(), prelude, cache, newer),
    ]
    assert len({builder.key for builder in builders}) == len(builders)
