"""Positions in 32 bits: the same numbers as in 64, wherever the ranges allow it, up to their very ends."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from inductor_cpu.ir.index import Expr, Sym, loop_var, maximum, minimum, of, size_symbol, value_symbol
from inductor_cpu.ir.kernel import Kernel, Phase, VectorPlan
from inductor_cpu.ir.loop_nest import Index, Load
from inductor_cpu.ir.printer import show
from inductor_cpu.schedule.value_ranges import small_ranges
from tests.codegen.build import BOOL, F32, I16, I32, I64, Build
from tests.schedule.harness import only_kernel, scheduled
from tests.schedule.positions import COLUMNS, PLACE, ROWS, I, J, Maker, inputs_of, is_narrowed, narrowed, results

CASES = 60


# -- any kernel ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("seed", range(8))
def test_narrowed_kernels_give_the_numbers_of_the_original_ones(seed: int) -> None:
    changed = 0
    for case in range(seed * CASES, (seed + 1) * CASES):
        kernel = Maker(case).make()
        inputs = inputs_of(kernel, case)
        changed += is_narrowed(kernel)
        wanted = results(kernel, inputs)
        for name, got in results(narrowed(kernel), inputs).items():
            assert torch.equal(got, wanted[name]), f"seed {case}, {name}\n{show(kernel)}\n{show(narrowed(kernel))}"
    assert changed >= CASES // 4


@pytest.mark.parametrize("seed", range(8))
def test_values_lie_in_the_ranges_that_are_found_for_them(seed: int) -> None:
    found = 0
    for case in range(seed * CASES, (seed + 1) * CASES):
        made = Maker(case)
        made.make()
        ranges = small_ranges(made.b.body)
        for k, instr in enumerate(made.b.body):
            if instr.dtype == I64:
                made.b.store(f"v{k}", PLACE, k)
        kernel = made.b.kernel("avx512", (I, J), vector=J)
        values = results(kernel, inputs_of(kernel, case))
        for k, known in enumerate(ranges):
            if known is not None:
                found += 1
                low, high = int(values[f"v{k}"].min()), int(values[f"v{k}"].max())
                assert -(2**31) <= known[0] <= low, f"seed {case}, %{k}: {low} in {known}\n{show(kernel)}"
                assert high <= known[1] < 2**31, f"seed {case}, %{k}: {high} in {known}\n{show(kernel)}"
    assert found > CASES


# -- the ends of 32 bits ---------------------------------------------------------------------------------------------
def compared(expr: Expr, loop: Sym = J, sizes: tuple[Sym, ...] = ()) -> Kernel:
    """A comparison of an index with a number, stored."""
    b = Build()
    b.store("y", of(loop), b.op("lt", b.index(expr), b.const(5, I64)))
    return b.kernel("avx512", (loop,), vector=loop, sizes=sizes)


@pytest.mark.parametrize(
    ("size", "place", "fits"),
    [
        (2**31 - 1, lambda i: i, True),
        (2**31, lambda i: i, True),  # the last position is 2^31 - 1
        (2**31 + 1, lambda i: i, False),
        (2**31 - 1, lambda i: i + 1, True),
        (2**31, lambda i: i + 1, False),
        (2**31 + 1, lambda i: -i, True),  # the last one is -2^31
        (2**31 + 2, lambda i: -i, False),
        (2**30, lambda i: i * 2 + 1, True),
        (2**30 + 1, lambda i: i * 2, False),
        (2**32, lambda i: i - 2**31, True),
        (2**32 + 1, lambda i: i - 2**31, False),
        (2**31, lambda i: i // 3 * 7 - 2**31, False),
        (2**31, lambda i: i // 7 * 3, True),
        (2**31 + 1, lambda i: i // 7 * 3, False),  # what is divided does not fit
        (2**31 + 1, lambda i: i % 7, False),
        (2**31, lambda i: i % 7 - i // 7, True),
        (2**31, lambda i: minimum(i, 40 - i), False),  # no lower bound is found for it
        (2**31, lambda i: maximum(i - 40, 0), True),
        (2**31 + 41, lambda i: maximum(i - 40, 0), False),
        (2**40, lambda i: minimum(i, 9), False),
    ],
)
def test_an_index_is_narrow_where_every_part_of_it_fits(size: int, place: Callable[[Expr], Expr], fits: bool) -> None:
    loop = loop_var("i", size)
    kernel = compared(place(of(loop)), loop)
    assert is_narrowed(kernel) == fits


@pytest.mark.parametrize(
    ("op", "operands", "fits"),
    [
        ("add", (2**31 - COLUMNS,), True),
        ("add", (2**31 - COLUMNS + 1,), False),
        ("sub", (2**31,), False),  # it is no number of 32 bits itself
        ("sub", (2**31 - 1,), True),
        ("mul", (2**31 // (COLUMNS - 1),), True),
        ("mul", (2**31 // (COLUMNS - 1) + 1,), False),
        ("mul", (-(2**31) // (COLUMNS - 1) - 1,), False),
        ("maximum", (2**31 - 1,), True),
        ("minimum", (2**31,), False),
        ("floordiv", (7,), True),
        ("floordiv", (-1,), False),
        ("remainder", (7,), True),
        ("fmod", (-7,), False),
        ("truncdiv", (2**31 - 1,), True),
        ("bitwise_and", (1,), False),
        ("neg", (), True),
    ],
)
def test_arithmetic_is_narrow_where_its_result_fits(op: str, operands: tuple[int, ...], fits: bool) -> None:
    b = Build()
    value = b.op(op, b.index(of(J)), *(b.const(number, I64) for number in operands))
    b.store("y", of(J), b.cast(value, F32))
    assert is_narrowed(b.kernel("avx512", (J,), vector=J)) == fits


@pytest.mark.parametrize("op", ["neg", "abs"])
def test_the_least_number_is_not_turned_over(op: str) -> None:
    for lowest, fits in ((-(2**31), False), (-(2**31) + 1, True)):
        b = Build()
        b.store("y", of(J), b.cast(b.op(op, b.index(of(J) + lowest)), F32))
        kernel = b.kernel("avx512", (J,), vector=J)
        assert is_narrowed(kernel) == fits
        wanted = (torch.arange(COLUMNS) + lowest).neg().float()
        assert torch.equal(results(narrowed(kernel), inputs_of(kernel, 0))["y"][:COLUMNS], wanted)


def against_a_loaded(position: Expr, op: str, at: Expr) -> Kernel:
    """A comparison of a position with a loaded number, which all lanes have if `at` has no J, stored."""
    b = Build()
    number = b.load("x", at, I64, "uniform" if at == of(I) else "contiguous")
    b.store("y", PLACE, b.op(op, number, b.index(position)))
    return b.kernel("avx512", (I, J), vector=J)


@pytest.mark.parametrize("op", ["eq", "ne", "lt", "le", "gt", "ge"])
@pytest.mark.parametrize("first", [1 - 2**31, -3, 2**31 - 1 - COLUMNS])
def test_a_number_of_any_size_is_compared_with_positions_in_32_bits(op: str, first: int) -> None:
    kernel = against_a_loaded(of(J) + first, op, of(I))
    assert is_narrowed(kernel)
    numbers = [first + k for k in (-1, 0, 5, COLUMNS - 1, COLUMNS)]
    numbers += [2**31 - 1, 2**31, -(2**31), -(2**31) - 1, 2**32 + first + 5, 2**63 - 1, -(2**63)]
    for few in zip(*[iter(numbers)] * ROWS, strict=True):
        inputs = inputs_of(kernel, 0)
        inputs["x"][:ROWS] = torch.tensor(few)
        wanted = results(kernel, inputs)["y"]
        assert torch.equal(results(narrowed(kernel), inputs)["y"], wanted)


def test_numbers_that_differ_from_lane_to_lane_leave_64_bits() -> None:
    assert not is_narrowed(against_a_loaded(of(J), "eq", PLACE))


def test_positions_up_to_the_ends_of_32_bits_leave_no_number_beside_them() -> None:
    for first, fits in ((-(2**31), False), (1 - 2**31, True), (2**31 - COLUMNS, False), (2**31 - COLUMNS - 1, True)):
        assert is_narrowed(against_a_loaded(of(J) + first, "lt", of(I))) == fits


def test_a_size_without_a_known_limit_leaves_64_bits() -> None:
    n = size_symbol("n", 2)
    loop = loop_var("i", of(n))
    assert not is_narrowed(compared(of(loop), loop, (n,)))
    assert not is_narrowed(compared(of(J) + of(n), J, (n,)))
    assert not is_narrowed(compared(of(loop) % 7, loop, (n,)))
    assert is_narrowed(compared(of(J) % 7))


# -- what is left as it is -------------------------------------------------------------------------------------------
def test_positions_that_are_also_stored_stay_wide() -> None:
    b = Build()
    place = b.index(of(J))
    b.store("y", of(J), b.op("lt", place, b.const(5, I64)))
    b.store("z", of(J), place)
    kernel = b.kernel("avx512", (J,), vector=J)
    assert narrowed(kernel) == kernel


def test_positions_in_addresses_and_in_reductions_stay_wide() -> None:
    b = Build()
    place = b.index(of(J) + 3)
    x = b.load("x", of(value_symbol(place, COLUMNS)), F32, "gather", mask=b.op("lt", place, b.const(5, I64)))
    b.store("y", of(J), x)
    assert not is_narrowed(b.kernel("avx512", (J,), vector=J))
    b = Build()
    place = b.index(of(J))
    total = b.reduce("sum", b.op("where", b.load("m", of(J), BOOL), place, b.const(0, I64)))
    b.store("y", of(I), total, "uniform")
    assert not is_narrowed(b.kernel("avx512", (I,), (J,), vector=J, phases=(Phase((total,), ()),)))


def test_positions_compared_with_loaded_numbers_of_64_bits_stay_wide() -> None:
    b = Build()
    b.store("y", of(J), b.op("lt", b.index(of(J)), b.load("x", of(J), I64)))
    assert not is_narrowed(b.kernel("avx512", (J,), vector=J))


def test_loaded_numbers_of_fewer_bits_are_compared_as_they_are() -> None:
    b = Build()
    for dtype in (I32, I16):
        b.store(f"y{dtype}", of(J), b.op("lt", b.index(of(J)), b.cast(b.load(f"x{dtype}", of(J), dtype), I64)))
    kernel = narrowed(b.kernel("avx512", (J,), vector=J))
    assert I64 not in {instr.dtype for instr in kernel.body}
    inputs = inputs_of(kernel, 1)
    for name, got in results(kernel, inputs).items():
        x = inputs["x" + name[1:]]
        assert torch.equal(got[:COLUMNS], torch.arange(COLUMNS) < x[:COLUMNS])


def test_kernels_gain_only_where_lanes_differ() -> None:
    kernel = compared(of(I))
    assert not is_narrowed(replace(kernel, outer=(I, J)))
    scalar = compared(of(J))
    assert is_narrowed(scalar)
    assert not is_narrowed(replace(scalar, vector=VectorPlan(None, 1, reasons=("why not",))))


def test_a_number_is_written_for_both_widths_and_accesses_move_along() -> None:
    b = Build()
    zero = b.const(0, I64)
    seen = b.op("ge", b.index(of(J) - 9), zero)
    known = b.op("ne", b.load("x", of(J), I64), zero)
    value = b.load("z", of(J), F32, mask=b.op("logical_and", seen, known), fill=-1.0)
    b.store("y", of(J), value)
    kernel = narrowed(b.kernel("avx512", (J,), vector=J))
    assert {instr.dtype for instr in kernel.body if isinstance(instr, Index)} == {I32}
    loads = {k for k, instr in enumerate(kernel.body) if isinstance(instr, Load)}
    assert {at for at, _ in kernel.vector.access} == {*loads, -1}
    places = torch.arange(COLUMNS)
    inputs = {"x": places % 3, "z": places.float(), "y": torch.zeros(COLUMNS)}
    wanted = torch.where((places >= 9) & (places % 3 != 0), places.float(), -1.0)
    assert torch.equal(results(kernel, inputs)["y"], wanted)


# -- what programs write ---------------------------------------------------------------------------------------------
def causal(x: torch.Tensor) -> torch.Tensor:
    place = torch.arange(x.shape[-1])
    return x + torch.where(place[:, None] >= place, 0.0, float("-inf"))


def padding(x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    return torch.where(torch.arange(x.shape[1]) < lengths[:, None], x, 0.0)


@pytest.mark.parametrize(
    ("function", "inputs"),
    [
        (causal, (torch.zeros(2, 40, 40),)),
        (torch.tril, (torch.zeros(40, 50),)),
        (padding, (torch.zeros(4, 40), torch.tensor([1, 4, 40, 0]).int())),
        (lambda x: x * torch.arange(x.shape[1]).to(x.dtype), (torch.zeros(4, 40),)),
        (lambda x: (torch.arange(40)[:, None] - torch.arange(40)).abs() < x, (torch.zeros(40, dtype=I16),)),
    ],
)
def test_masks_and_encodings_of_positions_need_no_64_bits(
    function: Callable[..., torch.Tensor], inputs: tuple[torch.Tensor, ...]
) -> None:
    kernel = only_kernel(scheduled(function, *inputs))
    assert I64 not in {instr.dtype for instr in kernel.body}


def test_sizes_that_may_change_keep_64_bits() -> None:
    kernel = only_kernel(scheduled(causal, torch.zeros(2, 40, 40), dynamic=True))
    assert I64 in {instr.dtype for instr in kernel.body}
