"""Circular padding as joins of slices."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn import functional

import inductor_cpu
from tests.cases import cases

SHAPES = [
    ((1, 4, 7, 9), (3, 2, 1, 4)),
    ((2, 3, 8), (8, 0)),
    ((3, 8), (1, 2)),
    ((2, 3, 4, 5, 6), (1, 1, 2, 2, 0, 3)),
    ((1, 4, 7, 9), (0, 0, 1, 1)),
    ((4, 7, 9), (1, 1, 2, 2)),
    ((1, 4, 7, 9), (-1, 2, 1, 1)),
    ((1, 4, 7, 9), (-1, 0, 0, 0)),
]


def padding(*pad: int) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda x: functional.pad(x, pad, mode="circular")


@pytest.mark.parametrize(
    ("shape", "pad", "dynamic"),
    cases(
        [*((*case, False) for case in SHAPES), *((*case, True) for case in SHAPES[1:3])],
        [(*case, True) for case in [SHAPES[0], *SHAPES[3:]]],
    ),
    ids=str,
)
def test_circular_padding_is_that_of_eager_mode(shape: tuple[int, ...], pad: tuple[int, ...], dynamic: bool) -> None:
    padded = padding(*pad)
    x = torch.randn(shape)
    images = [x, x.to(memory_format=torch.channels_last)] if x.dim() == 4 else [x]
    for image in images:
        result = torch.compile(padded, backend="icpu", dynamic=dynamic)(image)
        assert torch.equal(result, padded(image))
        assert result.stride() == padded(image).stride()


def test_circular_padding_is_a_join_for_each_dimension() -> None:
    explained = inductor_cpu.explain(padding(3, 3, 3, 3), torch.randn(1, 4, 56, 56))
    assert {kernel.name for kernel in explained.kernels} == {"icpu_cat", "icpu_cat_1"}
    assert not explained.extern_calls


def test_gradients_go_round() -> None:
    x = torch.randn(1, 4, 7, 9, dtype=torch.float64)
    values, padded = [x.clone().requires_grad_() for _ in range(2)], padding(3, 2, 1, 4)
    for function, value in zip((padded, torch.compile(padded, backend="icpu")), values, strict=True):
        function(value).sin().sum().backward()
    torch.testing.assert_close(values[1].grad, values[0].grad)


@torch.no_grad()
def test_convolution_over_a_torus() -> None:
    layer, x = nn.Conv2d(4, 8, 3, padding=1, padding_mode="circular").eval(), torch.randn(2, 4, 9, 9)
    torch.testing.assert_close(torch.compile(layer, backend="icpu")(x), layer(x), rtol=1e-5, atol=1e-5)


def test_padding_that_goes_round_twice_is_an_error_as_in_eager_mode() -> None:
    with pytest.raises(Exception, match="wrapping around more than once"):
        torch.compile(padding(5, 0), backend="icpu")(torch.randn(1, 2, 4))
