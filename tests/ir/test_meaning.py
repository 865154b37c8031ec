"""The meaning of scalar ops, casts and reductions: complete, and equal to eager's op in every dtype that it takes."""

from __future__ import annotations

import functools

import pytest
import torch

from inductor_cpu.ir.meaning import MEANING, REDUCTION_MEANING, held, physical, reduction, scalar
from inductor_cpu.ir.ops import CHECKS, LOOP_DTYPES, OPS, REDUCTIONS, accepts

SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.75, 1e-3, 88.0, -90.0, float("inf"), float("-inf"), float("nan")]
#: Ops whose eager function has another name, or takes the integer arguments differently.
EAGER = {
    "gelu": torch.nn.functional.gelu,
    "gelu_tanh": functools.partial(torch.nn.functional.gelu, approximate="tanh"),
    "silu": torch.nn.functional.silu,
    "low_exp": torch.exp,
    "gelu_slope": lambda x: torch.ops.aten.gelu_backward(torch.ones_like(x), x),
    "low_gelu_slope": lambda x: torch.ops.aten.gelu_backward(torch.ones_like(x), x),
    "exp_of_nonpositive": torch.exp,
    "floordiv": lambda a, b: torch.div(a, b, rounding_mode="floor"),
    "truncdiv": lambda a, b: torch.div(a, b, rounding_mode="trunc"),
    "ipow": torch.pow,
    "lshift": torch.bitwise_left_shift,
    "rshift": torch.bitwise_right_shift,
    "quotient": lambda a, b, inverse: torch.div(a, b),
    "fma": lambda a, b, c: torch.addcmul(c, a, b),
    "trigamma": functools.partial(torch.polygamma, 1),
    "i0e": lambda x: torch.special.i0e(x.double()).to(x.dtype),  # of bf16 and f16 eager's is two units off
    **{name: getattr(torch.special, name) for name in ("i1", "i1e", "erfcx", "log_ndtr", "ndtri")},
}
NONZERO_DIVISOR = {"floordiv", "truncdiv", "fmod", "remainder"}


def sample(dtype: torch.dtype) -> torch.Tensor:
    if dtype == torch.bool:
        return torch.tensor([True, False])
    if dtype.is_floating_point:
        return torch.tensor(SPECIAL, dtype=dtype)
    info = torch.iinfo(dtype)
    return torch.tensor([0, 1, 2, 3, 7, info.max, info.min, info.max - 1], dtype=dtype)


def pairs(dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    values = sample(dtype)
    left, right = torch.meshgrid(values, values, indexing="ij")
    return left.reshape(-1), right.reshape(-1)


def test_every_op_and_reduction_has_a_meaning() -> None:
    assert MEANING.keys() == OPS.keys()
    assert REDUCTION_MEANING.keys() == REDUCTIONS


#: Tests of their own: tests/codegen/test_philox.py.
RANDOM = {"philox", "philox_second"}

#: Eager has no checks, no nextafter of float16, and these of no low precision.
UNKNOWN = {("nextafter", torch.float16)}
UNKNOWN |= {(op, dtype) for op in ("erfcx", "log_ndtr", "ndtri") for dtype in (torch.bfloat16, torch.float16)}

CASES = [
    (op, dtype)
    for op in OPS
    for dtype in sorted(LOOP_DTYPES, key=str)
    if accepts(op, dtype) and op not in {*CHECKS, *RANDOM} and (op, dtype) not in UNKNOWN
]


@pytest.mark.parametrize(("op", "dtype"), CASES, ids=lambda value: str(value).removeprefix("torch."))
def test_op_gives_what_eager_gives(op: str, dtype: torch.dtype) -> None:
    row = OPS[op]
    args = (sample(dtype),) if row.arity == 1 else pairs(dtype)
    if op in NONZERO_DIVISOR and not dtype.is_floating_point:
        keep = (args[1] != 0) & (args[1] != -1)
        args = tuple(arg[keep] for arg in args)
    if op in ("lshift", "rshift", "ipow"):
        args = (args[0], args[1].clamp(0, 5))
    if op == "where":
        args = (torch.arange(args[0].numel()) % 2 == 0, *args)
    if op == "quotient":
        args = (*args, args[1].reciprocal())
    if op == "fma":
        args = (*args, args[0].flip(0))
    with torch.backends.mkldnn.flags(enabled=False):  # oneDNN's gelu of infinity is NaN
        expected = EAGER.get(op, getattr(torch, op, None))(*args)
    result_dtype = torch.bool if row.result == "bool" else dtype
    assert expected.dtype == result_dtype
    got = scalar(op, tuple(a.to(physical(a.dtype)) for a in args), result_dtype)
    torch.testing.assert_close(got.to(result_dtype), expected, equal_nan=True)


@pytest.mark.parametrize(("dtype", "digits"), [(torch.float32, 23), (torch.float64, 52)], ids=str)
def test_fma_rounds_once(dtype: torch.dtype, digits: int) -> None:
    one_and_a_bit = torch.full((16,), 1 + 2.0**-digits, dtype=dtype)
    square_without_its_last_digit = 1 + 2.0 ** (1 - digits)
    other = torch.full_like(one_and_a_bit, -square_without_its_last_digit)
    got = scalar("fma", (one_and_a_bit, one_and_a_bit, other), dtype)
    assert got.tolist() == [2.0 ** (-2 * digits)] * 16


def test_low_precision_results_are_rounded_after_each_op() -> None:
    one, tiny = torch.tensor([1.0]), torch.tensor([2.0**-10])
    assert scalar("add", (one, tiny), torch.bfloat16).item() == 1.0
    assert scalar("add", (one, tiny), torch.float32).item() == 1.0 + 2.0**-10


def test_integer_ops_wrap() -> None:
    top = torch.tensor([127], dtype=torch.int8)
    assert scalar("add", (top, top), torch.int8).item() == -2


def test_check_index_wraps_negative_ones_and_refuses_others() -> None:
    size = torch.tensor([3])
    got = scalar("check_index", (torch.tensor([-3, -1, 2]), size), torch.int64)
    assert got.tolist() == [0, 2, 2]
    for wrong in (3, -4):
        with pytest.raises(IndexError):
            scalar("check_index", (torch.tensor([wrong]), size), torch.int64)


def test_check_element_refuses_negative_ones_too() -> None:
    size = torch.tensor([3])
    assert scalar("check_element", (torch.tensor([0, 2]), size), torch.int64).tolist() == [0, 2]
    for wrong in (3, -1):
        with pytest.raises(RuntimeError):
            scalar("check_element", (torch.tensor([wrong]), size), torch.int64)


def test_check_true_refuses_what_does_not_hold() -> None:
    assert scalar("check_true", (torch.tensor([True, True]),), torch.bool).all()
    with pytest.raises(RuntimeError):
        scalar("check_true", (torch.tensor([True, False]),), torch.bool)


@pytest.mark.parametrize("dtype", sorted(LOOP_DTYPES, key=str), ids=str)
def test_cast_follows_eager(dtype: torch.dtype) -> None:
    values = torch.tensor([0.0, 0.4, 1.9, 100.7, 3.14159])
    assert torch.equal(held(values, dtype), values.to(dtype).to(physical(dtype)))


@pytest.mark.parametrize("kind", sorted(REDUCTIONS))
def test_reduction_folds_the_last_axes(kind: str) -> None:
    generator = torch.Generator().manual_seed(0)
    dtype = torch.bool if kind in ("any", "all") else torch.float32
    value = torch.rand(3, 2, 4, generator=generator)
    value = value > 0.5 if dtype == torch.bool else value
    name = {"max": "amax", "min": "amin", "fmax": "amax"}.get(kind, kind)
    expected = getattr(value.reshape(3, 8), name)(-1)
    got = reduction(kind, value, 2, torch.int64 if kind.startswith("arg") else dtype)
    torch.testing.assert_close(got, expected.reshape(3, 1, 1))


@pytest.mark.parametrize(("kind", "expected"), [("sum", 0.0), ("prod", 1.0), ("max", float("-inf"))])
def test_reduction_of_nothing_is_the_identity(kind: str, expected: float) -> None:
    assert reduction(kind, torch.empty(2, 0), 1, torch.float32).tolist() == [[expected]] * 2


def test_integer_sum_stays_in_its_dtype() -> None:
    value = torch.full((1, 3), 100, dtype=torch.int8)
    assert reduction("sum", value, 1, torch.int8).item() == 44
