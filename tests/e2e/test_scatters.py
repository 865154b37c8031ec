"""Scatters from end to end, on every instruction set: cache writes, gradients of embeddings, sums by index."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from inductor_cpu import config
from inductor_cpu.targets.cpu import target_for
from tests.e2e.support import Function, assert_same, compile_counted

Tensor = torch.Tensor


@pytest.fixture(params=[0, 256, None], ids=["scalar", "256", "widest"])
def simdlen(request: pytest.FixtureRequest) -> Iterator[int | None]:
    with config.patch({"cpp.simdlen": request.param}):
        yield request.param


@pytest.fixture
def threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(4)
    yield
    torch.set_num_threads(before)


def check(function: Function, *args: Any, dynamic: bool | None = None) -> None:
    """Bit-equal to eager (the numbers are such that sums are exact), in kernels alone, all of them vectorized."""
    compiled, reports = compile_counted(function, dynamic=dynamic)
    ours, theirs = copy.deepcopy(args), copy.deepcopy(args)
    expected = function(*theirs)
    assert_same(compiled(*ours), expected, rtol=0, atol=0)
    assert_same(ours, theirs, rtol=0, atol=0)
    wanted = target_for(config.snapshot().cpp.simdlen).isa.bits > 64
    kernels = [kernel for report in reports for kernel in report.kernels]
    assert kernels
    assert [kernel for kernel in kernels if kernel.vectorized != wanted] == []
    assert [extern for report in reports for extern in report.externs] == []


def whole(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randint(-8, 9, shape).to(dtype)


def write_cache(cache: Tensor, places: Tensor, new: Tensor) -> Tensor:
    cache.index_copy_(2, places, new)
    return cache[:, :, : 3 + new.shape[2]] * 2


def test_a_cache_is_written_at_positions_that_are_data(simdlen: int | None) -> None:
    check(write_cache, whole(2, 3, 12, 40), torch.tensor([5, 6]), whole(2, 3, 2, 40))


def put(x: Tensor, places: Tensor, new: Tensor) -> tuple[Tensor, Tensor]:
    return x.index_put((places,), new), x.index_put((places,), new, accumulate=True)


def test_rows_are_put_and_added_at_positions_that_repeat_and_count_from_the_end(simdlen: int | None) -> None:
    same = whole(1, 21).expand(5, 21).contiguous()  # which of two equal rows comes last is not defined
    check(put, whole(7, 21), torch.tensor([3, -1, 3, 0, 6]), same)


def embedding_gradient(table: Tensor, places: Tensor, weights: Tensor) -> Any:
    return torch.autograd.grad((F.embedding(places, table, padding_idx=2) * weights).sum(), table)


def test_gradients_of_an_embedding_are_summed(simdlen: int | None) -> None:
    places = torch.randint(0, 9, (4, 30))
    with torch.enable_grad():
        compiled, reports = compile_counted(embedding_gradient)
        args = whole(9, 48).requires_grad_(), places, whole(4, 30, 48)
        assert_same(compiled(*args), embedding_gradient(*args), rtol=0, atol=0)
    assert [kernel.name for report in reports for kernel in report.kernels if kernel.vectorized == (simdlen == 0)] == []


def add_rows(x: Tensor, places: Tensor, rows: Tensor) -> Tensor:
    return x.index_add(0, places, rows)


@pytest.mark.parametrize("columns", [64, 50])
def test_threads_add_rows_that_meet(columns: int, threads: None) -> None:
    check(add_rows, whole(11, columns), torch.randint(0, 11, (3000,)), whole(3000, columns))


def test_threads_add_elements_that_meet_in_their_own_rows(threads: None) -> None:
    def function(x: Tensor, places: Tensor, values: Tensor) -> Tensor:
        return x.scatter_add(1, places, values)

    check(function, whole(64, 20), torch.randint(0, 20, (64, 3000)), whole(64, 3000))


def add_elements(x: Tensor, places: Tensor, values: Tensor) -> Tensor:
    return x.scatter_add(0, places, values)


def set_elements(x: Tensor, places: Tensor, values: Tensor) -> Tensor:
    return x.scatter(0, places, values)


def put_elements(x: Tensor, places: Tensor, values: Tensor) -> Tensor:
    return x.index_put((places - x.shape[0] // 2,), values, accumulate=True)


def add_where_it_lies(x: Tensor, places: Tensor, values: Tensor) -> Tensor:
    return x.scatter_add_(0, places, values)


#: Few elements are added up in pieces; many lie in no cache, and have owners.
FEW, MANY = 100, 2_000_000


def test_any_number_of_threads_writes_the_same(threads: None) -> None:
    writes = [
        (add_elements, FEW, torch.float32),
        (add_elements, FEW, torch.bfloat16),
        (add_elements, MANY, torch.float32),
        (add_elements, MANY, torch.int64),
        (set_elements, MANY, torch.bfloat16),
        (put_elements, FEW, torch.int64),
        (put_elements, MANY, torch.float32),
        (add_where_it_lies, FEW, torch.float32),
        (add_where_it_lies, MANY, torch.float32),
    ]
    inputs = []
    for number, (function, elements, dtype) in enumerate(writes):
        points = 50_003 + number  # so that no loop serves two of them
        x, values = (torch.randn(n).mul(100).to(dtype) for n in (elements, points))
        places = torch.randint(0, elements, (points,))
        if function is set_elements:
            values = places.to(dtype)  # which of two values comes last is not defined
        inputs.append((x, places, values))
    compiled, _ = compile_counted(
        lambda inputs: [function(*args) for (function, *_), args in zip(writes, inputs, strict=True)]
    )
    found = []
    for count in (1, 2, 3):
        torch.set_num_threads(count)
        found.append(compiled(copy.deepcopy(inputs)))
    for (function, _, dtype), (x, places, values), one, *others in zip(writes, inputs, *found, strict=True):
        assert all(torch.equal(one, other) for other in others)
        if not dtype.is_floating_point:
            assert torch.equal(one, function(x.clone(), places, values))
            continue
        exact, terms = (function(f(x.double()), places, f(values.double())) for f in (torch.clone, torch.abs))
        bound = (places.bincount().max() + 1) * torch.finfo(dtype).eps * terms.abs()  # of sums in any order
        assert ((one - exact).abs() <= bound).all()


@pytest.mark.parametrize("elements", [FEW, MANY])
def test_threads_report_a_position_out_of_range(elements: int, threads: None) -> None:
    places = torch.randint(0, elements, (50_003,))
    args = torch.zeros(elements), places, torch.ones(50_003)
    compiled, _ = compile_counted(add_elements)
    compiled(*args)
    places[40_000] = elements
    with pytest.raises(RuntimeError):
        compiled(*args)


def test_any_number_of_elements_is_added_by_threads(threads: None) -> None:
    compiled, _ = compile_counted(add_elements, dynamic=True)
    for points, elements in ((40_000, 30), (50_000, MANY), (7, 5), (0, 3)):
        args = whole(elements), torch.randint(0, elements, (points,)), whole(points)
        assert_same(compiled(*args), add_elements(*args), rtol=0, atol=0)


def test_any_number_of_rows_is_added(simdlen: int | None) -> None:
    compiled, _ = compile_counted(add_rows, dynamic=True)
    for rows, columns in ((5, 19), (31, 64), (0, 7), (3, 1)):
        args = whole(6, columns), torch.randint(0, 6, (rows,)), whole(rows, columns)
        assert_same(compiled(*args), add_rows(*args), rtol=0, atol=0)


def test_nan_stays_in_its_row() -> None:
    rows = whole(4, 33)
    rows[1, 5] = float("nan")
    check(add_rows, whole(6, 33), torch.tensor([0, 2, 2, 5]), rows)


@pytest.mark.parametrize("function", [write_cache, add_rows, put, embedding_gradient])
def test_a_position_out_of_range_is_the_error_of_eager(function: Function) -> None:
    places = torch.tensor([1, 100])
    args = {
        write_cache: (whole(2, 3, 12, 16), places, whole(2, 3, 2, 16)),
        add_rows: (whole(6, 16), places, whole(2, 16)),
        put: (whole(6, 16), places, whole(2, 16)),
        embedding_gradient: (whole(6, 16).requires_grad_(), places, whole(2, 16)),
    }[function]
    with pytest.raises((IndexError, RuntimeError)) as expected:
        function(*copy.deepcopy(args))
    with pytest.raises(expected.type):
        compile_counted(function)[0](*args)


def test_copy_of_a_value_whose_memory_another_result_takes(simdlen: int | None) -> None:
    """One kernel stores t + d in the place of t, which dies there, and a copy of t for the second scatter."""

    def function(x: Tensor, index: Tensor, more: Tensor, d: Tensor) -> tuple[Tensor, Tensor]:
        t = x.index_add(0, index, more)
        a = (t + d).index_add(0, index, more)
        b = t.scatter_add(0, index, more)
        return a * 2, b * 3

    args = torch.arange(400.0), torch.tensor([1, 5, 99]), torch.arange(3.0), torch.tensor([4.0])
    compiled, _ = compile_counted(function)
    assert_same(compiled(*args), function(*args), rtol=0, atol=0)


@pytest.mark.parametrize(("rows", "places", "padding"), [(3000, (4, 50), -1), (3000, (4, 50), 7), (90, (31,), 7)])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.usefixtures("simdlen", "threads")
def test_gradient_of_a_table_with_few_lookups(
    rows: int, places: tuple[int, ...], padding: int, dtype: torch.dtype
) -> None:
    def gradient(grad: Tensor, indices: Tensor) -> Tensor:
        return torch.ops.aten.embedding_dense_backward(grad, indices, rows, padding, False)

    indices = torch.randint(0, 9, places) * (rows // 9)  # every row several times
    indices.view(-1)[::5] = 7
    check(gradient, whole(*places, 37, dtype=dtype), indices)


def test_lookups_outside_of_a_table_have_no_gradient() -> None:
    gradient = torch.compile(
        lambda grad, at: torch.ops.aten.embedding_dense_backward(grad, at, 100, -1, False), backend="icpu"
    )
    with pytest.raises(IndexError):
        gradient(torch.ones(3, 8, dtype=torch.bfloat16), torch.tensor([0, 100, 1]))
