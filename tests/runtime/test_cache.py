from __future__ import annotations

import ctypes
import logging
import os
import shutil
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from inductor_cpu.runtime import cache as cache_module
from inductor_cpu.runtime.cache import KernelCache, content_key, default_root, open_cache, private_cache
from inductor_cpu.runtime.loading import loader_path


@pytest.fixture
def cache(tmp_path: Path) -> KernelCache:
    return open_cache(tmp_path / "cache")


def stored(cache: KernelCache, content: bytes = b"library") -> Path:
    path = cache.library("key")
    with cache.scratch() as scratch:
        made = scratch / "made"
        made.write_bytes(content)
        cache.store(made, path)
    return path


def test_key_depends_on_every_part_and_on_their_borders() -> None:
    keys = {content_key("a", "b"), content_key("ab"), content_key("a", "b", ""), content_key("b", "a")}
    assert len(keys) == 4
    assert content_key("a", "b") in keys


def test_stored_file_is_sound_and_leaves_no_scratch(cache: KernelCache) -> None:
    path = stored(cache)
    assert cache.is_sound(path)
    assert path.read_bytes() == b"library"
    assert list((cache.root / "tmp").iterdir()) == []


@pytest.mark.parametrize("damage", [b"librarz", b"libr", b""])
def test_damaged_file_is_deleted(cache: KernelCache, damage: bytes, caplog: pytest.LogCaptureFixture) -> None:
    path = stored(cache)
    path.write_bytes(damage)
    assert not cache.is_sound(path)
    assert not path.exists()
    assert "damaged" in caplog.text


def test_file_without_checksum_is_not_trusted(cache: KernelCache) -> None:
    path = stored(cache)
    path.with_name(path.name + ".sha256").unlink()
    assert not cache.is_sound(path)


@pytest.mark.parametrize("text", ["", "../../evil\n", "garbage", "\x00"])
def test_garbage_in_the_index_names_no_library(cache: KernelCache, text: str) -> None:
    (cache.root / "kernels" / "key").write_text(text)
    assert cache.library_of_kernel("key") is None


def test_index_cannot_point_out_of_the_cache(cache: KernelCache) -> None:
    (cache.root / "kernels" / "key").write_text("../../../evil.so\n")
    assert cache.library_of_kernel("key") == cache.root / "libs" / "evil.so"


def test_old_locks_that_nobody_holds_and_old_refused_sources_are_deleted(cache: KernelCache) -> None:
    with cache.lock("free"), cache.lock("fresh"):
        pass
    cache.keep_failed("old.cpp", "text")
    cache.keep_failed("new.cpp", "text")
    with cache.lock("held"):
        for name, days in (("locks/free", 2), ("locks/held", 2), ("failed/old.cpp", 40), ("failed/new.cpp", 2)):
            then = time.time() - days * 86400
            os.utime(cache.root / name, (then, then))
        KernelCache(cache.root)
    left = {path.name for folder in ("locks", "failed") for path in (cache.root / folder).iterdir()}
    assert left == {"fresh", "held", "new.cpp"}


def test_folder_is_private(tmp_path: Path) -> None:
    cache = open_cache(tmp_path / "a" / "b")
    assert cache.root == tmp_path / "a" / "b"
    assert cache.root.stat().st_mode & 0o777 == 0o700


def test_one_object_per_folder(tmp_path: Path) -> None:
    assert open_cache(tmp_path / "c") is open_cache(str(tmp_path / "c"))


def test_default_folder_follows_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/someone")
    monkeypatch.delenv("ICPU_CACHE_DIR", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert default_root() == Path("/home/someone/.cache/icpu")
    monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
    assert default_root() == Path("/xdg/icpu")
    monkeypatch.setenv("ICPU_CACHE_DIR", "/own")
    assert default_root() == Path("/own")


def test_default_folder_of_a_user_without_a_home(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in containers that run under a number that no user has."""
    for name in ("HOME", "ICPU_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)
    assert default_root() == Path(tempfile.gettempdir(), f"icpu-{os.geteuid()}")


def test_a_library_in_a_folder_with_a_variable_of_the_loader_in_its_name(tmp_path: Path) -> None:
    folder = tmp_path / "$LIB"
    for _ in range(2):  # made again, it is another folder
        folder.mkdir()
        library = Path(shutil.copy(torch._C.__file__, folder / "library.so"))
        with pytest.raises(OSError, match="cannot open"):
            ctypes.CDLL(str(library))
        ctypes.CDLL(loader_path(library))
        shutil.rmtree(folder)


def assert_falls_back(root: Path, reason: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="inductor_cpu.runtime"):
        cache = open_cache(root)
        assert open_cache(root) is cache
    assert cache.root != root
    assert cache.root.stat().st_mode & 0o777 == 0o700
    assert len(caplog.records) == 1
    assert reason in caplog.text
    assert str(root) in caplog.text


def test_folder_that_cannot_be_made_falls_back_with_one_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    assert_falls_back(tmp_path / "file" / "cache", "Not a directory", caplog)


def test_folder_that_cannot_be_written_falls_back(caplog: pytest.LogCaptureFixture) -> None:
    assert_falls_back(Path("/proc/sys"), "", caplog)


def test_folder_that_others_may_write_is_not_used(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    assert_falls_back(tmp_path / "open", "other users may write", caplog)


def test_folder_of_another_user_is_not_used(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache_module.os, "geteuid", lambda: os.getuid() + 1)
    assert_falls_back(tmp_path / "theirs", "it belongs to user", caplog)


def test_private_folder_is_removed_at_exit_of_the_process_that_made_it(monkeypatch: pytest.MonkeyPatch) -> None:
    at_exit: list[tuple[Any, ...]] = []
    monkeypatch.setattr(cache_module.atexit, "register", lambda *call: at_exit.append(call))
    root = private_cache().root
    ((function, *args),) = at_exit
    monkeypatch.setattr(cache_module.os, "getpid", lambda: -1)
    function(*args)
    assert root.exists()
    monkeypatch.undo()
    function(*args)
    assert not root.exists()


def test_lock_is_held_by_one_at_a_time(cache: KernelCache) -> None:
    inside: list[int] = []
    most: list[int] = []

    def work() -> None:
        for _ in range(20):
            with cache.lock("key"):
                inside.append(1)
                most.append(len(inside))
                inside.pop()

    workers = [threading.Thread(target=work) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert max(most) == 1
    assert len(most) == 80


def test_a_lock_held_too_long_is_passed_by_with_a_warning(
    cache: KernelCache, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(cache_module, "_LOCK_PATIENCE", 0.0)
    with cache.lock("key"), cache.lock("key"):
        assert "another process holds" in caplog.text


def test_only_the_headers_that_were_used_last_are_kept(cache: KernelCache) -> None:
    for number in range(8):
        os.utime(cache.header_folder(f"h{number}"), (number, number))
    cache.mark_used(cache.header_folder("h3"))
    cache.prune_headers(keep="h0", newest=2)
    assert {path.name for path in (cache.root / "headers").iterdir()} == {"h0", "h3", "h7"}
    cache.mark_used(cache.root / "headers" / "h1")  # gone: nothing happens
