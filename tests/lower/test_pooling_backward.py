"""Gradients of pooling against eager and fp64."""

from __future__ import annotations

import pytest
import torch

from tests.lower.accuracy import check_accurate, interpreted
from tests.lower.test_pooling import AVG_CASES, FORMATS, MAX_CASES

aten = torch.ops.aten
LAST = torch.channels_last
DTYPES = [torch.float64, torch.bfloat16, torch.float16]


def _image(dtype: torch.dtype = torch.float32, memory_format: torch.memory_format = torch.contiguous_format):
    return torch.randn(2, 3, 9, 10).to(dtype).contiguous(memory_format=memory_format)


def _check_max(forward, backward, x: torch.Tensor, *case, dynamic: bool = False) -> None:
    """The gradient of max pooling with these arguments, given the positions that eager's forward chose."""
    values, indices = forward(x, *case)
    grad = torch.randn_like(values)
    check_accurate(lambda grad, x, indices: backward(grad, x, *case, indices), grad, x, indices, dynamic=dynamic)


def _max2d_backward(grad, x, kernel, stride=(), padding=0, dilation=1, ceil_mode=False, indices=None):
    pairs = [[v] * 2 if isinstance(v, int) else v for v in (kernel, stride, padding, dilation)]
    return aten.max_pool2d_with_indices_backward.default(grad, x, *pairs, ceil_mode, indices)


@pytest.mark.parametrize("case", [*MAX_CASES, (5, 2, 2, 1, True), (4, 3, 1, 1, False), (3, 1, 1, 1, False)], ids=str)
def test_max_pool2d_gradient_goes_to_the_chosen_elements(case):
    _check_max(aten.max_pool2d_with_indices.default, _max2d_backward, _image(memory_format=LAST), *case)


@pytest.mark.parametrize("case", [(2, [], 0, 1, False), (2, 3, 0, 1, False), (1, 2, 0, 1, False)], ids=str)
def test_max_pool2d_gradient_of_windows_that_do_not_overlap(case):
    _check_max(aten.max_pool2d_with_indices.default, _max2d_backward, _image(), *case)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("case", [*MAX_CASES, (5, 2, 2, 1, True), (3, 1, 1, 1, False)], ids=str)
def test_max_pool2d_gradient_of_overlapping_windows_in_contiguous_planes(case, dynamic):
    _check_max(aten.max_pool2d_with_indices.default, _max2d_backward, _image(), *case, dynamic=dynamic)


def test_max_pool2d_gradient_of_positions_that_no_plane_has_adds_nothing():
    grad, x = torch.ones(1, 1, 2, 2), torch.zeros(1, 1, 4, 4)
    indices = torch.tensor([[[[-1, 16], [5, 5]]]])
    got = interpreted(lambda g, x, i: _max2d_backward(g, x, 3, 2, 1, indices=i), grad, x, indices)
    expected = torch.zeros(16)
    expected[5] = 2.0
    assert torch.equal(got.flatten(), expected)


@pytest.mark.parametrize("memory_format", FORMATS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_max_pool2d_gradient_of_other_dtypes(dtype, memory_format):
    _check_max(aten.max_pool2d_with_indices.default, _max2d_backward, _image(dtype, memory_format), 3, 2, 1, 1, False)


@pytest.mark.parametrize("case", [(2, [], 0, 1, False), (3, 2, 1, 1, True)], ids=str)
def test_max_pool2d_gradient_with_symbolic_sizes(case):
    _check_max(aten.max_pool2d_with_indices.default, _max2d_backward, _image(memory_format=LAST), *case, dynamic=True)


def test_max_pool2d_gradient_of_tied_elements_goes_to_one_of_them():
    x = torch.randint(0, 2, (1, 2, 8, 8)).float().contiguous(memory_format=LAST)
    _check_max(aten.max_pool2d_with_indices.default, _max2d_backward, x, 3, 2, 1, 1, False)


def test_max_pool2d_gradient_without_a_batch():
    _check_max(aten.max_pool2d_with_indices.default, _max2d_backward, torch.randn(3, 6, 6), 2, 2, 0, 1, False)


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last_3d])
def test_max_pool3d_gradient(memory_format):
    x = torch.randn(2, 2, 5, 6, 7).contiguous(memory_format=memory_format)
    case = [2, 3, 3], [2, 2, 2], [1, 1, 0], [1, 1, 1], False
    backward = aten.max_pool3d_with_indices_backward.default
    _check_max(aten.max_pool3d_with_indices.default, backward, x, *case)


@pytest.mark.parametrize("memory_format", FORMATS)
@pytest.mark.parametrize("case", [*AVG_CASES, (5, 2, 2, True, False, None), (2, 3, 0, False, True, None)], ids=str)
def test_avg_pool2d_gradient(case, memory_format):
    _check_average(_image(memory_format=memory_format), case)


def test_avg_pool2d_gradient_with_a_negative_divisor():
    _check_average(_image(), (3, 2, 1, True, False, -2))


@pytest.mark.parametrize("dtype", DTYPES)
def test_avg_pool2d_gradient_of_other_dtypes(dtype):
    _check_average(_image(dtype), (3, 2, 1, False, False, None))


@pytest.mark.parametrize("case", [(2, [], 0, False, True, None), (3, 2, 1, True, False, None)], ids=str)
def test_avg_pool2d_gradient_with_symbolic_sizes(case):
    _check_average(_image(), case, dynamic=True)


def _check_average(x: torch.Tensor, case, dynamic: bool = False) -> None:
    case = tuple([v] * 2 if type(v) is int and i < 3 else v for i, v in enumerate(case))
    grad = torch.randn_like(aten.avg_pool2d.default(x, *case))
    check_accurate(lambda grad, x: aten.avg_pool2d_backward.default(grad, x, *case), grad, x, dynamic=dynamic)


def test_avg_pool3d_gradient():
    x, case = torch.randn(1, 2, 5, 6, 7), ([3, 3, 3], [2, 2, 2], [1, 1, 1], True, False, None)
    grad = torch.randn_like(aten.avg_pool3d.default(x, *case))
    check_accurate(lambda grad, x: aten.avg_pool3d_backward.default(grad, x, *case), grad, x)


@pytest.mark.parametrize("memory_format", FORMATS)
@pytest.mark.parametrize("size", [[1, 1], [3, 5], [4, 3], [9, 10], [12, 7]], ids=str)
def test_adaptive_pool_gradients(size, memory_format):
    x = _image(memory_format=memory_format)
    grad = torch.randn_like(aten._adaptive_avg_pool2d.default(x, size))
    check_accurate(lambda grad, x: aten._adaptive_avg_pool2d_backward.default(grad, x), grad, x)
    indices = aten.adaptive_max_pool2d.default(x, size)[1]
    check_accurate(lambda g, x, indices: aten.adaptive_max_pool2d_backward.default(g, x, indices), grad, x, indices)


def test_adaptive_pool_gradients_of_volumes():
    x = torch.randn(2, 3, 4, 5, 6)
    grad = torch.randn(2, 3, 2, 3, 4)
    check_accurate(lambda grad, x: aten._adaptive_avg_pool3d_backward.default(grad, x), grad, x)
    values, indices = aten.adaptive_max_pool3d.default(x, [2, 5, 3])
    grad = torch.randn_like(values)
    check_accurate(lambda g, x, indices: aten.adaptive_max_pool3d_backward.default(g, x, indices), grad, x, indices)


def test_adaptive_pool_gradient_of_symbolic_windows_is_left_to_eager():
    x, grad = _image(), torch.randn(2, 3, 4, 3)
    got = interpreted(
        lambda grad, x: aten._adaptive_avg_pool2d_backward.default(grad, x), grad, x, dynamic=True, extern=True
    )
    assert torch.equal(got, aten._adaptive_avg_pool2d_backward.default(grad, x))


def test_pool_gradients_of_an_empty_batch():
    _check_max(aten.max_pool2d_with_indices.default, _max2d_backward, torch.empty(0, 3, 8, 8), 2, 2, 0, 1, False)
    _check_average(torch.empty(0, 3, 8, 8), (2, [], 0, False, True, None))
