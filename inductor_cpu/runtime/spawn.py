"""Start a program while no other thread forks.

`Popen` waits for the end of a pipe that its child closes. A process that another thread forks at that moment, and that
runs on without a new program (a worker of a data loader), would keep the pipe open, and `Popen` would hang.
"""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Sequence
from typing import Any


class _Gate:
    """Held by who starts a program and by who forks. Reentrant: a signal handler may fork in the midst of a start."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        os.register_at_fork(
            before=lambda: self._lock.acquire(),
            after_in_parent=lambda: self._lock.release(),
            after_in_child=self._renew,
        )

    def spawn(self, command: Sequence[str], **options: Any) -> subprocess.Popen[bytes]:
        """`subprocess.Popen`."""
        with self._lock:
            return subprocess.Popen(list(command), **options)

    def _renew(self) -> None:
        self._lock = threading.RLock()


_GATE = _Gate()
spawn = _GATE.spawn
