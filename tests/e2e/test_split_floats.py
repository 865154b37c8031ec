"""Float products from bf16 parts: any float gives what it gives in eager mode, to the last bits of a float."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import inductor_cpu
from inductor_cpu.kernels.usable import usable_micro_kernels
from inductor_cpu.targets.cpu import detect

pytestmark = pytest.mark.skipif(
    "split_f32" not in usable_micro_kernels(detect()), reason="this CPU, or its system, has no AMX tiles of bf16"
)

INF, NAN = float("inf"), float("nan")

#: One value among ordinary ones, in the input or in the weight.
STRANGE = {
    "nan": NAN,
    "infinity": INF,
    "minus infinity": -INF,
    "largest": torch.finfo(torch.float32).max,
    "minus largest": torch.finfo(torch.float32).min,
    "no bf16 rounds to it": 3.3961776e38,
    "above the bound": 2.0**32 * (1 + 2**-23),
    "at the bound": 2.0**32,
    "smallest normal": torch.finfo(torch.float32).tiny,
    "subnormal": 3e-39,
    "smallest": 2.0**-149,
    "minus zero": -0.0,
}


def compiled_linear(weight: torch.Tensor) -> tuple[nn.Linear, object]:
    """A linear layer without a bias, in eager mode and compiled for any number of rows."""
    linear = nn.Linear(weight.shape[1], weight.shape[0], bias=False).requires_grad_(False)
    linear.weight.copy_(weight)
    torch._dynamo.reset()
    return linear, torch.compile(linear, backend="icpu", dynamic=True)


@torch.no_grad()
def check(linear: nn.Linear, compiled: object, x: torch.Tensor) -> None:
    """Infinities and NaN are where eager's are; the rest errs by a few roundings of the sum of absolute values."""
    eager, result = linear(x), compiled(x)  # type: ignore[operator]
    assert torch.equal(result.isnan(), eager.isnan())
    finite = eager.isfinite()
    assert torch.equal(result[~finite].nan_to_num(nan=1.0), eager[~finite].nan_to_num(nan=1.0))
    exact = (x.double().nan_to_num() @ linear.weight.double().nan_to_num().t())[finite]
    scale = (x.double().nan_to_num().abs() @ linear.weight.double().nan_to_num().abs().t())[finite]
    # A result among the subnormal numbers is rounded to a multiple of the smallest one.
    assert ((result[finite].double() - exact).abs() <= 2**-20 * scale + 2**-149).all()


@pytest.mark.parametrize("value", STRANGE.values(), ids=STRANGE)
@pytest.mark.parametrize(("rows", "depth"), [(40, 33), (17, 1500)])
def test_a_strange_value_in_the_input_gives_what_eager_gives(value: float, rows: int, depth: int) -> None:
    torch.manual_seed(0)
    linear, compiled = compiled_linear(torch.randn(40, depth))
    for row, column in ((0, 0), (rows - 1, depth - 1), (9, 31)):
        x = torch.randn(rows, depth)
        x[row, column] = value
        check(linear, compiled, x)


@pytest.mark.parametrize("value", STRANGE.values(), ids=STRANGE)
def test_a_strange_value_in_the_weight_gives_what_eager_gives(value: float) -> None:
    torch.manual_seed(0)
    for depth, row, column in ((33, 0, 0), (1500, 39, 1499), (1500, 17, 100)):
        weight = torch.randn(40, depth)
        weight[row, column] = value
        linear, compiled = compiled_linear(weight)
        check(linear, compiled, torch.randn(40, depth))


def test_small_values_times_large_ones_are_exact_products() -> None:
    """Powers of two: each result is one product, in all of the range of floats."""
    exponents = torch.arange(-149, 128).double()
    x = torch.diag(torch.exp2(exponents).float())
    weight = torch.exp2(-exponents.clamp(-127, 126)).float().repeat(40, 1)
    linear, compiled = compiled_linear(weight)
    with torch.no_grad():
        assert torch.equal(compiled(x), linear(x))  # type: ignore[operator]


@pytest.mark.parametrize("seed", range(4))
def test_values_of_any_magnitude_in_one_product(seed: int) -> None:
    torch.manual_seed(seed)

    def any_magnitude(*shape: int) -> torch.Tensor:
        return (torch.randn(shape, dtype=torch.float64) * torch.exp2(torch.randint(-150, 60, shape))).float()

    linear, compiled = compiled_linear(any_magnitude(40, 100))
    check(linear, compiled, any_magnitude(50, 100))


def test_a_sum_beyond_the_floats_is_infinite() -> None:
    linear, compiled = compiled_linear(torch.full((32, 64), 2.0**31))
    check(linear, compiled, torch.full((20, 64), 2.0**92))


@pytest.mark.parametrize("depth", [64, 768, 3072])
def test_the_error_is_not_larger_than_eagers(depth: int) -> None:
    torch.manual_seed(depth)
    linear, compiled = compiled_linear(torch.randn(128, depth))
    x = torch.randn(128, depth)
    with torch.no_grad():
        exact = linear.double()(x.double())
        eager, result = linear.float()(x), compiled(x)  # type: ignore[operator]
    assert (result - exact).square().mean() <= 1.1 * (eager - exact).square().mean()
    assert (result - exact).abs().max() <= 1.5 * (eager - exact).abs().max()


def test_without_splitting_vectors_of_floats_multiply() -> None:
    linear, _ = compiled_linear(torch.randn(64, 64))
    x = torch.randn(32, 64)
    with torch.no_grad(), inductor_cpu.config.patch({"cpp.split_float32": False}):
        assert "fma_f32" in str(inductor_cpu.explain(linear, x))
    torch._dynamo.reset()
    with torch.no_grad():
        assert "split_f32" in str(inductor_cpu.explain(linear, x))
