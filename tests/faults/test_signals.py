"""A program that a signal ends while its compiler runs: the compiler ends too, and no temporary file stays."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from inductor_cpu.runtime.cache import KernelCache
from inductor_cpu.runtime.guardian import Guardian
from tests.faults.support import (
    MODEL,
    alive,
    children,
    compiler,
    environment,
    leftovers,
    libraries,
    until,
    with_executor,
)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_compilers_and_their_files_go_with_the_program(
    cache: KernelCache, warm: KernelCache, tmp_path: Path, number: signal.Signals
) -> None:
    with_executor(warm, cache)
    note = tmp_path / "compiler.pid"
    path = compiler(tmp_path, f"echo $$ > {note}.new; mktemp > /dev/null; mv {note}.new {note}; sleep 600; exit 1")
    program = subprocess.Popen(
        [sys.executable, "-c", MODEL],
        env=environment(CXX=str(path), ICPU_CACHE_DIR=str(cache.root)),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    assert until(note.exists)
    assert leftovers(cache)
    program.send_signal(number)
    program.wait(60)
    assert program.returncode != 0
    assert until(lambda: not alive(int(note.read_text())), 10)
    assert until(lambda: leftovers(cache) == [], 10)
    assert libraries(cache) == []


def test_a_compiler_goes_with_a_program_that_dies_while_it_starts_it() -> None:
    program = (
        "import os, signal\n"
        "from inductor_cpu.runtime import process\n"
        "start = process.spawn\n"
        "def last(*args, **options):\n"
        "    print(start(*args, **options).pid, flush=True)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        "process.spawn = last\n"
        "process.ProcessGroup().run(['sleep', '600'], 600)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], env=environment(), stdout=subprocess.PIPE, check=False)
    assert done.returncode == -signal.SIGKILL
    assert until(lambda: not alive(int(done.stdout)), 10)


def test_a_private_cache_goes_with_a_killed_program(tmp_path: Path) -> None:
    program = (
        "import os, signal\n"
        "from inductor_cpu.runtime.cache import private_cache\n"
        "assert private_cache().root.exists()\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], env=environment(TMPDIR=str(tmp_path)), check=False)
    assert done.returncode == -signal.SIGKILL
    assert until(lambda: list(tmp_path.glob("icpu-*")) == [], 10)


def test_the_janitor_runs_only_while_there_is_something_to_watch(tmp_path: Path) -> None:
    before, guardian = children(), Guardian()
    with guardian.watch("folder", tmp_path / "one"):
        assert len(children() - before) == 1
        with guardian.watch("folder", tmp_path / "two"):
            assert len(children() - before) == 1
    assert children() == before


def test_a_janitor_that_somebody_killed_is_no_fault(tmp_path: Path) -> None:
    guardian = Guardian()
    guardian.add("folder", tmp_path / "one")
    assert guardian._janitor is not None
    guardian._janitor.kill()
    guardian._janitor.wait()
    guardian.add("folder", tmp_path / "two")
    guardian.remove("folder", tmp_path / "one")
    guardian.remove("folder", tmp_path / "two")
    assert guardian._janitor is None


def test_a_forked_child_does_not_keep_the_janitor_waiting(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    program = (
        "import os, pathlib, signal, sys\n"
        "from inductor_cpu.runtime.guardian import GUARDIAN\n"
        f"GUARDIAN.add('folder', pathlib.Path({str(folder)!r}))\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    signal.pause()\n"
        f"pathlib.Path({str(tmp_path / 'child')!r}).write_text(str(child))\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    subprocess.run([sys.executable, "-c", program], env=environment(), check=False)
    try:
        assert until(lambda: not folder.exists(), 10)
    finally:
        os.kill(int((tmp_path / "child").read_text()), signal.SIGKILL)
