"""Kernels that go through memory: what they ask for ahead, several units of narrow operands, operands that repeat."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
import torch

import inductor_cpu
from bench_suites.kernels.row import Size
from bench_suites.kernels.table import FAMILIES
from inductor_cpu.codegen.analysis import Facts
from inductor_cpu.codegen.kernel import generate
from inductor_cpu.codegen.pairs import as_pairs
from inductor_cpu.codegen.prefetch import Ahead, plan_ahead
from inductor_cpu.codegen.raw import as_bits
from inductor_cpu.codegen.records import as_records
from inductor_cpu.codegen.tuning import Choices, pointwise_units, vertical_units
from inductor_cpu.ir.index import loop_var, of, size_symbol
from inductor_cpu.ir.kernel import Kernel
from inductor_cpu.ir.micro_kernels import MICRO_KERNELS
from inductor_cpu.ir.operators import PACKED_LINEAR
from inductor_cpu.targets import cpu
from tests.lower.harness import lower
from tests.schedule.harness import kernels, schedule_of

from .build import BF16, BOOL, F16, F32, I8, I64, U8, Build
from .harness import VECTORS, Library, target

N = size_symbol("n")
ISAS = VECTORS


def from_models(
    name: str, dtype: torch.dtype = F32, of: Callable[[Kernel], int] = lambda kernel: len(kernel.body), lanes: int = 16
) -> Facts:
    """The kernel of a row of the corpus, at its size there, that has most of something."""
    (row,) = (row for rows in FAMILIES.values() for row in rows if row.name == name)
    schedule = schedule_of(lower(row.function, *row.build(dtype, Size.FULL)), lanes)
    return Facts(max(kernels(schedule), key=of))


def ahead(facts: Facts, runs: bool = True) -> list[Ahead]:
    return list(plan_ahead(facts, vertical_units(facts), runs=runs).values())


def function(rows: int, columns: int, reduced: bool) -> Facts:
    def run(x: torch.Tensor) -> torch.Tensor:
        return x.sum(0) if reduced else x + 1

    (kernel,) = kernels(schedule_of(lower(run, torch.empty(rows, columns))))
    return Facts(kernel)


@pytest.mark.parametrize("dtype", [F32, BF16], ids=str)
def test_operands_that_are_joined_are_runs_although_each_has_a_part_of_the_loop(dtype: torch.dtype) -> None:
    facts = from_models("concatenate_channels", dtype)
    assert ahead(facts, runs=False) == []
    assert set(ahead(facts)) == {Ahead(2048 // dtype.itemsize)}


def test_a_stream_asks_two_kilobytes_ahead_and_small_operands_do_not() -> None:
    assert ahead(function(1024, 1024, False)) == [Ahead(512), Ahead(512)]
    assert ahead(function(64, 64, False)) == []


def test_a_processor_that_follows_runs_is_asked_only_for_what_lies_elsewhere() -> None:
    assert ahead(function(1024, 1024, False), runs=False) == []
    assert ahead(from_models("softmax"), runs=False) == []  # the next row follows this one
    assert ahead(from_models("split_heads"), runs=False) == [Ahead(8 * 3 * 768)]
    assert Ahead(32000, phase=1, far=True) in ahead(from_models("log_softmax"), runs=False)
    assert all(found.loops for found in ahead(from_models("embedding"), runs=False))
    assert [bool(found.loops) for found in ahead(from_models("window_reverse"), runs=False)] == [True]
    assert ahead(from_models("window_reverse", BF16), runs=False) == []  # too little to look for where rows jump


@pytest.mark.parametrize(("rows", "columns", "asks"), [(32, 1 << 16, True), (31, 1 << 16, False), (64, 1 << 15, False)])
def test_a_run_out_of_memory_is_asked_for_beside_what_is_read_again(rows: int, columns: int, asks: bool) -> None:
    """8 MB beside 256 KB; less of the run; less of the other."""

    def scaled(x: torch.Tensor, again: torch.Tensor) -> torch.Tensor:
        return x * again

    (kernel,) = kernels(schedule_of(lower(scaled, torch.empty(rows, columns), torch.empty(columns))))
    found = plan_ahead(Facts(kernel), 1, runs=False)
    assert [(kernel.body[k].index[0].symbols == {*kernel.outer}, ahead) for k, ahead in found.items()] == (
        [(True, Ahead(512))] if asks else []
    )


def test_what_is_read_again_counts_together() -> None:
    """Two operands of 128 KB, each read for every row."""
    rows, columns = torch.empty(64, 1 << 15), torch.empty(1 << 15)
    (kernel,) = kernels(schedule_of(lower(lambda x, y, z: x * y + z, rows, columns, columns.clone())))
    assert list(plan_ahead(Facts(kernel), 1, runs=False).values()) == [Ahead(512)]


@pytest.mark.parametrize(("zen", "follows"), [(0, False), (3, False), (4, True), (5, True)])
def test_kernels_for_zen_4_and_later_ask_for_no_run(
    zen: int, follows: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    machine = replace(cpu.detect(), zen=zen)
    monkeypatch.setattr(cpu, "detect", lambda: machine)
    with inductor_cpu.config.patch({"dump": str(tmp_path)}):
        torch.compile(lambda x: x + 1, backend="icpu", dynamic=False)(torch.zeros(1024, 1024))
    (text,) = (path.read_text() for path in tmp_path.glob("*/icpu_*.cpp"))
    assert ("icpu::fetch" in text) != follows


def test_a_row_that_two_passes_read_is_asked_for_by_the_one_that_computes() -> None:
    load, store = ahead(from_models("softmax"))
    assert load == Ahead(768, phase=1)  # the pass of the exponentials asks for the next row
    assert store == Ahead(512)


def test_a_processor_that_follows_runs_is_asked_for_the_long_row_that_a_later_pass_writes() -> None:
    facts = from_models("log_softmax")
    assert plan_ahead(facts, 1, runs=False)[-1] == Ahead(0, phase=1, far=True)
    assert -1 not in plan_ahead(from_models("softmax"), 1, runs=False)  # a short one
    assert plan_ahead(facts, 1, runs=True)[-1] == Ahead(512)


@pytest.mark.skipif("avx512" not in ISAS, reason="needs AVX-512")
@pytest.mark.parametrize("kept", [1 << 40, 1])
def test_a_row_is_asked_for_to_write_by_the_pass_before_unless_it_goes_around_the_cache(kept: int) -> None:
    kernel = from_models("log_softmax").kernel
    text = generate(kernel, target("avx512"), Choices(runs=False, kept=kept)).code
    before, last = text.split("icpu::exp")[1].split("std::log")
    assert ("icpu::fetch_far(p0, " in before) == (kept > 1)
    assert ("icpu::around" in last) == (kept == 1)
    assert "fetch" not in last


def test_rows_that_are_long_are_asked_for_into_the_second_cache() -> None:
    assert Ahead(32000, phase=1, far=True) in ahead(from_models("log_softmax"))


def test_columns_are_asked_for_some_rows_down() -> None:
    facts = function(4099, 768, True)  # a prime number of rows: no blocks
    assert ahead(facts) == [Ahead(768 * 2048 // (vertical_units(facts) * 64))]


@pytest.mark.parametrize(("dtype", "columns", "far"), [(BF16, 4096, True), (BF16, 768, False), (F32, 4096, False)])
def test_rows_that_meet_in_the_first_cache_are_asked_for_into_the_second(
    dtype: torch.dtype, columns: int, far: bool
) -> None:
    """Eight rows of bf16 that are 8 KB apart would take all the places of a line. Of floats, four are asked for."""
    (kernel,) = kernels(schedule_of(lower(lambda x: x.sum(0), torch.empty(4099, columns, dtype=dtype))))
    facts = Facts(kernel)
    steps = 2048 // (vertical_units(facts) * kernel.vector.lanes * dtype.itemsize)
    assert ahead(facts, runs=False) == [Ahead(steps * columns, far=far)]


def test_results_that_meet_in_the_first_cache_are_asked_for_to_write() -> None:
    (kernel,) = kernels(schedule_of(lower(lambda x: x.softmax(0), torch.empty(1024, 2048, dtype=BF16))))
    facts = Facts(kernel)
    found = plan_ahead(facts, vertical_units(facts))
    assert {access < 0: asked.far for access, asked in found.items()} == {False: True, True: False}


def test_pieces_of_rows_are_asked_for_in_the_order_of_the_loops() -> None:
    assert ahead(from_models("split_heads")) == [Ahead(8 * 3 * 768), Ahead(512)]


@pytest.mark.parametrize(("rows", "columns", "asks"), [(300, 1024, True), (3000, 100, False), (9, 1024, False)])
def test_the_epilogue_of_a_large_product_asks_for_the_long_rows_of_the_next_panel(
    rows: int, columns: int, asks: bool
) -> None:
    def linear_and_residual(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return y + (PACKED_LINEAR(x, weight, None, None, columns, "fma_f32") * bias)

    row = MICRO_KERNELS["fma_f32"]
    weight = torch.empty(row.packed_shape(columns, 64))
    args = torch.empty(rows, 64), weight, torch.empty(columns), torch.empty(rows, columns)
    (kernel,) = kernels(schedule_of(lower(linear_and_residual, *args)))
    found = plan_ahead(Facts(kernel), 1)
    asking = [kernel.stores[-1 - k] if k < 0 else kernel.body[k] for k in found]
    names = sorted(type(instr).__name__ for instr in asking)
    assert names == (["Load", "Store"] if asks else [])  # neither the bias nor the block
    assert all(ahead == Ahead(row.columns) for ahead in found.values())


def _product_with_tiles(rows: int, columns: int, out: torch.dtype) -> Kernel:
    """A product of bf16 with a bias and a residual, whose results have another type."""

    def linear(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (y + PACKED_LINEAR(x, weight, None, None, columns, "amx_bf16") * bias).to(out)

    weight = torch.empty(MICRO_KERNELS["amx_bf16"].packed_shape(columns, 64), dtype=torch.bfloat16)
    x, bias = torch.empty(rows, 64, dtype=torch.bfloat16), torch.empty(columns, dtype=torch.bfloat16)
    y = torch.empty(rows, columns, dtype=torch.bfloat16)
    (kernel,) = kernels(schedule_of(lower(linear, x, weight, bias, y)))
    return kernel


def test_the_epilogue_beside_tiles_asks_for_rows_some_on_and_for_both_panels_of_two_lines() -> None:
    kernel = _product_with_tiles(128, 768, torch.float32)
    assert kernel.outer[0] == kernel.vector.loop  # the bias is read once for all rows
    found = plan_ahead(Facts(kernel), 1)
    asking = {type(kernel.stores[-1 - k] if k < 0 else kernel.body[k]).__name__: ahead for k, ahead in found.items()}
    assert asking == {"Load": Ahead(8 * 768, beside=32), "Store": Ahead(8 * 768)}  # a panel of floats is two lines


@pytest.mark.parametrize(("rows", "columns", "asks"), [(256, 2048, True), (257, 2048, False), (257, 2080, True)])
def test_the_epilogue_beside_tiles_does_not_ask_for_lines_that_meet_in_the_second_cache(
    rows: int, columns: int, asks: bool
) -> None:
    found = plan_ahead(Facts(_product_with_tiles(rows, columns, torch.bfloat16)), 1)
    assert len(found) == (2 if asks else 0)


def test_loops_too_short_for_the_distance_are_stepped_over_as_a_whole() -> None:
    """The same number of bytes ahead without a look at the gaps would be lines that nobody reads."""

    def quarter(x: torch.Tensor) -> torch.Tensor:
        return x[:, ::2, ::2] + 1

    (kernel,) = kernels(schedule_of(lower(quarter, torch.empty(32, 56, 56, 96, dtype=BF16))))
    load, store = ahead(Facts(kernel))
    assert (load, store) == (Ahead(2 * 56 * 96), Ahead(1024))


@pytest.mark.parametrize(
    ("name", "dtype", "rows", "sizes"),
    [
        ("window_reverse", BF16, 10, [56, 56]),
        ("window_reverse", F32, 5, [56, 56]),
        ("window_partition", F32, 5, [7, 7, 8]),
    ],
    ids=str,
)
def test_rows_that_jump_by_remainders_are_asked_for_where_the_loops_will_be(
    name: str, dtype: torch.dtype, rows: int, sizes: list[int]
) -> None:
    facts = from_models(name, dtype)
    load, store = ahead(facts)
    assert (load.distance, load.phase, store.loops) == (rows, None, ())
    assert [loop.size and loop.size.as_int for loop in load.loops] == sizes
    assert plan_ahead(facts, 1, tables=False) == {-1: store}  # in a part of a kernel


def test_what_is_some_rows_on_carries_from_loop_to_loop_and_stays_inside_the_last() -> None:
    code = generate(from_models("window_partition", lanes=8).kernel, target("avx2")).code
    for line in (
        "const int64_t on0_0 = i4 + 5;",
        "const int64_t on0_1 = i3 + on0_0 / (7);",
        "const int64_t ahead0 = place0(on0_0 % (7), on0_1 % (7), std::min<int64_t>(i2 + on0_1 / (7), (8) - 1));",
    ):
        assert line in code


def test_rows_that_jump_are_asked_for_by_the_first_pass_over_them() -> None:
    def norm(x: torch.Tensor) -> torch.Tensor:
        windows = torch.roll(x, -3, 1).view(16, 8, 7, 8, 7, 96).permute(0, 1, 3, 2, 4, 5)
        return torch.softmax(windows, -1)

    (kernel,) = kernels(schedule_of(lower(norm, torch.empty(16, 56, 56, 96))))
    load, _ = ahead(Facts(kernel))
    assert (load.distance, load.phase, len(load.loops)) == (5, 0, 3)


def test_masked_rows_are_not_asked_for() -> None:
    assert len(ahead(from_models("pad_image"))) == 1  # the store


@pytest.mark.parametrize(
    ("name", "dtype", "units"),
    [("gelu", BF16, 2), ("gelu", F32, 1), ("dropout_backward", F32, 4), ("cast_from_bf16", F32, 2)],
)
def test_units_fill_registers_with_the_narrowest_operand(name: str, dtype: torch.dtype, units: int) -> None:
    assert pointwise_units(from_models(name, dtype)) == units


def test_all_channels_are_read_in_one_pass() -> None:
    assert vertical_units(from_models("batch_norm_training_nhwc", of=lambda kernel: len(kernel.outer))) == 6


@pytest.mark.parametrize(("name", "units"), [("softmax_columns", 4), ("adaptive_pool_uneven", 1)])
def test_several_units_read_whole_lines_but_gain_nothing_for_gathers(name: str, units: int) -> None:
    assert vertical_units(from_models(name)) == units


@pytest.mark.parametrize(
    ("name", "units"), [("bias_gradient", 8), ("best_of_few_classes", 4), ("layer_norm_backward", 8)]
)
def test_with_half_the_registers_one_narrow_sum_reads_as_much_of_a_row(name: str, units: int) -> None:
    assert vertical_units(from_models(name, of=lambda kernel: vertical_units(Facts(kernel)), lanes=8)) == units


@pytest.mark.parametrize(("dtype", "sums", "units"), [(F32, 2, 8), (F32, 3, 4), (BF16, 1, 8), (BF16, 2, 4)], ids=str)
def test_with_half_the_registers_two_sums_of_floats_do_so_too(dtype: torch.dtype, sums: int, units: int) -> None:
    def function(x: torch.Tensor) -> list[torch.Tensor]:
        return [(x.float() * number).sum(0) for number in range(2, 2 + sums)]

    (kernel,) = kernels(schedule_of(lower(function, torch.empty(500, 256, dtype=dtype)), 8))
    assert vertical_units(Facts(kernel)) == units


# -- numbers -----------------------------------------------------------------------------------------------------------
def mixed(isa: str, narrow: torch.dtype) -> Kernel:
    """Y[i] = X[i] where the narrow operand is positive, else minus X[i]."""
    i = loop_var("i", of(N))
    b = Build()
    x, m = b.load("X", of(i), F32), b.load("M", of(i), narrow)
    positive = m if narrow == BOOL else b.op("gt", m, b.const(0, narrow))
    b.store("Y", of(i), b.op("where", positive, x, b.op("neg", x)))
    return b.kernel(isa, (i,), vector=i, parallel=1, work=30, sizes=(N,))


def repeating(isa: str, period: int, dtype: torch.dtype) -> Kernel:
    """Y[i] = X[i] * C[3 + i % period], with one unit per vector or several."""
    i = loop_var("i", of(N))
    b = Build()
    x = b.load("X", of(i), dtype)
    c = b.load("C", of(i) % period + 3, dtype, "gather")
    b.store("Y", of(i), b.op("mul", x, c))
    return b.kernel(isa, (i,), vector=i, parallel=1, work=30, sizes=(N,))


def chosen(isa: str, dtype: torch.dtype) -> Kernel:
    """Y[i] = X[i] where the mask says so, else -0.5; the load has a mask and a fill too."""
    i = loop_var("i", of(N))
    b = Build()
    m = b.load("M", of(i), BOOL)
    x = b.load("X", of(i), dtype, mask=m, fill=3.1)
    b.store("Y", of(i), b.op("where", m, x, b.const(-0.5, dtype)))
    b.store("Z", of(i), x)
    return b.kernel(isa, (i,), vector=i, parallel=1, work=30, sizes=(N,))


NARROW = (BOOL, U8, I8, BF16, I64)
PERIODS = (2, 3, 5, 16, 24, 64, 65)


@cache
def built(isa: str) -> dict[object, Kernel]:
    found: dict[object, Kernel] = {dtype: mixed(isa, dtype) for dtype in NARROW}
    found |= {("chosen", dtype): chosen(isa, dtype) for dtype in (BF16, F16, F32)}
    return found | {(p, dtype): repeating(isa, p, dtype) for p in PERIODS for dtype in (F32, BF16)}


@pytest.fixture(scope="module")
def library(isa: str) -> Library:
    return Library(isa, built(isa).values())


SIZES = (1, 7, 15, 16, 33, 63, 64, 65, 130, 1000)


def each_size(check: Callable[[int], tuple[torch.Tensor, torch.Tensor]]) -> None:
    for n in SIZES:
        y, wanted = check(n)
        assert torch.equal(y[:n], wanted), n
        assert (y[n:] == 9).all(), n


@pytest.mark.parametrize("dtype", NARROW, ids=str)
def test_several_units_of_a_narrow_operand(library: Library, isa: str, dtype: torch.dtype) -> None:
    def check(n: int) -> tuple[torch.Tensor, torch.Tensor]:
        x, m = torch.randn(n), torch.randint(0, 2, (n,)).to(dtype)
        y = torch.full((n + 80,), 9.0)
        library.run(built(isa)[dtype], x, m, y, sizes=(n,))
        return y, torch.where(m > 0, x, -x)

    each_size(check)


@pytest.mark.parametrize("dtype", [F32, BF16], ids=str)
@pytest.mark.parametrize("period", PERIODS)
def test_an_operand_that_repeats(library: Library, isa: str, period: int, dtype: torch.dtype) -> None:
    facts = Facts(built(isa)[period, dtype])
    assert bool(facts.periods) == (period <= 64)

    def check(n: int) -> tuple[torch.Tensor, torch.Tensor]:
        x, c = torch.randn(n).to(dtype), torch.randn(period + 3).to(dtype)
        y = torch.full((n + 80,), 9, dtype=dtype)
        library.run(built(isa)[period, dtype], x, c, y, sizes=(n,))
        return y, x * c[3 + torch.arange(n) % period]

    each_size(check)


@pytest.mark.parametrize("dtype", [BF16, F16, F32], ids=str)
def test_low_precision_that_is_only_moved_keeps_its_bits(library: Library, isa: str, dtype: torch.dtype) -> None:
    kernel = built(isa)["chosen", dtype]
    assert ("int16_t" in generate(kernel, target(isa)).code) == (dtype != F32)
    bits = torch.arange(-(1 << 15), 1 << 15).to(torch.int16)  # every one: NaN with their payloads, denormals
    x = bits.view(dtype) if dtype != F32 else torch.randn(len(bits))
    mask = torch.rand(len(x)) < 0.5
    y, z = torch.empty_like(x), torch.empty_like(x)
    library.run(kernel, mask, x, y, z, sizes=(len(x),))
    whole = torch.int16 if dtype != F32 else torch.int32
    for result, other in ((y, -0.5), (z, 3.1)):
        wanted = torch.where(mask, x.view(whole), torch.tensor(other, dtype=dtype).view(whole))
        assert torch.equal(result.view(whole), wanted)


def test_low_precision_that_is_computed_with_stays_float() -> None:
    kernel = from_models("gelu", BF16).kernel
    assert as_bits(kernel) is kernel


def test_a_row_of_tiles_asks_for_the_next_tile_and_for_little_of_each_row_beside_it() -> None:
    def turned(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x.t() + y

    (kernel,) = kernels(schedule_of(lower(turned, torch.empty(1024, 1024), torch.empty(1024, 1024))))
    facts = Facts(kernel)
    if facts.tile is None:
        pytest.skip("no vectors")
    (tiled,) = facts.tile.loads
    plan = plan_ahead(facts, 1)
    assert plan.pop(tiled) == Ahead(16 * 1024)
    assert list(plan.values()) == [Ahead(64)] * 2


def test_beside_tiles_a_processor_that_follows_runs_is_asked_for_no_whole_lines() -> None:
    facts = from_models("transposed_add")
    assert facts.tile is not None
    assert plan_ahead(facts, 1, runs=False) == {next(iter(facts.tile.loads)): Ahead(16 * 1536)}
    assert len(plan_ahead(facts, 1)) == 3
    assert len(plan_ahead(from_models("transposed_add", BF16), 1, runs=False)) == 3  # a vector is half a line


def test_a_column_of_tiles_asks_for_the_next_rows_to_write_and_a_short_one_for_what_lanes_read_later() -> None:
    column = from_models("nchw_to_nhwc")
    short = Facts(as_records(as_pairs(from_models("patches_of_image").kernel)))
    assert (ahead(column), ahead(short)) == ([Ahead(512)], [])
    assert ahead(column, runs=False) == [Ahead(16 * 64)]
    assert ahead(short, runs=False) == [Ahead(64)] * 2
