"""The program that `guardian.py` starts: when its input ends, it kills and deletes what was named there.

Input: lines `+mark <hex>` and `-mark <hex>` (a setting in the environment of a process group's leader), `+folder <hex>`
and `-folder <hex>` (a path).
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

_STARTING = 1.0
"""Seconds within which a process has its environment that was being started when our input ended."""


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
    marks = {_decoded(value) for kind, value in entries if kind == b"mark"}
    folders = [os.fsdecode(_decoded(value)) for kind, value in entries if kind == b"folder"]
    start = time.monotonic()
    # A process that was about to start has no mark yet, and a killed one may still write: look again.
    while (folders and time.monotonic() < start + _PATIENCE) or (marks and time.monotonic() < start + _STARTING):
        for group in _groups(marks):
            with contextlib.suppress(OSError):
                os.killpg(group, signal.SIGKILL)
        for folder in folders:
            shutil.rmtree(folder, ignore_errors=True)
        time.sleep(0.02)
        folders = [folder for folder in folders if os.path.lexists(folder)]


def _groups(marks: set[bytes]) -> list[int]:
    """The process groups whose leader has one of these settings in its environment. Others of our processes that have
    it, too, made a group of their own: a compiler cache's server, which is to stay."""
    found = []
    for name in os.listdir("/proc") if marks else ():
        with contextlib.suppress(OSError, ValueError):
            if os.getpgid(int(name)) == int(name):
                with open(f"/proc/{name}/environ", "rb") as file:
                    if marks.intersection(file.read().split(b"\0")):
                        found.append(int(name))
    return found


def _decoded(value: bytes) -> bytes:
    return bytes.fromhex(value.decode())


if __name__ == "__main__":
    main()
