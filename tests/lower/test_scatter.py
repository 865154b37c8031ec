"""Writes at data-dependent or partial positions."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from inductor_cpu.ir.interpret import run
from inductor_cpu.ir.loop_nest import LoopNest
from inductor_cpu.ir.verify import verify_program
from tests.cases import in_turns
from tests.e2e.support import compile_counted
from tests.lower.harness import check, externs, lower

aten = torch.ops.aten
FLOATS = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
NUMBERS = [*FLOATS, torch.int64, torch.int32, torch.int8, torch.uint8]


def ints(*shape: int, high: int, low: int = 0) -> torch.Tensor:
    return torch.randint(low, high, shape)


def numbers(*shape: int, dtype: torch.dtype) -> torch.Tensor:
    return (torch.randn(shape) * 4).abs().to(dtype)


@pytest.mark.parametrize("dtype", [*NUMBERS, torch.bool], ids=str)
def test_index_put_without_accumulation(dtype: torch.dtype) -> None:
    x = numbers(5, 6, 4, dtype=dtype)
    i, j = torch.tensor([4, -4, 0]), torch.tensor([3, 1, 0])
    check(lambda x, i, v: x.index_put((i,), v), x, i, numbers(3, 6, 4, dtype=dtype))
    check(lambda x, i, v: aten.index_put(x, [None, i], v), x, i, numbers(4, dtype=dtype))
    check(lambda x, i, j, v: aten.index_put(x, [i, None, j], v), x, i, j, numbers(3, 6, dtype=dtype))
    check(lambda x, i, j: x.index_put((i, j), torch.tensor(1, dtype=x.dtype)), x, i, j)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64, torch.int8], ids=str)
def test_index_put_with_accumulation(dtype: torch.dtype) -> None:
    x, i = numbers(5, 6, dtype=dtype), ints(9, high=5)
    check(lambda x, i, v: x.index_put((i,), v, accumulate=True), x, i, numbers(9, 6, dtype=dtype), exact=False)


_PLACES = [
    (lambda x, i, v: x.index_put((i,), v), (4, 6)),
    (lambda x, i, v: x.index_put((i,), v), (3, 5)),
    (lambda x, i, v: x.index_add(0, i, v), (3, 4)),
    (lambda x, i, v: x.index_copy(0, i, v), (3, 1)),
    (lambda x, i, v: x.select_scatter(v, 0, 1), (5,)),
]
_VIEWS = [
    (lambda x, i, v: x.slice_scatter(v, 0, 1, 4), (2, 6)),
    (lambda x, i, v: x.diagonal_scatter(v), (4,)),
]


@pytest.mark.parametrize(
    ("dynamic", "update", "shape"),
    [(dynamic, *case) for dynamic in (False, True) for case in (*_PLACES, *_VIEWS)],
)
def test_values_that_have_other_sizes_than_their_places_are_the_operators_error(
    dynamic: bool, update: Callable[..., torch.Tensor], shape: tuple[int, ...]
) -> None:
    x, i, v = torch.zeros(5, 6), torch.tensor([0, 2, 1]), torch.randn(shape)
    with pytest.raises(RuntimeError):
        update(x, i, v)
    try:
        program = lower(update, x, i, v, dynamic=dynamic)
    except RuntimeError:  # the fake operator looks, too
        return
    assert externs(program)


def test_assignments_and_gradients_of_slices_with_symbolic_sizes_are_loops() -> None:
    """Torch knows that these sources fit, although it writes their sizes in another way."""

    def assigned(x: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        y = x.clone()
        y[1:, 1 : 1 + v.shape[1]] = v
        y[::2] *= 2
        y.diagonal().fill_(3)
        return y

    def gradient(x: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        given = torch.ones(x.shape[0] - 2, v.shape[1])
        return aten.slice_backward(given, [x.shape[0], v.shape[1]], 0, 1, -1, 1)

    for function in (assigned, gradient):
        assert not externs(lower(function, torch.randn(7, 6), torch.randn(6, 3), dynamic=True))


def test_assignment_with_a_mask() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        y = x.clone()
        y[y > 0] = -1.0
        return y

    check(fn, torch.randn(4, 5))


def test_assignment_to_parts() -> None:
    def fn(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        z = x.clone()
        z[1:3, ::2] = y
        z[-1] = 2
        z[:, -1] += 1
        z.diagonal().zero_()
        return z

    check(fn, torch.randn(4, 6), torch.randn(2, 3))
    check(fn, torch.randn(6, 4).t(), torch.randn(3))


def test_assignment_to_parts_of_an_input() -> None:
    def fn(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x[1:3] = y
        return x * 2

    check(fn, torch.randn(4, 6), torch.randn(6))


@pytest.mark.parametrize("dtype", NUMBERS, ids=str)
def test_functional_scatters_into_views(dtype: torch.dtype) -> None:
    x = numbers(5, 6, dtype=dtype)
    check(lambda x, y: aten.slice_scatter(x, y, 1, 1, -1, 2), x, numbers(5, 2, dtype=dtype))
    check(lambda x, y: aten.slice_scatter(x, y, 0, 2), x, numbers(3, 6, dtype=dtype))
    check(lambda x, y: aten.slice_scatter(x, y, 0), x, numbers(5, 6, dtype=dtype))
    check(lambda x, y: aten.select_scatter(x, y, 1, -2), x, numbers(5, dtype=dtype))
    check(lambda x, y: aten.diagonal_scatter(x, y, 2), x, numbers(4, dtype=dtype))
    check(lambda x, y: aten.diagonal_scatter(x, y, -2), x, numbers(3, dtype=dtype))


@pytest.mark.parametrize("dtype", NUMBERS, ids=str)
def test_scatter(dtype: torch.dtype) -> None:
    x = numbers(4, 6, dtype=dtype)
    unique = torch.stack([torch.randperm(6)[:3] for _ in range(4)])
    check(lambda x, i, s: x.scatter(1, i, s), x, unique, numbers(4, 5, dtype=dtype))
    check(lambda x, i: x.scatter(1, i, 7), x, unique)
    check(lambda x, i: x.scatter(0, i, 7), x, ints(2, 6, high=4))


@pytest.mark.parametrize("dtype", NUMBERS, ids=str)
def test_scatter_add(dtype: torch.dtype) -> None:
    x, i, s = numbers(4, 6, dtype=dtype), ints(9, 5, high=4), numbers(9, 6, dtype=dtype)
    check(lambda x, i, s: x.scatter_add(0, i, s), x, i, s, exact=False)
    check(lambda x, i, s: x.scatter_reduce(0, i, s, "sum"), x, i, s, exact=False)
    check(lambda x, i, s: x.scatter_reduce(0, i, s, "sum", include_self=False), x, i, s, exact=False)


@pytest.mark.parametrize("reduce", ["amax", "prod", "mean"])
def test_other_scatter_reductions_go_to_aten(reduce: str) -> None:
    x, i, s = torch.randn(4, 6), ints(9, 5, high=4), torch.randn(9, 6)
    check(lambda x, i, s: x.scatter_reduce(0, i, s, reduce), x, i, s, calls=["scatter_reduce.two"])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64], ids=str)
def test_index_add_copy_and_fill(dtype: torch.dtype) -> None:
    x, i, unique = numbers(4, 6, dtype=dtype), ints(9, high=4), torch.tensor([3, 1])
    check(lambda x, i, s: x.index_add(0, i, s), x, i, numbers(9, 6, dtype=dtype), exact=False)
    check(lambda x, i, s: x.index_add(-1, i, s, alpha=2), x, i, numbers(4, 9, dtype=dtype), exact=False)
    check(lambda x, i, s: x.index_copy(1, i, s), x, unique, numbers(4, 2, dtype=dtype))
    check(lambda x, i: x.index_fill(0, i, 3), x, unique)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_index_add_in_low_precision_rounds_where_eager_does(dtype: torch.dtype) -> None:
    x, i = numbers(3, 4, 5, dtype=dtype), ints(600, high=3)
    for dim, alpha, positions in ((0, 1, i), (-1, 1, i), (1, 1, i), (0, 2, i), (0, 1, i.int())):
        source = numbers(*(600 if d == dim % 3 else n for d, n in enumerate(x.shape)), dtype=dtype)
        check(lambda x, i, s: x.index_add(dim, i, s, alpha=alpha), x, positions, source)  # noqa: B023
    check(lambda x, i, s: x.index_add(0, i, s), x[0, 0], i, source[:, 0, 0])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("padding", [-1, 2])
def test_gradient_of_embedding(padding: int, dtype: torch.dtype) -> None:
    grad, i = torch.ones(3, 4, 6, dtype=dtype), ints(3, 4, high=5)
    check(lambda g, i: aten.embedding_dense_backward(g, i, 5, padding, False), grad, i, exact=False)
    grad, i = ints(3, 4, 6, high=9).to(dtype), ints(3, 4, high=5) * 7  # few rows of a table
    check(lambda g, i: aten.embedding_dense_backward(g, i, 30, 7 * padding, False), grad, i)


def test_gradients_of_reads_are_scatters() -> None:
    def gradient(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        return aten.index_put(torch.zeros_like(x), [None, i], torch.ones(4, 7), True)

    check(gradient, torch.randn(4, 6), ints(7, high=6))
    x, mask, i = torch.randn(4, 6), torch.tensor([True, False, True]), torch.tensor([1, 100, 1])
    check(
        lambda x, m, i, v: aten._unsafe_masked_index_put_accumulate(x, m, [None, i], v),
        x, mask[None], i[None], torch.randn(4, 1, 3), exact=False,
    )  # fmt: skip


def test_a_write_to_a_dimension_of_one_element_is_a_scatter() -> None:
    for x in (torch.randn(1), torch.randn(1, 3)):
        verify_program(check(lambda x, i: x.index_copy(0, i, x + 1), x, torch.tensor([0])))
        verify_program(check(lambda x, i: x.index_fill(0, i, 2.0), x, torch.tensor([-1])))
    x = torch.randn(1, 3)
    program = lower(lambda x, i: x.index_copy(0, i, x + 1), x, torch.tensor([0]))
    with pytest.raises(IndexError):
        run(program, [x, torch.tensor([1])])


def test_zero_dim_and_empty_tensors() -> None:
    calls = ["scatter.src"]
    check(lambda x, i, s: x.scatter(0, i, s), torch.tensor(1.0), torch.tensor(0), torch.tensor(2.0), calls=calls)
    check(
        lambda x, i, s: x.index_copy(0, i, s),
        torch.tensor(1.0),
        torch.tensor(0),
        torch.tensor(2.0),
        calls=["index_copy.default"],
    )
    check(lambda x, i, s: x.scatter_add(0, i, s), torch.randn(4), torch.tensor(2), torch.tensor(2.0))
    check(lambda x, i, s: x.scatter_add(0, i, s), torch.randn(4), ints(0, high=1), torch.randn(0))


def test_dynamic_shapes() -> None:
    check(lambda x, i, s: x.scatter_add(0, i, s), torch.randn(5, 4), ints(3, 4, high=5), torch.randn(3, 4),
          dynamic=True, exact=False)  # fmt: skip
    check(lambda x: aten.slice_scatter(x, x[2:] * 2, 0, 2), torch.randn(5, 4), dynamic=True)
    check(lambda x: aten.slice_scatter(x, x[:, -2:] * 2, 1, -2), torch.randn(5, 4), dynamic=True)


@pytest.mark.parametrize(("dtype", "dim"), in_turns(NUMBERS, [0, 1, -1]), ids=str)
def test_one_position_along_a_dimension_is_a_pointwise_selection(dim: int, dtype: torch.dtype) -> None:
    x, shape = numbers(4, 6, 5, dtype=dtype), [4, 6, 5]
    shape[dim] = 1
    i, s = ints(*shape, high=4), numbers(*shape, dtype=dtype)
    for program in (
        check(lambda x, i, s: x.scatter(dim, i, s), x, i, s),
        check(lambda x, i: x.scatter(dim, i, 1), x, i),
        check(lambda x, i, s: x.scatter_add(dim, i, s), x, i, s),
        check(lambda x, i, s: x.scatter_add(dim, i, s), x, i, s, dynamic=True),
    ):
        (nest,) = (node for node in program.nodes if isinstance(node, LoopNest))
        assert [store.mode for store in nest.stores] == ["set"]
        assert not any(symbol.kind == "value" for store in nest.stores for e in store.index for symbol in e.symbols)


def test_one_position_with_a_smaller_index_is_a_scatter() -> None:
    check(lambda x, i: x.scatter(1, i, 7), torch.randn(4, 6), ints(2, 1, high=6))
    check(lambda x, i: x.scatter(0, i, 7), torch.randn(4), ints(1, high=4))


def test_a_position_out_of_range_raises_what_eager_raises() -> None:
    x = torch.randn(4, 3)
    program = lower(lambda x, i: x.scatter(1, i, 1.0), x, ints(4, 1, high=3))
    with pytest.raises(RuntimeError):
        run(program, [x, torch.tensor([[0], [3], [1], [2]])])


def test_positions_that_are_no_int64_are_the_error_of_the_operator() -> None:
    x, i = torch.randn(4, 3), torch.tensor([0, 2], dtype=torch.int32)
    assert externs(lower(lambda x, i: x.index_copy(0, i, x[:2]), x, i)) == ["index_copy.default"]
    assert externs(lower(lambda x, i: x.index_fill(0, i, 2.0), x, i)) == ["index_fill.int_Scalar"]


def test_the_gradient_of_cross_entropy_is_one_kernel_and_no_scatter() -> None:
    def gradient(x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return torch.autograd.grad(torch.nn.functional.cross_entropy(x, target), x)[0]

    def loss(x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(x, target)

    x, target = torch.randn(8, 50, requires_grad=True), ints(8, high=50)
    target[2] = -100
    compiled, reports = compile_counted(loss)
    compiled(x, target).backward()
    backward = [report for report in reports if report.kind == "backward"]
    assert [len(report.kernels) for report in backward] == [1]
    torch.testing.assert_close(x.grad, gradient(x, target), rtol=1e-5, atol=1e-7)
