"""Reductions in both orientations, phases, kept rows, threads."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import product

import pytest
import torch

from inductor_cpu.codegen.kernel import generate
from inductor_cpu.ir.index import Expr, Sym, as_expr, loop_var, of, size_symbol
from inductor_cpu.ir.kernel import Kernel, Phase
from tests.cases import cases, full_only, in_turns

from .build import BF16, BOOL, F16, F32, F64, I8, I32, I64, U8, Build
from .harness import available, library_of, target

ISAS = available()
ROWS = 5
N = size_symbol("n")
M = size_symbol("m")
DTYPES = (F32, F64, BF16, F16, I64, I32, I8, U8, BOOL)
KINDS = ("sum", "prod", "max", "min", "fmax", "any", "all", "argmax", "argmin")


def takes(kind: str, dtype: torch.dtype) -> bool:
    if kind in ("any", "all"):
        return dtype == BOOL
    if kind in ("sum", "prod"):
        return dtype not in (BOOL, BF16, F16)  # the lowering casts first
    if kind == "fmax":
        return dtype.is_floating_point
    return True


CASES = [(kind, dtype) for kind in KINDS for dtype in DTYPES if takes(kind, dtype)]

#: Those of every run: sums in all dtypes, the other folds in those that have accumulators of their own, and the largest
#: and smallest values, and where they are, in one more each. (test_positions.py has kernels with all four of these, and
#: for places in all dtypes.)
WIDE = (F32, F64, I64, I32)
ONE_MORE = {("max", BF16), ("max", BOOL), ("min", U8), ("argmax", F16), ("argmin", I8)}
ALWAYS = [(k, dtype) for k, dtype in CASES if dtype in WIDE or k in ("sum", "any", "all") or (k, dtype) in ONE_MORE]
MORE = [case for case in CASES if case not in ALWAYS]


def horizontal(isa: str, kind: str, dtype: torch.dtype, size: Expr | int, wide: bool = False) -> Kernel:
    """Y[i] = reduce of X[i, :], lanes along the row."""
    i, r = loop_var("i", of(M)), loop_var("r", as_expr(size))
    b = Build()
    x = b.load("X", of(i) * size + of(r), dtype)
    if wide:
        x = b.cast(x, F32)
    b.store("Y", of(i), b.reduce(kind, x), "uniform")
    sizes = (M, N) if isinstance(size, Expr) else (M,)
    return b.kernel(isa, (i,), (r,), r, [Phase((len(b.body) - 1,), ())], sizes=sizes)


def short_rows(isa: str) -> Kernel:
    """Y[i] = sum of X[i, :, :], whose rows have 64 elements, lanes along the rows."""
    i, r, s = loop_var("i", of(M)), loop_var("r", of(N)), loop_var("s", 64)
    b = Build()
    b.store("Y", of(i), b.reduce("sum", b.load("X", (of(i) * of(N) + of(r)) * 64 + of(s), F32)), "uniform")
    return b.kernel(isa, (i,), (r, s), s, [Phase((1,), ())], sizes=(M, N))


def vertical(isa: str, kind: str, dtype: torch.dtype) -> Kernel:
    """Y[i] = reduce of X[:, i], lanes along the results."""
    i, r = loop_var("i", of(N)), loop_var("r", of(M))
    b = Build()
    x = b.load("X", of(r) * of(N) + of(i), dtype)
    b.store("Y", of(i), b.reduce(kind, x))
    return b.kernel(isa, (i,), (r,), i, [Phase((1,), ())], sizes=(M, N))


def full(isa: str, vector: int) -> Kernel:
    """One result from a 3-d array, lanes along inner loop number `vector`; the address is transposed to suit."""
    loops = [loop_var(f"r{d}", s) for d, s in enumerate((3, 21, 40))]
    strides = {2: (840, 40, 1), 1: (840, 1, 21)}[vector]
    b = Build()
    place = sum((of(s) * stride for s, stride in zip(loops, strides, strict=True)), as_expr(0))
    x = b.load("X", place, F32)
    b.store("S", as_expr(0), b.reduce("sum", x), "uniform")
    b.store("A", as_expr(0), b.reduce("argmax", x), "uniform")
    return b.kernel(isa, (), loops, loops[vector], [Phase((1, 2), ())])


def softmax(isa: str, cols: int, kept: bool, parallel: int = 1) -> Kernel:
    i, r = loop_var("i", of(M)), loop_var("r", cols)
    place = of(i) * cols + of(r)
    b = Build()
    x = b.load("X", place, F32)
    e = b.op("exp", b.op("sub", x, b.reduce("fmax", x)))
    total = b.reduce("sum", e)
    b.store("Y", place, b.op("quotient", e, total, b.op("reciprocal", total)))
    phases = [Phase((1,), ()), Phase((4,), ()), Phase((), (0,))]
    return b.kernel(isa, (i,), (r,), r, phases, (e,) if kept else (), parallel, cols * 50, (M,))


def any_of_kept(isa: str, cols: int) -> Kernel:
    """exp(x) of rows in which some is above 1, its negative of others; the exponentials are kept."""
    i, r = loop_var("i", of(M)), loop_var("r", cols)
    place = of(i) * cols + of(r)
    b = Build()
    e = b.op("exp", b.load("X", place, F32))
    some = b.reduce("any", b.op("gt", e, b.const(1.0, F32)))
    b.store("Y", place, b.op("where", some, e, b.op("neg", e)))
    return b.kernel(isa, (i,), (r,), r, [Phase((some,), ()), Phase((), (0,))], (e,), 1, cols * 50, (M,))


def softmax_columns(isa: str, rows: int, kept: bool) -> Kernel:
    """Softmax over dimension 0, lanes along the columns."""
    i, r = loop_var("i", of(N)), loop_var("r", rows)
    place = of(r) * of(N) + of(i)
    b = Build()
    x = b.load("X", place, F32)
    e = b.op("exp", b.op("sub", x, b.reduce("fmax", x)))
    total = b.reduce("sum", e)
    b.store("Y", place, b.op("quotient", e, total, b.op("reciprocal", total)))
    phases = [Phase((1,), ()), Phase((4,), ()), Phase((), (0,))]
    return b.kernel(isa, (i,), (r,), i, phases, (e,) if kept else (), 1, rows * 50, (N,))


def layer_norm(isa: str, cols: int) -> Kernel:
    """bf16 rows with f32 statistics; also stores the mean, which depends on outer loops only."""
    i, r = loop_var("i", of(M)), loop_var("r", cols)
    place = of(i) * cols + of(r)
    b = Build()
    x = b.cast(b.load("X", place, BF16), F32)
    count = b.const(cols, F32)
    mean = b.op("div", b.reduce("sum", x), count)
    centered = b.op("sub", x, mean)
    square = b.reduce("sum", b.op("mul", centered, centered))
    scale = b.op("rsqrt", b.op("add", b.op("div", square, count), b.const(1e-5, F32)))
    weight = b.load("W", of(r), F32)
    b.store("Y", place, b.cast(b.op("mul", b.op("mul", centered, scale), weight), BF16))
    b.store("MEAN", of(i), mean, "uniform")
    first = next(k for k, instr in enumerate(b.body) if type(instr).__name__ == "Reduce")
    phases = [Phase((first,), ()), Phase((square,), ()), Phase((), (0,))]
    return b.kernel(isa, (i,), (r,), r, phases, (x,), 1, cols * 10, (M,))


def tensor_sum(isa: str, parallel: int, vector: int, shape: tuple[int, int, int]) -> Kernel:
    """Y = X + B[j] over three loops, the first `parallel` of them shared."""
    loops = [loop_var(f"i{d}", s) for d, s in enumerate(shape)]
    d0, d1, d2 = shape
    strides = {0: (1, d0 * d2, d0), 1: (d1 * d2, 1, d1), 2: (d1 * d2, d2, 1)}[vector]
    place = sum((of(s) * stride for s, stride in zip(loops, strides, strict=True)), as_expr(0))
    b = Build()
    bias = b.load("B", of(loops[1]), F32, "contiguous" if vector == 1 else "uniform")
    b.store("Y", place, b.op("add", b.load("X", place, F32), bias))
    return b.kernel(isa, loops, (), loops[vector], parallel=parallel, work=100)


def scatter_add(dtype: torch.dtype) -> Kernel:
    """Y[K[i]] += X[i], in one thread: points may meet."""
    i = loop_var("i", of(N))
    b = Build()
    k = b.load("K", of(i), I64)
    x = b.load("X", of(i), dtype)
    b.store("Y", of(Sym(f"%{k}", "value")), x, mode="add")
    return b.kernel("scalar", (i,), work=100, sizes=(N,))


def add_rows(isa: str, dtype: torch.dtype) -> Kernel:
    """Y[K[i], j] += X[i, j], lanes along j: no two of them add to one element."""
    i, j = loop_var("i", of(M)), loop_var("j", of(N))
    b = Build()
    k = b.load("K", of(i), I64, "uniform")
    x = b.load("X", of(i) * of(N) + of(j), dtype)
    b.store("Y", of(Sym(f"%{k}", "value")) * of(N) + of(j), x, mode="add")
    return b.kernel(isa, (i, j), vector=j, sizes=(M, N))


SHAPES = [(3, 5, 37), (2, 33, 4), (40, 3, 2)]

#: ((how many loops are shared, the one that lanes go along), sizes)
SHARED = in_turns(product(range(4), range(3)), SHAPES)
FULL = [f"{direction}-{kind}-{dtype}" for direction in "hv" for kind, dtype in MORE]
FULL += [f"sum-{parallel}-{vector}-{shape}" for (parallel, vector), shape in full_only(SHARED)]


@cache
def kernels(isa: str) -> dict[str, Kernel]:
    found: dict[str, Kernel] = {}
    for kind in KINDS:
        for dtype in (d for d in DTYPES if takes(kind, d)):
            found[f"h-{kind}-{dtype}"] = horizontal(isa, kind, dtype, of(N))
            found[f"v-{kind}-{dtype}"] = vertical(isa, kind, dtype)
    found["short-rows"] = short_rows(isa)
    found["h-sum-48"] = horizontal(isa, "sum", F32, 48)
    found["h-sum-bf16"] = horizontal(isa, "sum", BF16, of(N), wide=True)
    for vector in (1, 2):
        found[f"full-{vector}"] = full(isa, vector)
    for kept in (False, True):
        found[f"softmax-{kept}"] = softmax(isa, 77, kept)
        found[f"softmax-columns-{kept}"] = softmax_columns(isa, 19, kept)
    found["softmax-long"] = softmax(isa, 9001, True)
    found["any-of-kept"] = any_of_kept(isa, 9001)
    found["layer-norm"] = layer_norm(isa, 67)
    for vector in range(3):
        for parallel in range(4):
            for shape in SHAPES:
                found[f"sum-{parallel}-{vector}-{shape}"] = tensor_sum(isa, parallel, vector, shape)
    for dtype in (F32, BF16, I64, I8):
        found[f"scatter-{dtype}"] = scatter_add(dtype)
        found[f"rows-{dtype}"] = add_rows(isa, dtype)
    return found


@pytest.fixture(scope="module")
def run(isa: str) -> Callable[..., int]:
    library = library_of(isa, kernels(isa), FULL)

    def call(key: str, *buffers: torch.Tensor, sizes: tuple[int, ...] = ()) -> int:
        return library.run(kernels(isa)[key], *buffers, sizes=sizes)

    return call


def sample(kind: str, dtype: torch.dtype, shape: tuple[int, ...]) -> torch.Tensor:
    if dtype == BOOL:
        return torch.rand(shape) < {"any": 0.02, "all": 0.98}.get(kind, 0.5)
    if dtype.is_floating_point:
        x = torch.randn(shape, dtype=F64)
        return (1 + x * 0.1 if kind == "prod" else x).to(dtype)
    return torch.randint(-9 if dtype != U8 else 0, 9, shape).to(dtype)


def expected(kind: str, x: torch.Tensor, dim: int) -> torch.Tensor:
    if kind in ("sum", "prod"):
        wide = x.double() if x.dtype.is_floating_point else x.long()
        return getattr(torch, kind)(wide, dim).to(x.dtype)
    if kind in ("max", "min"):
        return getattr(torch, "a" + kind)(x, dim)
    if kind == "fmax":
        return torch.where(x.isnan(), float("-inf"), x).amax(dim)
    if kind.startswith("arg"):
        return getattr(torch, kind)(x.int() if x.dtype == BOOL else x, dim)
    return getattr(torch, kind)(x, dim)


def check(kind: str, got: torch.Tensor, want: torch.Tensor) -> None:
    tolerance = {F32: 2e-6, F64: 1e-14}.get(got.dtype, 0) if kind in ("sum", "prod") else 0
    torch.testing.assert_close(got, want, rtol=tolerance, atol=tolerance * 8, equal_nan=True)


@pytest.mark.parametrize(("kind", "dtype"), cases(ALWAYS, MORE), ids=str)
@pytest.mark.parametrize("n", [1, 5, 8, 16, 17, 63, 64, 67, 130, 200])
def test_reduction(run: Callable[..., int], kind: str, dtype: torch.dtype, n: int) -> None:
    x = sample(kind, dtype, (ROWS, n))
    want = expected(kind, x, 1)
    got = torch.empty_like(want)
    run(f"h-{kind}-{dtype}", x, got, sizes=(ROWS, n))
    check(kind, got, want)
    x = x.T.contiguous().T.contiguous()
    want = expected(kind, x, 0)
    got = torch.empty_like(want)
    run(f"v-{kind}-{dtype}", x, got, sizes=(ROWS, n))
    check(kind, got, want)


@pytest.mark.parametrize("kind", ["max", "min", "fmax", "argmax", "argmin"])
@pytest.mark.parametrize("special", ["nan", "two nans", "all nan", "inf", "-inf", "all -inf", "all inf", "ties"])
def test_max_and_min_of_special_values(run: Callable[..., int], kind: str, special: str) -> None:
    x = torch.randn(ROWS, 130)
    for row in range(ROWS):
        place = 7 + 29 * row
        if special.startswith("all"):
            x[row] = float(special.removeprefix("all "))
        elif special == "ties":
            x[row] = 1.0
            x[row, place] = x[row, 129 - row] = 9.0 if kind.endswith("max") else -9.0
        else:
            x[row, place] = float(special.removeprefix("two ").rstrip("s"))
            if special == "two nans":
                x[row, 125] = x[row, place]
    want = expected(kind, x, 1)
    for key, data, sizes in (("h", x, (ROWS, 130)), ("v", x.T.contiguous(), (130, ROWS))):
        got = torch.empty_like(want)
        run(f"{key}-{kind}-{F32}", data, got, sizes=sizes)
        check(kind, got, want)


@pytest.mark.parametrize("kind", ["any", "all"])
@pytest.mark.parametrize("place", [None, 0, 4095, 4096, 9000, 20006])
def test_any_and_all_stop_early_with_the_right_answer(run: Callable[..., int], kind: str, place: int | None) -> None:
    n = 20007
    x = torch.full((ROWS, n), kind == "all")
    if place is not None:
        x[1, place] = kind == "any"
    got = torch.empty(ROWS, dtype=BOOL)
    run(f"h-{kind}-{BOOL}", x, got, sizes=(ROWS, n))
    assert torch.equal(got, getattr(torch, kind)(x, 1))


def test_only_any_and_all_stop_early() -> None:
    isa = ISAS[-1]
    texts = [generate(horizontal(isa, kind, BOOL, of(N)), target(isa)).code for kind in ("any", "all", "max")]
    assert ["icpu::for_vectors_until" in text for text in texts] == [isa != "scalar", isa != "scalar", False]


def test_any_does_not_stop_before_a_kept_row_is_complete(run: Callable[..., int]) -> None:
    x = torch.randn(ROWS, 9001)
    x[1] = -x[1].abs()
    y = torch.empty_like(x)
    run("any-of-kept", x, y, sizes=(ROWS,))
    signs = torch.ones(ROWS, 1)
    signs[1] = -1
    torch.testing.assert_close(y, signs * x.exp(), rtol=1e-6, atol=1e-7)


def test_sum_of_a_whole_number_of_vectors(run: Callable[..., int]) -> None:
    x, y = torch.randn(ROWS, 48), torch.empty(ROWS)
    run("h-sum-48", x, y, sizes=(ROWS,))
    check("sum", y, expected("sum", x, 1))


def test_sum_of_bf16_in_f32(run: Callable[..., int]) -> None:
    x, y = torch.randn(ROWS, 100).to(BF16), torch.empty(ROWS)
    run("h-sum-bf16", x, y, sizes=(ROWS, 100))
    check("sum", y, x.double().sum(1).float())


@pytest.mark.parametrize("vector", [1, 2])
def test_reduction_over_all_loops(run: Callable[..., int], vector: int) -> None:
    x = torch.randn(3, 21, 40)
    data = x if vector == 2 else x.transpose(1, 2).contiguous()
    total, where = torch.empty(1), torch.empty(1, dtype=I64)
    run(f"full-{vector}", data, total, where)
    check("sum", total[0], x.double().sum().float())
    assert where[0] == x.argmax()


@pytest.mark.parametrize("kept", [False, True])
def test_softmax(run: Callable[..., int], kept: bool) -> None:
    x = torch.randn(6, 77) * 5
    y = torch.empty_like(x)
    run(f"softmax-{kept}", x, y, sizes=(6,))
    torch.testing.assert_close(y, torch.softmax(x, 1), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("kept", [False, True])
@pytest.mark.parametrize("n", [3, 16, 37, 64, 70, 200])
def test_softmax_of_columns(run: Callable[..., int], kept: bool, n: int) -> None:
    x = torch.randn(19, n) * 5
    y = torch.empty_like(x)
    run(f"softmax-columns-{kept}", x, y, sizes=(n,))
    torch.testing.assert_close(y, torch.softmax(x, 0), rtol=1e-6, atol=1e-7)


def test_kept_row_longer_than_the_stack_allows(run: Callable[..., int]) -> None:
    x = torch.randn(7, 9001)
    y = torch.empty_like(x)
    run("softmax-long", x, y, sizes=(7,))
    torch.testing.assert_close(y, torch.softmax(x, 1), rtol=2e-6, atol=1e-9)


def test_layer_norm_of_bf16(run: Callable[..., int]) -> None:
    x, w = torch.randn(9, 67).to(BF16), torch.randn(67)
    y, mean = torch.empty_like(x), torch.empty(9)
    run("layer-norm", x, w, y, mean, sizes=(9,))
    want = torch.nn.functional.layer_norm(x.double(), (67,), w.double())
    torch.testing.assert_close(y.double(), want, rtol=0.5 / 128, atol=1e-4)
    torch.testing.assert_close(mean, x.double().mean(1).float(), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(("loops", "shape"), SHARED, ids=str)
def test_threads_share_any_number_of_loops(
    run: Callable[..., int], loops: tuple[int, int], shape: tuple[int, int, int]
) -> None:
    parallel, vector = loops
    order = {0: (1, 2, 0), 1: (0, 2, 1), 2: (0, 1, 2)}[vector]  # memory order, the vectorized loop last
    x, b = torch.randn(shape), torch.randn(shape[1])
    data = x.permute(order).contiguous()
    got = torch.zeros_like(data)
    run(f"sum-{parallel}-{vector}-{shape}", *((b, data, got)))
    want = (x + b[:, None]).permute(order)
    torch.testing.assert_close(got, want, rtol=0, atol=0)


@pytest.mark.parametrize("dtype", [F32, BF16, I64, I8], ids=str)
def test_scatter_add_loses_nothing(run: Callable[..., int], dtype: torch.dtype) -> None:
    n = 20_000
    k, x, y = torch.randint(0, 50, (n,)), torch.ones(n, dtype=dtype), torch.zeros(50, dtype=dtype)
    run(f"scatter-{dtype}", k, x, y, sizes=(n,))
    counts = torch.bincount(k, minlength=50)
    want = counts.clamp(max=256).to(dtype) if dtype == BF16 else counts.to(dtype)  # 256 + 1 is 256 in bf16
    assert torch.equal(y, want)


@pytest.mark.parametrize("dtype", [F32, BF16, I64, I8], ids=str)
def test_added_rows(run: Callable[..., int], dtype: torch.dtype) -> None:
    k, x = torch.randint(0, 4, (30,)), torch.randint(0, 4, (30, 37)).to(dtype)
    y = torch.zeros(4, 37, dtype=dtype)
    run(f"rows-{dtype}", k, x, y, sizes=(30, 37))
    assert torch.equal(y, torch.zeros(4, 37, dtype=dtype).index_add(0, k, x))


#: What sums long rows, and the sizes it is called with.
LONG_SUMS: dict[str, Callable[[int, int], tuple[int, int]]] = {
    f"h-sum-{F32}": lambda sums, n: (sums, n),
    f"v-sum-{F32}": lambda sums, n: (n, sums),
    "short-rows": lambda sums, n: (sums, n // 64),
}


@pytest.mark.parametrize("key", LONG_SUMS)
@pytest.mark.parametrize("half_of_them_equal", [False, True])
def test_long_sums_of_floats_are_as_accurate_as_eager(
    run: Callable[..., int], half_of_them_equal: bool, key: str
) -> None:
    """Errors of equal terms, squares of what a relu has cut off, have one sign. RMS of 20 sums: one may be lucky."""
    sums, n = 20, 1 << 19
    rows = (torch.randn(sums, n).relu() - 0.4).square() if half_of_them_equal else torch.rand(sums, n)
    exact, got = rows.double().sum(1), torch.empty(sums)
    across = not key.startswith("v")
    x = rows if across else rows.T.contiguous()
    run(key, x, got, sizes=LONG_SUMS[key](sums, n))

    def error(result: torch.Tensor) -> float:
        return ((result.double() - exact) / exact).square().mean().sqrt().item()

    assert error(got) <= 2 * max(error(x.sum(1 if across else 0)), 2.0**-24)


def test_empty_loops_write_nothing_and_empty_sums_are_zero(run: Callable[..., int]) -> None:
    y = torch.full((ROWS,), 7.0)
    run(f"h-sum-{F32}", torch.empty(0), y, sizes=(ROWS, 0))
    assert torch.equal(y, torch.zeros(ROWS))
    run(f"v-sum-{F32}", torch.empty(0), y, sizes=(3, 0))
    assert torch.equal(y, torch.zeros(ROWS))
