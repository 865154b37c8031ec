"""The program that `guardian.py` starts: when its input ends, it kills and deletes what was named there.

Input: lines `+group <hex>` and `-group <hex>` (a process group's number), `+folder <hex>` and `-folder <hex>` (a path).
Standard library only, and few modules: it starts at every compile.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import time

_PATIENCE = 5.0
"""Seconds to wait for killed processes, which may still write into the folders."""


def main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    named: set[bytes] = set()
    for line in sys.stdin.buffer:
        (named.add if line[:1] == b"+" else named.discard)(line[1:].strip())
    if named:
        _clean(named)
    os._exit(0)


def _clean(named: set[bytes]) -> None:
    entries = [entry.split() for entry in named]
    for kind, value in entries:
        if kind == b"group":
            with contextlib.suppress(OSError):
                os.killpg(int(_decoded(value)), signal.SIGKILL)
    folders = [os.fsdecode(_decoded(value)) for kind, value in entries if kind == b"folder"]
    deadline = time.monotonic() + _PATIENCE
    while folders and time.monotonic() < deadline:
        for folder in folders:
            shutil.rmtree(folder, ignore_errors=True)
        time.sleep(0.02)
        folders = [folder for folder in folders if os.path.lexists(folder)]


def _decoded(value: bytes) -> bytes:
    return bytes.fromhex(value.decode())


if __name__ == "__main__":
    main()
