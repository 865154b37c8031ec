"""Compilers that hang, die, lie or vanish: a clear error that says what to do, and nothing that stays."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from inductor_cpu.errors import InternalError, UserError
from inductor_cpu.runtime import toolchain as toolchain_module
from inductor_cpu.runtime.cache import KernelCache
from inductor_cpu.runtime.compile import load_kernels
from inductor_cpu.runtime.executor import build_executor
from inductor_cpu.runtime.process import Cancelled, ProcessGroup
from inductor_cpu.runtime.toolchain import find_toolchain
from inductor_cpu.targets.cpu import target_for
from tests.faults.support import alive, compiler, libraries, run, toolchain_of, until, with_executor
from tests.runtime.support import kernel

Compile = Callable[..., dict[str, int]]

SOURCE = kernel("*(int64_t*)p[0] = 1;", "fault")


@pytest.fixture
def compile_with(cache: KernelCache, prelude: Path, tmp_path: Path) -> Compile:
    """compile_with(script) compiles one kernel by a compiler that is this shell script."""

    def call(script: str, time_limit: int = 60) -> dict[str, int]:
        tools = toolchain_of(compiler(tmp_path, script), time_limit)
        return load_kernels([SOURCE], target_for(), prelude, cache, tools)

    return call


def test_a_compiler_that_hangs_is_stopped_with_its_children_and_the_error_names_the_setting(
    compile_with: Compile, cache: KernelCache, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=r"ran longer than 1 s and was stopped.*cpp\.compile_timeout"):
        compile_with(f"sleep 600 & echo $! > {tmp_path}/child; echo $$ > {tmp_path}/self; wait", time_limit=1)
    assert not alive(int((tmp_path / "self").read_text()))
    assert until(lambda: not alive(int((tmp_path / "child").read_text())), 5)
    assert libraries(cache) == []


def test_a_compiler_killed_half_way_leaves_no_library_and_the_next_one_works(
    compile_with: Compile, cache: KernelCache
) -> None:
    with pytest.raises(UserError, match=r"was stopped by SIGKILL.*compile_threads"):
        compile_with('echo half > "$OUT"; kill -9 $$')
    assert libraries(cache) == []
    assert SOURCE.symbol in compile_with('exec $REAL "$@"')


def test_a_compiler_that_leaves_a_server_behind_is_not_waited_for(compile_with: Compile, tmp_path: Path) -> None:
    # As sccache does: the server inherits standard output and standard error.
    script = f'setsid sleep 600 & echo $! > {tmp_path}/server; exec $REAL "$@"'
    assert SOURCE.symbol in compile_with(script)
    os.kill(int((tmp_path / "server").read_text()), 9)


def test_a_compiler_that_says_very_much_does_not_block(compile_with: Compile) -> None:
    with pytest.raises(InternalError, match="too many words"):
        compile_with(
            "for i in 1 2 3 4 5 6; do head -c 1000000 /dev/zero | tr '\\0' x >&2; echo too many words >&2; done; exit 1"
        )


def test_a_compiler_that_makes_nothing_and_reports_success_is_an_error(compile_with: Compile) -> None:
    with pytest.raises(InternalError, match="without an error and without a result"):
        compile_with("exit 0")


def test_a_library_that_the_system_does_not_load_is_a_user_error_and_not_kept(
    compile_with: Compile, cache: KernelCache
) -> None:
    with pytest.raises(UserError, match=r"does not load them.*noexec.*ICPU_CACHE_DIR"):
        compile_with('echo "no library" > "$OUT"')
    assert libraries(cache) == []


@pytest.mark.parametrize(
    ("words", "remedy"),
    [
        ("cc1plus: fatal error: x.s: No space left on device", "Free space on the disk"),
        ("g++: fatal error: Killed signal terminated program cc1plus", "compile_threads"),
        ("cc1plus: out of memory allocating 65536 bytes", "compile_threads"),
        ("g++: fatal error: cannot execute 'cc1plus': execvp: No such file or directory", "apt-get install"),
        ("a.h:1:10: fatal error: omp.h: No such file or directory", "apt-get install"),
        ("python.h:1:10: fatal error: Python.h: No such file or directory", "python3-dev"),
        ("k.cpp:1: internal compiler error: Segmentation fault", "in CXX"),
    ],
)
def test_what_the_machine_lacks_is_a_user_error_with_the_remedy(compile_with: Compile, words: str, remedy: str) -> None:
    with pytest.raises(UserError, match=remedy) as error:
        compile_with(f'echo "{words}" >&2; exit 1')
    assert words in str(error.value)
    assert "command: " in str(error.value)


def test_a_compiler_that_is_uninstalled_after_its_version_was_asked_is_a_user_error(
    cache: KernelCache, prelude: Path, tmp_path: Path
) -> None:
    path = compiler(tmp_path, "exit 1")
    tools = toolchain_of(path)
    path.unlink()
    with pytest.raises(UserError, match=r"does not start any more.*CXX"):
        load_kernels([SOURCE], target_for(), prelude, cache, tools)


def test_a_compiler_that_does_not_tell_its_version_is_a_user_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(toolchain_module, "_PROBE_SECONDS", 0.2)
    path = tmp_path / "silent-g++"
    path.write_text("#!/bin/sh\nsleep 600\n")
    path.chmod(0o755)
    with pytest.raises(UserError, match="did not tell its version"):
        find_toolchain(str(path))


def test_a_compiler_name_with_an_open_quote_is_a_user_error() -> None:
    with pytest.raises(UserError, match="cannot be read"):
        find_toolchain("g++ 'oops")


def test_the_failure_of_one_unit_stops_the_others_at_once(cache: KernelCache, prelude: Path, tmp_path: Path) -> None:
    bad, slow = kernel("undeclared();", "bad"), kernel("// " + "x" * 500 + "\n", "slow")
    script = f'if grep -q xxxx {cache.root}/tmp/*/$(basename "$OUT" .so).cpp; then sleep 600; else exit 1; fi'
    tools = toolchain_of(compiler(tmp_path, script), 300)
    with pytest.raises(InternalError, match="ended with code 1"):
        load_kernels([slow, bad], target_for(), prelude, cache, tools, jobs=2)


def test_a_wait_for_the_lock_of_another_process_ends_when_the_compile_is_cancelled(cache: KernelCache) -> None:
    processes, stopped = ProcessGroup(), threading.Event()

    def build() -> None:
        with pytest.raises(Cancelled), cache.lock("key", processes.check):
            pass
        stopped.set()

    with cache.lock("key"):
        waiter = threading.Thread(target=build)
        waiter.start()
        processes.cancel()
        assert stopped.wait(30)
        waiter.join()


def test_temporary_files_of_the_compiler_go_to_the_cache_also_if_it_is_killed(
    compile_with: Compile, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match="SIGKILL"):
        compile_with(f'echo "$TMPDIR" > {tmp_path}/where; mktemp > {tmp_path}/file; kill -9 $$')
    assert (tmp_path / "where").read_text().startswith(str(tmp_path / "cache" / "tmp"))
    assert not Path((tmp_path / "file").read_text().strip()).exists()


def test_a_broken_executor_compile_has_the_remedy(cache: KernelCache, tmp_path: Path) -> None:
    tools = toolchain_of(compiler(tmp_path, 'echo "fatal error: Python.h: No such file or directory" >&2; exit 1'))
    with pytest.raises(UserError, match="python3-dev"):
        build_executor(cache, tools, ProcessGroup())


def test_a_program_whose_compiler_hangs_ends_with_the_error(
    cache: KernelCache, warm: KernelCache, tmp_path: Path
) -> None:
    with_executor(warm, cache)
    path = compiler(tmp_path, "sleep 600")
    done = run(CXX=str(path), ICPU_CACHE_DIR=str(cache.root), ICPU_CPP_COMPILE_TIMEOUT="1")
    assert done.returncode != 0
    assert "UserError" in done.stderr
    assert "ICPU_CPP_COMPILE_TIMEOUT=<seconds>" in done.stderr
