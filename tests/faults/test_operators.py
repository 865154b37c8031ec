"""The operators library of the executor: loaded with it where the cache has both, built beside the program where not;
what happens if that does not succeed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from inductor_cpu.errors import InternalError, UserError
from inductor_cpu.ir.plan import LoadInput, Slot
from inductor_cpu.runtime import background
from inductor_cpu.runtime import executor as native
from inductor_cpu.runtime.background import BackgroundBuilds
from inductor_cpu.runtime.cache import KernelCache
from inductor_cpu.runtime.process import ProcessGroup
from inductor_cpu.runtime.toolchain import Toolchain, find_toolchain
from tests.faults.support import compiler, toolchain_of, with_executor, with_operators
from tests.faults.test_processes import in_child
from tests.runtime.support import aten, extern, make_plan

RELU = make_plan(LoadInput(Slot(0), 0), extern(aten.relu.default, Slot(0)), results=(Slot(1),))


@pytest.fixture(autouse=True)
def nothing_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a new process: the executor of another cache is another module."""
    monkeypatch.setattr(native, "_LOADER", native._Loader())
    monkeypatch.setattr(background, "_BUILDS", BackgroundBuilds())


@pytest.fixture
def broken(tmp_path: Path) -> Toolchain:
    """A compiler that refuses the operators library."""
    refuse = 'case "$*" in *operators.cpp*) echo "no such luck" >&2; exit 1;; esac'
    return toolchain_of(compiler(tmp_path, f'{refuse}\nexec $REAL "$@"'))


def why_python(plan: native.RunnablePlan) -> str:
    (row,) = native.describe(plan)
    return row.why_python


def test_both_libraries_of_a_cache_are_loaded_at_once(cache: KernelCache, warm: KernelCache) -> None:
    plan = native.build(RELU, {}, native.load_executor(with_executor(warm, cache), find_toolchain()))
    assert not native.lacks_operators()
    assert why_python(plan) == ""


def test_plans_use_the_library_once_it_is_built_in_the_background(cache: KernelCache, warm: KernelCache) -> None:
    plan = native.build(RELU, {}, native.load_executor(with_executor(warm, cache, operators=False), find_toolchain()))
    assert why_python(plan) == native.NOT_BUILT
    with_operators(warm, cache)  # in place of the compiler
    background.start_operators_build()
    background.wait_for_background_builds()
    assert why_python(plan) == ""


def test_the_library_leaves_the_cores_to_what_somebody_waits_for(
    cache: KernelCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: Any) -> None:
        *_, nice = arguments
        taken.append(nice)
        raise InternalError("runtime", "not now")

    taken: list[int] = []
    monkeypatch.setattr(native, "run_compiler", refuse)
    for build in (native.build_executor, native.build_operators):
        with pytest.raises(InternalError, match="not now"):
            build(cache, find_toolchain(), ProcessGroup())
    executor, operators = taken
    assert operators > executor == 0


def test_plans_use_the_library_that_another_process_has_built_when_the_next_graph_is_compiled(
    cache: KernelCache, warm: KernelCache
) -> None:
    module = native.load_executor(with_executor(warm, cache, operators=False), find_toolchain())
    plan = native.build(RELU, {}, module)
    with_operators(warm, cache)
    assert native.load_executor(cache, find_toolchain()) is module
    assert why_python(plan) == ""


def test_a_child_forked_before_the_library_is_there_gets_it_for_itself(cache: KernelCache, warm: KernelCache) -> None:
    plan = native.build(RELU, {}, native.load_executor(with_executor(warm, cache, operators=False), find_toolchain()))
    with_operators(warm, cache)

    def child() -> bool:
        x = torch.tensor([-1.0, 1.0])
        as_python = why_python(plan) == native.NOT_BUILT and plan([x])[0].tolist() == [0, 1]
        background.start_operators_build()
        background.wait_for_background_builds()
        return as_python and why_python(plan) == "" and plan([x])[0].tolist() == [0, 1]

    assert in_child(child)
    assert why_python(plan) == native.NOT_BUILT


def test_a_library_that_does_not_compile_is_told_once_and_calls_go_on_as_python(
    cache: KernelCache, warm: KernelCache, broken: Toolchain, caplog: pytest.LogCaptureFixture
) -> None:
    plan = native.build(RELU, {}, native.load_executor(with_executor(warm, cache, operators=False), broken))
    for _ in range(2):
        background.start_operators_build()
    background.wait_for_background_builds()
    assert plan([torch.tensor([-1.0, 1.0])])[0].tolist() == [0, 1]
    assert caplog.text.count("the native operators library was not built in the background") == 1
    assert "no such luck" in caplog.text
    assert "was not built" in why_python(plan)
    assert "no such luck" in why_python(plan)


def test_the_fault_of_the_library_is_an_error_where_somebody_waits_for_it(
    cache: KernelCache, warm: KernelCache, broken: Toolchain
) -> None:
    native.load_executor(with_executor(warm, cache, operators=False), broken)
    with pytest.raises(InternalError, match="no such luck"):
        native.complete_executor(ProcessGroup())


def test_a_damaged_library_is_not_loaded(
    cache: KernelCache, warm: KernelCache, caplog: pytest.LogCaptureFixture
) -> None:
    with_executor(warm, cache)
    library = native.operators_library(cache, find_toolchain())
    library.write_bytes(b"something else")
    plan = native.build(RELU, {}, native.load_executor(cache, find_toolchain()))
    assert why_python(plan) == native.NOT_BUILT
    assert f"{library.name} is damaged" in caplog.text
    assert not library.exists()


def test_a_library_of_other_sources_is_not_built_for_the_executor_that_is_loaded(
    cache: KernelCache, warm: KernelCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    native.load_executor(with_executor(warm, cache, operators=False), find_toolchain())
    monkeypatch.setattr(native, "operators_library", lambda *_: Path("another"))
    with pytest.raises(UserError, match="changed since this program started"):
        native.complete_executor(ProcessGroup())
