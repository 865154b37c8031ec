"""Values at which kernels easily differ from eager, in compiled code."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

from tests.e2e.support import assert_same, compile_counted

Tensor = torch.Tensor


def test_zeros_keep_the_signs_that_eager_gives_them() -> None:
    x, y = torch.tensor([0.0, -0.0] * 20), torch.tensor([0.0, 0.0, -0.0, -0.0] * 10)

    def f(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        return torch.fmax(x, y), torch.fmin(x, y), F.relu6(x), F.hardtanh(x, -1, 0), x.clamp(0, 1), x.clamp(max=0.0)

    compiled, _ = compile_counted(f)
    for number, (got, want) in enumerate(zip(compiled(x, y), f(x, y), strict=True)):
        assert torch.equal(got.signbit(), want.signbit()), number


def test_remainders_and_floors_of_quotients_that_overflow() -> None:
    a, b = torch.full((40,), 3.4e38), torch.full((40,), 1e-3)
    compiled, _ = compile_counted(lambda a, b: (torch.fmod(a, b), torch.remainder(-a, b), a // b))
    rest, positive, quotient = compiled(a, b)
    exact = torch.fmod(a.double(), b.double()).float()
    assert torch.equal(rest, exact)
    assert torch.equal(positive, (b.double() - exact.double()).float())
    assert quotient.isinf().all()


def test_a_standard_deviation_whose_squares_overflow() -> None:
    x = torch.tensor([[3e38, 1.0, -2e38, 5.0]] * 3)
    compiled, _ = compile_counted(lambda x: torch.std(x, 1))
    assert compiled(x).isfinite().all()
    torch.testing.assert_close(compiled(x), x.std(1))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_an_integer_is_added_to_the_exponent_where_its_power_of_two_overflows(dtype: torch.dtype) -> None:
    x = torch.tensor([1e-5, 1e-40, -1e-30, 1e30, 0.0, -0.0, float("inf"), float("nan")]).to(dtype)
    exponents = torch.tensor([[3], [130], [-149], [300], [1030], [-1080], [2**40]])
    with torch.no_grad():
        compiled, _ = compile_counted(torch.ldexp)
        assert_same(compiled(x, exponents), torch.ldexp(x, exponents))


@pytest.mark.parametrize("simdlen", [256, None])
def test_a_nan_of_f16_with_all_bits_is_nan_as_bf16(simdlen: int | None) -> None:
    x = torch.arange(-(1 << 15), 1 << 15).to(torch.int16).view(torch.float16)
    x = x[x.isnan()]
    one = torch.ones(len(x), dtype=torch.bfloat16)
    compiled, _ = compile_counted(
        lambda x, one: (x.to(torch.bfloat16) * one, x.bfloat16() + one, (x.float() - 1).bfloat16() * one),
        options={"cpp.simdlen": simdlen},
    )
    assert all(result.isnan().all() for result in compiled(x, one))


def test_an_input_with_the_negative_bit_is_read_and_written_with_its_sign() -> None:
    """Its memory holds the other sign, and no guard of Dynamo's tells it from a plain tensor."""
    z = torch.randn(4, 9, dtype=torch.complex64)

    def f(x: Tensor) -> Tensor:
        result = x * 2
        x.add_(1)
        return result

    compiled, _ = compile_counted(f)
    for view in (lambda z: z.imag, lambda z: z.conj().imag, lambda z: z.conj().imag[:, 2:3].expand(4, 5)):
        read = view(z)
        torch.testing.assert_close(compile_counted(lambda x: x * 2 - x.sum())[0](read), read * 2 - read.sum())
    mine, eager = z.clone(), z.clone()
    torch.testing.assert_close(compiled(mine.imag), f(eager.imag))
    torch.testing.assert_close(compiled(mine.conj().imag), f(eager.conj().imag))
    torch.testing.assert_close(mine, eager)


def test_zeros_without_memory_are_read_as_zeros() -> None:
    """Autograd has such gradients, and no guard of Dynamo's tells them from a plain tensor."""
    compiled, _ = compile_counted(lambda x: x + 1)
    for x in (torch.randn(3), torch._efficientzerotensor((3,))):
        assert torch.equal(compiled(x), x + 1)


def test_zeros_of_both_signs_around_one_tensor() -> None:
    compiled, _ = compile_counted(lambda x: (F.pad(x, (1, 1), value=-0.0) * 3, F.pad(x, (1, 1)) * 3))
    assert [bool(y[0, 0].signbit()) for y in compiled(torch.ones(3, 4))] == [True, False]


def test_erfinv_of_doubles_near_one_has_all_digits() -> None:
    near = 1 - torch.logspace(-0.4, -15.5, 64, dtype=torch.float64)
    compiled, _ = compile_counted(torch.erfinv)
    torch.testing.assert_close(compiled(near), torch.erfinv(near), rtol=1e-15, atol=0)


SPECIAL = ("i0", "i0e", "i1", "i1e", "digamma", "erfcx", "log_ndtr", "ndtri")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_special_functions_and_their_gradients_call_nothing(dtype: torch.dtype) -> None:
    # Nowhere near 0, where eager mode's gradient of i1 loses digits, nor near the root of digamma.
    x = torch.cat([torch.linspace(0.2, 0.9, 29), torch.tensor([0.11, 0.97])]).to(dtype)

    def f(x: Tensor) -> tuple[Tensor, ...]:
        return tuple(getattr(torch.special, name)(x) for name in SPECIAL)

    def step(function: Callable[[Tensor], tuple[Tensor, ...]], x: Tensor) -> tuple[Tensor, ...]:
        x = x.clone().requires_grad_()
        results = function(x)
        sum(result.sum() for result in results).backward()
        return *(result.detach() for result in results), x.grad

    compiled, reports = compile_counted(f)
    assert_same(step(compiled, x), tuple(exact.to(dtype) for exact in step(f, x.double())), rtol=4e-6, atol=1e-6)
    assert [report.externs for report in reports] == [()] * len(reports)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_logarithms_of_sums_and_shares_of_rows_with_infinities_and_nan(dtype: torch.dtype) -> None:
    """Where the largest element is infinite, exponents are not what the sum of other rows has, at most 0."""
    inf, nan = float("inf"), float("nan")
    starts = [[1.0, -1.0], [inf, 2.0], [-inf, 3.0], [inf, -inf], [nan, inf], [nan, 1.0]]
    x = torch.cat([torch.tensor(starts), torch.linspace(-90, 90, 35).expand(6, 35)], 1).to(dtype)
    x = torch.cat([x, torch.full((1, 37), -inf).to(dtype), torch.full((1, 37), inf).to(dtype)])

    def f(x: Tensor) -> tuple[Tensor, ...]:
        return x.logsumexp(1), x.softmax(1), x.log_softmax(1)

    with torch.no_grad():
        compiled, _ = compile_counted(f)
        assert_same(compiled(x), tuple(exact.to(dtype) for exact in f(x.double())))
