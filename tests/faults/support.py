"""What the tests of faults share: compilers that misbehave, programs in a process of their own, what is left behind."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from inductor_cpu.runtime.cache import KernelCache, open_cache
from inductor_cpu.runtime.executor import build_executor, build_operators, executor_library, operators_library
from inductor_cpu.runtime.process import ProcessGroup
from inductor_cpu.runtime.toolchain import Toolchain, find_toolchain

ROOT = Path(__file__).resolve().parents[2]

MODEL = """
import torch
import inductor_cpu
x = torch.randn(31)
f = torch.compile(lambda x: x.sin() * 2 + x, backend="icpu")
torch.testing.assert_close(f(x), x.sin() * 2 + x)
print("right")
"""
"""A program that compiles one kernel and checks its result."""


def compiler(folder: Path, script: str, name: str = "fake-g++") -> Path:
    """A compiler that tells the version of the real one, and for the rest is this shell script. "$REAL" is the real
    one, "$OUT" the file that it has to make, and $$ the script's process."""
    real = find_toolchain().command[0]
    path = folder / name
    path.write_text(
        f'#!/bin/sh\nREAL={real}\ncase "$*" in *-dM*) exec $REAL "$@";; esac\n'
        f'OUT=$(printf "%s" "$*" | sed "s/.* -o \\([^ ]*\\).*/\\1/")\n{script}\n'
    )
    path.chmod(0o755)
    return path


def remembering(folder: Path, script: str = "") -> Path:
    """A compiler that copies the executor and its operators library of the tests' cache where it is asked for the same
    ones, as ccache would, and really makes all else. `script`: what it does before."""
    made = [build(open_cache(), find_toolchain(), ProcessGroup()) for build in (build_executor, build_operators)]
    copies = "\n".join(f'[ "${{OUT##*/}}" = {library.name} ] && exec cp {library} "$OUT"' for library in made)
    return compiler(folder, f'{script}\n{copies}\nexec $REAL "$@"', "remembering-g++")


def toolchain_of(path: Path, time_limit: int = 60) -> Toolchain:
    """The toolchain with that compiler."""
    return find_toolchain(str(path), time_limit)


def with_executor(source: KernelCache, cache: KernelCache, operators: bool = True) -> KernelCache:
    """`cache` with a copy of the executor of `source` and, if asked for, of its operators library, so that a new
    process need not build them."""
    toolchain = find_toolchain()
    _copy(build_executor(source, toolchain, ProcessGroup()), executor_library(cache, toolchain))
    if operators:
        with_operators(source, cache)
    return cache


def with_operators(source: KernelCache, cache: KernelCache) -> None:
    """Copy the operators library of `source` into `cache`."""
    toolchain = find_toolchain()
    _copy(build_operators(source, toolchain, ProcessGroup()), operators_library(cache, toolchain))


def _copy(made: Path, there: Path) -> None:
    """No link: the system's loader would take that for the library which this process has loaded."""
    for suffix in ("", ".sha256"):
        shutil.copy2(str(made) + suffix, str(there) + suffix)


def environment(**changes: str) -> dict[str, str]:
    """That of a program which finds this checkout."""
    return {**os.environ, "PYTHONPATH": str(ROOT), **changes}


def run(program: str = MODEL, **changes: str) -> subprocess.CompletedProcess[str]:
    """A program in a process of its own."""
    return subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        env=environment(**changes),
        check=False,
        timeout=240,
    )


def leftovers(cache: KernelCache) -> list[str]:
    """What is in the cache's folder for temporary files."""
    return sorted(path.name for path in (cache.root / "tmp").iterdir())


def libraries(cache: KernelCache) -> list[str]:
    """The kernel libraries in the cache."""
    names = (path.name for path in (cache.root / "libs").glob("*.so"))
    return sorted(name for name in names if not name.startswith(("executor", "operators")))


def children() -> set[int]:
    """Every child of this process, zombies too."""
    me = str(os.getpid())
    found = set()
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        if fields[1] == me:
            found.add(int(path.parent.name))
    return found


def alive(pid: int) -> bool:
    """Whether a process runs. A zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def until(condition: Callable[[], bool], seconds: float = 60.0) -> bool:
    """Wait for something that happens soon; whether it happened."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True
