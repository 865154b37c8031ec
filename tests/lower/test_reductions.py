"""Reductions against eager."""

from __future__ import annotations

import math

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils import _pytree as pytree

from inductor_cpu.ir.interpret import run
from inductor_cpu.ir.loop_nest import LoopNest
from inductor_cpu.lower.graph import lower_graph
from tests.lower.accuracy import check_accurate, check_exact, interpreted
from tests.lower.harness import externs, lower

aten = torch.ops.aten
FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
DIMS = (None, [0], [-1], [0, 2], [1, 0], [0, 1, 2])


def _values(dtype: torch.dtype, *shape: int) -> torch.Tensor:
    if dtype == torch.bool:
        return torch.rand(*shape) > 0.5
    return torch.randn(*shape).to(dtype) if dtype.is_floating_point else torch.randint(0, 100, shape).to(dtype)


def _channels_last() -> torch.Tensor:
    return torch.randn(2, 5, 3, 4).contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("dim", DIMS)
@pytest.mark.parametrize("keepdim", [False, True])
@pytest.mark.parametrize("op", [aten.sum.dim_IntList, aten.mean.dim])
def test_sum_and_mean_are_as_accurate_as_eager(op, dim, keepdim, dtype):
    check_accurate(lambda x: op(x, dim, keepdim), _values(dtype, 4, 3, 17))


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8, torch.bool])
def test_integer_sums_and_products_are_int64(dtype):
    x = _values(dtype, 5, 4)
    check_exact(lambda x: (aten.sum.default(x), aten.sum.dim_IntList(x, [1]), aten.prod.dim_int(x, 0)), x)


def test_small_integer_sum_does_not_overflow():
    check_exact(aten.sum.default, torch.full((1000,), 200, dtype=torch.uint8))


@pytest.mark.parametrize("dtype", [torch.float64, torch.int32, torch.int64, torch.bool])
def test_dtype_argument_converts_before_the_sum(dtype):
    x = torch.tensor([[1.75, -1.75, 2.5], [0.0, 0.5, 0.25]])
    check_exact(lambda x: (aten.sum.dim_IntList(x, [1], dtype=dtype), aten.prod.dim_int(x, 1, dtype=dtype)), x)


def test_low_precision_sum_of_f32_rounds_the_elements_first():
    check_exact(lambda x: aten.sum.dim_IntList(x, [1], dtype=torch.bfloat16), torch.full((2, 64), 1.003))


def test_low_precision_sum_accumulates_in_f32():
    check_exact(aten.sum.default, torch.ones(4096, dtype=torch.bfloat16))


@pytest.mark.parametrize("dtype", FLOATS)
def test_product(dtype):
    check_accurate(lambda x: (aten.prod.default(x), aten.prod.dim_int(x, -1, True)), _values(dtype, 3, 6))


@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 3)])
def test_reductions_of_nothing_give_the_identity(shape):
    def run(x):
        return (
            aten.sum.dim_IntList(x, [-1]),
            aten.prod.dim_int(x, -1),
            aten.any.dim(x, -1),
            aten.all.dim(x, -1),
            aten.mean.dim(x, [-1]),
        )

    check_exact(run, torch.empty(shape))


@pytest.mark.parametrize(
    "extremum",
    [torch.max, torch.min, lambda x: torch.max(x, 1), lambda x: torch.min(x, 1)],
    ids=["max", "min", "max of rows", "min of rows"],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.int32, torch.bool])
def test_an_extremum_of_nothing_is_the_error_of_the_operator(extremum, dtype):
    program = lower(extremum, torch.empty((3, 0), dtype=dtype))
    assert len(externs(program)) == 1
    assert externs(lower(extremum, torch.empty((3, 2), dtype=dtype))) == []


@pytest.mark.parametrize("rows", [0, 1], ids=["maybe empty", "not empty"])
def test_an_extremum_over_a_size_from_data_is_computed_if_it_is_not_empty(rows):
    def largest(x):
        picked = x[x > 0] if rows == 0 else torch.cat([x[x > 0], x])
        return picked.max()

    graph = make_fx(largest, tracing_mode="symbolic")(torch.randn(5))
    called = externs(lower_graph(graph, "test"))
    assert ("max.default" in called) == (rows == 0)


@pytest.mark.parametrize("extremum", [torch.max, torch.min, lambda x: torch.max(x, 1), lambda x: torch.min(x, 1)[1]])
def test_an_extremum_of_a_part_that_is_empty_in_one_call_only_is_an_error(extremum):
    def largest(x):
        return extremum(x.new_ones(2, x.shape[0] // 4) * x[0])

    program = lower(largest, torch.ones(8), dynamic=True)
    assert externs(program) == []
    assert torch.equal(run(program, [torch.ones(12)])[0], pytree.tree_leaves(largest(torch.ones(12)))[0])
    with pytest.raises((IndexError, RuntimeError)) as eager:
        largest(torch.ones(3))
    with pytest.raises(eager.type):
        run(program, [torch.ones(3)])


def test_scalar_tensors_reduce_to_themselves():
    def run(x):
        return (
            aten.sum.default(x),
            aten.mean.default(x),
            aten.amax.default(x),
            aten.argmax.default(x),
            *aten.max.dim(x, 0),
            aten.any.default(x),
            aten.linalg_vector_norm.default(x),
            aten.sum.dim_IntList(x, [-1], True),
        )

    check_exact(run, torch.tensor(-2.5))


@pytest.mark.parametrize("dtype", [*FLOATS, torch.int64, torch.int32, torch.uint8, torch.bool])
@pytest.mark.parametrize("dim", [[], [0], [-1], [0, 2]])
def test_extrema(dim, dtype):
    x = _values(dtype, 4, 3, 5)
    check_exact(lambda x: (aten.amax.default(x, dim), aten.amin.default(x, dim, True)), x)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool])
@pytest.mark.parametrize("keepdim", [False, True])
@pytest.mark.parametrize("dim", [0, 1, -1])
def test_extrema_with_positions_take_the_first_on_ties(dim, keepdim, dtype):
    x = _values(dtype, 4, 6, 5)
    x = (x * 2).round().to(dtype) if dtype.is_floating_point else x
    check_exact(lambda x: (*aten.max.dim(x, dim, keepdim), *aten.min.dim(x, dim, keepdim)), x)


@pytest.mark.parametrize("keepdim", [False, True])
@pytest.mark.parametrize("dim", [None, 0, 1, -1])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int32])
def test_argmax_and_argmin_take_the_first_on_ties(dtype, dim, keepdim):
    x = torch.randint(0, 4, (3, 5, 4)).to(dtype)
    check_exact(lambda x: (aten.argmax.default(x, dim, keepdim), aten.argmin.default(x, dim, keepdim)), x)


def test_argmax_of_everything_counts_in_logical_order():
    check_exact(lambda x: aten.argmax.default(x), _channels_last())


def test_nan_wins_every_extremum():
    x = torch.randn(4, 5)
    x[1, 2] = x[1, 4] = x[3, 0] = math.nan
    x[0, 1] = math.inf

    def run(x):
        return (
            aten.amax.default(x, [1]),
            aten.amin.default(x, [1]),
            aten.max.default(x),
            aten.min.default(x),
            aten.argmax.default(x, 1),
            aten.argmin.default(x),
            *aten.max.dim(x, 0),
            *aten.aminmax.default(x, dim=1),
            aten.sum.dim_IntList(x, [0]),
        )

    check_exact(run, x)


def test_nansum_and_count_nonzero():
    x = torch.tensor([[1.0, math.nan, 0.0], [math.nan, math.nan, -0.0]])

    def run(x):
        return (
            aten.nansum.default(x),
            aten.nansum.default(x, [1]),
            aten.count_nonzero.default(x),
            aten.count_nonzero.dim_IntList(x, [0]),
        )

    check_exact(run, x)
    check_exact(lambda x: aten.nansum.default(x, [0]), torch.arange(6).view(2, 3))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int32, torch.uint8, torch.bool])
def test_any_and_all_convert_to_bool_first(dtype):
    x = torch.tensor([[0, 1, 2], [0, 0, 0], [3, 1, 2]]).to(dtype)

    def run(x):
        return (
            aten.any.default(x),
            aten.all.default(x),
            aten.any.dim(x, 1),
            aten.all.dim(x, 1, True),
            aten.any.dims(x, [0, 1]),
            aten.all.dims(x, [-1]),
            aten.any.dims(x, []),
            aten.all.dims(x, None),
        )

    check_exact(run, x)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("correction", [None, 0, 1, 2.5])
@pytest.mark.parametrize("dim", [None, [1], [0, -1]])
def test_variance_is_as_accurate_as_eager(dim, correction, dtype):
    x = _values(dtype, 3, 4, 9) * 3 + 20
    check_accurate(lambda x: aten.var.correction(x, dim, correction=correction), x)
    check_accurate(lambda x: aten.std.correction(x, dim, correction=correction, keepdim=True), x)


@pytest.mark.parametrize("keepdim", [False, True])
@pytest.mark.parametrize("op", [aten.var_mean.correction, aten.std_mean.correction])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_variance_with_mean(dtype, op, keepdim):
    check_accurate(lambda x: op(x, [0, 2], keepdim=keepdim), _values(dtype, 3, 1, 6, 2))


def test_variance_of_too_few_elements_is_nan_or_inf():
    check_exact(lambda x: aten.var.correction(x, [1]), torch.randn(3, 1))
    check_exact(lambda x: aten.var.correction(x, [1], correction=3), torch.tensor([[1.0, 2.0]]))


@pytest.mark.parametrize("order", [0, 1, 2, 3, 0.5, -1, math.inf, -math.inf])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_vector_norms_are_as_accurate_as_eager(dtype, order):
    x = _values(dtype, 5, 7)
    check_accurate(lambda x: aten.linalg_vector_norm.default(x, order), x)
    check_accurate(lambda x: aten.linalg_vector_norm.default(x, order, [-1], True), x)


def test_a_norm_of_symbolic_order_goes_to_aten():
    program = lower(lambda x: torch.linalg.vector_norm(x, x.shape[0]), _values(torch.float32, 5, 7), dynamic=True)
    assert externs(program) == ["linalg_vector_norm.default"]


def test_norm_overloads_agree_with_eager():
    x = torch.randn(4, 6)
    check_accurate(lambda x: (aten.norm.Scalar(x, 2), aten.norm.ScalarOpt_dim(x, None, [1], True)), x)
    check_exact(lambda x: aten.norm.ScalarOpt_dim_dtype(x, 1, [0], False, dtype=torch.float64), x)


@pytest.mark.parametrize("dim", [[1], [2, 3], [0, 2, 3], None])
def test_strides_of_channels_last_results_follow_eager(dim):
    check_accurate(lambda x: aten.sum.dim_IntList(x, dim, True), _channels_last())
    check_accurate(lambda x: aten.mean.dim(x, dim), _channels_last().transpose(0, 1))


def test_symbolic_sizes():
    x = torch.randn(6, 5, 7)

    def run(x):
        return (
            aten.sum.dim_IntList(x, [0, 2]),
            aten.mean.dim(x, [1]),
            aten.amax.default(x, [-1], True),
            aten.argmax.default(x),
            aten.var.correction(x, [1, 2]),
            aten.linalg_vector_norm.default(x, 2, [0]),
        )

    check_accurate(run, x, dynamic=True)


# -- splitting -------------------------------------------------------------------------------------------------------
def _nests(function, *inputs, dynamic=False) -> list[LoopNest]:
    return [node for node in lower(function, *inputs, dynamic=dynamic).nodes if isinstance(node, LoopNest)]


@pytest.mark.parametrize("op", [aten.sum.default, aten.mean.default, aten.max.default, aten.prod.default])
def test_a_large_reduction_with_one_result_is_split(op):
    x = torch.rand(64, 640) * 0.01 + 0.995
    first, second = _nests(op, x)
    assert [dim.size for dim in first.dims] == [64]
    assert [dim.size for dim in second.reduce_dims] == [64]
    check_accurate(op, x)


def test_a_split_reduction_over_an_inner_dimension_reads_every_element_once():
    x = torch.randint(0, 1000, (3, 5, 4096 * 3))
    assert len(_nests(lambda x: aten.sum.dim_IntList(x, [0, 2]), x)) == 2
    check_exact(lambda x: aten.sum.dim_IntList(x, [0, 2]), x)
    check_exact(lambda x: aten.sum.dim_IntList(x, [0, 2], True), x)


@pytest.mark.parametrize(
    ("op", "shape"),
    [
        (lambda x: aten.sum.dim_IntList(x, [1]), (16, 32768)),  # enough results
        (aten.sum.default, (100,)),  # too small
        (aten.sum.default, (32771,)),  # a prime
        (aten.argmax.default, (65536,)),  # a position
    ],
)
def test_other_reductions_are_not_split(op, shape):
    assert len(_nests(op, torch.randn(shape))) == 1


def test_a_reduction_of_unknown_size_is_not_split():
    assert len(_nests(aten.sum.default, torch.randn(1 << 16), dynamic=True)) == 1


def test_a_split_mean_is_accurate():
    x = torch.randn(1 << 18) + 100
    exact = x.double().mean()
    assert (interpreted(aten.mean.default, x).double() - exact).abs() <= 1e-7 * exact
