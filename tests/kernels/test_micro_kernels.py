"""The manifest of micro kernels: every row that multiplies matrices, over remainders, strides, pointers and epilogues,
in fp64."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import torch

from inductor_cpu.ir.micro_kernels import MICRO_KERNELS, MicroKernel, pack, unpack
from inductor_cpu.targets.blocking import blocking_for
from tests.emulation.machine import is_emulated
from tests.kernels.manifest import MATRICES, Epilogue, finished_dtype, level, machine_of, multiply, why_not_compiled

Record = Callable[[str, object], None]

#: Error of sums in float32, over the norm of the sum of absolute products; that of the split floats is below.
SUMS = 1e-6


@pytest.fixture(params=MATRICES)
def row(request: pytest.FixtureRequest, record_property: Record) -> MicroKernel:
    """A row that runs here, or is emulated. Tests of others are skipped with the reason; these are compiled only."""
    found = MATRICES[request.param]
    if (machine := machine_of(found)) is not None:
        record_property("micro_kernel", (level(found), found.name, "emulated" if is_emulated(machine) else "ran"))
        return found
    record_property("micro_kernel", (level(found), found.name, "not run"))
    pytest.skip(f"this CPU, or its system, lacks {', '.join(sorted(found.needs))}: compiled only")


@pytest.mark.parametrize(("header", "isa"), sorted({(row.header, row.isa) for row in MICRO_KERNELS.values()}))
def test_rows_compile_also_where_the_cpu_lacks_them(header: str, isa: str, record_property: Record) -> None:
    found = [row for row in MICRO_KERNELS.values() if (row.header, row.isa) == (header, isa)]
    reason = why_not_compiled(found)
    for each in found:
        record_property("micro_kernel", (level(each), each.name, "compiled only" if reason is None else "not compiled"))
    if reason is not None:
        pytest.skip(reason)


def values(dtype: torch.dtype, *sizes: int) -> torch.Tensor:
    """Random values, all of them of 8-bit integers."""
    if dtype.is_floating_point:
        return torch.randn(sizes).to(dtype)
    limits = torch.iinfo(dtype)
    return torch.randint(limits.min, limits.max + 1, sizes, dtype=dtype)


def operand(dtype: torch.dtype, rows: int, depth: int, gap: int) -> torch.Tensor:
    """Rows that start at any element, with numbers around them that must not be read: nan times 0 is nan."""
    whole = torch.full((rows * (depth + gap) + 1,), torch.nan if dtype.is_floating_point else 77, dtype=dtype)
    a = whole[1:].view(rows, depth + gap)[:, :depth]
    return a.copy_(values(dtype, rows, depth))


def check(
    row: MicroKernel, rows: int, columns: int, depth: int, *, gap: int = 0, finish: bool = False, threads: int = 1
) -> None:
    """One product against fp64, and that nothing around C is written."""
    a, weight = operand(row.dtype, rows, depth, gap), values(row.weight, columns, depth)
    epilogue = Epilogue(torch.rand(columns) / depth, torch.randn(columns)) if finish else None
    dtype = finished_dtype(row) if finish else row.total
    whole = torch.full((rows + 1, columns + gap + 1), 99, dtype=dtype)
    out = whole[:rows, 1 : columns + 1]
    multiply(row, a, weight, out, epilogue, threads)
    exact, size = a.double() @ weight.double().t(), a.double().abs() @ weight.double().abs().t()
    if epilogue:
        exact, size = (
            (exact * epilogue.scale + epilogue.bias).clamp_min(-1),
            size * epilogue.scale + epilogue.bias.abs(),
        )
    case = f"{row.name}: {rows} x {depth} x {columns}, gap {gap}, {threads} threads"
    if row.total.is_floating_point or finish:
        near = size * SUMS + (exact.abs() * torch.finfo(dtype).eps if finish else 0)
        assert ((out.double() - exact).abs() <= near).all(), case
    else:
        assert torch.equal(out, exact.to(dtype)), case
    out.fill_(99)
    assert (whole == 99).all(), case


def rows_of(row: MicroKernel) -> tuple[int, ...]:
    """Around tiles, blocks, and the few rows that stream the weight."""
    return (1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 15, 16, 17, 31, 32, 33, 50)


def columns_of(row: MicroKernel) -> tuple[int, ...]:
    return (1, row.tile - 1, row.tile, row.columns - 1, row.columns, row.columns + 1, 2 * row.columns + 5)


def depths_of(row: MicroKernel) -> tuple[int, ...]:
    """Around groups, steps, and what of the depth the L1 cache holds (12 to 16 steps, 32 of split floats)."""
    around = (1, row.pair + 1, row.step - 1, row.step, row.step + 1)
    return (*around, 12 * row.step, 12 * row.step + 1, 17 * row.step - 1, 33 * row.step + 2)


def test_remainders_of_rows_are_right(row: MicroKernel) -> None:
    for rows in rows_of(row):
        for depth in (row.step + row.pair + 1, 13 * row.step - 1):
            check(row, rows, row.columns + 3, depth)


def test_remainders_of_columns_are_right(row: MicroKernel) -> None:
    for columns in columns_of(row):
        for rows in (1, 5, 33):
            check(row, rows, columns, 2 * row.step + 1)


def test_remainders_of_the_depth_are_right(row: MicroKernel) -> None:
    for depth in depths_of(row):
        for rows in (1, 4, 7, 18):
            check(row, rows, row.tile + 1, depth)


def test_rows_that_are_far_apart_and_not_aligned_are_right(row: MicroKernel) -> None:
    for rows in (1, 3, 19):
        for gap in (1, 3, 64):
            check(row, rows, row.columns + 1, row.step + 3, gap=gap)


def test_an_epilogue_gets_every_element_once(row: MicroKernel) -> None:
    for rows in (1, 4, 5, 16, 40):
        check(row, rows, 2 * row.columns - 1, 3 * row.step + 1, gap=2, finish=True)


@contextmanager
def threads_of_torch(threads: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("threads", [2, 3])
def test_threads_share_rows_columns_and_few_rows(row: MicroKernel, threads: int) -> None:
    with threads_of_torch(threads):
        for rows, columns, depth in ((3, 83, 4001), (300, 20, 300), (40, 400, 130), (70, 100, 2500)):
            check(row, rows, columns, depth, threads=threads)


@pytest.mark.parametrize("threads", [1, 2])
def test_few_rows_meet_a_weight_larger_than_the_caches(row: MicroKernel, threads: int) -> None:
    machine = machine_of(row)
    assert machine is not None
    depth = 33 * row.step + row.pair + 1
    columns = 2 * threads * blocking_for(machine).packed_bytes // (depth * row.weight.itemsize) + row.columns + 1
    with threads_of_torch(threads):
        for rows in (1, 2, 3, 4, 5):
            check(row, rows, columns, depth, threads=threads)


def test_whoever_takes_a_piece_gives_the_same_bits(row: MicroKernel) -> None:
    """More threads than most machines that test have cores: each run, others take other pieces."""
    with threads_of_torch(5):
        for rows, columns, depth in ((3, 83, 4001), (150, 200, 300), (70, 100, 2500)):
            a, weight = operand(row.dtype, rows, depth, gap=0), values(row.weight, columns, depth)
            runs = [torch.full((rows, columns), 99, dtype=row.total) for _ in range(4)]
            for out in runs:
                multiply(row, a, weight, out, None, threads=5)
            assert all(torch.equal(out, runs[0]) for out in runs), f"{row.name}: {rows} x {depth} x {columns}"


def test_parts_of_rows_and_depth_are_right(row: MicroKernel) -> None:
    for rows, columns, depth in ((260, 2 * row.columns, 8500), (1100, row.columns + 1, 1500)):
        check(row, rows, columns, depth)


def test_matrices_of_a_batch_are_right(row: MicroKernel) -> None:
    """Each matrix at its own distance, as in a product of batches."""
    batch, rows, depth = values(row.dtype, 3, 9, 2 * row.step + 8), 9, 2 * row.step + 1
    weight = values(row.weight, row.columns + 1, depth)
    out = torch.zeros(3, rows, row.columns + 1, dtype=row.total)
    for a, c in zip(batch[:, :, 3 : 3 + depth], out, strict=True):
        multiply(row, a, weight, c, None)
    exact = batch[:, :, 3 : 3 + depth].double() @ weight.double().t()
    assert ((out.double() - exact).abs() <= exact.abs().max() * 1e-5 * row.total.is_floating_point).all()


#: Powers of two that leave room for sums.
MAGNITUDES = {torch.float16: (-8, 0, 4), torch.bfloat16: (-100, 0, 90), torch.float32: (-100, 0, 90)}


def test_rows_of_any_magnitude_are_right(row: MicroKernel) -> None:
    depth, weight = 3 * row.step + 1, values(row.weight, row.columns + 1, 3 * row.step + 1)
    for rows in (1, 3, 9, 33):
        a = values(row.dtype, rows, depth)
        for r in range(rows if row.dtype.is_floating_point else 0):
            a[r] *= 2.0 ** MAGNITUDES[row.dtype][r % 3]
        a[rows // 2] = 0
        out = torch.full((rows, row.columns + 1), 99, dtype=row.total)
        multiply(row, a, weight, out, None)
        exact, size = a.double() @ weight.double().t(), a.double().abs() @ weight.double().abs().t()
        assert ((out.double() - exact).abs() <= size * SUMS * row.total.is_floating_point).all(), rows


def test_infinities_and_nan_stay_in_their_rows(row: MicroKernel) -> None:
    if not row.dtype.is_floating_point:
        return  # integers have none
    depth, weight = 2 * row.step + 1, values(row.weight, row.columns + 1, 2 * row.step + 1)
    weight[weight == 0] = 1
    for rows in (1, 2, 7, 20, 40):
        a = values(row.dtype, rows, depth)
        a[0, 5], a[rows // 2, depth - 1] = -torch.inf, torch.nan
        out = torch.zeros(rows, row.columns + 1)
        multiply(row, a, weight, out, None)
        exact = (a.double() @ weight.double().t()).float()
        torch.testing.assert_close(out, exact, rtol=1e-4, atol=1e-3 * depth, equal_nan=True)


def test_a_value_near_the_largest_float_meets_small_weights_without_overflow(row: MicroKernel) -> None:
    if not row.dtype.is_floating_point:
        return
    depth, large = 2 * row.step + 1, 2.0 ** (14 if row.dtype == torch.float16 else 126)
    weight = (torch.randint(0, 2, (row.columns + 1, depth)) * 2 - 1).to(row.weight)
    for rows in (1, 2, 7, 40):
        a = torch.zeros(rows, depth, dtype=row.dtype)
        a[:, 5] = large
        out = torch.zeros(rows, row.columns + 1)
        multiply(row, a, weight, out, None)
        torch.testing.assert_close(out, (a.double() @ weight.double().t()).float(), rtol=1e-6, atol=0)


def test_extremes_of_integers_are_exact(row: MicroKernel) -> None:
    lowest, highest = (
        (-128, 127) if row.dtype.is_floating_point else (torch.iinfo(row.dtype).min, torch.iinfo(row.dtype).max)
    )
    depth, out = 4096, torch.zeros(9, row.columns, dtype=row.total)
    for a in (lowest, highest):
        for b in (-128, 127):
            x = torch.full((9, depth), a, dtype=row.dtype)
            multiply(row, x, torch.full((row.columns, depth), b, dtype=row.weight), out, None)
            assert (out.double() == a * b * depth).all()


def test_a_packed_weight_can_be_unpacked(row: MicroKernel) -> None:
    weight = values(row.weight, row.columns + 3, row.step + 5)
    assert torch.equal(unpack(pack(row, weight), *weight.shape), weight)
