"""Nobody else can put code into the cache: owners, modes, links, and the folders above."""

from __future__ import annotations

import grp
import logging
import os
import pwd
from pathlib import Path

import pytest

from inductor_cpu.runtime import cache as cache_module
from inductor_cpu.runtime import private
from inductor_cpu.runtime.cache import KernelCache, open_cache, private_cache
from inductor_cpu.runtime.private import why_not_private


@pytest.fixture
def as_user(monkeypatch: pytest.MonkeyPatch) -> int:
    """Files of this user belong to user 4242, who is not root; files of user 0 are root's."""
    original = Path.stat

    def stat(path: Path, **more: bool) -> os.stat_result:
        info = original(path, **more)
        mine = "mine" in path.parts
        fields = list(info)
        fields[4] = 4242 if mine else info.st_uid
        return os.stat_result(fields)

    monkeypatch.setattr(Path, "stat", stat)
    monkeypatch.setattr(private.os, "geteuid", lambda: 4242)
    return 4242


def folder(path: Path, mode: int = 0o700) -> Path:
    path.mkdir(parents=True)
    path.chmod(mode)
    return path


def test_everything_in_the_cache_is_for_its_user_alone(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        cache = open_cache(tmp_path / "above" / "cache")
        with cache.scratch() as scratch:
            (scratch / "made").write_bytes(b"library")
            cache.store(scratch / "made", cache.library("key"))
        cache.record_kernels(["key"], cache.library("key"))
    finally:
        os.umask(old)
    paths = [cache.root, cache.root.parent, *cache.root.rglob("*")]
    assert len(paths) > 10
    assert {oct(path.stat().st_mode & 0o077) for path in paths} == {"0o0"}


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o702])
def test_a_cache_that_others_may_write_is_refused(tmp_path: Path, mode: int) -> None:
    assert "other users may write to it" in (why_not_private(folder(tmp_path / "cache", mode)) or "")


def test_a_folder_above_that_others_may_write_is_refused(tmp_path: Path) -> None:
    folder(tmp_path / "open", 0o777)
    cache = folder(tmp_path / "open" / "mine")
    assert f"the folder {tmp_path / 'open'} above it (mode 777)" in (why_not_private(cache) or "")


def test_a_folder_above_with_the_sticky_bit_is_safe(tmp_path: Path) -> None:
    folder(tmp_path / "open").chmod(0o1777)
    assert why_not_private(folder(tmp_path / "open" / "mine")) is None


@pytest.mark.usefixtures("as_user")
def test_a_folder_above_of_another_user_is_refused_also_with_the_sticky_bit(tmp_path: Path) -> None:
    # Its owner may rename entries whatever the sticky bit says. (Folders of root are trusted.)
    cache = folder(tmp_path / "mine" / "cache")
    assert why_not_private(cache) is None
    os.chown(tmp_path, 4711, -1)
    tmp_path.chmod(0o1777)
    assert f"the folder {tmp_path} above it belongs to user 4711" in (why_not_private(cache) or "")


@pytest.mark.parametrize(
    ("group", "members", "primary", "safe"),
    [
        ("me", [], 77, True),
        ("me", ["me"], 77, True),
        ("me", ["me", "you"], 77, False),
        ("all", [], 77, False),
        ("me", [], 5, False),
    ],
)
def test_a_folder_above_that_a_group_may_write_is_safe_if_the_group_is_this_user_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, group: str, members: list[str], primary: int, safe: bool
) -> None:
    above = folder(tmp_path / "above", 0o775)
    cache = folder(above / "cache")
    original = Path.stat

    def stat(path: Path, **more: bool) -> os.stat_result:
        fields = list(original(path, **more))
        fields[5] = 77 if path == above else fields[5]
        return os.stat_result(fields)

    monkeypatch.setattr(Path, "stat", stat)
    me = pwd.struct_passwd(("me", "x", os.geteuid(), primary, "", "/", "/bin/sh"))
    monkeypatch.setattr(private.pwd, "getpwuid", lambda _: me)
    monkeypatch.setattr(private.grp, "getgrgid", lambda n: grp.struct_group((group, "x", n, members)))
    assert (why_not_private(cache) is None) == safe


def test_a_group_that_does_not_exist_is_not_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(_: int) -> None:
        raise KeyError

    monkeypatch.setattr(private.grp, "getgrgid", unknown)
    assert not private._is_own_group(4711)


def refused(root: Path, caplog: pytest.LogCaptureFixture) -> str:
    """Why a cache is not used."""
    with caplog.at_level(logging.WARNING, logger="inductor_cpu.runtime"):
        cache = open_cache(root)
    assert cache.root != root
    cache_module._remove(cache.root, os.getpid())
    return caplog.text


def test_a_folder_in_the_cache_that_others_may_write_makes_it_unusable(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder(tmp_path / "cache")
    folder(tmp_path / "cache" / "libs", 0o777)
    assert "libs: other users may write to it" in refused(tmp_path / "cache", caplog)


def test_a_link_in_the_cache_makes_it_unusable(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder(tmp_path / "elsewhere")
    folder(tmp_path / "cache")
    (tmp_path / "cache" / "libs").symlink_to(tmp_path / "elsewhere")
    assert "libs: it is a link" in refused(tmp_path / "cache", caplog)


def test_a_link_to_the_cache_is_followed_once_and_for_all(tmp_path: Path) -> None:
    folder(tmp_path / "real")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert open_cache(tmp_path / "link").root == tmp_path / "real"


@pytest.mark.parametrize("mode", [0o666, 0o620, 0o777])
def test_a_library_that_others_may_write_is_not_loaded(
    tmp_path: Path, mode: int, caplog: pytest.LogCaptureFixture
) -> None:
    cache = stored(tmp_path)
    assert cache.is_sound(cache.library("key"))
    cache.library("key").chmod(mode)
    assert not cache.is_sound(cache.library("key"))
    assert "not of this user alone" in caplog.text


def test_a_library_of_another_user_is_not_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = stored(tmp_path)
    monkeypatch.setattr(private.os, "geteuid", lambda: os.getuid() + 1)
    assert not cache.is_sound(cache.library("key"))


def stored(tmp_path: Path) -> KernelCache:
    cache = open_cache(tmp_path / "cache")
    with cache.scratch() as scratch:
        (scratch / "made").write_bytes(b"library")
        cache.store(scratch / "made", cache.library("key"))
    return cache


def test_a_private_cache_below_an_unsafe_folder_is_used_with_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(cache_module.tempfile, "tempdir", str(folder(tmp_path / "open", 0o777)))
    cache = private_cache()
    assert "not safe" in caplog.text
    assert "Set TMPDIR" in caplog.text
    cache_module._remove(cache.root, os.getpid())
