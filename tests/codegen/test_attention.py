"""The attention template on its own: every kernel that runs here, over remainders, strides, masks and head sizes."""

from __future__ import annotations

import ctypes
import dataclasses
import functools
import math
from collections.abc import Sequence
from itertools import product
from typing import Any, NamedTuple

import pytest
import torch

from inductor_cpu import paths
from inductor_cpu.codegen.attention import MOST_OF_HEAD, MOST_ROWS, generate_attention
from inductor_cpu.codegen.tuning import Choices
from inductor_cpu.config import snapshot
from inductor_cpu.ir.attention import ATTENTION_KERNELS, attend
from inductor_cpu.ir.index import ZERO, as_expr
from inductor_cpu.ir.loop_nest import Buffer, View
from inductor_cpu.ir.nodes import Attention
from inductor_cpu.ir.plan import KernelSource
from inductor_cpu.kernels.usable import usable_micro_kernels
from inductor_cpu.runtime.toolchain import Toolchain, find_toolchain
from inductor_cpu.targets.cpu import Target
from tests.cases import cases, every_run, in_turns
from tests.codegen.harness import BITS, FUNCTION, addresses_of, available, emulated_machine, target

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
MASKS = ("none", "causal", "bool", "added")

Row = tuple[str, str, torch.dtype]

#: (kernel, instruction set, dtype) of the table.
ALL: list[Row] = [
    (row.name, isa, dtype)
    for row in ATTENTION_KERNELS.values()
    for isa, dtype in product(sorted(row.isas), DTYPES)
    if dtype in row.dtypes
]

#: batch, heads, heads of keys and values, rows, keys, depth, columns
SIZES = (
    (1, 1, 1, 1, 1, 8, 8),
    (1, 2, 2, 5, 7, 16, 16),
    (2, 4, 2, 33, 64, 32, 24),
    (1, 3, 1, 14, 31, 40, 48),
    (2, 2, 2, 65, 97, 64, 64),
    (1, 2, 2, 3, 513, 72, 33),
    (1, 1, 1, 70, 1030, 96, 130),
    (1, 1, 1, 1031, 70, 33, 31),
    (1, 2, 1, 35, 113, 50, 80),
    (1, 1, 1, 20, 48, 17, 49),
)

#: The same with so few queries that keys and values are read where they lie: one or a few rows, heads that share keys,
#: sizes around vectors (8, 16), pairs of them and blocks of keys (32, 64, 128).
FEW = (
    (1, 2, 2, 1, 300, 64, 64),
    (2, 8, 2, 1, 515, 128, 128),
    (1, 6, 2, 2, 700, 80, 72),
    (1, 4, 1, 2, 257, 33, 31),
    (3, 6, 6, 1, 129, 40, 200),
    (1, 3, 1, 1, 127, 16, 8),
    (2, 2, 2, 4, 65, 256, 96),
    (1, 8, 1, 1, 1000, 100, 64),
)

#: Heads, heads of keys and values, and rows that are known, with a mask: one row by itself ...
ONE_QUERY = ((6, 6, 1), "bool")

#: ... two and eight of several heads, and three of one head.
FEW_QUERIES = (((4, 2, 1), "none"), ((2, 2, 3), "causal"), ((2, 1, 4), "added"))

#: In every run, each kernel has the first with one dtype.
ONE = [row for row in ALL if row[2] == torch.float32 or row[0] != "vec_f32"]

# Of each row of the table, one case of every run: the same code meets the others for another dtype.
SOME_MASKS = in_turns(ALL, ("causal", "bool"))
EMPTY_ROWS = in_turns(ALL, (True, False))
FEW_MASKS = in_turns(ALL, MASKS[1:])
KNOWN = in_turns(ALL, FEW_QUERIES)


def machine(kernel: str, isa: str, zen: int | None = None) -> tuple[Target, Toolchain] | None:
    """What a kernel is compiled for and with, emulated where the CPU lacks it; None if it cannot run here.

    zen: the generation of a CPU with this one's instructions and other habits."""
    needed = ATTENTION_KERNELS[kernel].micro_kernel
    runs = isa in available() and (needed is None or needed in usable_micro_kernels(target(isa)))
    its_target = target(isa) if runs else emulated_machine(isa)
    if its_target is None:
        return None
    if zen is not None:
        its_target = dataclasses.replace(its_target, zen=zen)
    return its_target, find_toolchain(sanitize=snapshot().cpp.sanitize)


def source(
    kernel: str,
    target: Target,
    dtype: torch.dtype,
    mask: str,
    scale: float,
    nan_rows: bool,
    summed: bool,
    known: tuple[int, int, int] = (0, 0, 0),
) -> KernelSource:
    """A kernel; its views only name buffers, for sizes and strides are arguments. summed: whether logarithms of the
    divisors are wanted, for which few queries are no case of their own; known: heads, heads of keys and values, and
    rows, which decide what a kernel for few queries has."""
    dtypes = {"q": dtype, "out": dtype, "mask": torch.bool if mask == "bool" else dtype}
    buffers = {name: Buffer(name, kind, (), (), "temp") for name, kind in dtypes.items()}
    heads, kv_heads, rows = (as_expr(size) for size in known)
    sizes = {"q": (ZERO, heads, rows, ZERO)} | dict.fromkeys("kv", (ZERO, kv_heads, ZERO, ZERO))
    names = ("q", "k", "v", "mask")
    views = {name: View(name, sizes.get(name, (ZERO,) * 4), (ZERO,) * 4, ZERO) for name in names}
    masked = views["mask"] if mask in ("bool", "added") else None
    node = Attention(
        "attention",
        kernel,
        views["q"],
        views["k"],
        views["v"],
        masked,
        scale,
        mask == "causal",
        nan_rows,
        "out",
        "sums" if summed else None,
    )
    return generate_attention(node, buffers, Choices(), target)


class Function(NamedTuple):
    """What one function of a kernel is compiled for, as `source` takes it."""

    dtype: torch.dtype
    mask: str
    scale: float = 0.3
    nan_rows: bool = False
    summed: bool = True
    known: tuple[int, int, int] = (0, 0, 0)


def wanted(row: Row, summed: bool) -> list[Function]:
    """Those that tests of every run use: each is a second or more of the compiler, but for another scale."""
    dtype = row[2]
    if summed:
        masks = [(mask, False) for mask in ("none", "added", *always(SOME_MASKS, row))]
        masks += [("bool", nan_rows) for nan_rows in always(EMPTY_ROWS, row)]
        return [Function(dtype, "none", -0.7), *(Function(dtype, mask, 0.3, nan) for mask, nan in masks)]
    few = [few_queries(dtype, mask) for mask in ("none", *always(FEW_MASKS, row))]
    known = [known_queries(dtype, *case) for case in (*([ONE_QUERY] if row in ONE else ()), *always(KNOWN, row))]
    return [Function(dtype, "none", -0.7, summed=False), *few, *known]


def always(cases: list[Any], row: Row) -> list[Any]:
    """What a row of the table has in every run."""
    return [case for its_row, case in every_run(cases) if its_row == row]


def few_queries(dtype: torch.dtype, mask: str) -> Function:
    return Function(dtype, mask, nan_rows=mask == "bool", summed=False)


def known_queries(dtype: torch.dtype, known: tuple[int, int, int], mask: str) -> Function:
    return few_queries(dtype, mask)._replace(known=known)


@functools.cache
def functions(kernel: str, isa: str, only: Function | bool) -> dict[Function, int]:
    """Addresses of the functions of a kernel for one instruction set, compiled together: those that tests of every run
    use, with sums or without, or only this one; skips where none runs."""
    found = machine(kernel, isa)
    if found is None:
        pytest.skip(f"{kernel} for {isa} does not run on this machine")
    rows = [row for row in ALL if row[:2] == (kernel, isa)]
    keys = [key for row in rows for key in wanted(row, only)] if isinstance(only, bool) else [only]
    sources = {key: source(kernel, found[0], *key) for key in keys}
    addresses = addresses_of(sources.values(), *found)
    return {key: addresses[made.symbol] for key, made in sources.items()}


def address_of(row: Row, key: Function) -> int:
    """The address of a function; skips where it does not run."""
    kernel, isa, _ = row
    return functions(kernel, isa, key.summed if key in wanted(row, key.summed) else key)[key]


def apart(sizes: Sequence[int], dtype: torch.dtype, order: Sequence[int]) -> torch.Tensor:
    """Random values with NaN around them, with dimensions laid out in this order."""
    stored = [sizes[d] for d in order]
    whole = torch.full([n + 1 for n in stored], torch.nan, dtype=dtype)
    inside = whole[tuple(slice(0, n) for n in stored)]
    inside.copy_(torch.randn(stored))
    return inside.permute([order.index(d) for d in range(len(order))])


def run(
    address: int,
    scale: float,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    mask: torch.Tensor | None,
    summed: bool = True,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Call a kernel; the second result is NaN if it has none."""
    (batch, heads, rows, depth), (kv_heads, keys), columns = q.shape, k.shape[1:3], v.shape[3]
    out = torch.full((batch, rows, heads, columns), torch.nan, dtype=q.dtype).transpose(1, 2)
    sums = torch.full((batch, heads, rows), torch.nan)
    operands = [q, k, v] if mask is None else [q, k, v, mask.expand(batch, heads, rows, keys)]
    ints = [batch, heads, kv_heads, rows, keys, depth, columns, *out.stride()[:3], *(sums.stride() if summed else ())]
    for operand in operands:
        ints += [0, *operand.stride()[:3]]
    tensors = (out, sums, *operands) if summed else (out, *operands)
    pointers = (ctypes.c_void_p * len(tensors))(*[t.data_ptr() for t in tensors])
    assert FUNCTION(address)(pointers, (ctypes.c_int64 * len(ints))(*ints)) == 0
    return out, sums


def error(value: torch.Tensor, exact: torch.Tensor) -> float:
    """RMSE over the RMS of the exact value."""
    scale = exact.square().mean().sqrt().clamp_min(1e-30)
    return ((value.double() - exact).square().mean().sqrt() / scale).item()


#: How far a result may be from fp64: a few roundings of the dtype.
BOUND = {torch.float32: 2e-6, torch.bfloat16: 4e-3, torch.float16: 5e-4}


#: The same for the logarithms of the divisors: those of tiles are sums of weights rounded to bf16.
SUM_BOUND = {"amx_bf16": 2**-8, "dot_bf16": 2**-8, "vec_f32": 2e-5}


@pytest.mark.parametrize(("row", "mask"), [*product(ALL, ("none", "added")), *SOME_MASKS], ids=str)
def test_any_sizes_and_strides_are_right(row: Row, mask: str) -> None:
    kernel, _, dtype = row
    check_sizes(address_of(row, Function(dtype, mask)), SUM_BOUND[kernel], dtype, mask, SIZES)


@pytest.mark.parametrize(("row", "mask"), [*product(ALL, ("none",)), *FEW_MASKS], ids=str)
def test_few_queries_are_right_for_any_number_of_threads(row: Row, mask: str) -> None:
    """Threads share heads: each has a part of the keys. (No row is without a key.)"""
    dtype = row[2]
    address, before = address_of(row, few_queries(dtype, mask)), torch.get_num_threads()
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            check_sizes(address, None, dtype, mask, FEW)
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("row", ALL, ids=str)
def test_more_threads_than_blocks_of_keys_leave_no_part_without_keys(row: Row) -> None:
    dtype = row[2]
    address, before = address_of(row, few_queries(dtype, "none")), torch.get_num_threads()
    # Heads that share keys are so much work for each block that a thread may seem to pay for less than one.
    sizes = [(1, 8, 1, 1, keys, 512, 512) for keys in (300, 200, 100)]
    try:
        torch.set_num_threads(32)
        check_sizes(address, None, dtype, "none", sizes, of_queries=0.1)
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize(
    ("row", "case"),
    [*cases(*([(row, ONE_QUERY) for row in ALL if (row in ONE) == every] for every in (True, False))), *KNOWN],
    ids=str,
)
def test_a_known_number_of_queries_needs_no_code_for_others(row: Row, case: tuple[tuple[int, int, int], str]) -> None:
    (kernel, isa, dtype), (known, mask) = row, case
    key = known_queries(dtype, known, mask)
    address, (heads, kv_heads, rows) = address_of(row, key), known
    found = machine(kernel, isa)
    assert found is not None
    assert f", {rows * heads // kv_heads}> kernel{{}}" in source(kernel, found[0], *key).code
    sizes = [(2, *known, keys, depth, 72) for keys, depth in ((0, 32), (1, 33), (300, 64))]
    # Without any key at all, the reference has no rows of NaN.
    check_sizes(address, None, dtype, mask, sizes[key.nan_rows :], nan_rows=key.nan_rows)


def test_the_way_for_few_queries_is_left_out_where_there_are_more() -> None:
    def flag(heads: int, kv_heads: int, rows: int) -> str:
        code = source("vec_f32", target("avx2"), torch.float32, "none", 1.0, False, False, (heads, kv_heads, rows)).code
        return code.split("> kernel{}")[0].split(", ")[-1]

    assert flag(8, 8, MOST_OF_HEAD) == str(MOST_OF_HEAD)
    assert flag(8, 8, MOST_OF_HEAD + 1) == "icpu::attention::kManyRows"
    assert flag(MOST_ROWS, 1, 1) == str(MOST_ROWS)
    assert flag(MOST_ROWS + 1, 1, 1) == "icpu::attention::kManyRows"


def test_the_template_takes_as_few_rows_as_the_generator_lets_it_take() -> None:
    header = (paths.prelude().parent.parent / "attention" / "decode.h").read_text()
    assert f"kMostOfHead = {MOST_OF_HEAD}, kMostRows = {MOST_ROWS};" in header


#: Only with AVX-512 does few_rows.h ask what the processor does.
GENERATIONS = {"avx512": (4, 0), "avx2": (None,)}


@pytest.mark.parametrize(
    ("kernel", "isa", "dtype", "zen"), [(*row, zen) for row in ALL for zen in GENERATIONS[row[1]]], ids=str
)
def test_few_queries_are_right_whether_or_not_the_processor_follows_runs(
    kernel: str, isa: str, dtype: torch.dtype, zen: int | None
) -> None:
    """So many keys, too, that they come from memory: with heads that share them, with one head, and with rows that end
    within a vector."""
    found = machine(kernel, isa, zen)
    if found is None:
        pytest.skip(f"{kernel} for {isa} does not run on this machine")
    made = source(kernel, found[0], dtype, "none", 0.3, False, summed=False)
    address = addresses_of([made], *found)[made.symbol]
    many = (1, 3, 1, 1, (17 << 20) // (256 * dtype.itemsize) + 1, 128, 128)
    check_sizes(address, None, dtype, "none", FEW)
    # With large scores one key has nearly all the weight, and its error is that of its score.
    more = [(1, 1, 1, 1, (9 << 20) // ((depth + 80) * dtype.itemsize) + 1, depth, 80) for depth in (64, 40)]
    check_sizes(address, None, dtype, "none", (many, *more), of_queries=0.1)


def check_sizes(
    address: int,
    sum_bound: float | None,
    dtype: torch.dtype,
    mask: str,
    cases: Sequence[tuple[int, ...]],
    of_queries: float = 1.0,
    nan_rows: bool = False,
) -> None:
    """sum_bound: of the logarithms of the divisors, None for a kernel without; of_queries: their standard deviation;
    nan_rows: whether rows without a key are NaN."""
    for number, (batch, heads, kv_heads, rows, keys, depth, columns) in enumerate(cases):
        order = ((0, 1, 2, 3), (0, 2, 1, 3), (1, 0, 2, 3))[number % 3]
        q = apart((batch, heads, rows, depth), dtype, order).mul_(of_queries)
        k = apart((batch, kv_heads, keys, depth), dtype, (*order[::-1][1:], 3) if number % 2 else order)
        v = apart((batch, kv_heads, keys, columns), dtype, order)
        values = None
        if mask == "added":
            values = torch.randn(*((batch, 1), (1, heads))[number % 2], rows, keys).to(dtype)
        elif mask == "bool":
            values = torch.rand(batch, 1, rows, keys) > 0.4
        out, sums = run(address, 0.3, q, k, v, values, summed=sum_bound is not None)
        exact, exact_sums = reference(q, k, v, values, 0.3, mask == "causal")
        if nan_rows and values is not None:
            empty = ~values.any(-1, keepdim=True).expand_as(out)
            assert torch.equal(out.isnan(), empty)
            out = out.masked_fill(empty, 0.0)
        assert error(out, exact) <= BOUND[dtype]
        if sum_bound is not None:
            torch.testing.assert_close(sums.double(), exact_sums, rtol=1e-4, atol=sum_bound)


def reference(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor | None, scale: float, causal: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """In fp64."""
    groups = q.shape[1] // k.shape[1]
    k, v = (x.double().repeat_interleave(groups, 1) for x in (k, v))
    scores = q.double() @ k.transpose(2, 3) * scale
    if causal:
        scores = scores.masked_fill(~torch.ones(scores.shape[-2:], dtype=torch.bool).tril(), -math.inf)
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf) if mask.dtype == torch.bool else scores + mask.double()
    return scores.softmax(-1).nan_to_num() @ v, scores.logsumexp(-1).nan_to_num(neginf=0.0)


@pytest.mark.parametrize("rows", [1, 40])
@pytest.mark.parametrize(("kernel", "isa"), [(k, i) for k, i, dtype in ALL if dtype == torch.float32])
def test_a_single_key_with_a_large_score_has_it_as_the_logarithm(kernel: str, isa: str, rows: int) -> None:
    address = address_of((kernel, isa, torch.float32), Function(torch.float32, "none"))
    q, k = torch.randint(-40, 41, (2, 3, rows, 1)).float(), torch.randint(-40, 41, (2, 3, 1, 1)).float()
    _, sums = run(address, 0.3, q, k, k, None)
    torch.testing.assert_close(sums, (q * k)[..., 0] * 0.3, rtol=1e-7, atol=2e-7)


@pytest.mark.parametrize(("row", "nan_rows"), EMPTY_ROWS, ids=str)
def test_a_row_without_a_key_is_zero_or_nan(row: Row, nan_rows: bool) -> None:
    kernel, _, dtype = row
    address = address_of(row, Function(dtype, "bool", nan_rows=nan_rows))
    q, k, v = (torch.randn(1, 2, 600, 40).to(dtype) for _ in range(3))
    mask = torch.ones(1, 1, 600, 600, dtype=torch.bool)
    mask[:, :, 3] = False
    mask[:, :, 5, :570] = False  # no key in the first block of keys
    out, sums = run(address, 0.3, q, k, v, mask)
    exact, exact_sums = attend(q, k, v, mask, 0.3, False, nan_rows)
    torch.testing.assert_close(out, exact, rtol=1e-2, atol=4 * BOUND[dtype], equal_nan=True)
    torch.testing.assert_close(sums, exact_sums, rtol=1e-4, atol=SUM_BOUND[kernel])


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("row", cases(ONE, [(row,) for row in ALL if row not in ONE]), ids=str)
def test_few_queries_meet_special_values(row: Row, threads: int) -> None:
    """Bases far apart between parts, no key at all or none in a part, infinities and NaN of one key."""
    dtype = row[2]
    address, before = address_of(row, known_queries(dtype, *ONE_QUERY)), torch.get_num_threads()
    q, k, v = (
        torch.randn(1, 6, 1, 64).to(dtype),
        torch.randn(1, 6, 900, 64).to(dtype),
        torch.randn(1, 6, 900, 64).to(dtype),
    )
    mask = torch.ones(1, 6, 1, 900, dtype=torch.bool)
    k[0, 0, 600:] *= 40
    k[0, 1, :200] *= 40
    mask[0, 2] = False
    mask[0, 3, :, :890] = False
    k[0, 4, 450, 3] = math.nan
    v[0, 5, 17, 6] = math.inf
    try:
        torch.set_num_threads(threads)
        out, _ = run(address, 0.3, q, k, v, mask, summed=False)
    finally:
        torch.set_num_threads(before)
    exact, _ = attend(q.double(), k.double(), v.double(), mask, 0.3, False, True)
    torch.testing.assert_close(out.double(), exact.double(), rtol=1e-2, atol=4 * BOUND[dtype], equal_nan=True)


@pytest.mark.parametrize("row", ALL, ids=str)
def test_special_values_spread_as_in_a_softmax(row: Row) -> None:
    dtype = row[2]
    address = address_of(row, Function(dtype, "none", -0.7))
    q, k, v = (torch.randn(1, 1, 40, 32).to(dtype) for _ in range(3))
    q[0, 0, 7, 3] = math.nan
    q[0, 0, 9, 4] = math.inf
    q[0, 0, 11] *= 1000  # weights that underflow
    v[0, 0, 5, 6] = math.inf
    out, _ = run(address, -0.7, q, k, v, None)
    exact, _ = reference(q, k, v, None, -0.7, False)
    assert out[0, 0, 7].isnan().all()
    assert out[0, 0, 9].isnan().all()
    ordinary = [r for r in range(40) if r not in (7, 9, 11)]
    assert out[0, 0, ordinary, 6].isinf().all()
    kept = [c for c in range(32) if c != 6]
    rows = [*ordinary, 11]
    assert error(out[0, 0, rows][:, kept], exact[0, 0, rows][:, kept]) <= BOUND[dtype]


@pytest.mark.parametrize("scale", [0.3, -0.7])
@pytest.mark.parametrize("rows", [1, 40])
@pytest.mark.parametrize("row", ALL, ids=str)
def test_scores_may_be_as_large_as_numbers_get(row: Row, rows: int, scale: float) -> None:
    """Far beyond the whole numbers that floats hold: a key has all the weight, or two that are the same share it."""
    dtype = row[2]
    address = address_of(row, Function(dtype, "none", scale, summed=False))
    for largest in (2e4, 1e10, 1e20, 1e30) if dtype != torch.float16 else (2e4, 1e9):
        q, k = (torch.rand(1, 2, n, 24).sub(0.5).mul(2 * largest**0.5).to(dtype) for n in (rows, 300))
        v = torch.randn(1, 2, 300, 24).to(dtype)
        k[:, :, 200:] = k[:, :, :100]
        out, _ = run(address, scale, q, k, v, None, summed=False)
        assert error(out, reference(q, k, v, None, scale, False)[0]) <= BOUND[dtype]
        k[0, 0, 250] = math.inf
        out, _ = run(address, scale, q.abs() * math.copysign(1, scale), k, v, None, summed=False)
        assert out[0, 0].isnan().all()
        assert out[0, 1].isfinite().all()


@pytest.mark.parametrize("row", ALL, ids=str)
def test_scores_that_rise_or_fall_along_the_keys_outgrow_one_base_after_the_other(row: Row) -> None:
    kernel, _, dtype = row
    q, k, v = torch.randn(1, 1, 40, 32).to(dtype), torch.randn(1, 1, 1400, 32).to(dtype), torch.randn(1, 1, 1400, 32)
    v = v.to(dtype)
    place = torch.arange(1400.0)
    slopes = torch.linspace(-1, 1, 40).view(1, 1, 40, 1)
    mask = torch.where(place < 700, place, 1400 - place) / 10 * slopes
    mask[..., 4, 300:600] = -math.inf  # a block without any key between others
    mask = mask.to(dtype)
    out, sums = run(address_of(row, Function(dtype, "added")), 0.3, q, k, v, mask)
    exact, exact_sums = reference(q, k, v, mask, 0.3, False)
    rounding = 70 * 2**-24  # of the largest scores
    assert error(out, exact) <= BOUND[dtype] + rounding
    torch.testing.assert_close(sums.double(), exact_sums, rtol=1e-4, atol=SUM_BOUND[kernel])


@pytest.mark.parametrize("row", ALL, ids=str)
def test_a_key_with_all_the_weight_gives_its_value(row: Row) -> None:
    """The fuzzer's seed 352926: its weight was 1 - 2^-24, and its value was rounded twice."""
    q, k = torch.ones(1, 2, 40, 8).to(row[2]), torch.full((1, 2, 9, 8), -200.0).to(row[2])
    k[:, :, 4] = 0
    v = torch.randint(1, 8, (1, 2, 9, 16)).to(row[2])
    out, sums = run(address_of(row, Function(row[2], "none")), 0.3, q, k, v, None)
    assert out.equal(v[:, :, 4:5].expand(out.shape))
    assert not sums.any()


def test_every_isa_of_the_table_is_known() -> None:
    assert {isa for row in ATTENTION_KERNELS.values() for isa in row.isas} <= BITS.keys()
