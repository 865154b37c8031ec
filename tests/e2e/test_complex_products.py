"""Complex products of pairs of floats: loops of floats, with eager's numbers and strides."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from tests.e2e.support import compile_counted

Tensor = torch.Tensor


def angles(length: int, width: int) -> Tensor:
    """Numbers on the unit circle for each position and pair, as Llama's table has them."""
    turns = torch.outer(torch.arange(length).float(), 10000.0 ** -(torch.arange(width).float() / width))
    return torch.polar(torch.ones_like(turns), turns)


def rotate(x: Tensor, table: Tensor) -> Tensor:
    """The rotary embedding of (batch, positions, heads, values)."""
    pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * table[: x.shape[1]].view(1, x.shape[1], 1, -1)).flatten(3).type_as(x)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@torch.no_grad()
def test_a_rotary_embedding_by_complex_numbers_is_a_loop(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    compiled, reports = compile_counted(rotate, dynamic=False)
    x, table = torch.randn(2, 19, 3, 32).to(dtype), angles(40, 16)
    result, eager = compiled(x, table), rotate(x, table)
    assert (result.dtype, result.stride()) == (eager.dtype, eager.stride())
    rounding = max(torch.finfo(dtype).eps, 1e-6)
    torch.testing.assert_close(result, eager, rtol=rounding, atol=1e-6)
    assert [[extern.op for extern in report.externs] for report in reports] == [["aten.view_as_real.default"]]  # table
    assert [len(report.kernels) for report in reports] == [1]


@torch.no_grad()
def test_the_parts_of_a_table_are_seen_once_for_all_its_readers() -> None:
    torch.manual_seed(0)
    compiled, reports = compile_counted(lambda q, k, table: rotate(q, table) + rotate(k, table[1:].unsqueeze(0)[-1]))
    q, k, table = torch.randn(1, 9, 2, 16), torch.randn(1, 9, 2, 16), angles(20, 8)
    eager = rotate(q, table) + rotate(k, table[1:])
    torch.testing.assert_close(compiled(q, k, table), eager, rtol=1e-6, atol=1e-6)
    assert [report.extern_calls for report in reports] == [1]


def of_two(x: Tensor, y: Tensor) -> Tensor:
    return torch.view_as_real(torch.view_as_complex(x) * torch.view_as_complex(y))


@pytest.mark.parametrize(
    "function",
    [
        of_two,
        lambda x, y: of_two(x.transpose(0, 1), y.transpose(0, 1)),
        lambda x, y: of_two(x.transpose(0, 1), y.transpose(0, 1)).half(),
        lambda x, y: of_two(x.transpose(0, 1), y.transpose(0, 1)).reshape(-1, 8).half().t(),
        lambda x, y: of_two(x[:1], y) + x[..., :1],
        lambda x, y: torch.view_as_real(torch.view_as_complex(x) * torch.view_as_complex(y).conj()),
        lambda x, y: torch.view_as_real((p := torch.view_as_complex(x) * torch.view_as_complex(y)) * p),
        lambda x, y: torch.view_as_real(torch.view_as_complex(x) * 2.0) * y,
    ],
    ids=[
        "two",
        "transposed",
        "cast",
        "merged and cast",
        "broadcast",
        "conjugate",
        "a product of products",
        "by a number",
    ],
)
@pytest.mark.parametrize("dynamic", [False, True])
@torch.no_grad()
def test_complex_products_have_eagers_numbers(function: Callable[..., Tensor], dynamic: bool) -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)
    compiled = torch.compile(function, backend="icpu", dynamic=dynamic)
    for length in (5, 33):
        x, y = torch.randn(4, length, 2), torch.randn(4, length, 2)
        result, eager = compiled(x, y), function(x, y)
        assert result.stride() == eager.stride()
        rounding = max(torch.finfo(eager.dtype).eps, 2e-6)
        torch.testing.assert_close(result, eager, rtol=rounding, atol=2e-6)


def test_gradients_of_complex_products_are_eagers() -> None:
    torch.manual_seed(0)
    compiled = torch.compile(rotate, backend="icpu")
    x, table = torch.randn(2, 7, 3, 16, requires_grad=True), angles(9, 8)
    (eager,) = torch.autograd.grad(rotate(x, table).square().sum(), x)
    (result,) = torch.autograd.grad(compiled(x, table).square().sum(), x)
    torch.testing.assert_close(result, eager, rtol=1e-5, atol=1e-5)
