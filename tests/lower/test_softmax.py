"""Softmax and its relatives against eager."""

from __future__ import annotations

import math

import pytest
import torch

from inductor_cpu.ir.loop_nest import LoopNest, Scalar
from tests.lower.accuracy import check_accurate, check_exact, interpreted
from tests.lower.harness import lower

aten = torch.ops.aten
DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
FORWARD = {
    "softmax": lambda x, dim: aten._softmax.default(x, dim, False),
    "log_softmax": lambda x, dim: aten._log_softmax.default(x, dim, False),
    "safe_softmax": lambda x, dim: aten._safe_softmax.default(x, dim),
}
BACKWARD = {
    "softmax": aten._softmax_backward_data.default,
    "log_softmax": aten._log_softmax_backward_data.default,
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("dim", [-1, 0, 1])
@pytest.mark.parametrize("op", FORWARD)
def test_softmaxes_are_as_accurate_as_eager(op, dim, dtype):
    x = (torch.randn(3, 5, 33) * 4).to(dtype)
    check_accurate(lambda x: FORWARD[op](x, dim), x)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("dim", [-1, 0])
@pytest.mark.parametrize("op", BACKWARD)
def test_backwards_are_as_accurate_as_eager(op, dim, dtype):
    grad, out = torch.randn(4, 19).to(dtype), torch.randn(4, 19).softmax(dim)
    out = (out.log() if op == "log_softmax" else out).to(dtype)
    check_accurate(lambda g, o: BACKWARD[op](g, o, dim, g.dtype), grad, out)


def test_a_row_of_minus_infinity_is_nan_and_safe_softmax_gives_zeros():
    x = torch.randn(3, 4)
    x[1] = -math.inf
    x[2, 1] = -math.inf
    got = interpreted(lambda x: FORWARD["softmax"](x, -1), x)
    assert got[1].isnan().all()
    assert got[2, 1] == 0
    safe = interpreted(lambda x: FORWARD["safe_softmax"](x, -1), x)
    assert (safe[1] == 0).all()
    assert torch.equal(safe[[0, 2]], got[[0, 2]])


@pytest.mark.parametrize("op", FORWARD)
def test_nan_and_infinity_spread_over_their_row(op):
    x = torch.randn(3, 4)
    x[0, 2], x[1, 1] = math.nan, math.inf
    check_accurate(lambda x: FORWARD[op](x, 1), x)


@pytest.mark.parametrize("op", FORWARD)
@pytest.mark.parametrize("shape", [(), (1,), (0, 3), (3, 0), (4, 1)])
def test_degenerate_shapes(op, shape):
    check_exact(lambda x: FORWARD[op](x, -1), torch.randn(shape))


@pytest.mark.parametrize("op", FORWARD)
def test_strides_of_channels_last_inputs_are_kept(op):
    x = torch.randn(2, 6, 3, 5).contiguous(memory_format=torch.channels_last)
    check_accurate(lambda x: FORWARD[op](x, 1), x)
    check_accurate(lambda x: FORWARD[op](x, 3), x.transpose(1, 2))


def test_safe_softmax_converts_to_its_dtype_first():
    check_accurate(lambda x: aten._safe_softmax.default(x, 1, torch.float64), torch.randn(3, 7))


@pytest.mark.parametrize("op", FORWARD)
def test_symbolic_sizes(op):
    check_accurate(lambda x: FORWARD[op](x, 1), torch.randn(3, 4, 7), dynamic=True)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("dim", [[-1], [0, 2]])
@pytest.mark.parametrize("keepdim", [False, True])
def test_logsumexp_is_as_accurate_as_eager(dim, keepdim, dtype):
    check_accurate(lambda x: aten.logsumexp.default(x, dim, keepdim), (torch.randn(3, 4, 6) * 10).to(dtype))


def test_logsumexp_of_infinities_and_integers():
    x = torch.tensor([[-math.inf, -math.inf], [math.inf, 1.0], [math.nan, 0.0], [1000.0, 1000.0]])
    check_accurate(lambda x: aten.logsumexp.default(x, [1]), x)
    check_accurate(lambda x: aten.logsumexp.default(x, [0]), torch.tensor([1, 2, 3]))


def test_softmax_is_four_simple_nests():
    program = lower(lambda x: FORWARD["softmax"](x, -1), torch.randn(3, 4))
    nests = [node for node in program.nodes if isinstance(node, LoopNest)]
    assert [len(nest.reduce_dims) for nest in nests] == [1, 0, 1, 0]


@pytest.mark.parametrize(
    ("dtype", "result", "expected"),
    [
        (torch.float64, torch.float64, "exp"),
        (torch.float32, torch.float32, "exp_of_nonpositive"),
        (torch.bfloat16, torch.float32, "exp_of_nonpositive"),
        (torch.bfloat16, torch.bfloat16, "low_exp"),
        (torch.float16, torch.float16, "low_exp"),
    ],
)
@pytest.mark.parametrize(
    "op",
    [
        lambda x, result: torch.softmax(x, -1, dtype=result),
        lambda x, result: torch.log_softmax(x, -1, dtype=result),
        lambda x, result: torch.logsumexp(x.to(result) if x.dtype != result else x, -1),
    ],
    ids=["softmax", "log_softmax", "logsumexp"],
)
def test_exponentials_have_the_bits_that_the_result_keeps(op, dtype, result, expected):
    program = lower(lambda x: op(x, result), torch.randn(4, 19).to(dtype))
    bodies = [nest.body for nest in program.nodes if isinstance(nest, LoopNest)]
    assert {i.op for body in bodies for i in body if isinstance(i, Scalar) and "exp" in i.op} == {expected}


@pytest.mark.parametrize(("dtype", "expected"), [(torch.float32, "exp"), (torch.bfloat16, "low_exp")])
def test_the_gradient_of_log_softmax_takes_any_numbers_for_its_results(dtype, expected):
    program = lower(lambda x: aten._log_softmax_backward_data.default(x, x, -1, dtype), torch.randn(4, 19).to(dtype))
    bodies = [nest.body for nest in program.nodes if isinstance(nest, LoopNest)]
    assert {i.op for body in bodies for i in body if isinstance(i, Scalar) and "exp" in i.op} == {expected}
