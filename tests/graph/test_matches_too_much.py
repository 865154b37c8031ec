"""Graphs that look like what a pass looks for, and are something else: the numbers, strides and types are eager's."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.ao.quantization.fx._decomposed  # registers its operators
import torch.nn.functional as F
from torch import nn

from tests.cases import in_turns
from tests.e2e.support import compile_counted

Tensor = torch.Tensor

BATCH, HEADS, ROWS, WIDTH = 2, 3, 40, 32
QUANTIZED = torch.ops.quantized_decomposed
LEAST = torch.finfo(torch.float32).min


def softmax(x: Tensor) -> Tensor:
    return torch.softmax(x, -1)


@torch.no_grad()
def check(function: Callable[..., Tensor], *args: Tensor, rtol: float = 1e-4, atol: float = 1e-4) -> None:
    compiled, _ = compile_counted(function)
    torch.testing.assert_close(compiled(*args), function(*args), rtol=rtol, atol=atol, equal_nan=True)


def weights_as(*shape: int) -> Callable[..., Tensor]:
    return lambda q, k, v: torch.bmm(softmax(torch.bmm(q, k.mT)).view(*shape), v)


@pytest.mark.parametrize(
    ("function", "q", "k", "v"),
    [
        (
            weights_as(BATCH, HEADS * ROWS, ROWS),
            (BATCH * HEADS, ROWS, WIDTH),
            (BATCH * HEADS, ROWS, WIDTH),
            (BATCH, ROWS, 8),
        ),
        (weights_as(2 * BATCH, 10, 40), (BATCH, 20, WIDTH), (BATCH, 40, WIDTH), (2 * BATCH, 40, 8)),
        (weights_as(BATCH, 40, 20), (BATCH, 20, WIDTH), (BATCH, 40, WIDTH), (BATCH, 20, 8)),
    ],
    ids=["heads become rows", "rows become heads", "keys become rows"],
)
@pytest.mark.parametrize("training", [False, True])
def test_weights_that_are_reshaped_before_the_product(
    function: Callable[..., Tensor], q: Any, k: Any, v: Any, training: bool
) -> None:
    inputs = [torch.randn(size, requires_grad=training) for size in (q, k, v)]
    compiled, _ = compile_counted(function)
    with torch.set_grad_enabled(training):
        result, wanted = compiled(*inputs), function(*inputs)
    torch.testing.assert_close(result, wanted, rtol=1e-4, atol=1e-4)
    if training:
        found = (torch.autograd.grad(x.square().sum(), inputs) for x in (result, wanted))
        torch.testing.assert_close(*found, rtol=1e-3, atol=1e-3)


#: Shapes of q, k, v and the mask.
MORE_SCORES = [
    ((1, 40, 32), (1, 40, 32), (2, 40, 32), (2, 40, 40)),
    ((2, 1, 32), (2, 40, 32), (2, 40, 32), (2, 40, 40)),
    ((1, 3, 40, 32), (1, 3, 40, 32), (2, 3, 40, 32), (2, 1, 40, 40)),
    ((2, 1, 40, 32), (2, 1, 40, 32), (2, 3, 40, 32), (2, 3, 40, 40)),
]


@pytest.mark.parametrize(("shapes", "chooses"), in_turns(MORE_SCORES, [False, True]), ids=str)
def test_a_mask_that_makes_more_scores_of_those_it_hides(shapes: Any, chooses: bool) -> None:
    q, k, v, mask = shapes

    def function(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        scores = q @ k.mT / 5
        hidden = torch.where(mask, scores, -1e9) if chooses else scores.masked_fill(~mask, -1e9)
        return softmax(hidden) @ v

    check(function, *(torch.randn(size) for size in (q, k, v)), torch.rand(mask) > 0.5)


@pytest.mark.parametrize(("kind", "dtype"), in_turns(["added", "hidden"], [torch.bfloat16, torch.float16]), ids=str)
def test_a_cast_after_a_mask_that_makes_infinity_of_it(kind: str, dtype: torch.dtype) -> None:
    mask = torch.zeros(BATCH, 1, ROWS, ROWS)
    mask[0, 0, 0] = LEAST

    def added(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        return softmax((q @ k.mT + mask).to(dtype)) @ v

    def hidden(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        scores = (q @ k.mT).float().masked_fill(mask < 0, LEAST).to(dtype)
        return torch.softmax(scores, -1, dtype=torch.float32).to(dtype) @ v

    inputs = (torch.randn(BATCH, HEADS, ROWS, WIDTH).to(dtype) for _ in range(3))
    check(added if kind == "added" else hidden, *inputs, mask, rtol=0.05, atol=0.05)


@pytest.mark.parametrize(
    "function",
    [
        lambda x, m: softmax(x @ x.mT * 0.2 + m) @ x,
        lambda x, m: softmax((x @ x.mT).masked_fill(m > 0, -1e9)) @ x,
        lambda x, m: softmax(torch.where(m > 0, x @ x.mT, -1e9)) @ x,
    ],
    ids=["added", "filled", "chosen"],
)
def test_a_mask_without_dimensions(function: Callable[..., Tensor]) -> None:
    check(function, torch.randn(BATCH, HEADS, ROWS, WIDTH), torch.tensor(0.5))


def test_a_number_of_another_type_that_hides_scores() -> None:
    mask = torch.rand(ROWS, ROWS) < 0.5
    mask[3] = True
    check(
        lambda x, m: softmax(torch.where(m, x @ x.mT, torch.full((), -1e6, dtype=torch.float16))) @ x,
        torch.randn(BATCH, ROWS, WIDTH),
        mask,
    )


def test_queries_of_integers_with_a_factor() -> None:
    check(lambda q, k: softmax((q * 0.25) @ k.mT) @ k, torch.randint(-3, 4, (2, 3, 9, 16)), torch.randn(2, 3, 9, 16))


def test_doubles_stay_doubles_under_autocast() -> None:
    x = torch.randn(2, 3, 40, 32, dtype=torch.float64)
    compiled, _ = compile_counted(lambda x: F.scaled_dot_product_attention(x, x, x, dropout_p=0.3))
    with torch.autocast("cpu", torch.bfloat16):
        assert compiled(x).dtype == torch.float64


class Layer(nn.Module):
    """A layer and what follows it; passes run where there are weights."""

    def __init__(self, layer: nn.Module, after: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.layer, self.after = layer, after

    def forward(self, x: Tensor) -> Tensor:
        return self.after(self.layer(x))


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32])
def test_integers_between_bounds_that_are_floats(dtype: torch.dtype) -> None:
    model = Layer(nn.Identity(), lambda x: torch.clamp(torch.clamp(x, min=0.5), max=2.5))
    model.register_parameter("weight", nn.Parameter(torch.randn(3)))
    function = model.forward
    check(lambda x: function(x) + model.weight.sum() * 0, torch.randint(-5, 5, (64,)).to(dtype))


def test_a_multiple_of_0_is_nan_for_infinity() -> None:
    model = Layer(nn.Linear(4, 4), lambda x: torch.maximum(x, x * 0))
    with torch.no_grad():
        model.layer.weight.fill_(math.inf)
    check(model, torch.rand(8, 4) + 1)


@pytest.mark.parametrize("bounds", [(5.0, 1.0), (math.nan, 1.0)])
def test_bounds_that_nothing_lies_between(bounds: tuple[float, float]) -> None:
    check(Layer(nn.Conv2d(8, 8, 3), lambda y: torch.clamp(y, *bounds)), torch.randn(2, 8, 9, 9))


@pytest.mark.parametrize("after", [lambda y: y * 2, lambda y: y + (2**24 + 1)])
def test_a_product_of_integers_keeps_all_digits(after: Callable[[Tensor], Tensor]) -> None:
    weight = torch.randint(2**24, 2**30, (16, 24)) | 1
    model = Layer(nn.Identity(), lambda x: x)
    model.register_buffer("weight", weight)
    check(lambda x: after(x @ model.weight), torch.randint(-9, 9, (5, 16)), rtol=0, atol=0)


def test_a_number_added_to_a_layer_of_doubles_keeps_all_digits() -> None:
    model = Layer(nn.Linear(16, 24, bias=False).double(), lambda y: y + 0.1)
    check(model, torch.randn(5, 16, dtype=torch.float64), rtol=1e-14, atol=1e-14)


def test_a_small_factor_after_a_convolution_of_f16() -> None:
    model, x = Layer(nn.Conv2d(16, 16, 3), lambda y: y * 1e-6), torch.randn(2, 16, 8, 8) * 1000
    compiled, _ = compile_counted(model)
    with torch.no_grad(), torch.autocast("cpu", torch.float16):
        result = compiled(x)
    with torch.no_grad():
        exact = model(x)
    assert (result - exact).norm() <= 2e-3 * exact.norm()


def test_a_divisor_of_0() -> None:
    class Divided(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.divisor = nn.Linear(8, 4), nn.Parameter(torch.tensor([1.0, 2.0, 0.0, 3.0]))
            with torch.no_grad():
                self.layer.weight[2, 3] = 0

        def forward(self, x: Tensor) -> Tensor:
            return self.layer(x) / self.divisor

    check(Divided(), torch.randn(5, 8))


@pytest.mark.parametrize(
    "after",
    [
        lambda y: torch.view_as_complex(y.view(2, 8, 8, 4, 2)),
        lambda y: torch.view_as_complex((y * 2).contiguous().view(2, 8, 8, 4, 2)),
        lambda y: y.view(torch.int16),
    ],
    ids=["complex", "complex of a copy", "other bits"],
)
def test_views_that_only_some_strides_allow(after: Callable[[Tensor], Tensor]) -> None:
    model = Layer(nn.Conv2d(8, 8, 3, padding=1), lambda y: after(y.round()))
    check(model, torch.randn(2, 8, 8, 8))


class Joined(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(16, 3), nn.Linear(16, 4)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.a(x), torch.view_as_complex(self.b(x).view(8, 2, 2))


def test_a_view_as_complex_of_one_of_two_joined_linears() -> None:
    check(Joined(), torch.randn(8, 16))


def test_an_operator_of_the_program_runs_at_every_call() -> None:
    calls = []

    @torch.library.custom_op("icpu_tests::counted", mutates_args=())
    def counted(x: Tensor) -> Tensor:
        calls.append(1)
        return x.clone()

    @counted.register_fake
    def _(x: Tensor) -> Tensor:
        return torch.empty_like(x)

    layer = nn.Linear(8, 8)
    compiled, _ = compile_counted(lambda x: x @ torch.ops.icpu_tests.counted(layer.weight))
    with torch.no_grad():
        for _ in range(3):
            compiled(torch.randn(2, 8))
    assert len(calls) == 3


def quantized(x: Tensor, low: int = -128, high: int = 127) -> Tensor:
    scale, zero = QUANTIZED.choose_qparams.tensor(x, low, high, 1e-5, torch.int8)
    numbers = QUANTIZED.quantize_per_tensor.tensor(x, scale, zero, low, high, torch.int8)
    return QUANTIZED.dequantize_per_tensor.tensor(numbers, scale, zero, low, high, torch.int8)


class Dynamic(nn.Module):
    """A linear whose input is quantized by its own range."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("weight", torch.randint(-127, 128, (48, 64), dtype=torch.int8))
        self.register_buffer("scales", torch.rand(48) / 100)
        self.register_buffer("zeros", torch.zeros(48, dtype=torch.int64))

    def forward(self, x: Tensor) -> Tensor:
        weight = QUANTIZED.dequantize_per_channel(self.weight, self.scales, self.zeros, 0, -128, 127, torch.int8)
        return F.linear(quantized(x), weight)


def test_scales_that_are_doubles_give_floats() -> None:
    check(Dynamic(), torch.randn(9, 64), rtol=1e-4, atol=1e-4)


def test_more_products_than_a_number_of_32_bits_holds() -> None:
    depth = 70000

    class Deep(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("weight", torch.full((16, depth), 127, dtype=torch.int8))

        def forward(self, x: Tensor) -> Tensor:
            weight = QUANTIZED.dequantize_per_tensor(self.weight, 0.01, 0, -128, 127, torch.int8)
            numbers = QUANTIZED.quantize_per_tensor(x, 0.01, 0, 0, 255, torch.uint8)
            return F.linear(QUANTIZED.dequantize_per_tensor(numbers, 0.01, 0, 0, 255, torch.uint8), weight)

    check(Deep(), torch.full((4, depth), 9.0))


@pytest.mark.parametrize("change", [lambda q: q, lambda q: q[:, 1:5], lambda q: q.t()], ids=["all", "part", "turned"])
def test_bytes_that_are_kept_share_no_memory(change: Callable[[Tensor], Tensor]) -> None:
    layer = nn.Linear(8, 8)

    def function(q: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        floats = change(QUANTIZED.dequantize_per_tensor(q, 0.1, 0, -128, 127, torch.int8))
        result, y = QUANTIZED.quantize_per_tensor(floats, 0.1, 0, -128, 127, torch.int8), layer(x)
        q.add_(1)
        return result, y

    compiled, _ = compile_counted(function)
    q, x = torch.randint(-9, 9, (4, 8), dtype=torch.int8), torch.randn(3, 8)
    mine, own = q.clone(), q.clone()
    with torch.no_grad():
        (result, _), (wanted, _) = compiled(mine, x), function(own, x)
    assert torch.equal(result, wanted)
    assert result.stride() == wanted.stride()
    assert torch.equal(mine, own)
    assert result.untyped_storage().data_ptr() != mine.untyped_storage().data_ptr()


def test_a_product_of_depth_1_lies_as_in_eager_mode() -> None:
    x, w = torch.randn(3, 5, 4).permute(2, 1, 0)[:, :, :1], torch.randn(7, 4).t().unsqueeze(1)
    compiled, _ = compile_counted(lambda x, w: (torch.bmm(x, w), torch.as_strided(torch.bmm(x, w), (4, 5), (35, 1), 3)))
    for result, wanted in zip(
        compiled(x, w), (torch.bmm(x, w), torch.bmm(x, w).as_strided((4, 5), (35, 1), 3)), strict=True
    ):
        assert result.stride() == wanted.stride()
        torch.testing.assert_close(result, wanted)


def test_a_negative_axis_of_scales() -> None:
    import torch.ao.quantization.fx._decomposed  # noqa: PLC0415

    def function(w: Tensor, s: Tensor, z: Tensor) -> Tensor:
        return QUANTIZED.dequantize_per_channel(w, s, z, -1, -128, 127, torch.int8) * 1.5

    check(function, torch.randint(-127, 127, (24, 16), dtype=torch.int8), torch.rand(16), torch.zeros(16).long())


def test_constants_of_doubles_that_are_only_nearly_those_of_gelu() -> None:
    check(
        lambda x: 0.5 * x * (1 + torch.erf(x * 0.70710678)),
        torch.randn(64, dtype=torch.float64),
        rtol=1e-14,
        atol=1e-15,
    )
