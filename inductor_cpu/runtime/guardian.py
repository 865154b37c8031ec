"""What has to go when this process dies without cleaning up itself: compilers, and folders for temporary files.

A small program (`janitor.py`) holds the reading end of a pipe and acts when the pipe ends, whatever ended us: SIGTERM,
SIGKILL, `os._exit`. It runs only while there is something to watch.
"""

from __future__ import annotations

import contextlib
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from inductor_cpu.runtime.spawn import spawn

log = logging.getLogger("inductor_cpu.runtime")

Kind = Literal["mark", "folder"]
MARK = "ICPU_COMMAND"
"""A variable that the environment of a watched process has. Its setting is named to the janitor before that process
starts, so that no moment is left in which the process runs and nobody would end it."""
_JANITOR = Path(__file__).with_name("janitor.py")


class Guardian:
    """Starts the janitor with the first thing to watch and ends it with the last. For any number of threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._watched: list[bytes] = []
        self._janitor: subprocess.Popen[bytes] | None = None

    @contextlib.contextmanager
    def watch(self, kind: Kind, name: str | Path) -> Iterator[None]:
        """Watch a folder, or process groups whose leader has the setting `name` ("MARK=value"), during the block."""
        self.add(kind, name)
        try:
            yield
        finally:
            self.remove(kind, name)

    def add(self, kind: Kind, name: str | Path) -> None:
        """Kill or delete this if the process dies."""
        entry = _entry(kind, name)
        with self._lock:
            self._watched.append(entry)
            if self._janitor is None:
                self._janitor = _start()
            self._tell(b"+" + entry)

    def remove(self, kind: Kind, name: str | Path) -> None:
        """It is gone, or has to stay."""
        entry = _entry(kind, name)
        with self._lock:
            if entry not in self._watched:
                return  # of the parent of a fork
            self._watched.remove(entry)
            self._tell(b"-" + entry)
            if not self._watched and self._janitor is not None:
                janitor, self._janitor = self._janitor, None
                assert janitor.stdin is not None
                with contextlib.suppress(OSError):
                    janitor.stdin.close()
                janitor.wait()

    def forget(self) -> None:
        """After a fork, in the child: all this belongs to the parent."""
        self._lock, self._watched = threading.Lock(), []
        if self._janitor is not None and self._janitor.stdin is not None:
            self._janitor.stdin.close()
            self._janitor.returncode = 0  # not our child: nothing to wait for
        self._janitor = None

    def _tell(self, line: bytes) -> None:
        if self._janitor is None or self._janitor.stdin is None:
            return
        try:
            self._janitor.stdin.write(line + b"\n")
        except OSError as error:  # somebody killed it
            log.info("the process that cleans up after this one is gone: %s", error)
            self._janitor.wait()
            self._janitor = None


def _entry(kind: Kind, name: str | Path) -> bytes:
    return f"{kind} ".encode() + os.fsencode(str(name)).hex().encode()


def _start() -> subprocess.Popen[bytes] | None:
    """The janitor, or None where there is no Python to start (a program that embeds it)."""
    if "python" not in Path(sys.executable or "").name:
        return None
    try:
        return spawn(
            [sys.executable, "-I", "-S", str(_JANITOR)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            start_new_session=True,
            cwd="/",
            env={"LC_ALL": "C"},
        )
    except OSError as error:
        log.info("nothing cleans up if this process is killed: %s", error)
        return None


GUARDIAN = Guardian()
"""The one of this process."""

os.register_at_fork(after_in_child=GUARDIAN.forget)
