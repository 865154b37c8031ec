"""A program that a signal ends while its compiler runs: the compiler ends too, and no temporary file stays."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from inductor_cpu.runtime import process
from inductor_cpu.runtime.cache import KernelCache, private_cache
from inductor_cpu.runtime.guardian import GUARDIAN, Guardian
from tests.cases import cases
from tests.children import ending, fork
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

#: Another thread gets the signal when the compiler has begun: what the main thread waits for is not interrupted.
INTERRUPTS_ITSELF = """
import os, signal, sys, threading, time
def interrupt():
    while not os.path.exists(sys.argv[1]):
        time.sleep(0.01)
    time.sleep(0.3)
    signal.pthread_kill(threading.get_ident(), signal.SIGINT)
threading.Thread(target=interrupt, daemon=True).start()
"""


#: Python hears of one of them; the others end it without a word.
@pytest.mark.parametrize("number", cases([signal.SIGINT, signal.SIGKILL], [signal.SIGTERM]))
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


def test_a_signal_that_interrupts_no_wait_ends_the_program(
    cache: KernelCache, warm: KernelCache, tmp_path: Path
) -> None:
    with_executor(warm, cache)
    note = tmp_path / "compiler.pid"
    path = compiler(tmp_path, f"echo $$ > {note}.new; mv {note}.new {note}; sleep 600; exit 1")
    program = subprocess.run(
        [sys.executable, "-c", INTERRUPTS_ITSELF + MODEL, str(note)],
        env=environment(CXX=str(path), ICPU_CACHE_DIR=str(cache.root)),
        capture_output=True,
        text=True,
        timeout=180,
    )
    assert program.returncode != 0
    assert "KeyboardInterrupt" in program.stderr
    assert until(lambda: not alive(int(note.read_text())), 10)


def test_a_compiler_goes_with_a_program_that_dies_while_it_starts_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    note, start = tmp_path / "compiler.pid", process.spawn

    def last(*args: Any, **options: Any) -> None:
        note.write_text(str(start(*args, **options).pid))
        os.kill(os.getpid(), signal.SIGKILL)

    def program() -> None:
        monkeypatch.setattr(process, "spawn", last)
        process.ProcessGroup().run(["sleep", "600"], 600)

    assert ending(fork(program)) == -signal.SIGKILL
    assert until(lambda: not alive(int(note.read_text())), 10)


def test_a_private_cache_goes_with_a_killed_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def program() -> None:
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
        assert private_cache().root.parent == tmp_path
        os.kill(os.getpid(), signal.SIGKILL)

    assert ending(fork(program)) == -signal.SIGKILL
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
    folder, note = tmp_path / "folder", tmp_path / "child"
    folder.mkdir()

    def program() -> None:
        GUARDIAN.add("folder", folder)
        note.write_text(str(fork(signal.pause)))
        os.kill(os.getpid(), signal.SIGKILL)

    assert ending(fork(program)) == -signal.SIGKILL
    try:
        assert until(lambda: not folder.exists(), 10)
    finally:
        os.kill(int(note.read_text()), signal.SIGKILL)
