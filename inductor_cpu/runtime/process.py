"""Run compilers: no shell, a time limit, and no process left behind."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import tempfile
import threading
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from inductor_cpu.runtime.guardian import GUARDIAN, MARK
from inductor_cpu.runtime.spawn import spawn

LOW_PRIORITY = 10
"""The `nice` of compilers that nobody waits for."""

_MOST_OUTPUT = 1 << 20
"""Bytes of a compiler's messages that are read."""


class Cancelled(RuntimeError):
    """The work of a `ProcessGroup` is not wanted any more."""


@dataclass(frozen=True)
class Outcome:
    """How a command ended. `code` is negative for a signal; -9 with `timed_out` for a command that was stopped."""

    command: tuple[str, ...]
    code: int
    stdout: str
    stderr: str
    timed_out: bool = False


@dataclass
class ProcessGroup:
    """Commands that are stopped together: `cancel` kills those that run, with their children, and refuses new ones."""

    _running: set[subprocess.Popen[bytes]] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _cancelled: bool = False

    def run(self, command: Sequence[str], timeout: float, nice: int = 0, scratch: Path | None = None) -> Outcome:
        """Run `command` for at most `timeout` seconds, with its priority lowered by `nice` and its temporary files in
        `scratch`.

        Raises OSError if it cannot start, Cancelled after `cancel`."""
        # Files, not pipes: a pipe ends only when every process that inherited it has closed it, and some compiler
        # caches leave a server behind.
        mark = uuid.uuid4().hex
        with _unnamed_file() as out, _unnamed_file() as err, GUARDIAN.watch("mark", f"{MARK}={mark}"):
            with self._lock:
                self.check()
                # A session of its own, so that the compiler's children (cc1plus, ld) die with it.
                process = spawn(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=err,
                    start_new_session=True,
                    env=_environment(scratch, mark),
                )
                self._running.add(process)
            try:
                _lower_priority(process, nice)
                timed_out = not _ended(process, timeout)
                if timed_out:
                    _kill(process)
                process.wait()
            except BaseException:
                _kill(process)
                process.wait()
                raise
            finally:
                with self._lock:
                    self._running.discard(process)
            self.check()  # a command that was killed by `cancel` has no outcome
            return Outcome(tuple(command), process.returncode, _content(out), _content(err), timed_out)

    def check(self) -> None:
        """Raise Cancelled after `cancel`."""
        if self._cancelled:
            raise Cancelled("the compile was cancelled")

    def cancel(self) -> None:
        """Kill what runs; later `run` calls raise."""
        with self._lock:
            self._cancelled = True
            for process in self._running:
                _kill(process)


def _environment(scratch: Path | None, mark: str) -> dict[str, str]:
    environment = {**os.environ, "LC_ALL": "C", MARK: mark}
    if scratch is not None:
        environment["TMPDIR"] = str(scratch)
    # A sanitizer is meant for the kernels, and would judge the compiler.
    if "libasan" in environment.get("LD_PRELOAD", ""):
        del environment["LD_PRELOAD"]
    return environment


def _unnamed_file() -> IO[bytes]:
    """A file that needs no folder, where the system has such."""
    if hasattr(os, "memfd_create"):
        return os.fdopen(os.memfd_create("icpu"), "w+b")
    return tempfile.TemporaryFile()


def _content(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read(_MOST_OUTPUT).decode(errors="replace")


def _lower_priority(process: subprocess.Popen[bytes], nice: int) -> None:
    if nice:
        priority = min(os.getpriority(os.PRIO_PROCESS, 0) + nice, 19)
        with contextlib.suppress(OSError):  # it may have ended already
            os.setpriority(os.PRIO_PROCESS, process.pid, priority)
        # Most Linux systems share the cores among sessions first ("autogroups"), and `process` has one of its own.
        with contextlib.suppress(OSError):
            Path(f"/proc/{process.pid}/autogroup").write_text(f"{priority}\n")


def _ended(process: subprocess.Popen[bytes], timeout: float) -> bool:
    """Wait until `process` ends; False after `timeout` seconds."""
    try:
        handle = os.pidfd_open(process.pid)
    except (AttributeError, OSError):  # an old kernel, or one that forbids it: look again and again
        try:
            process.wait(timeout)
        except subprocess.TimeoutExpired:
            return False
        return True
    try:
        poll = select.poll()
        poll.register(handle, select.POLLIN)
        return bool(poll.poll(timeout * 1000))
    finally:
        os.close(handle)


def _kill(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
