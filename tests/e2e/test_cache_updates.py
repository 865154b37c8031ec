"""Caches that a program updates: a few rows are written in place, and nobody sees anything but what eager shows."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch

from tests.cases import cases, in_turns
from tests.e2e.support import Function, assert_same, compile_counted

Tensor = torch.Tensor


def run(function: Function, *args: Any, dynamic: bool | None = None) -> tuple[Any, tuple[Any, ...], list[str]]:
    """(result, arguments after the call, names of kernels) of the compiled function, which are those of eager."""
    compiled, reports = compile_counted(function, dynamic=dynamic)
    ours, theirs = copy.deepcopy(args), copy.deepcopy(args)
    result = compiled(*ours)
    assert_same((result, ours), (function(*theirs), theirs), rtol=0, atol=0)
    return result, ours, [kernel.name for report in reports for kernel in report.kernels]


def cache() -> Tensor:
    return torch.randn(2, 3, 12, 8)


PLACES = torch.tensor([4, 5])
NEW = torch.randn(2, 3, 2, 8, generator=torch.Generator().manual_seed(0))


def by_index(x: Tensor, places: Tensor, new: Tensor) -> None:
    x.index_copy_(2, places, new)


def by_put(x: Tensor, places: Tensor, new: Tensor) -> None:
    x[:, :, places] = new


def by_slice(x: Tensor, places: Tensor, new: Tensor) -> None:
    x[:, :, 4:6] = new


def by_steps(x: Tensor, places: Tensor, new: Tensor) -> None:
    x[:, :, 1:8:4] = new


def by_place(x: Tensor, places: Tensor, new: Tensor) -> None:
    x[:, :, 4] = new[:, :, 0]


def by_place_in_a_row(x: Tensor, places: Tensor, new: Tensor) -> None:
    x[1, 2, 3, 4] = new[0, 0, 0, 0]


def on_a_diagonal(x: Tensor, places: Tensor, new: Tensor) -> None:
    x.diagonal(-1, 2, 1).copy_(new.flatten()[:3])


def above_a_diagonal(x: Tensor, places: Tensor, new: Tensor) -> None:
    x.diagonal(2, -2, -1).fill_(3.5)


def by_scatter(x: Tensor, places: Tensor, new: Tensor) -> None:
    x.scatter_(2, places[:, None].expand(2, 3, 2, 8), new)


def by_scattered_number(x: Tensor, places: Tensor, new: Tensor) -> None:
    x.scatter_(3, places.expand(2, 3, 12, 2), 3)


def by_one_place_of_each_row(x: Tensor, places: Tensor, new: Tensor) -> None:
    x.scatter_(3, places[:1].expand(2, 3, 12, 1), 1.5)


def by_scattered_sum(x: Tensor, places: Tensor, new: Tensor) -> None:
    x.scatter_add_(2, places[:1, None].expand(2, 3, 2, 8), new)


def by_sum_at_one_place_of_each_row(x: Tensor, places: Tensor, new: Tensor) -> None:
    x.scatter_reduce_(2, places[:1, None].expand(2, 3, 1, 8), new, "sum")


def by_scattered_sum_of_numbers(x: Tensor, places: Tensor, new: Tensor) -> None:
    x.scatter_(2, places[:1, None].expand(2, 3, 2, 8), 2, reduce="add")


def by_whole_slice(x: Tensor, places: Tensor, new: Tensor) -> None:
    x[1][:2, 4:6] = new[0, :2]


SCATTERS = [
    by_scatter,
    by_scattered_number,
    by_one_place_of_each_row,
    by_scattered_sum,
    by_sum_at_one_place_of_each_row,
    by_scattered_sum_of_numbers,
]
VIEWS = [by_place, on_a_diagonal, above_a_diagonal]


UPDATES = [by_index, by_put, by_slice, by_steps, *SCATTERS, *VIEWS]
DYNAMIC = [by_index, by_put, by_slice, by_steps, by_scatter, by_scattered_sum, by_place]


@pytest.mark.parametrize(
    ("update", "dynamic"),
    cases(
        [*((update, None) for update in UPDATES), *((update, True) for update in DYNAMIC)],
        [(update, True) for update in UPDATES if update not in DYNAMIC],
    ),
)
def test_an_update_is_one_kernel(update: Function, dynamic: bool | None) -> None:
    _, _, names = run(update, cache(), PLACES, NEW, dynamic=dynamic)
    # With sizes that are not known torch puts into a slice, and that into a slice of the cache.
    assert len(names) == 1 or (update is by_put and dynamic)


@pytest.mark.parametrize(("update", "dynamic"), in_turns([by_place_in_a_row, by_whole_slice], [None, True]))
def test_an_update_of_a_view_of_a_view_copies_the_view_only(update: Function, dynamic: bool | None) -> None:
    run(update, cache(), PLACES, NEW, dynamic=dynamic)


@pytest.mark.parametrize(("update", "dtype"), in_turns(SCATTERS, [torch.bfloat16, torch.int64]))
def test_scatters_into_other_dtypes(update: Function, dtype: torch.dtype) -> None:
    run(update, (cache() * 50).to(dtype), PLACES, (NEW * 50).to(dtype))


def test_a_sum_that_leaves_the_old_values_out() -> None:
    def function(x: Tensor, places: Tensor, new: Tensor) -> None:
        x.scatter_reduce_(2, (places[:, None] // 3).expand(2, 3, 2, 8), new, "sum", include_self=False)

    run(function, cache(), PLACES, NEW)


def test_what_follows_reads_the_update() -> None:
    def function(x: Tensor, places: Tensor, new: Tensor) -> tuple[Tensor, Tensor]:
        before = x.sum()
        x.index_copy_(2, places, new * 2)
        return x.sum(3) + before, (x @ x.transpose(2, 3)).softmax(-1)

    x, places = cache(), PLACES
    compiled, _ = compile_counted(function)
    ours, theirs = x.clone(), x.clone()
    assert_same(compiled(ours, places, NEW), function(theirs, places, NEW), rtol=1e-5, atol=1e-5)
    assert_same(ours, theirs, rtol=0, atol=0)


def test_a_result_is_no_view_of_the_cache() -> None:
    def function(x: Tensor, places: Tensor, new: Tensor) -> tuple[Tensor, Tensor]:
        y = x.index_copy(2, places, new)
        x.copy_(y)
        return y, y[:, 1]

    (whole, part), (x, *_), _ = run(function, cache(), PLACES, NEW)
    kept = whole.clone(), part.clone()
    x.zero_()
    assert torch.equal(whole, kept[0])
    assert torch.equal(part, kept[1])


def test_the_cache_itself_is_returned_as_itself() -> None:
    def function(x: Tensor, places: Tensor, new: Tensor) -> Tensor:
        return x.index_copy_(2, places, new)

    x = cache()
    assert compile_counted(function)[0](x, PLACES, NEW) is x


def test_a_cache_that_a_module_sets_again_is_not_copied() -> None:
    class Layer(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cache = cache()

        def forward(self, new: Tensor) -> Tensor:
            self.cache = self.cache.to(new)
            self.cache[:, :, 4:6] = new
            return new + 1

    layer = Layer()
    kept, expected = layer.cache, layer.cache.clone()
    expected[:, :, 4:6] = NEW
    with torch.no_grad():
        compiled, reports = compile_counted(layer)
        compiled(NEW)
    assert layer.cache is kept
    assert_same(kept, expected, rtol=0, atol=0)
    assert sum(len(report.kernels) for report in reports) == 1  # the sum and the update


def test_rows_that_are_read_and_written_are_read_first() -> None:
    def function(x: Tensor, places: Tensor) -> None:
        x.index_copy_(2, places, x[:, :, 3:5] * 2)

    run(function, cache(), PLACES)


def test_a_cache_whose_old_rows_are_needed_later_is_copied() -> None:
    def function(x: Tensor, places: Tensor, new: Tensor) -> Tensor:
        y = x.index_copy(2, places, new)
        difference = y - x
        x.copy_(y)
        return difference

    run(function, cache(), PLACES, NEW)


def test_one_update_after_another() -> None:
    def function(x: Tensor, places: Tensor, new: Tensor) -> Tensor:
        x.index_copy_(2, places, new)
        x.index_add_(2, places, new)
        x[:, :, 0:2] = new
        return x * 1

    run(function, cache(), PLACES, NEW)


@pytest.mark.parametrize("update", [by_index, by_put, by_scatter])
def test_a_position_out_of_range_writes_no_other_row(update: Function) -> None:
    x = cache()
    expected = x.clone()
    with pytest.raises(RuntimeError if update is by_scatter else IndexError, match=r"out of (range|bounds)"):
        compile_counted(update)[0](x, torch.tensor([5, 40]), NEW)
    expected[:, :, 5] = NEW[:, :, 0]
    assert torch.equal(x, expected)


def test_caches_with_strides_of_their_own() -> None:
    run(by_index, torch.randn(2, 12, 3, 8).transpose(1, 2), PLACES, NEW)
    run(by_slice, torch.randn(12, 2, 3, 8).permute(1, 2, 0, 3), PLACES, NEW)


def test_training_through_an_update() -> None:
    def function(x: Tensor, places: Tensor, new: Tensor) -> Tensor:
        x.index_copy_(2, places, new.detach())
        return (x * new.sum()).sum()

    new = NEW.clone().requires_grad_()
    compiled, _ = compile_counted(function)
    ours, theirs = cache(), cache()
    theirs.copy_(ours)
    found = torch.autograd.grad(compiled(ours, PLACES, new), new)
    assert_same(found, torch.autograd.grad(function(theirs, PLACES, new), new), rtol=1e-5, atol=1e-5)
    assert_same(ours, theirs, rtol=0, atol=0)


@pytest.mark.parametrize("threads", [1, 2, 32])
@pytest.mark.parametrize(
    ("what", "rows"), in_turns(["residual", "product", "shifted", "convolution", "batch"], [64, 300])
)
def test_a_product_whose_operand_the_graph_changes(what: str, rows: int, threads: int) -> None:
    """Its blocks are multiplied one after the other, by several threads: none may find the operand changed."""
    weight, kernel = torch.randn(128, 128) / 11, torch.randn(32, 32, 3, 3) / 17

    def residual(x: Tensor) -> Tensor:
        return x.add_(torch.nn.functional.linear(x, weight))

    def product(x: Tensor) -> Tensor:
        return x.copy_(torch.tanh(x @ weight))

    def shifted(x: Tensor) -> Tensor:
        x[1:] = torch.nn.functional.linear(x[:-1], weight)
        return x

    def convolution(x: Tensor) -> Tensor:
        return x.add_(torch.nn.functional.conv2d(x, kernel.bfloat16(), padding=1))

    def batch(x: Tensor) -> Tensor:
        return x.copy_(torch.bmm(x, weight.expand(2, 128, 128)))

    inputs = {
        "convolution": torch.randn(2, 32, 24, 24).bfloat16().to(memory_format=torch.channels_last),
        "batch": torch.randn(2, rows, 128),
    }
    x = inputs.get(what, torch.randn(rows, 128))
    function, before = locals()[what], torch.get_num_threads()
    mine, eager = x.clone(), x.clone()
    try:
        torch.set_num_threads(threads)
        with torch.no_grad():
            compile_counted(function)[0](mine)
    finally:
        torch.set_num_threads(before)
    function(eager)
    tolerance = 0.05 if what == "convolution" else 1e-4
    torch.testing.assert_close(mine, eager, rtol=tolerance, atol=tolerance)
