"""Random numbers that loops compute: their distribution, and that they are a function of the seed alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import pytest
import torch
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import inductor_cpu
from tests.cases import cases
from tests.e2e.support import compile_counted

Tensor = torch.Tensor
N = 1 << 16
FLOATS = [torch.float32, torch.bfloat16, torch.float16]


@pytest.fixture(autouse=True)
def in_loops() -> Iterator[None]:
    with inductor_cpu.config.patch({"fallback_random": False}):
        yield


def drawn(function: Callable[..., Any], *args: Any, seed: int = 5, **options: Any) -> Any:
    """What a compiled function draws from a seed, in loops."""
    compiled, reports = compile_counted(function, **options)
    torch.manual_seed(seed)
    result = compiled(*args)
    assert all(e.op == "aten.randint.low" for report in reports for e in report.externs)
    return result


def check_even(values: Tensor, cells: int) -> None:
    """Whole numbers below `cells`, each as often as any other: chi-squared within 5 deviations."""
    counts = torch.bincount(values.long().flatten(), minlength=cells).double()
    assert len(counts) == cells
    expected = values.numel() / cells
    statistic = ((counts - expected) ** 2 / expected).sum().item()
    assert abs(statistic - (cells - 1)) < 5 * (2 * (cells - 1)) ** 0.5


def check_moments(values: Tensor, mean: float, deviation: float) -> None:
    values = values.double()
    assert abs(values.mean().item() - mean) < 5 * deviation / values.numel() ** 0.5
    assert values.std().item() == pytest.approx(deviation, rel=0.03)


@pytest.mark.parametrize("dtype", cases([torch.float32, torch.bfloat16, torch.float64], [torch.float16]), ids=str)
def test_uniform_numbers_fill_their_interval_evenly(dtype: torch.dtype) -> None:
    x = drawn(lambda: torch.rand(N, dtype=dtype))
    assert x.dtype == dtype
    assert x.min() >= 0
    assert x.max() < 1
    check_even(x.double() * 128, 128)
    y = drawn(lambda: torch.empty(N, dtype=dtype).uniform_(-3, 5))
    check_even((y.double() + 3) / 8 * 64, 64)


def test_uniform_float64_has_all_its_digits() -> None:
    x = drawn(lambda: torch.rand(N, dtype=torch.float64)) * 2.0**53
    assert torch.equal(x, x.floor())
    check_even(x.long() % 64, 64)


@pytest.mark.parametrize("dtype", cases([torch.float32, torch.float16], [torch.bfloat16]), ids=str)
def test_normal_numbers_have_their_moments_and_tails(dtype: torch.dtype) -> None:
    x = drawn(lambda: torch.randn(N, dtype=dtype))
    check_moments(x, 0, 1)
    within = torch.special.ndtr(x.double())
    check_even(within.clamp(max=0.999999) * 32, 32)
    y = drawn(lambda: torch.empty(N, dtype=dtype).normal_(2, 3))
    check_moments(y, 2, 3)
    z = drawn(lambda mean: torch.normal(mean, 0.5), torch.full((N,), 4.0))
    check_moments(z, 4, 0.5)


@pytest.mark.parametrize(("low", "high"), [(0, 2), (-7, 5), (100, 1124)])
def test_whole_numbers_are_even(low: int, high: int) -> None:
    x = drawn(lambda: torch.randint(low, high, (N,)))
    assert x.dtype == torch.int64
    check_even(x - low, high - low)


@pytest.mark.parametrize("p", [0.0, 1e-3, 0.25, 0.999, 1.0])
def test_bernoulli_has_its_probability(p: float) -> None:
    x = drawn(lambda: torch.empty(N).bernoulli_(p))
    assert ((x == 0) | (x == 1)).all()
    assert abs(x.mean().item() - p) <= 5 * (p * (1 - p) / N) ** 0.5


def test_exponential_numbers_have_their_rate() -> None:
    x = drawn(lambda: torch.empty(N).exponential_(0.5))
    assert x.min() > 0
    check_even((1 - torch.exp(-0.5 * x.double())) * 64, 64)


@pytest.mark.parametrize(
    ("dtype", "p"),
    cases(
        [(torch.float32, 0.1), (torch.bfloat16, 0.5)],
        [(torch.float32, 0.5), (torch.bfloat16, 0.1), *product([torch.float16, torch.float64], [0.1, 0.5])],
    ),
    ids=str,
)
def test_dropout_drops_and_scales_and_so_does_its_gradient(p: float, dtype: torch.dtype) -> None:
    x = torch.randn(256, 256, dtype=dtype, requires_grad=True)
    y = drawn(lambda x: F.dropout(x, p), x)
    (grad,) = torch.autograd.grad(y, x, torch.ones_like(y))
    kept = grad != 0
    assert abs(kept.double().mean().item() - (1 - p)) < 5 * (p * (1 - p) / x.numel()) ** 0.5
    noise = kept.to(dtype) / (1 - p)
    torch.testing.assert_close(grad, noise, rtol=0, atol=0)
    torch.testing.assert_close(y, x * noise, rtol=0, atol=0)


def test_neighbours_and_operators_are_independent() -> None:
    a, b = drawn(lambda: (torch.rand(N), torch.rand(N)))
    pairs = (a[:-1], a[1:]), (a[:-16], a[16:]), (a, b)
    for first, second in pairs:
        check_even((first * 16).floor() * 16 + (second * 16).floor(), 256)


def everything(x: Tensor) -> tuple[Tensor, ...]:
    return (
        torch.rand(70, 33),
        torch.rand(5, dtype=torch.float64),
        torch.randint_like(x, 3, 1000),
        F.dropout(x, 0.3).t(),
        torch.empty(41).bernoulli_(0.5),
        torch.rand_like(x) * x.sum(),
    )


@pytest.mark.parametrize(
    "options",
    [{"cpp.simdlen": 256}, {"cpp.simdlen": 1}, {"cpp.threads": 1}, {"debug_interpret": True}],
    ids=str,
)
def test_numbers_do_not_depend_on_settings(options: dict[str, Any]) -> None:
    x = torch.ones(130, 70)
    expected = drawn(everything, x)
    torch._dynamo.reset()
    with inductor_cpu.config.patch(options):
        assert all(map(torch.equal, expected, drawn(everything, x)))


def test_numbers_depend_on_the_seed_and_not_on_what_is_known_of_sizes() -> None:
    x = torch.ones(130, 70)
    expected = drawn(everything, x)
    assert all(map(torch.equal, expected, drawn(everything, x, dynamic=True)))
    assert not any(map(torch.equal, expected, drawn(everything, x, seed=6)))


def test_each_call_draws_other_numbers() -> None:
    compiled, _ = compile_counted(lambda: torch.rand(8))
    torch.manual_seed(1)
    a, b = compiled(), compiled()
    torch.manual_seed(1)
    assert torch.equal(a, compiled())
    assert not torch.equal(a, b)


@pytest.mark.parametrize("reentrant", [True, False])
def test_a_checkpointed_part_drops_the_same_again(reentrant: bool) -> None:
    x = torch.rand(64, 64) + 1
    x.requires_grad_()

    def part(x: Tensor) -> Tensor:
        return F.dropout(torch.sin(x) + 2, 0.5)

    def function(x: Tensor) -> Tensor:
        return checkpoint(part, x, use_reentrant=reentrant)  # type: ignore[no-any-return]

    compiled, _ = compile_counted(function)
    y = compiled(x)
    (grad,) = torch.autograd.grad(y.sum(), x)
    torch.testing.assert_close(grad, torch.where(y != 0, 2 * torch.cos(x), 0.0))


@pytest.mark.parametrize(
    "draw",
    [
        lambda: torch.normal(0.0, torch.ones(5)),
        lambda: torch.randn(5, dtype=torch.float64),
        lambda: torch.randint(-(1 << 40), 1 << 40, (5,)),
        lambda: torch.randperm(9),
    ],
    ids=["tensor of deviations", "randn of float64", "many different numbers", "randperm"],
)
def test_what_loops_do_not_draw_is_eagers(draw: Callable[[], Tensor]) -> None:
    compiled, reports = compile_counted(draw)
    torch.manual_seed(3)
    expected = draw()
    torch.manual_seed(3)
    assert torch.equal(compiled(), expected)
    assert len(reports[0].externs) == 1
