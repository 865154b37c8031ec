"""The kernel cache: libraries on disk, named by what they were made from, shared by any number of processes.

    libs/<key>.so          a library; <key>.so.sha256 beside it is checked before the library is loaded
    kernels/<key>          one line: the library that has this kernel
    headers/<key>/         a precompiled prelude and its sha256
    locks/                 one file per build that runs or ran lately
    failed/                sources that a compiler refused, with its messages, for a month
    tmp/                   what is being made; deleted when done, also if this process is killed

Files appear by rename only. A damaged entry is deleted and made again. Everything is readable by its user alone.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import fcntl
import hashlib
import logging
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path

from inductor_cpu.errors import UserError
from inductor_cpu.runtime.guardian import GUARDIAN
from inductor_cpu.runtime.private import is_own_file, why_not_private, why_parents_unsafe

log = logging.getLogger("inductor_cpu.runtime")

_FOLDERS = ("libs", "kernels", "headers", "locks", "failed", "tmp")
_LOCK_PATIENCE = 600.0
_STALE = 86400.0
"""Age in seconds of a temporary file that nobody makes any more: no build takes so long."""

_KEPT = 30 * 86400.0
"""Age in seconds at which a refused source is forgotten."""

_REMEDIES = {
    errno.ENOSPC: "Free space on its disk, or set ICPU_CACHE_DIR to a folder on another one.",
    errno.EDQUOT: "Free space of your quota, or set ICPU_CACHE_DIR to a folder on another disk.",
    errno.EFBIG: "Raise the limit of the size of files (`ulimit -f`).",
    errno.EMFILE: "Raise the limit of open files (`ulimit -n`).",
}
_REMEDY = "Set ICPU_CACHE_DIR to a folder of your own that can be written."


def content_key(*parts: str) -> str:
    """A name for what was made from `parts`."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode()
        digest.update(f"{len(data)}:".encode())
        digest.update(data)
    return digest.hexdigest()[:40]


class KernelCache:
    """The folders of one cache. `root` must belong to this user alone; use `open_cache` to get one that does.

    Methods that write raise UserError, with the remedy, if the disk is full or cannot be written."""

    def __init__(self, root: Path) -> None:
        self.root = root
        _make_folders(root)
        self._sweep()

    def library(self, key: str) -> Path:
        """Where the library of that key is or will be."""
        return self.root / "libs" / f"{key}.so"

    def header_folder(self, key: str) -> Path:
        """The folder of one precompiled prelude; made if missing."""
        folder = self.root / "headers" / key
        with self._writing():
            _make_folders(self.root)
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
        """Delete old precompiled preludes, which are large: only `keep` and the `newest` others that were used last."""
        folders = [folder for folder in (self.root / "headers").iterdir() if folder.name != keep]
        folders.sort(key=lambda folder: folder.stat().st_mtime, reverse=True)
        for folder in folders[newest:]:
            shutil.rmtree(folder, ignore_errors=True)

    def mark_used(self, folder: Path) -> None:
        """Note that a folder of a precompiled prelude is in use, for `prune_headers` of any process."""
        with contextlib.suppress(OSError):  # another process has just deleted it: what it had is made again
            os.utime(folder)

    def is_sound(self, path: Path) -> bool:
        """Whether `path` exists with the content it was stored with, and is ours. Deletes it if not."""
        note = _note(path)
        try:
            expected = note.read_text().strip()
            with path.open("rb") as file:
                own = is_own_file(os.fstat(file.fileno()))
                actual = hashlib.file_digest(file, "sha256").hexdigest()
        except FileNotFoundError:
            return False
        except (OSError, UnicodeDecodeError) as error:
            log.warning("cannot read the cache entry %s: %s", path, error)
            return False
        if own and actual == expected:
            return True
        why = "damaged" if own else "not of this user alone"
        log.warning("the cache entry %s is %s; it is made again", path, why)
        self.discard(path)
        return False

    def discard(self, path: Path) -> None:
        """Delete a stored file and its checksum."""
        path.unlink(missing_ok=True)
        _note(path).unlink(missing_ok=True)

    def store(self, made: Path, path: Path) -> None:
        """Move the finished file `made` (in `scratch`) to `path`, with its checksum. Atomic for readers."""
        with self._writing():
            made.chmod(0o600)
            with made.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
            # The old pair must not be seen half new: without a note, a reader takes the entry for absent.
            _note(path).unlink(missing_ok=True)
            os.replace(made, path)
        self.write_text(_note(path), digest + "\n")

    def write_text(self, path: Path, text: str) -> None:
        """Write a small file so that readers see all of it or nothing."""
        with self._writing():
            handle, name = tempfile.mkstemp(dir=self.root / "tmp")
            try:
                with os.fdopen(handle, "w") as file:
                    file.write(text)
                os.replace(name, path)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(name)
                raise

    @contextlib.contextmanager
    def scratch(self) -> Iterator[Path]:
        """A private folder on the same disk, deleted at the end."""
        with self._writing():
            folder = Path(tempfile.mkdtemp(dir=self.root / "tmp"))
        try:
            with GUARDIAN.watch("folder", folder):
                yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def keep_failed(self, name: str, text: str) -> Path | None:
        """Keep a source that did not compile; returns where, or None if the disk is full."""
        path = self.root / "failed" / name
        try:
            self.write_text(path, text)
        except UserError as error:
            log.warning("%s was not kept: %s", name, error)
            return None
        return path

    @contextlib.contextmanager
    def lock(self, key: str, check: Callable[[], None] = lambda: None) -> Iterator[None]:
        """Hold the build of `key`: two processes do not make the same thing twice.

        The kernel drops the lock of a dead process. After ten minutes we build anyway: entries are replaced whole,
        so that costs time and nothing else. `check` is called while waiting and may raise."""
        with self._writing():
            handle = self._open_lock(key)
        _HELD.add(handle)
        try:
            deadline, pause = time.monotonic() + _LOCK_PATIENCE, 0.002
            while not _try_lock(handle):
                check()
                if time.monotonic() > deadline:
                    log.warning(
                        "another process holds the build of %s in %s for long; building it here", key, self.root
                    )
                    break
                time.sleep(pause)
                pause = min(pause * 1.5, 0.05)
            yield
        finally:
            _HELD.discard(handle)
            # Not only closed: a process that was forked meanwhile has the file open too, and would keep the lock.
            with contextlib.suppress(OSError):
                fcntl.flock(handle, fcntl.LOCK_UN)
            os.close(handle)

    def _open_lock(self, key: str) -> int:
        _make_folders(self.root)  # somebody may have deleted the cache while this process runs
        return os.open(self.root / "locks" / key, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            remedy = _REMEDIES.get(error.errno or 0, _REMEDY)
            what = error.strerror or error
            raise UserError(f"the kernel cache {self.root} cannot be written: {what}. {remedy}") from error

    def _sweep(self) -> None:
        """Delete what machines that went down left in tmp/, old refused sources, and old locks that nobody holds."""
        for path in _older(self.root / "tmp", _STALE):
            _delete(path)
        for path in _older(self.root / "failed", _KEPT):
            _delete(path)
        for path in _older(self.root / "locks", _STALE):
            _delete_lock(path)


def default_root() -> Path:
    """The cache folder: ICPU_CACHE_DIR, else icpu in $XDG_CACHE_HOME, else ~/.cache/icpu; for a user without a home a
    folder among the temporary ones."""
    named = os.environ.get("ICPU_CACHE_DIR")
    if named:
        return Path(named).expanduser()
    base = os.environ.get("XDG_CACHE_HOME")
    if base:
        return Path(base) / "icpu"
    home = os.path.expanduser("~")  # itself if nothing tells
    return Path(tempfile.gettempdir(), f"icpu-{os.geteuid()}") if home == "~" else Path(home, ".cache", "icpu")


def open_cache(folder: str | Path | None = None) -> KernelCache:
    """The cache in `folder` (default: `default_root`). One object per folder and process.

    If the folder cannot be written, belongs to another user, or others may write to it or to a folder above it, the
    cache is a private folder that is removed when the process ends, and one warning on the logger
    `inductor_cpu.runtime` says so."""
    root = default_root() if folder is None else Path(folder).expanduser()
    # The real path is checked, so it is used: a link in the given one may change.
    with _OPENING.lock:
        return _open(Path(os.path.realpath(root)), os.getpid())


def private_cache() -> KernelCache:
    """A new, empty cache, removed when the process ends. Raises UserError if there is no folder for it."""
    try:
        root = Path(os.path.realpath(tempfile.mkdtemp(prefix="icpu-")))
        reason = why_parents_unsafe(root)
    except OSError as error:
        raise UserError(
            f"there is no folder for temporary files ({error.strerror or error}): set TMPDIR to one, or ICPU_CACHE_DIR "
            "to a folder of your own"
        ) from error
    if reason is not None:
        log.warning(
            "kernels are kept in %s for now, which is not safe: %s. Set TMPDIR to a folder of yours.", root, reason
        )
    GUARDIAN.add("folder", root)
    atexit.register(_remove, root, os.getpid())
    return KernelCache(root)


class _Opening:
    """Held while a cache is opened."""

    def __init__(self) -> None:
        self.lock = threading.Lock()


_OPENING = _Opening()

_HELD: set[int] = set()
"""File handles of the locks that this process holds or waits for."""


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
        _make_folders(root)
        for folder in (root, *(root / name for name in _FOLDERS)):
            reason = "it is a link" if folder.is_symlink() else why_not_private(folder)
            if reason is not None:
                return reason if folder == root else f"{folder.name}: {reason}"
        with tempfile.TemporaryFile(dir=root / "tmp"):
            return None
    except OSError as error:
        return f"{error.strerror or error}"


def _make_folders(root: Path) -> None:
    """The cache folder with the folders in it, for this user alone. Raises OSError."""
    for folder in (*reversed(root.parents), root, *(root / name for name in _FOLDERS)):
        if not folder.exists():
            folder.mkdir(mode=0o700, exist_ok=True)


def _note(path: Path) -> Path:
    return path.with_name(path.name + ".sha256")


def _try_lock(handle: int) -> bool:
    """Whether there is nothing to wait for."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:  # a file system without locks: two builds of one thing cost time and nothing else
        log.info("no locks in the kernel cache: %s", error)
    return True


def _older(folder: Path, age: float) -> list[Path]:
    """What has been in a folder for more than `age` seconds; nothing if it cannot be read."""
    with contextlib.suppress(OSError):
        limit = time.time() - age
        return [Path(entry.path) for entry in os.scandir(folder) if entry.stat(follow_symlinks=False).st_mtime < limit]
    return []


def _delete_lock(path: Path) -> None:
    """Delete the file of a lock unless somebody holds it. Who opened it meanwhile builds beside the next one: that
    costs time and nothing else."""
    with contextlib.suppress(OSError):
        handle = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.unlink()
        finally:
            os.close(handle)


def _remove(root: Path, pid: int) -> None:
    if os.getpid() == pid:
        shutil.rmtree(root, ignore_errors=True)
        GUARDIAN.remove("folder", root)


def _delete(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _after_fork() -> None:
    """In the child: the locks are the parent's, and a thread that no longer exists may hold the opening."""
    _OPENING.lock = threading.Lock()
    for handle in _HELD:
        with contextlib.suppress(OSError):
            os.close(handle)
    _HELD.clear()


os.register_at_fork(after_in_child=_after_fork)
