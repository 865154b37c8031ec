"""Run compilers: no shell, a timeout, and no process left behind."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field


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

    _running: set[subprocess.Popen[str]] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _cancelled: bool = False

    def run(self, command: Sequence[str], timeout: float, nice: int = 0) -> Outcome:
        """Run `command` for at most `timeout` seconds, its priority lowered by `nice`.

        Raises OSError if it cannot start, RuntimeError after `cancel`."""
        with self._lock:
            if self._cancelled:
                raise RuntimeError("the compile was cancelled")
            # A session of its own, so that the compiler's children (cc1plus, ld) die with it.
            process = subprocess.Popen(
                list(command),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
                start_new_session=True,
                env={**os.environ, "LC_ALL": "C"},
            )
            self._running.add(process)
        if nice:
            with contextlib.suppress(OSError):  # it may have ended already
                os.setpriority(os.PRIO_PROCESS, process.pid, os.getpriority(os.PRIO_PROCESS, 0) + nice)
        timed_out = False
        try:
            try:
                out, err = process.communicate(timeout=timeout)
            except subprocess.TimeoutExpired:
                timed_out = True
                _kill(process)
                out, err = process.communicate()
        except BaseException:
            _kill(process)
            process.wait()
            raise
        finally:
            with self._lock:
                self._running.discard(process)
        return Outcome(tuple(command), process.returncode, out, err, timed_out)

    def cancel(self) -> None:
        """Kill what runs; later `run` calls raise."""
        with self._lock:
            self._cancelled = True
            for process in self._running:
                _kill(process)


def _kill(process: subprocess.Popen[str]) -> None:
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
