"""The kernel cache: libraries on disk, named by what they were made from, shared by any number of processes.

    libs/<key>.so          a library; <key>.so.sha256 beside it is checked before the library is loaded
    kernels/<key>          one line: the library that has this kernel
    headers/<key>/         a precompiled prelude and its sha256
    locks/                 one file per build that runs or ran
    failed/                sources that a compiler refused, with its messages

Files appear by rename only. A damaged entry is deleted and made again.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import hashlib
import logging
import os
import shutil
import stat
import tempfile
import threading
import time
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

log = logging.getLogger("inductor_cpu.runtime")

_FOLDERS = ("libs", "kernels", "headers", "locks", "failed", "tmp")
_LOCK_PATIENCE = 600.0


def content_key(*parts: str) -> str:
    """A name for what was made from `parts`."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode()
        digest.update(f"{len(data)}:".encode())
        digest.update(data)
    return digest.hexdigest()[:40]


class KernelCache:
    """The folders of one cache. `root` must belong to this user alone; use `open_cache` to get one that does."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for name in _FOLDERS:
            (root / name).mkdir(mode=0o700, exist_ok=True)

    def library(self, key: str) -> Path:
        """Where the library of that key is or will be."""
        return self.root / "libs" / f"{key}.so"

    def header_folder(self, key: str) -> Path:
        """The folder of one precompiled prelude; made if missing."""
        folder = self.root / "headers" / key
        folder.mkdir(mode=0o700, exist_ok=True)
        return folder

    def library_of_kernel(self, key: str) -> Path | None:
        """The library recorded for the kernel of that key, unchecked, or None."""
        try:
            name = (self.root / "kernels" / key).read_text().strip()
        except (OSError, UnicodeDecodeError):
            return None
        return self.root / "libs" / Path(name).name if name.endswith(".so") else None

    def record_kernels(self, keys: list[str], library: Path) -> None:
        """Say that `library` has the kernels of these keys."""
        for key in keys:
            self.write_text(self.root / "kernels" / key, library.name + "\n")

    def prune_headers(self, keep: str, newest: int = 4) -> None:
        """Delete old precompiled preludes, which are large: only `keep` and the `newest` others stay."""
        folders = [folder for folder in (self.root / "headers").iterdir() if folder.name != keep]
        folders.sort(key=lambda folder: folder.stat().st_mtime, reverse=True)
        for folder in folders[newest:]:
            shutil.rmtree(folder, ignore_errors=True)

    def is_sound(self, path: Path) -> bool:
        """Whether `path` exists with the content it was stored with. Deletes it if it is damaged."""
        note = _note(path)
        try:
            expected = note.read_text().strip()
            with path.open("rb") as file:
                actual = hashlib.file_digest(file, "sha256").hexdigest()
        except FileNotFoundError:
            return False
        except (OSError, UnicodeDecodeError) as error:
            log.warning("cannot read the cache entry %s: %s", path, error)
            return False
        if actual == expected:
            return True
        log.warning("the cache entry %s is damaged; it is made again", path)
        self.discard(path)
        return False

    def discard(self, path: Path) -> None:
        """Delete a stored file and its checksum."""
        path.unlink(missing_ok=True)
        _note(path).unlink(missing_ok=True)

    def store(self, made: Path, path: Path) -> None:
        """Move the finished file `made` (in `scratch`) to `path`, with its checksum. Atomic for readers."""
        with made.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        # The old pair must not be seen half new: without a note, a reader takes the entry for absent.
        _note(path).unlink(missing_ok=True)
        os.replace(made, path)
        self.write_text(_note(path), digest + "\n")

    def write_text(self, path: Path, text: str) -> None:
        """Write a small file so that readers see all of it or nothing."""
        handle, name = tempfile.mkstemp(dir=self.root / "tmp")
        with os.fdopen(handle, "w") as file:
            file.write(text)
        os.replace(name, path)

    @contextlib.contextmanager
    def scratch(self) -> Iterator[Path]:
        """A private folder on the same disk, deleted at the end."""
        folder = Path(tempfile.mkdtemp(dir=self.root / "tmp"))
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def keep_failed(self, name: str, text: str) -> Path:
        """Keep a source that did not compile; returns where."""
        path = self.root / "failed" / name
        self.write_text(path, text)
        return path

    @contextlib.contextmanager
    def lock(self, key: str) -> Iterator[None]:
        """Hold the build of `key`: two processes do not make the same thing twice.

        The kernel drops the lock of a dead process. After ten minutes we build anyway: entries are replaced whole,
        so that costs time and nothing else."""
        handle = os.open(self.root / "locks" / key, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            deadline, pause = time.monotonic() + _LOCK_PATIENCE, 0.002
            while not _try_lock(handle):
                if time.monotonic() > deadline:
                    log.warning(
                        "another process holds the build of %s in %s for long; building it here", key, self.root
                    )
                    break
                time.sleep(pause)
                pause = min(pause * 1.5, 0.05)
            yield
        finally:
            os.close(handle)


def default_root() -> Path:
    """The cache folder: ICPU_CACHE_DIR, else icpu in $XDG_CACHE_HOME, else ~/.cache/icpu."""
    named = os.environ.get("ICPU_CACHE_DIR")
    if named:
        return Path(named).expanduser()
    base = os.environ.get("XDG_CACHE_HOME")
    return Path(base or os.path.join(os.path.expanduser("~"), ".cache")) / "icpu"


def open_cache(folder: str | Path | None = None) -> KernelCache:
    """The cache in `folder` (default: `default_root`). One object per folder and process.

    If the folder cannot be written, belongs to another user, or others may write to it, the cache is a private
    folder that is removed when the process ends, and one warning on the logger `inductor_cpu.runtime` says so."""
    root = default_root() if folder is None else Path(folder).expanduser()
    with _OPENING:
        return _open(Path(os.path.abspath(root)), os.getpid())


def private_cache() -> KernelCache:
    """A new, empty cache, removed when the process ends."""
    root = Path(tempfile.mkdtemp(prefix="icpu-"))
    atexit.register(_remove, root, os.getpid())
    return KernelCache(root)


_OPENING = threading.Lock()


@lru_cache(maxsize=64)
def _open(root: Path, pid: int) -> KernelCache:
    # `pid` is in the key: a forked child must not use a temporary folder that its parent removes.
    reason = _why_not(root)
    if reason is None:
        return KernelCache(root)
    log.warning(
        "the kernel cache %s is not used: %s. Kernels go to a temporary folder and are compiled again in each "
        "process; set ICPU_CACHE_DIR to a folder of your own.",
        root,
        reason,
    )
    return private_cache()


def _why_not(root: Path) -> str | None:
    """Why `root` cannot be the cache, or None if it can."""
    try:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        info = root.stat()
        if not stat.S_ISDIR(info.st_mode):
            return "it is not a folder"
        # Libraries from here are executed: nobody else may have put them there.
        if info.st_uid != os.geteuid():
            return f"it belongs to user {info.st_uid}, not to {os.geteuid()}"
        if info.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            return f"other users may write to it (mode {stat.S_IMODE(info.st_mode):o}; `chmod 700` it)"
        for name in _FOLDERS:
            (root / name).mkdir(mode=0o700, exist_ok=True)
        with tempfile.TemporaryFile(dir=root / "tmp"):
            return None
    except OSError as error:
        return f"{error.strerror or error}"


def _note(path: Path) -> Path:
    return path.with_name(path.name + ".sha256")


def _try_lock(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _remove(root: Path, pid: int) -> None:
    if os.getpid() == pid:
        shutil.rmtree(root, ignore_errors=True)
