"""Pooling against eager."""

from __future__ import annotations

import math

import pytest
import torch

from tests.lower.accuracy import check_accurate, check_exact, interpreted

aten = torch.ops.aten
FORMATS = (torch.contiguous_format, torch.channels_last)

#: kernel, stride, padding, dilation, ceil_mode
MAX_CASES = [
    (2, [], 0, 1, False),
    (3, 2, 1, 1, False),
    ([3, 2], [2, 1], [1, 0], 1, False),
    (3, 2, 1, 2, False),
    (3, 2, 0, 1, True),
    (2, 3, 1, 3, True),
    (1, 2, 0, 1, False),
]

#: kernel, stride, padding, ceil_mode, count_include_pad, divisor_override
AVG_CASES = [
    (2, [], 0, False, True, None),
    (3, 2, 1, False, True, None),
    (3, 2, 1, False, False, None),
    ([3, 2], [2, 3], [1, 0], True, True, None),
    (3, 2, 1, True, False, None),
    (3, 2, 1, True, True, 5),
    (1, 1, 0, False, True, None),
]


def _image(dtype: torch.dtype = torch.float32, memory_format: torch.memory_format = torch.contiguous_format):
    return torch.randn(2, 3, 9, 10).to(dtype).contiguous(memory_format=memory_format)


@pytest.mark.parametrize("memory_format", FORMATS)
@pytest.mark.parametrize("case", MAX_CASES, ids=str)
def test_max_pool2d_gives_values_and_positions(case, memory_format):
    check_exact(lambda x: aten.max_pool2d_with_indices.default(x, *case), _image(memory_format=memory_format))


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_max_pool2d_dtypes(dtype):
    check_exact(lambda x: aten.max_pool2d_with_indices.default(x, 3, 2, 1), _image(dtype))


def test_max_pool2d_without_a_batch():
    check_exact(lambda x: aten.max_pool2d_with_indices.default(x, 2, 2), torch.randn(3, 6, 6))


def test_max_pool2d_takes_the_first_position_on_ties():
    x = torch.randint(0, 3, (1, 2, 8, 8)).float()
    check_exact(lambda x: aten.max_pool2d_with_indices.default(x, 3, 2, 1), x)


@pytest.mark.parametrize(("padding", "dilation"), [(1, 1), (1, 2), ([1, 0], 3), (0, 1)])
def test_max_pool2d_of_minus_infinity_points_into_the_image(padding, dilation):
    x = torch.full((1, 1, 9, 9), -math.inf)
    check_exact(lambda x: aten.max_pool2d_with_indices.default(x, 3, 2, padding, dilation), x)


def test_max_pool2d_passes_nan_on():
    x = torch.randn(1, 1, 6, 6)
    x[0, 0, 2, 3] = math.nan
    check_exact(lambda x: aten.max_pool2d_with_indices.default(x, 3, 2, 1), x)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_last_nan_of_a_max_pool_window_gives_the_position(dtype):
    x = torch.randn(1, 2, 8, 8).to(dtype)
    x[x < 0] = math.nan
    check_exact(lambda x: aten.max_pool2d_with_indices.default(x, 3, 2, 1), x)
    check_exact(lambda x: aten.adaptive_max_pool2d.default(x, [3, 5]), x)


@pytest.mark.parametrize("dynamic_case", [(2, [], 0, 1, False), (3, 2, 1, 1, False)], ids=str)
def test_max_pool2d_with_symbolic_sizes(dynamic_case):
    check_exact(lambda x: aten.max_pool2d_with_indices.default(x, *dynamic_case), _image(), dynamic=True)


def test_max_pool3d():
    x = torch.randn(2, 2, 5, 6, 7)
    check_exact(lambda x: aten.max_pool3d_with_indices.default(x, [2, 3, 3], 2, [1, 1, 0]), x)


def test_max_pool1d_is_pooled_as_an_image():
    check_exact(lambda x: aten.max_pool2d_with_indices.default(x, [1, 3], [1, 2], [0, 1])[0], torch.randn(2, 3, 1, 11))


@pytest.mark.parametrize("memory_format", FORMATS)
@pytest.mark.parametrize("case", AVG_CASES, ids=str)
def test_avg_pool2d(case, memory_format):
    check_accurate(lambda x: aten.avg_pool2d.default(x, *case), _image(memory_format=memory_format))


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_avg_pool2d_dtypes(dtype):
    check_accurate(lambda x: aten.avg_pool2d.default(x, 3, 2, 1, False, False), _image(dtype))


@pytest.mark.parametrize("case", [(2, [], 0), (3, 2, 1, False, False)], ids=str)
def test_avg_pool2d_with_symbolic_sizes(case):
    check_accurate(lambda x: aten.avg_pool2d.default(x, *case), _image(), dynamic=True)


def test_avg_pool3d():
    x = torch.randn(1, 2, 5, 6, 7)
    check_accurate(lambda x: aten.avg_pool3d.default(x, 3, 2, 1, True, False), x)


def test_avg_pool2d_of_integers_is_left_to_eager():
    x = torch.arange(16).view(1, 1, 4, 4)
    assert torch.equal(
        interpreted(lambda x: aten.avg_pool2d.default(x, 2), x, extern=True), aten.avg_pool2d.default(x, 2)
    )


@pytest.mark.parametrize("memory_format", FORMATS)
@pytest.mark.parametrize("size", [[1, 1], [3, 5], [4, 3], [9, 10], [12, 7]], ids=str)
def test_adaptive_pools(size, memory_format):
    x = _image(memory_format=memory_format)
    check_accurate(lambda x: aten._adaptive_avg_pool2d.default(x, size), x)
    check_exact(lambda x: aten.adaptive_max_pool2d.default(x, size), x)


def test_adaptive_average_of_low_precision_and_of_volumes():
    check_accurate(lambda x: aten._adaptive_avg_pool2d.default(x, [4, 3]), _image(torch.bfloat16))
    check_accurate(lambda x: aten._adaptive_avg_pool3d.default(x, [2, 3, 4]), torch.randn(2, 3, 4, 5, 6))


def test_adaptive_pools_with_symbolic_sizes_work_where_the_window_is_constant():
    check_accurate(lambda x: aten._adaptive_avg_pool2d.default(x, [1, 1]), _image(), dynamic=True)
    got = interpreted(lambda x: aten._adaptive_avg_pool2d.default(x, [4, 3]), _image(), dynamic=True, extern=True)
    assert got.shape == (2, 3, 4, 3)


def test_pools_of_an_empty_batch_and_of_strided_inputs():
    for x in (torch.empty(0, 3, 8, 8), torch.randn(2, 3, 8, 16)[..., ::2].transpose(2, 3)):
        check_exact(lambda x: aten.max_pool2d_with_indices.default(x, 3, 2, 1), x)
        check_accurate(lambda x: aten._adaptive_avg_pool2d.default(x, [3, 2]), x)


def test_max_pool2d_of_integers():
    check_exact(lambda x: aten.max_pool2d_with_indices.default(x, 3, 2, 1), torch.randint(-50, 50, (1, 2, 8, 8)))
