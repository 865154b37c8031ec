"""Products that are over before a library has begun: sums over their depth, fused with what is around them."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from inductor_cpu.trace import CompileReport
from tests.cases import in_turns
from tests.e2e.support import compile_counted

Tensor = torch.Tensor
DTYPES = [torch.float32, torch.bfloat16, torch.float16]


def no_library(reports: list[CompileReport]) -> bool:
    return bool(reports) and not any(report.externs for report in reports)


def check(actual: Tensor, eager: Tensor, exact: Tensor, terms: Tensor, *others: Tensor) -> None:
    """At most one and a half times eager's error, or a rounding of the largest value and one of float32 of the largest
    sum of terms' sizes. terms: these sums. others: eager's results of other layouts, which are as good."""
    assert (actual.dtype, actual.shape, actual.stride()) == (eager.dtype, eager.shape, eager.stride())
    rounding = sum(torch.finfo(t).eps * float(of.abs().max()) for t, of in ((eager.dtype, exact), (torch.float, terms)))
    error, *bounds = (float((value.double() - exact).abs().max()) for value in (actual, eager, *others))
    assert error <= max(1.5 * max(bounds), rounding)


NARROW = ((7, 1, 1), (33, 1, 40), (1000, 64, 1), (5, 770, 1), (20, 3, 50), (20, 50, 3))


@pytest.mark.parametrize(("size", "dtype"), in_turns(NARROW, DTYPES), ids=str)
@torch.no_grad()
def test_a_narrow_linear_is_one_kernel_with_what_follows(size: tuple[int, int, int], dtype: torch.dtype) -> None:
    rows, inner, columns = size
    torch.manual_seed(rows)
    # With a bias and without in turns: each size and each dtype has both.
    bias = (NARROW.index(size) + DTYPES.index(dtype)) % 2 == 0
    linear = nn.Linear(inner, columns, bias=bias)
    model = nn.Sequential(linear, nn.Tanh()).to(dtype).eval()
    x = torch.randn(2, rows, inner, dtype=dtype)
    compiled, reports = compile_counted(model, dynamic=False)
    actual, eager = compiled(x), model(x)
    terms = x.abs().float() @ linear.weight.abs().float().mT
    check(actual, eager, model.double()(x.double()), terms)
    assert no_library(reports)
    assert [len(report.kernels) for report in reports] == [1]


class Gate(nn.Module):
    """Squeeze and excite: a factor for each channel, of the means of all."""

    def __init__(self, channels: int, squeezed: int) -> None:
        super().__init__()
        self.squeeze, self.norm = nn.Conv2d(channels, squeezed, 1), nn.BatchNorm2d(squeezed)
        self.excite = nn.Conv2d(squeezed, channels, 1, bias=False)
        nn.init.normal_(self.norm.running_mean, 0, 0.1)
        nn.init.uniform_(self.norm.running_var, 0.5, 1.5)
        nn.init.normal_(self.norm.bias)

    def forward(self, x: Tensor) -> Tensor:
        gate = nn.functional.silu(self.norm(self.squeeze(x.mean((2, 3), keepdim=True))))
        return x * self.excite(gate).sigmoid()


@pytest.mark.parametrize(("batch", "dtype"), in_turns([1, 3], [torch.float32, torch.bfloat16]), ids=str)
@torch.no_grad()
def test_a_gate_over_few_channels_calls_no_library(batch: int, dtype: torch.dtype) -> None:
    torch.manual_seed(batch)
    gate, x = Gate(96, 4).to(dtype).eval(), torch.randn(batch, 96, 7, 9, dtype=dtype)
    compiled, reports = compile_counted(gate, dynamic=False)
    actual, eager = compiled(x), gate(x)
    check(actual, eager, gate.double()(x.double()), x.abs().float())
    assert no_library(reports)


SINGLE_PIXELS = [
    (nn.Conv2d(8, 24, 1, bias=False), 0),
    (nn.Conv2d(8, 24, 1, stride=2), 1),
    (nn.Conv2d(8, 24, 1, padding=1), 1),
    (nn.Conv2d(70, 1, 1), 0),
    (nn.Conv2d(1, 24, 1), 0),
    (nn.Conv2d(64, 8, 3), 1),
]


@torch.no_grad()
def test_single_pixels_of_few_channels_are_loops_where_none_is_left_out_or_added() -> None:
    """A convolution is a call of oneDNN where it has strides, pixels outside of the image, or larger windows."""
    torch.manual_seed(0)
    counts = []
    for conv, _ in SINGLE_PIXELS:
        model, x = nn.Sequential(conv, nn.Flatten()).eval(), torch.randn(2, conv.in_channels, 9, 7)
        compiled, reports = compile_counted(model, dynamic=False)
        actual, eager = compiled(x), model(x)
        terms = nn.functional.conv2d(x.abs(), conv.weight.abs(), None, conv.stride, conv.padding).flatten(1)
        # oneDNN sums up 64 channels with another kernel where channels are last: four times the error of the first.
        channels_last = model.to(memory_format=torch.channels_last)(x.to(memory_format=torch.channels_last))
        check(actual, eager, model.double()(x.double()), terms, channels_last)
        counts.append(sum(len(report.externs) for report in reports))
    assert counts == [calls for _, calls in SINGLE_PIXELS]


@torch.no_grad()
def test_a_narrow_weight_that_changes_is_read_again() -> None:
    model, x = nn.Linear(20, 3).eval(), torch.randn(9, 20)
    compiled, reports = compile_counted(model)
    for _ in range(2):
        torch.testing.assert_close(compiled(x), model(x))
        model.weight.mul_(-3)
    assert no_library(reports)


@torch.no_grad()
def test_a_narrow_linear_takes_any_number_of_rows() -> None:
    model = nn.Linear(1, 30).eval()
    compiled, reports = compile_counted(model, dynamic=True)
    for rows in (5, 1, 300):
        x = torch.randn(rows, 1)
        torch.testing.assert_close(compiled(x), model(x))
    assert no_library(reports)


#: batch, rows, depth, columns, and whether the second operand lies transposed.
SMALL = (
    (300, 3, 3, 1, False),
    (300, 3, 3, 1, True),
    (300, 1, 3, 3, True),
    (200, 4, 4, 4, False),
    (200, 4, 4, 4, True),
    (50, 8, 8, 8, False),
    (3, 40, 1, 50, True),
    (8, 1, 30, 20, False),
    (8, 1, 30, 20, True),
)


@pytest.mark.parametrize(("size", "dtype"), in_turns(SMALL, DTYPES), ids=str)
def test_a_batch_of_small_matrices_calls_no_library(size: tuple[int, int, int, int, bool], dtype: torch.dtype) -> None:
    batch, rows, depth, columns, transposed = size
    torch.manual_seed(0)
    a, b, c = (torch.randn(batch, *sizes) for sizes in ((rows, depth), (columns, depth), (rows, columns)))
    b = b.mT if transposed else b.mT.contiguous()
    a, b, c = a.to(dtype), b.to(dtype), c.to(dtype)

    def function(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
        return torch.baddbmm(c, a, b, beta=0.5, alpha=-2) + torch.bmm(a, b).relu()

    compiled, reports = compile_counted(function, dynamic=False)
    exact, terms = function(a.double(), b.double(), c.double()), 3 * torch.bmm(a.abs().float(), b.abs().float())
    check(compiled(a, b, c), function(a, b, c), exact, terms)
    assert no_library(reports)


def test_gradients_of_a_column_call_no_library_for_the_outer_product() -> None:
    torch.manual_seed(0)
    model, x = nn.Linear(200, 1), torch.randn(64, 200, requires_grad=True)
    compiled, reports = compile_counted(model)
    (expected,) = torch.autograd.grad(model(x).tanh().sum(), x)
    (found,) = torch.autograd.grad(compiled(x).tanh().sum(), x)
    torch.testing.assert_close(found, expected)
    assert no_library(reports)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_special_values_meet_zeros_as_in_eager_mode(value: float) -> None:
    a, b = torch.zeros(5, 6), torch.ones(6, 4)
    a[1, 2], b[3] = value, 0.0
    a[2, 3] = value
    compiled, reports = compile_counted(torch.mm)
    torch.testing.assert_close(compiled(a, b), torch.mm(a, b), equal_nan=True)
    assert no_library(reports)
