"""Many processes with one cache, and forks at bad moments."""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from inductor_cpu import config
from inductor_cpu.runtime import background, executor, weights
from inductor_cpu.runtime import cache as cache_module
from inductor_cpu.runtime import compile as compile_module
from inductor_cpu.runtime import spawn as spawn_module
from inductor_cpu.runtime.background import BackgroundBuilds
from inductor_cpu.runtime.cache import KernelCache
from inductor_cpu.runtime.guardian import GUARDIAN
from inductor_cpu.runtime.process import ProcessGroup
from tests.children import ending, fork
from tests.faults.support import leftovers, remembering, run, until

MANY = """
import os, sys
import torch
import inductor_cpu
from torch import nn

def child():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(288, 10)).eval()
    x = torch.randn(2, 3, 8, 8)
    with torch.no_grad():
        compiled = torch.compile(lambda x: model(x).softmax(1) + x.sum(), backend="icpu")
        torch.testing.assert_close(compiled(x), model(x).softmax(1) + x.sum(), rtol=1e-4, atol=1e-5)

children = []
for _ in range(4):
    pid = os.fork()
    if pid == 0:
        try:
            child()
        except BaseException:
            import traceback
            traceback.print_exc()
            os._exit(1)
        from inductor_cpu.runtime import background
        background.wait_for_background_builds()
        os._exit(0)
    children.append(pid)
print([os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children])
"""


def test_four_processes_with_one_cold_cache_build_everything_once(cache: KernelCache, tmp_path: Path) -> None:
    counting = remembering(tmp_path, f'echo "${{OUT##*/}}" >> {tmp_path}/runs')
    done = run(MANY, CXX=str(counting), ICPU_CACHE_DIR=str(cache.root), ICPU_COMPILE_THREADS="1", OMP_NUM_THREADS="1")
    assert done.stdout.strip() == str([0] * 4), done.stderr
    runs = (tmp_path / "runs").read_text().split()
    assert sorted(runs) == sorted(set(runs))
    assert sum(name.startswith("executor") for name in runs) == 1
    assert leftovers(cache) == []


def in_child(check: Callable[[], bool]) -> bool:
    """What `check` gives in a forked child."""

    def program() -> None:
        assert check()

    return ending(fork(program)) == 0


LOCKS: dict[str, Callable[[], Any]] = {
    "loaded libraries": lambda: compile_module._LOADED.lock,
    "executor": lambda: executor._LOADER.lock,
    "cache": lambda: cache_module._OPENING.lock,
    "background builds": lambda: background._BUILDS._lock,
    "guardian": lambda: GUARDIAN._lock,
    "packed weights": lambda: weights._SHARED.lock,
    "settings": lambda: config._STORE._lock,  # type: ignore[attr-defined]
}


@pytest.mark.parametrize("name", LOCKS)
def test_a_child_forked_while_another_thread_holds_a_lock_can_take_it(name: str) -> None:
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with LOCKS[name]():
            held.set()
            done.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    try:
        assert in_child(lambda: LOCKS[name]().acquire(timeout=5))
        assert not LOCKS[name]().acquire(blocking=False)
    finally:
        done.set()
        thread.join()


def test_a_fork_waits_for_a_program_that_another_thread_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    # Else the child would inherit the pipe that tells whether the program started.
    starting, go_on, forked = threading.Event(), threading.Event(), threading.Event()

    def slow(*_: object, **__: object) -> None:
        starting.set()
        go_on.wait()

    def fork() -> None:
        assert in_child(lambda: True)
        forked.set()

    monkeypatch.setattr(spawn_module.subprocess, "Popen", slow)
    starter, forker = threading.Thread(target=lambda: spawn_module.spawn(["true"])), threading.Thread(target=fork)
    starter.start()
    starting.wait()
    forker.start()
    assert not forked.wait(0.3)
    go_on.set()
    assert forked.wait(30)
    starter.join()
    forker.join()


def is_free(cache: KernelCache, key: str) -> bool:
    handle = os.open(cache.root / "locks" / key, os.O_RDWR)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(handle)
    return True


def test_a_child_forked_during_a_build_does_not_keep_its_lock(cache: KernelCache) -> None:
    release_read, release_write = os.pipe()
    with cache.lock("key"):
        pid = os.fork()
        if pid == 0:
            os.close(release_write)
            os.read(release_read, 1)
            os._exit(0)
        assert not is_free(cache, "key")
    try:
        assert is_free(cache, "key")
    finally:
        os.close(release_write)
        os.close(release_read)
        os.waitpid(pid, 0)


def test_the_lock_of_a_builder_that_was_killed_is_free_though_its_child_lives(cache: KernelCache) -> None:
    release_read, release_write = os.pipe()
    builder = os.fork()
    if builder == 0:
        with cache.lock("key"):
            if os.fork() == 0:
                os.close(release_write)
                os.read(release_read, 1)
                os._exit(0)
            os.kill(os.getpid(), 9)
    os.waitpid(builder, 0)
    try:
        assert until(lambda: is_free(cache, "key"), 5)
    finally:
        os.close(release_write)
        os.close(release_read)


def test_a_file_system_without_locks_is_not_waited_for(cache: KernelCache, monkeypatch: pytest.MonkeyPatch) -> None:
    def unsupported(*_: object) -> None:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(cache_module.fcntl, "flock", unsupported)
    monkeypatch.setattr(cache_module.time, "sleep", lambda _: pytest.fail("it waits"))
    with cache.lock("key"):
        pass


def test_a_forked_child_starts_background_builds_of_its_own() -> None:
    builds = BackgroundBuilds()
    release = threading.Event()
    builds.start("one", "one", lambda _: release.wait())

    def child() -> bool:
        release.set()
        builds.wait()  # nothing: the thread is the parent's
        return builds.start("one", "one", lambda _: None).result(timeout=10) is None

    try:
        assert in_child(child)
    finally:
        release.set()
        builds.wait()


def test_the_end_of_a_program_stops_background_builds_and_their_files(cache: KernelCache) -> None:
    builds, started = BackgroundBuilds(), threading.Event()

    def build(processes: ProcessGroup) -> None:
        with cache.lock("key", processes.check), cache.scratch():
            started.set()
            processes.run(["sleep", "600"], 600)

    builds.start("one", "one", build)
    assert started.wait(30)
    builds.stop()
    assert leftovers(cache) == []
    assert is_free(cache, "key")
