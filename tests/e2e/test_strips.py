"""Kernels in turns, a piece at a time: the numbers are those of whole kernels, with any number of threads."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import inductor_cpu
from tests.cases import cases
from tests.codegen.harness import BITS, VECTORS, available
from tests.e2e.support import assert_like_eager


@pytest.fixture(params=[1, 2])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


def layer_norm_gradients(x: torch.Tensor, weight: torch.Tensor, g: torch.Tensor) -> tuple[torch.Tensor, ...]:
    mean, rstd = x.mean(-1, keepdim=True), (x.var(-1, keepdim=True, correction=0) + 1e-5).rsqrt()
    return torch.ops.aten.native_layer_norm_backward(g, x, [512], mean, rstd, weight, weight, [True, True, True])


def embedding_gradients(grad: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    """Row 5 is padding."""
    return torch.ops.aten.embedding_dense_backward(grad, index, 4001, 5, False)


def points(rows: int = 4001) -> torch.Tensor:
    """Most of them are a few rows, as most words of a text are."""
    return torch.cat([torch.randint(0, rows, (1000,)), torch.randint(3, 9, (2000,)), torch.tensor([0, rows - 1])])


CASES: dict[str, tuple[Callable[..., Any], Callable[[], tuple[torch.Tensor, ...]]]] = {
    "pooling": (lambda x: F.adaptive_avg_pool2d(x, 7), lambda: (torch.randn(7, 300, 28, 28),)),
    "the last piece is short": (lambda x: F.avg_pool2d(x, 4), lambda: (torch.randn(3, 333, 36, 36),)),
    "rows and columns": (lambda x: (x.softmax(-1), x.sum(0)), lambda: (torch.randn(2048, 512),)),
    "rows at positions that are data": (embedding_gradients, lambda: (torch.randn(3002, 136), points())),
    "rows of bf16": (embedding_gradients, lambda: (torch.randint(-1, 2, (3002, 136)).bfloat16(), points())),
    "rows added to others": (
        lambda x, places, y: (x + 1).index_add(0, places, y).relu(),
        lambda: (torch.randn(4001, 136), points(), torch.randn(3002, 136)),
    ),
    "layer norm": (layer_norm_gradients, lambda: (torch.randn(1536, 512), torch.randn(512), torch.randn(1536, 512))),
}


#: (instruction set, case) and threads. The widest vectors, for which pieces are meant, have all cases in every run,
#: others a third of them.
RUNS = [(case, threads) for case in product(available(), CASES) for threads in (1, 2)]
ALWAYS = [
    (case, 1 + number % 2)
    for number, case in enumerate(product(available(), CASES))
    if case[0] == available()[-1] or number % 3 == 0
]


@pytest.mark.parametrize(
    ("case", "threads"),
    cases(ALWAYS, [run for run in RUNS if run not in ALWAYS]),
    indirect=["threads"],
    ids=str,
)
def test_pieces_give_eager_s_numbers(case: tuple[str, str], threads: int, tmp_path: Path) -> None:
    torch.manual_seed(0)
    isa, name = case
    function, inputs = CASES[name]
    with inductor_cpu.config.patch({"cpp.simdlen": BITS[isa], "dump": str(tmp_path)}):
        assert_like_eager(function, *inputs(), rtol=1e-4, atol=2e-4)
    (schedule,) = tmp_path.glob("*/02_schedule.txt")
    # All do with the widest vectors. (Of scalar code some do not.)
    assert "strips: " in schedule.read_text() or isa != available()[-1]


class Mlp(nn.Module):
    """Rows normalized, through two linears, and added to themselves."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(64), nn.Linear(64, 256), nn.Linear(256, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(F.gelu(self.up(self.norm(x))))


@torch.no_grad()
@pytest.mark.parametrize("isa", VECTORS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_an_mlp_in_pieces_gives_the_numbers_of_whole_products(
    dtype: torch.dtype, isa: str, threads: int, tmp_path: Path
) -> None:
    """The number of rows is a prime: the last piece is short. The last rows alone begin at a multiple of what any
    kernel multiplies at a time: a kernel may multiply the rows that are left over in another way."""
    torch.manual_seed(0)
    model, rows, first = Mlp().to(dtype), torch.randn(1, 16381, 64).to(dtype), 16256
    with inductor_cpu.config.patch({"cpp.simdlen": BITS[isa], "dump": str(tmp_path)}):
        compiled = torch.compile(model, backend="icpu")
        actual, few = compiled(rows), torch.compile(model, backend="icpu", dynamic=False)(rows[:, first:])
    schedules = [path.read_text() for path in sorted(tmp_path.glob("*/02_schedule.txt"))]
    products = [text.count("product ") for text in schedules]
    if products[0] and "split_f32" not in schedules[0]:  # without micro kernels for the dtype oneDNN multiplies
        assert [text.count("strips: ") for text in schedules] == [1, 0]
        assert "local" in schedules[0]
    exact = copy.deepcopy(model).double()(rows.double())
    error, of_eager = (actual.double() - exact).abs().max(), (model(rows).double() - exact).abs().max()
    assert error <= max(1.5 * of_eager.item(), 2e-6)
    assert torch.equal(actual[:, first:], few) or not products[0]


def test_kernels_that_may_report_an_error_run_alone() -> None:
    """Integers divided by what may be 0, beside reductions of both dimensions."""

    def function(x: torch.Tensor, d: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return (x % d).float().softmax(-1), x.sum(0)

    x, d = torch.randint(0, 99, (2048, 512)), torch.randint(1, 9, (512,))
    assert_like_eager(function, x, d)
    d[300] = 0
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        torch.compile(function, backend="icpu")(x, d)


def test_a_row_out_of_range_is_an_error_in_turns_too(threads: int) -> None:
    grad, index = torch.randn(3002, 136), points(4002)
    with pytest.raises(IndexError):
        torch.compile(embedding_gradients, backend="icpu")(grad, index)


def test_points_of_a_row_are_added_in_their_order(threads: int) -> None:
    """Each of them loses bits, which others in another order would not."""
    grad = 10 ** torch.linspace(-4, 4, 3002)[torch.randperm(3002), None].repeat(1, 136)
    index = points()
    expected = torch.zeros(4001, 136)
    for place, row in zip(index.tolist(), grad, strict=True):
        expected[place] += row
    actual = torch.compile(embedding_gradients, backend="icpu")(grad, index)
    expected[5] = 0
    assert torch.equal(actual, expected)
