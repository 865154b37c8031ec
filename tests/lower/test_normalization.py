"""Normalizations against eager."""

from __future__ import annotations

import operator

import pytest
import torch

from inductor_cpu.ir.interpret import run as interpret
from inductor_cpu.lower.graph import lower_graph
from tests.lower.accuracy import check_accurate, check_exact

aten = torch.ops.aten
DTYPES = (torch.float32, torch.float64, torch.bfloat16)
EPS = 1e-5


def _values(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return (torch.randn(*shape) * 2 + 3).to(dtype)


def _positive(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return (torch.rand(*shape) + 0.5).to(dtype)


# -- layer norm ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(4, 40), (2, 3, 5), (7,)])
def test_layer_norm_over_the_last_dimension(shape, dtype):
    weight, bias = _values(shape[-1], dtype=dtype), _values(shape[-1], dtype=dtype)
    check_accurate(
        lambda x, w, b: aten.native_layer_norm.default(x, [shape[-1]], w, b, EPS),
        _values(*shape, dtype=dtype),
        weight,
        bias,
    )


def test_layer_norm_over_two_dimensions_without_parameters():
    check_accurate(lambda x: aten.native_layer_norm.default(x, [3, 5], None, None, EPS), _values(4, 3, 5))
    check_accurate(
        lambda x, w: aten.native_layer_norm.default(x, [3, 5], w, None, EPS), _values(4, 3, 5), _values(3, 5)
    )


def test_layer_norm_of_low_precision_with_f32_parameters_rounds_once():
    x, w, b = _values(6, 64, dtype=torch.bfloat16), _values(64), _values(64)
    check_accurate(lambda x, w, b: aten.native_layer_norm.default(x, [64], w, b, EPS)[0], x, w, b)


def test_layer_norm_of_a_transposed_input_and_of_nothing():
    check_accurate(lambda x: aten.native_layer_norm.default(x, [6], None, None, EPS)[0], _values(6, 5).t())
    check_exact(lambda x: aten.native_layer_norm.default(x, [6], None, None, EPS), torch.empty(0, 6))


def test_layer_norm_with_symbolic_sizes():
    def run(x, w):
        return aten.native_layer_norm.default(x, [x.shape[-1]], w, None, EPS)

    check_accurate(run, _values(4, 3, 10), _values(10), dynamic=True)


def test_layer_norm_far_from_zero_keeps_its_variance():
    check_accurate(lambda x: aten.native_layer_norm.default(x, [512], None, None, EPS), torch.randn(3, 512) + 1000)


# -- RMS norm --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("eps", [None, 1e-6])
def test_rms_norm(eps, dtype):
    x, w = _values(4, 5, 24, dtype=dtype), _values(24, dtype=dtype)
    program_result = _rms_norm(x, w, eps)
    expected = aten._fused_rms_norm.default(x.double(), [24], w.double(), eps or torch.finfo(dtype).eps)[0]
    error = (program_result.double() - expected).abs().max()
    assert program_result.dtype == dtype
    assert error <= torch.finfo(dtype).eps * 4 * expected.abs().max()


def _rms_norm(x: torch.Tensor, w: torch.Tensor, eps: float | None) -> torch.Tensor:
    """The rule alone: tracing takes the composite operator apart before a rule can see it."""
    graph = torch.fx.Graph()
    nodes = []
    for name, value in (("x", x), ("w", w)):
        nodes.append(graph.placeholder(name))
        nodes[-1].meta["val"] = value
    call = graph.call_function(aten._fused_rms_norm.default, (nodes[0], [x.shape[-1]], nodes[1], eps))
    call.meta["val"] = (torch.empty_like(x), torch.empty(*x.shape[:-1], 1))
    out = graph.call_function(operator.getitem, (call, 0))
    out.meta["val"] = call.meta["val"][0]
    graph.output((out,))
    return interpret(lower_graph(torch.fx.GraphModule({}, graph), "test"), [x, w])[0]


# -- group norm ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("groups", [1, 2, 6])
@pytest.mark.parametrize("spatial", [(5, 3), (11,), ()])
def test_group_norm(spatial, groups, dtype):
    x, w, b = _values(3, 6, *spatial, dtype=dtype), _values(6, dtype=dtype), _values(6, dtype=dtype)
    hw = x[0, 0].numel()
    check_accurate(lambda x, w, b: aten.native_group_norm.default(x, w, b, 3, 6, hw, groups, EPS), x, w, b)


def test_group_norm_of_f64():
    x = _values(3, 6, 5, 3, dtype=torch.float64)
    check_accurate(lambda x: aten.native_group_norm.default(x, None, None, 3, 6, 15, 2, EPS), x)


def test_group_norm_of_channels_last_without_parameters():
    x = _values(2, 4, 3, 5).contiguous(memory_format=torch.channels_last)
    check_accurate(lambda x: aten.native_group_norm.default(x, None, None, 2, 4, 15, 2, EPS), x)


def test_group_norm_with_symbolic_sizes():
    def run(x, w):
        n, c, h, k = x.shape
        return aten.native_group_norm.default(x, w, None, n, c, h * k, 2, EPS)

    check_accurate(run, _values(3, 8, 5, 7), _values(8), dynamic=True)


# -- batch norm ------------------------------------------------------------------------------------------------------
def _inference(x, w, b, mean, var):
    return aten._native_batch_norm_legit_no_training.default(x, w, b, mean, var, 0.1, EPS)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("spatial", [(5, 3), (7,), ()])
def test_batch_norm_in_inference(spatial, dtype):
    params = [_values(4, dtype=dtype), _values(4, dtype=dtype), _values(4, dtype=dtype), _positive(4, dtype=dtype)]
    check_accurate(_inference, _values(2, 4, *spatial, dtype=dtype), *params)


def test_batch_norm_in_inference_of_channels_last_and_mixed_dtypes():
    x = _values(2, 4, 3, 5).contiguous(memory_format=torch.channels_last)
    params = _values(4), _values(4), _values(4), _positive(4)
    check_accurate(_inference, x, *params)
    check_accurate(lambda *args: _inference(*args)[0], x.bfloat16(), *params)


def test_batch_norm_in_inference_without_parameters_and_with_symbolic_sizes():
    check_accurate(lambda x, m, v: _inference(x, None, None, m, v), _values(2, 4, 6), _values(4), _positive(4))
    check_accurate(
        lambda x, m, v: _inference(x, None, None, m, v), _values(3, 4, 6), _values(4), _positive(4), dynamic=True
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(3, 4, 5, 6), (8, 20)])
def test_batch_norm_in_training_updates_running_statistics(shape, dtype):
    c = shape[1]
    params = [_values(c, dtype=dtype), _values(c, dtype=dtype), _values(c, dtype=dtype), _positive(c, dtype=dtype)]

    def run(x, w, b, mean, var):
        return aten._native_batch_norm_legit_functional.default(x, w, b, mean, var, True, 0.1, EPS)

    check_accurate(run, _values(*shape, dtype=dtype), *params)
    check_accurate(run, _values(*shape, dtype=dtype), *params, dynamic=True)


def test_batch_norm_in_training_of_low_precision_is_accurate():
    def run(x, w, b):
        return aten._native_batch_norm_legit.no_stats(x, w, b, True, 0.1, EPS)[0]

    x = _values(4, 6, 9, dtype=torch.bfloat16).contiguous()
    check_accurate(run, x, _values(6), _values(6))
    check_accurate(run, _values(4, 6, 3, 3).contiguous(memory_format=torch.channels_last), _values(6), _values(6))


def test_batch_norm_with_few_channels_splits_its_statistics():
    def run(x):
        return aten._native_batch_norm_legit.no_stats(x, None, None, True, 0.1, EPS)

    check_accurate(run, _values(8, 2, 128, 64))


def test_normalizations_of_a_broadcast_input():
    x = torch.randn(3, 1, 5).expand(3, 4, 5)
    check_accurate(lambda x: aten.native_layer_norm.default(x, [5], None, None, EPS)[0], x)
    check_accurate(lambda x: aten._native_batch_norm_legit.no_stats(x, None, None, True, 0.1, EPS)[0], x)
