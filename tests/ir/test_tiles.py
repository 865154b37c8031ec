"""Weights packed for tiles, and the gradient of weights: what the verifier refuses, how they print, what they mean."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from inductor_cpu.errors import InternalError
from inductor_cpu.ir.interpret import run
from inductor_cpu.ir.loop_nest import View
from inductor_cpu.ir.micro_kernels import MICRO_KERNELS
from inductor_cpu.ir.nodes import Program, TilePacking, WeightGradient
from inductor_cpu.ir.printer import show
from inductor_cpu.ir.verify import verify_program
from inductor_cpu.ir.windows import TILE_PLACES, Pieces, unpack_windows
from tests.ir.build import buffer, program, whole

ROW = MICRO_KERNELS["fma_f32_avx2"]
WEIGHT = buffer("w", (48, 32, 3, 3), "input")
IMAGE, GRADIENTS = buffer("x", (2, 5, 6, 32), "input"), buffer("e", (2, 5, 6, 48), "input")
GRADIENT = buffer("g", (48, 3, 3, 32), "output")


def packing(turned: bool = False) -> Program:
    columns, channels = (32, 48) if turned else (48, 32)
    packed = buffer("p", ROW.packed_shape(columns, TILE_PLACES * channels), "output")
    return program([WEIGHT, packed], [TilePacking("tiles", ROW.name, whole(WEIGHT), turned, "p")])


def gradient(image: View | None = None, out: str = "g") -> Program:
    node = WeightGradient("gradient", ROW.name, image or whole(IMAGE), whole(GRADIENTS), (1, 1), out)
    return program([IMAGE, GRADIENTS, GRADIENT], [node])


def refuse(value: Program, text: str) -> None:
    with pytest.raises(InternalError) as caught:
        verify_program(value)
    assert text in caught.value.message


@pytest.mark.parametrize("turned", [False, True])
def test_packed_weights_are_those_of_the_convolution_or_of_the_one_of_its_gradients(turned: bool) -> None:
    given = packing(turned)
    verify_program(given)
    weight = torch.randn(48, 32, 3, 3)
    (packed,) = run(given, [weight])
    expected = weight.transpose(0, 1).flip(2, 3) if turned else weight
    columns, channels = expected.shape[:2]
    matrix = unpack_windows(ROW, packed, columns, Pieces(TILE_PLACES, channels, tiles=True))
    torch.testing.assert_close(matrix.reshape(columns, 3, 3, channels).permute(0, 3, 1, 2), expected)


def test_the_gradient_is_that_of_torch() -> None:
    verify_program(gradient())
    x, e = torch.randn(2, 5, 6, 32), torch.randn(2, 5, 6, 48)
    (found,) = run(gradient(), [x, e])
    weight = torch.zeros(48, 32, 3, 3, requires_grad=True)
    torch.nn.functional.conv2d(x.permute(0, 3, 1, 2), weight, padding=1).backward(e.permute(0, 3, 1, 2))
    assert weight.grad is not None
    torch.testing.assert_close(found, weight.grad.permute(0, 2, 3, 1))


def test_both_print_themselves() -> None:
    assert "tiles: p = w[48, 32, 3, 3; 288, 9, 3, 1] turned around, packed by tiles for fma_f32_avx2" in show(
        packing(True)
    )
    assert "gradient: g = fma_f32_avx2 gradient of the weights of 3x3 windows padded by 1x1 of x[2, 5, 6, 32" in show(
        gradient()
    )


def test_weights_of_other_windows_are_refused() -> None:
    (node,) = packing().nodes
    view = whole(WEIGHT)
    refuse(
        replace(packing(), nodes=(replace(node, weight=replace(view, sizes=(*view.sizes[:3], view.sizes[0]))),)),
        "3 x 3",
    )


def test_a_part_of_a_step_is_refused() -> None:
    view = whole(IMAGE)
    refuse(gradient(replace(view, sizes=(*view.sizes[:3], view.sizes[0]))), "x has a part of a step")


def test_images_by_planes_are_refused() -> None:
    view = whole(IMAGE)
    refuse(gradient(replace(view, strides=view.strides[::-1])), "x is not channels-last")


def test_results_of_the_wrong_size_are_refused() -> None:
    refuse(replace(packing(), nodes=(replace(packing().nodes[0], turned=True),)), "p has other sizes")
    small = buffer("g", (48, 3, 3, 16), "output")
    refuse(program([IMAGE, GRADIENTS, small], gradient().nodes), "g has the wrong sizes")
