"""Every op, for every dtype it takes, in scalar, AVX2 and AVX-512 code, against eager or an fp64 reference."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable
from functools import cache

import pytest
import torch

from inductor_cpu.codegen.scalar import SCALAR
from inductor_cpu.codegen.vector import LANE_BY_LANE, VECTOR
from inductor_cpu.ir.index import loop_var, of, size_symbol
from inductor_cpu.ir.kernel import Kernel
from inductor_cpu.ir.ops import CHECKS, FLOAT8, INDEX_CHECKS, LOOP_DTYPES, OPS, accepts
from tests.cases import cases

from .build import BF16, BOOL, F16, F32, F64, I64, Build
from .harness import Library

DTYPES = sorted(LOOP_DTYPES, key=str)
DIVIDING = {"floordiv", "truncdiv", "fmod", "remainder"}
SKIP = {
    *CHECKS,
    *("where", "quotient", "philox", "philox_second", "low_exp", "exp_of_nonpositive", "gelu_slope", "low_gelu_slope"),
    *("i0", "i0e", "i1", "i1e", "digamma", "trigamma", "erfcx", "log_ndtr", "ndtri"),
}  # tests of their own
N = size_symbol("n")
I = loop_var("i", of(N))

TORCH = {
    "gelu": torch.nn.functional.gelu,
    "gelu_tanh": functools.partial(torch.nn.functional.gelu, approximate="tanh"),
    "silu": torch.nn.functional.silu,
    "bitwise_not": torch.bitwise_not,
    "logical_not": torch.logical_not,
    "floordiv": lambda a, b: torch.div(a, b, rounding_mode="floor"),
    "truncdiv": lambda a, b: torch.div(a, b, rounding_mode="trunc"),
    "ipow": torch.pow,
    "fma": lambda a, b, c: torch.addcmul(c, a, b),
    "lshift": torch.bitwise_left_shift,
    "rshift": torch.bitwise_right_shift,
}

#: Ops whose results are those of eager, bit for bit (NaN equals NaN, 0.0 equals -0.0 for max and min).
EXACT = {
    *("neg", "abs", "sign", "relu", "floor", "ceil", "round", "trunc", "isnan", "isinf", "signbit", "logical_not"),
    *("bitwise_not", "add", "sub", "mul", "div", "fmod", "remainder", "floordiv", "truncdiv", "ipow", "copysign"),
    *("maximum", "minimum", "fmax", "fmin", "eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or"),
    *("logical_xor", "bitwise_and", "bitwise_or", "bitwise_xor", "lshift", "rshift", "nextafter", "fma"),
}
#: Bounds in units of the last place for the others, against fp64 (f64: against eager).
ULPS = {"sqrt": 0.5, "reciprocal": 0.5, "erfc": 4.0, "sigmoid": 2.5, "lgamma": 4.0, "erfinv": 1.5}
ULPS |= {"tanh": 3.0, "erf": 3.0}


def reference(op: str) -> object:
    return TORCH.get(op) or getattr(torch, op)


CASES = [(op, dtype) for op in OPS for dtype in DTYPES if op not in SKIP and accepts(op, dtype)]

#: Dtypes that are computed alike, in float32 and int32, and then rounded or wrapped, which test_rounding.py and
#: test_narrow.py try: each op has one of each in every run, and those all whose code is told which it is.
ALIKE = ((BF16, F16), (torch.int8, torch.uint8, torch.int16))
TOLD = {"sigmoid", "silu", "nextafter"}
EVERY_RUN = [
    (op, dtype)
    for op, dtype in CASES
    if op in TOLD or all(dtype not in few or dtype == few[list(OPS).index(op) % len(few)] for few in ALIKE)
]
MORE = [case for case in CASES if case not in EVERY_RUN]

#: Ops that one kernel computes from the same inputs: (dtype, arity, whether they divide, whether every run tries them).
Group = tuple[torch.dtype, int, bool, bool]


def group_of(op: str, dtype: torch.dtype) -> Group:
    return dtype, OPS[op].arity, op in DIVIDING, (op, dtype) in EVERY_RUN


def ops_of(group: Group) -> list[str]:
    return [op for op, dtype in CASES if group_of(op, dtype) == group]


#: The results of a group by op.
Results = Callable[[Group], dict[str, torch.Tensor]]

GROUPS = sorted({group_of(op, dtype) for op, dtype in CASES}, key=str)
FULL = [group for group in GROUPS if not group[3]]


@cache
def kernel_of(group: Group, isa: str) -> Kernel:
    """One output for each op of the group."""
    dtype, arity, *_ = group
    b = Build()
    args = [b.load(name, of(I), dtype) for name in "XYZ"[:arity]]
    for op in ops_of(group):
        b.store(op, of(I), b.op(op, *args))
    return b.kernel(isa, (I,), vector=I, sizes=(N,))


def kernels(isa: str) -> dict[Group, Kernel]:
    return {group: kernel_of(group, isa) for group in GROUPS}


@pytest.fixture(scope="module")
def results(isa: str, library: Library) -> Results:
    """What the kernel of a group computes."""

    @cache
    def of_group(group: Group) -> dict[str, torch.Tensor]:
        args, ops = inputs(group), ops_of(group)
        outputs = [torch.empty(len(args[0]), dtype=BOOL if OPS[op].result == "bool" else group[0]) for op in ops]
        assert library.run(kernel_of(group, isa), *args, *outputs, sizes=[len(args[0])]) == 0
        return dict(zip(ops, outputs, strict=True))

    return of_group


SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, -1.5, 2.5, -2.5, 2.0, -2.0, 3.0, -3.0, 7.25, -7.25, 88.5, -88.5, 103.5]
SPECIAL += [-103.5, 1e-40, -1e-40, 1e-6, -1e-6, 0.99999, -0.99999, 1e4, -1e4, 1e10, -1e10, 3.4e38, -3.4e38]
SPECIAL += [float("inf"), float("-inf"), float("nan"), 0.3, -0.7, 3.14159, -3.14159, 20.0, -20.0, 1e-20, 5.5, -5.5]


@cache
def inputs(group: Group) -> list[torch.Tensor]:
    dtype, arity, divides, _ = group
    generator = torch.Generator().manual_seed(0)
    if dtype == BOOL:
        grid = torch.tensor(list(itertools.product([False, True], repeat=2)) * 9)
        return [grid[:, 0].contiguous(), grid[:, 1].contiguous()][:arity]
    if dtype.is_floating_point:
        values = torch.tensor(SPECIAL, dtype=F64)
        random = torch.randn(53, generator=generator, dtype=F64) * 4
    else:
        info = torch.iinfo(dtype)
        values = torch.tensor([info.min, info.min + 1, info.max, info.max - 1, 0, 1, 2, 3, 7, 8, 9, 31, 32, 63, 64])
        values = torch.cat([values, -values[4:]]) if info.min < 0 else values
        random = torch.randint(-100, 100, (29,), generator=generator)
    values = torch.cat([values, random]).to(dtype)
    if arity == 1:
        return [values]
    a, b = (t.contiguous() for t in torch.cartesian_prod(values, values).unbind(1))
    if divides and dtype.is_floating_point:  # eager gives NaN where the quotient overflows
        unsafe = (b.abs() < torch.finfo(dtype).smallest_normal) | ((a / b).isinf() & a.isfinite())
        b = torch.where(unsafe & (b != 0), torch.ones_like(b), b)
    if divides and not dtype.is_floating_point:
        overflow = (a == torch.iinfo(dtype).min) & (b == -1)  # eager traps
        b = torch.where((b == 0) | overflow, torch.ones_like(b), b)
    return [a, b, b.roll(7)][:arity]


def expected(op: str, args: list[torch.Tensor]) -> torch.Tensor:
    result = reference(op)(*args)  # type: ignore[operator]
    assert isinstance(result, torch.Tensor)
    return result


def same(got: torch.Tensor, want: torch.Tensor) -> torch.Tensor:
    if got.dtype.is_floating_point:
        return (got == want) | (got.isnan() & want.isnan())
    return got == want


def ulps(got: torch.Tensor, want: torch.Tensor) -> torch.Tensor:
    """Distance in units of the last place of got's dtype to the fp64 value `want`; 0 for equal infinities and NaN."""
    info = torch.finfo(got.dtype)
    rounded = want.to(got.dtype)
    _, exponent = torch.frexp(want)
    unit = torch.ldexp(torch.ones_like(want), exponent.clamp(min=-1100) - 1) * info.eps
    unit = unit.clamp(min=info.smallest_normal * info.eps)
    distance = (got.double() - want).abs() / unit
    return torch.where(same(got, rounded), torch.zeros_like(distance), distance)


@pytest.mark.parametrize(("op", "dtype"), cases(EVERY_RUN, MORE), ids=lambda v: str(v).replace("torch.", ""))
def test_op_agrees_with_eager(op: str, dtype: torch.dtype, results: Results) -> None:
    args = inputs(group_of(op, dtype))
    want, got = expected(op, args), results(group_of(op, dtype))[op]
    if op in EXACT:
        bad = ~same(got, want)
        assert not bad.any(), [t[bad][:5].tolist() for t in (*args, got, want)]
        return
    exact = want.double() if dtype == F64 else expected(op, [a.double() for a in args])
    if op in ("gelu", "gelu_tanh"):  # test_elementary.py has the values below
        usual = ~(args[0] < -2.5)
        exact, got, want = exact[usual], got[usual], want[usual]
        args = [args[0][usual]]
    if op == "lgamma" and dtype in (F32, F64):  # near its roots the error is relative to 1
        exact, got = (torch.where(t.abs() < 1, t.sign() + t, t) for t in (exact, got))
    distance = ulps(got, exact)
    bound = {F32: ULPS.get(op, 1.5), F64: ULPS.get(op, 1.5) + 1}.get(dtype, 0.51)  # fp64 itself is eager's
    bad = ~(distance <= bound)
    assert not bad.any(), [t[bad][:5].tolist() for t in (*args, got, want, exact, distance)]


def test_fma_of_floats_rounds_once(results: Results) -> None:
    group = group_of("fma", F32)
    a, b, c = (x.to(F64) for x in inputs(group))
    product = a * b  # exact
    total = product + c
    kept = total - product
    known = (product - (total - kept)) + (c - kept) == 0  # what the sum lost (Knuth's two-sum)
    assert known.sum() > len(a) // 4
    assert same(results(group)["fma"][known], total[known].to(F32)).all()
    assert not same(results(group)["fma"][known], (product.to(F32) + c.to(F32))[known]).all()


def test_fmod_is_exact_where_the_quotient_overflows(isa: str) -> None:
    a, b = (t.contiguous() for t in torch.cartesian_prod(torch.tensor([3.4e38, -3e38, 1.0]), torch.rand(9)).unbind(1))
    build = Build()
    build.store("Z", of(I), build.op("fmod", *(build.load(name, of(I), F32) for name in "XY")))
    kernel, got = build.kernel(isa, (I,), vector=I, sizes=(N,)), torch.empty(len(a))
    Library(isa, [kernel]).run(kernel, a, b, got, sizes=[len(a)])
    assert got.tolist() == [math.fmod(x, y) for x, y in zip(a.tolist(), b.tolist(), strict=True)]


def test_tables_have_a_row_for_every_op_and_dtype() -> None:
    assert set(SCALAR) == set(OPS)
    assert set(VECTOR) <= set(OPS)
    for op in OPS:
        for dtype in LOOP_DTYPES:
            if (op in INDEX_CHECKS and dtype != I64) or dtype in FLOAT8:  # these are floats in code
                continue
            if (domain := OPS[op].domain) in ("float32", "int32") and str(dtype) != f"torch.{domain}":
                continue
            assert (SCALAR[op].template(dtype) is not None) == accepts(op, dtype), (op, dtype)


def test_ops_without_vector_code_are_the_declared_ones() -> None:
    for op, dtype in CASES:
        row = VECTOR.get(op)
        missing = row is None or row.template(dtype) is None
        declared = op in LANE_BY_LANE or (op == "nextafter" and dtype in (BF16, F16))
        assert missing == declared, (op, dtype)
