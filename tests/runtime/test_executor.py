from __future__ import annotations

import gc
import threading
import time
import weakref
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from inductor_cpu.errors import InternalError
from inductor_cpu.ir.plan import (
    Alloc,
    ArenaRef,
    ArenaView,
    Compute,
    ExecutionPlan,
    Free,
    IntLike,
    KernelCall,
    LoadInput,
    LoadInt,
    Reg,
    Restride,
    SizeOf,
    Slot,
    SlotRef,
    StridedView,
    StrideOf,
)
from tests.runtime.support import ADD_ONE, F32, SCALE, SLEEP, THREADS, Runner, aten, extern, make_plan


def add_one_plan(n: IntLike = 16, *before: Any) -> ExecutionPlan:
    return make_plan(
        LoadInput(Slot(0), 0),
        *before,
        Alloc(Slot(1), F32, (n,), (1,)),
        KernelCall(ADD_ONE.symbol, "add_one", (Slot(0), Slot(1)), (n,)),
        results=(Slot(1),),
    )


def test_kernel_reads_input_and_writes_output(run: Runner) -> None:
    x = torch.randn(16)
    assert torch.equal(run(add_one_plan(), x)[0], x + 1)


def test_sizes_can_come_from_the_tensor_at_run_time(run: Runner) -> None:
    plan = add_one_plan(Reg(0), SizeOf(Reg(0), Slot(0), 0))
    for n in (0, 1, 7, 1000):
        x = torch.randn(n)
        assert torch.equal(run(plan, x)[0], x + 1)


def test_registers_take_inputs_sizes_and_strides(run: Runner) -> None:
    plan = make_plan(
        LoadInput(Slot(0), 1),
        LoadInt(Reg(0), 0),
        LoadInt(Reg(1), 2),
        SizeOf(Reg(2), Slot(0), 1),
        StrideOf(Reg(3), Slot(0), 0),
        results=(Reg(0), Reg(1), Reg(2), Reg(3)),
    )
    assert run(plan, 5, torch.empty(3, 4), True) == [5, 1, 4, 4]


@pytest.mark.parametrize("op", ["add", "sub", "mul", "floordiv", "mod", "min", "max", "eq", "ne", "lt", "le"])
def test_arithmetic_is_that_of_python(run: Runner, op: str) -> None:
    plan = make_plan(LoadInt(Reg(0), 0), LoadInt(Reg(1), 1), Compute(Reg(2), op, Reg(0), Reg(1)), results=(Reg(2),))
    for a in (-7, -6, 0, 6, 7):
        for b in (-3, 3, 7):
            run(plan, a, b)


def test_division_by_zero_is_an_error(run: Runner) -> None:
    plan = run.load(make_plan(LoadInt(Reg(0), 0), Compute(Reg(1), "floordiv", 1, Reg(0)), results=(Reg(1),)))
    with pytest.raises(ValueError, match="by zero"):
        plan([0])


def arena_plan() -> ExecutionPlan:
    """x + 1 in the arena at byte 64, times 3 in the arena at 64 * (1 + n), then ATen's relu on a view of that."""
    return make_plan(
        LoadInput(Slot(0), 0),
        SizeOf(Reg(0), Slot(0), 0),
        Compute(Reg(1), "mul", Reg(0), 64),
        Compute(Reg(2), "add", Reg(1), 64),
        Compute(Reg(3), "mul", Reg(2), 2),
        KernelCall(ADD_ONE.symbol, "add_one", (Slot(0), ArenaRef(64)), (Reg(0),)),
        KernelCall(SCALE.symbol, "scale", (ArenaRef(64), ArenaRef(Reg(2))), (Reg(0), 3)),
        ArenaView(Slot(2), Reg(2), F32, (Reg(0),), (1,)),
        extern(aten.relu.default, Slot(2), out=(Slot(3),)),
        Free((Slot(2),)),
        results=(Slot(3),),
        arena_bytes=Reg(3),
        arena_at=5,
    )


def test_arena_holds_intermediates_for_kernels_and_operators(either: Runner) -> None:
    for n in (1, 5, 5000):
        x = torch.randn(n)
        assert torch.equal(either(arena_plan(), x)[0], ((x + 1) * 3).relu())


def test_a_kernel_reads_and_writes_behind_the_start_of_a_tensor(run: Runner) -> None:
    plan = make_plan(
        LoadInput(Slot(0), 0),
        LoadInt(Reg(0), 1),
        Alloc(Slot(1), F32, (6,), (1,)),
        KernelCall(ADD_ONE.symbol, "add_one", (SlotRef(Slot(0), 8), Slot(1)), (4,)),
        KernelCall(ADD_ONE.symbol, "add_one", (Slot(0), SlotRef(Slot(1), Reg(0))), (2,)),
        results=(Slot(1),),
    )
    x = torch.randn(6)
    assert torch.equal(run(plan, x, 16)[0], torch.cat([x[2:], x[:2]]) + 1)


def test_arena_view_that_escapes_stays_valid(executor: ModuleType, run: Runner) -> None:
    plan = run.load(
        make_plan(
            LoadInput(Slot(0), 0),
            KernelCall(ADD_ONE.symbol, "add_one", (Slot(0), ArenaRef(0)), (16,)),
            ArenaView(Slot(1), 0, F32, (16,), (1,)),
            results=(Slot(1),),
            arena_bytes=64,
        )
    )
    x = torch.randn(16)
    first = plan([x])[0]
    plan([x * 2])
    assert torch.equal(first, x + 1)


def empty_pool(executor: ModuleType) -> None:
    """A pool that keeps memory, also under a sanitizer, and has none."""
    executor.clear_pool()
    executor.set_pool_limit(1 << 28)


def test_arena_memory_is_used_again(executor: ModuleType, run: Runner) -> None:
    empty_pool(executor)
    plan = run.load(arena_plan())
    x = torch.randn(5000)
    plan([x])
    kept = executor.pool_bytes()
    assert kept >= 2 * 64 * 5001
    for _ in range(5):
        plan([x])
    assert executor.pool_bytes() == kept


def test_arena_is_released_when_an_operator_raises(executor: ModuleType, run: Runner) -> None:
    empty_pool(executor)
    plan = run.load(
        make_plan(
            LoadInput(Slot(0), 0),
            ArenaView(Slot(2), 0, F32, (4,), (1,)),
            extern(aten.mm.default, Slot(0), Slot(2)),
            results=(Slot(1),),
            arena_bytes=4096,
        )
    )
    with pytest.raises(RuntimeError):
        plan([torch.ones(2, 2)])
    assert executor.pool_bytes() == 4096


def test_pool_keeps_no_more_than_its_limit(executor: ModuleType, run: Runner) -> None:
    executor.set_pool_limit(1000)
    try:
        run.load(arena_plan())([torch.randn(5000)])
        assert executor.pool_bytes() <= 1000
    finally:
        executor.set_pool_limit(1 << 28)


def test_limit_of_the_pool_is_lowered_and_not_raised(executor: ModuleType, run: Runner) -> None:
    executor.set_pool_limit(1000)
    try:
        executor.lower_pool_limit(1 << 28)
        run.load(arena_plan())([torch.randn(5000)])
        assert executor.pool_bytes() <= 1000
        executor.lower_pool_limit(0)
        assert executor.pool_bytes() == 0
    finally:
        executor.set_pool_limit(1 << 28)


def test_large_output_is_an_ordinary_tensor(run: Runner) -> None:
    n = 1 << 20
    x = torch.randn(n)
    out = run(add_one_plan(n), x)[0]
    assert torch.equal(out, x + 1)
    assert out.untyped_storage().nbytes() == 4 * n
    assert torch.equal(out.clone().resize_(2 * n)[:n], out)


def test_strided_view_adds_its_offset_to_that_of_the_base(run: Runner) -> None:
    plan = make_plan(LoadInput(Slot(0), 0), StridedView(Slot(1), Slot(0), (2, 3), (4, 1), 1), results=(Slot(1),))
    base = torch.arange(40.0)[3:]
    got = run(plan, base)[0]
    assert got.untyped_storage().data_ptr() == base.untyped_storage().data_ptr()


def test_strided_view_of_a_lazy_conjugate_keeps_its_values(run: Runner) -> None:
    plan = make_plan(LoadInput(Slot(0), 0), StridedView(Slot(1), Slot(0), (4,), (2,), 0), results=(Slot(1),))
    run(plan, torch.randn(8, dtype=torch.complex64).conj())


@pytest.mark.parametrize(
    ("tensor", "copied"),
    [
        (torch.arange(6.0).reshape(2, 3), False),
        (torch.arange(6.0).reshape(3, 2).t(), True),
        (torch.arange(6.0).reshape(3, 2).t().contiguous().t().t(), False),
        (torch.arange(6.0).to(torch.complex64).reshape(2, 3).conj(), True),
    ],
)
def test_restride_copies_only_what_differs(run: Runner, tensor: torch.Tensor, copied: bool) -> None:
    plan = make_plan(LoadInput(Slot(0), 0), Restride(Slot(0), (2, 3), (3, 1)), results=(Slot(0),))
    got = run(plan, tensor)[0]
    assert (got is not tensor) == copied
    assert not got.is_conj()


def test_restride_copies_one_element_of_an_expanded_dimension(run: Runner) -> None:
    plan = make_plan(LoadInput(Slot(0), 0), Restride(Slot(0), (2, 3), (1, 0)), results=(Slot(0),))
    x = torch.tensor([1 + 2j, 3 - 4j]).unsqueeze(-1).expand(2, 3).conj()
    got = run(plan, x)[0]
    assert torch.equal(got, x.resolve_conj())
    assert got.stride() == (1, 0)


def test_restride_ignores_strides_of_dimensions_of_one(either: Runner) -> None:
    plan = make_plan(LoadInput(Slot(0), 0), Restride(Slot(0), (1, 3), (77, 1)), results=(Slot(0),))
    x = torch.zeros(1, 3)
    assert either(plan, x)[0] is x


def test_restride_reports_wrong_sizes(either: Runner) -> None:
    plan = either.load(make_plan(LoadInput(Slot(0), 0), Restride(Slot(0), (2,), (1,), F32), results=(Slot(0),)))
    with pytest.raises(RuntimeError, match="returned sizes"):
        plan([torch.zeros(3)])


def test_restride_leaves_what_nothing_interprets(run: Runner) -> None:
    x = torch.zeros(3)
    assert run(make_plan(LoadInput(Slot(0), 0), Restride(Slot(0), (2,), (1,)), results=(Slot(0),)), x)[0] is x


def test_restride_converts_to_the_dtype_that_kernels_read(run: Runner) -> None:
    plan = make_plan(LoadInput(Slot(0), 0), Restride(Slot(0), (3,), (1,), F32), results=(Slot(0),))
    assert torch.equal(run(plan, torch.tensor([1, 2, 3]))[0], torch.tensor([1.0, 2.0, 3.0]))


# Results and inputs


def test_results_are_slots_registers_none_and_constants_in_order(run: Runner) -> None:
    plan = make_plan(
        LoadInput(Slot(0), 0), LoadInt(Reg(0), 1), results=(Slot(0), None, Reg(0), "text", Slot(0), Slot(5))
    )
    x = torch.zeros(2)
    got = run(plan, x, 3)
    assert got[0] is x
    assert got[4] is x
    assert got[1:4] == [None, 3, "text"]
    assert got[5] is None


def test_input_returned_as_it_came_keeps_its_python_object(run: Runner) -> None:
    x = torch.nn.Parameter(torch.zeros(2))
    plan = run.load(make_plan(LoadInput(Slot(0), 0), results=(Slot(0),)))
    number = id(x)
    inputs = [x]
    del x
    got = plan(inputs)[0]
    assert id(got) == number
    assert isinstance(got, torch.nn.Parameter)


def test_constants_are_shared_and_survive_free(run: Runner) -> None:
    weight = torch.randn(3)
    plan = make_plan(Free((Slot(0),)), results=(Slot(0),), constants=((Slot(0), weight),))
    assert run(plan)[0] is weight


def test_list_of_inputs_is_emptied_and_inputs_are_freed_after_free(run: Runner) -> None:
    alive: list[bool] = []

    def observe() -> None:
        gc.collect()
        alive.append(reference() is not None)

    plan = run.load(
        make_plan(
            LoadInput(Slot(0), 0),
            extern(observe, out=(None,)),
            Free((Slot(0),)),
            extern(observe, out=(None,)),
            results=(),
        )
    )
    x = torch.randn(4)
    reference = weakref.ref(x)
    inputs: list[Any] = [x, 3]
    del x
    assert plan(inputs) == []
    assert inputs == []
    assert alive == [True, False]


@pytest.mark.parametrize("inputs", [(torch.zeros(1),), [3], [], [None]])
def test_wrong_inputs_are_type_errors(run: Runner, inputs: Any) -> None:
    plan = run.load(make_plan(LoadInput(Slot(0), 0), results=(Slot(0),)))
    with pytest.raises(TypeError):
        plan(inputs)


def test_plan_is_boxed_and_has_a_run_method(run: Runner) -> None:
    plan = run.load(add_one_plan())
    x = torch.randn(16)
    assert plan._boxed_call is True
    assert torch.equal(plan.run([x])[0], x + 1)


def test_kernel_on_a_tensor_that_is_not_dense_cpu_is_an_error(run: Runner) -> None:
    plan = run.load(add_one_plan())
    for bad in (torch.zeros(16, device="meta"), torch.zeros(16).to_sparse()):
        with pytest.raises(RuntimeError, match="needs a dense CPU tensor"):
            plan([bad])


@pytest.mark.parametrize(
    "plan",
    [
        make_plan(LoadInput(Slot(8), 0), results=()),
        make_plan(LoadInt(Reg(8), 0), results=()),
        make_plan(Compute(Reg(0), "pow", 1, 2), results=()),
        make_plan(KernelCall("icpu_unknown", "k", (), ()), results=()),
        make_plan("nonsense", results=()),
        make_plan(LoadInput(Slot(0), 0), results=(), constants=((Slot(0), torch.zeros(1)),)),
    ],
)
def test_malformed_plan_is_an_internal_error(run: Runner, plan: ExecutionPlan) -> None:
    with pytest.raises(InternalError, match="cannot be loaded"):
        run.load(plan)


# Threads, autograd, profiler


def test_number_of_threads_is_obeyed_at_call_time(run: Runner) -> None:
    plan = run.load(
        make_plan(
            Alloc(Slot(0), torch.int64, (1,), (1,)),
            KernelCall(THREADS.symbol, "threads", (Slot(0),), ()),
            results=(Slot(0),),
        )
    )
    before = torch.get_num_threads()
    try:
        for threads in (1, 3, 2):
            torch.set_num_threads(threads)
            assert plan([])[0].item() == threads
        from_thread: list[int] = []
        worker = threading.Thread(target=lambda: from_thread.append(int(plan([])[0].item())))
        worker.start()
        worker.join()
        assert from_thread == [2]
    finally:
        torch.set_num_threads(before)


def test_only_one_openmp_runtime_is_loaded(run: Runner) -> None:
    run.load(add_one_plan())([torch.zeros(16)])
    lines = Path("/proc/self/maps").read_text().splitlines()
    runtimes = {line.split()[-1] for line in lines if "libgomp" in line or "libomp" in line or "libiomp" in line}
    assert runtimes == {str(p) for p in (Path(torch.__file__).resolve().parent / "lib").glob("libgomp*")}


def test_other_python_threads_run_during_a_kernel(run: Runner) -> None:
    plan = run.load(make_plan(KernelCall(SLEEP.symbol, "sleep", (), (300_000,)), results=()))
    finished: list[str] = []
    worker = threading.Thread(target=lambda: (plan([]), finished.append("kernel")))
    worker.start()
    time.sleep(0.02)
    finished.append("main")
    worker.join()
    assert finished == ["main", "kernel"]


def test_one_plan_called_by_many_threads(run: Runner) -> None:
    plan = run.load(arena_plan())
    wrong: list[float] = []

    def work(seed: int) -> None:
        x = torch.full((1000 + seed,), float(seed))
        for _ in range(100):
            out = plan([x])[0]
            if not bool((out == (seed + 1) * 3).all()):
                wrong.append(seed)

    workers = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert wrong == []


def test_operators_do_not_record_gradients_and_state_is_restored(either: Runner) -> None:
    plan = either.load(make_plan(LoadInput(Slot(0), 0), extern(aten.mul.Tensor, Slot(0), Slot(0)), results=(Slot(1),)))
    x = torch.randn(3, requires_grad=True)
    assert not plan([x])[0].requires_grad
    assert torch.is_grad_enabled()
    assert (x * x).requires_grad


def test_operators_ignore_autocast_and_modes(either: Runner) -> None:
    seen: list[Any] = []

    class Mode(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(func)
            return func(*args, **(kwargs or {}))

    class FunctionMode(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(func)
            return func(*args, **(kwargs or {}))

    plan = either.load(make_plan(LoadInput(Slot(0), 0), extern(aten.mm.default, Slot(0), Slot(0)), results=(Slot(1),)))
    x = torch.randn(3, 3)
    with Mode(), FunctionMode(), torch.autocast("cpu", dtype=torch.bfloat16):
        result = plan([x])[0]
    assert result.dtype == torch.float32
    assert seen == []


@pytest.mark.parametrize("forced", [False, True])
def test_profiler_shows_kernels_by_label_and_operators(either: Runner, forced: bool) -> None:
    plan = either.load(
        make_plan(*add_one_plan().instructions, extern(aten.relu.default, Slot(1)), results=(Slot(1),)), forced
    )
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        plan([torch.randn(16)])
    names = {event.key for event in profile.key_averages()}
    assert {"add_one", "aten::relu"} <= names
