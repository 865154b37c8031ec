"""Interpolation against eager."""

from __future__ import annotations

import functools

import pytest
import torch

from inductor_cpu.ir.interpret import run
from inductor_cpu.ir.loop_nest import LoopNest, Scalar
from tests.cases import cases
from tests.lower.accuracy import check_accurate, check_exact, interpreted
from tests.lower.harness import lower

aten = torch.ops.aten
MODES = ("nearest", "nearest-exact", "bilinear")
FORMATS = (torch.contiguous_format, torch.channels_last)
NEAREST = (aten.upsample_nearest2d.default, aten._upsample_nearest_exact2d.default)
SIZES = ([10, 14], [15, 21], [5, 7], [8, 11], [3, 2], [82, 1])


def _image(dtype: torch.dtype = torch.float32, memory_format: torch.memory_format = torch.contiguous_format):
    return torch.randn(2, 3, 5, 7).to(dtype).contiguous(memory_format=memory_format)


@pytest.mark.parametrize("memory_format", FORMATS)
@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("op", NEAREST)
def test_nearest(op, size, memory_format):
    check_exact(lambda x: op(x, size), _image(memory_format=memory_format))


@pytest.mark.parametrize("op", NEAREST)
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.uint8])
def test_nearest_dtypes(dtype, op):
    check_exact(lambda x: op(x, [8, 14]), (_image() * 10).abs().to(dtype))


@pytest.mark.parametrize("scale", [2.0, 1.5, 1.1, 0.5, 2.7, 3.0])
@pytest.mark.parametrize("op", NEAREST)
def test_nearest_with_scales_uses_them_instead_of_the_sizes(op, scale):
    check_exact(lambda x: op(x, [int(5 * scale), int(7 * scale)], scale, scale), _image())


@pytest.mark.parametrize("op", [aten.upsample_nearest1d.default, aten._upsample_nearest_exact1d.default])
@pytest.mark.parametrize(("source", "target"), [(2, 41), (2, 55), (3, 82), (4, 8), (9, 3), (7, 5), (6, 60)])
def test_nearest1d_also_at_the_border_between_two_elements(source, target, op):
    check_exact(lambda x: op(x, [target]), torch.randn(2, 3, source))


@pytest.mark.parametrize("op", [aten.upsample_nearest3d.default, aten._upsample_nearest_exact3d.default])
def test_nearest3d(op):
    check_exact(lambda x: op(x, [4, 5, 9]), torch.randn(1, 2, 2, 3, 4))


#: Where sizes are symbols, which takes the interpreter a second and more, each mode has one factor of every run.
RESIZED = [(mode, scale, False) for mode in MODES for scale in (1.1, 2.2, 1.5)]
OF_SYMBOLS = [("nearest", 2.2, True), ("nearest-exact", 1.1, True), ("bilinear", 1.5, True)]


@pytest.mark.parametrize(
    ("mode", "scale", "dynamic"),
    cases([*RESIZED, *OF_SYMBOLS], [c for mode, scale, _ in RESIZED if (c := (mode, scale, True)) not in OF_SYMBOLS]),
)
def test_factors_to_the_same_size_or_twice_the_size_as_eager(mode, scale, dynamic):
    for shape, kind in (((5, 7), ""), ((7,), "1"), ((4, 9, 3), "3")):
        own = mode if mode != "bilinear" else {"": "bilinear", "1": "linear", "3": "trilinear"}[kind]
        for channels in (2, 4):
            x = torch.randn(2, channels, *shape)
            x = x.contiguous(memory_format=torch.channels_last_3d) if kind == "3" else x
            resize = functools.partial(torch.nn.functional.interpolate, scale_factor=scale, mode=own)
            for got in run(lower(resize, x, dynamic=dynamic), [x]):
                torch.testing.assert_close(got, resize(x), rtol=2e-6, atol=2e-6)


def test_nearest_to_a_size_that_is_the_same_at_a_later_call_ignores_the_scale():
    resize = functools.partial(torch.nn.functional.interpolate, scale_factor=1.1)
    program = lower(resize, torch.randn(2, 3, 20, 30), dynamic=True)
    for x in (torch.randn(2, 3, 7, 40), torch.randn(2, 3, 40, 9)):
        assert torch.equal(run(program, [x])[0], resize(x))


@pytest.mark.parametrize("op", NEAREST)
def test_nearest_with_symbolic_sizes(op):
    check_exact(lambda x: op(x, [x.shape[2] * 2, x.shape[3] + 4]), _image(), dynamic=True)


@pytest.mark.parametrize("op", NEAREST)
@pytest.mark.parametrize("size", [[15, 14], [5, 7]], ids=str)
def test_nearest_by_whole_factors_needs_no_floats(size, op):
    (nest,) = lower(lambda x: op(x, size), _image()).nodes
    assert isinstance(nest, LoopNest)
    assert not any(isinstance(instr, Scalar) for instr in nest.body)


def test_nearest_of_f64_with_a_scale_is_left_to_eager():
    x = _image(torch.float64)
    got = interpreted(lambda x: aten.upsample_nearest2d.default(x, [13, 18], 2.7, 2.7), x, extern=True)
    assert got.shape == (2, 3, 13, 18)


@pytest.mark.parametrize("memory_format", FORMATS)
@pytest.mark.parametrize("align", [False, True])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_bilinear(size, align, memory_format):
    x = _image(memory_format=memory_format)
    check_accurate(lambda x: aten.upsample_bilinear2d.default(x, size, align), x)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("align", [False, True])
def test_bilinear_dtypes(align, dtype):
    check_accurate(lambda x: aten.upsample_bilinear2d.default(x, [9, 13], align), _image(dtype))


@pytest.mark.parametrize("align", [False, True])
def test_bilinear_with_scales_and_with_symbolic_sizes(align):
    check_accurate(lambda x: aten.upsample_bilinear2d.default(x, [13, 18], align, 2.7, 2.7), _image())
    check_accurate(lambda x: aten.upsample_bilinear2d.default(x, [13, 18], align), _image(), dynamic=True)


def test_linear_to_the_same_size_ignores_the_scale():
    for dims, op in enumerate((aten.upsample_linear1d, aten.upsample_bilinear2d, aten.upsample_trilinear3d), 1):
        x = torch.randn(2, 3, *(5, 6, 4)[:dims])
        check_accurate(lambda x: op.default(x, x.shape[2:], False, *[1.1] * dims), x)  # noqa: B023


def test_linear_to_a_size_that_is_the_same_at_a_later_call_ignores_the_scale():
    def resize(x):
        return aten.upsample_linear1d.default(x, [x.shape[2] * 11 // 10], False, 1.1)

    program, x = lower(resize, torch.randn(2, 3, 20), dynamic=True), torch.randn(2, 3, 7)
    assert torch.equal(run(program, [x])[0], x)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("size", [[5, 7], [5, 9], [10, 7]], ids=str)
def test_an_infinite_pixel_times_zero_is_nan_also_for_the_same_size(size, dynamic):
    x = _image()
    x[0, 1, 2, 3] = x[1, 2, 4, 6] = float("inf")
    check_accurate(lambda x: aten.upsample_bilinear2d.default(x, size, False), x, dynamic=dynamic)


def test_bilinear_of_one_pixel_repeats_it():
    x = torch.randn(1, 2, 1, 1)
    got = interpreted(lambda x: aten.upsample_bilinear2d.default(x, [3, 4], False), x)
    assert torch.equal(got, x.expand(1, 2, 3, 4))


@pytest.mark.parametrize("align", [False, True])
def test_linear_and_trilinear(align):
    check_accurate(lambda x: aten.upsample_linear1d.default(x, [13], align), torch.randn(2, 3, 6))
    check_accurate(lambda x: aten.upsample_trilinear3d.default(x, [4, 5, 9], align), torch.randn(1, 2, 2, 3, 4))


def test_bilinear_of_integers_is_left_to_eager():
    x = torch.randint(0, 255, (1, 3, 4, 4), dtype=torch.uint8)
    got = interpreted(lambda x: aten.upsample_bilinear2d.default(x, [8, 8], False), x, extern=True)
    assert torch.equal(got, aten.upsample_bilinear2d.default(x, [8, 8], False))


@pytest.mark.parametrize(
    ("shape", "sizes", "layout", "nests"),
    [
        ((2, 3, 5, 7), (10, 14), torch.contiguous_format, 2),
        ((2, 3, 5, 7), (8, 3), torch.contiguous_format, 2),
        ((2, 3, 5, 7), (10, 7), torch.contiguous_format, 1),
        ((2, 3, 5, 7), (10, 14), torch.channels_last, 1),
        ((2, 3, 5, 7), (4, 14), torch.contiguous_format, 1),
        ((2, 3, 4, 5, 6), (8, 9, 11), torch.contiguous_format, 3),
        ((2, 3, 4, 5, 6), (2, 11, 11), torch.contiguous_format, 2),
    ],
    ids=str,
)
def test_rows_are_interpolated_once_before_other_dimensions_grow(
    shape: tuple[int, ...], sizes: tuple[int, ...], layout: torch.memory_format, nests: int
) -> None:
    mode = "bilinear" if len(sizes) == 2 else "trilinear"
    x = torch.randn(shape).contiguous(memory_format=layout)
    assert len(lower(lambda x: torch.nn.functional.interpolate(x, sizes, mode=mode), x).nodes) == nests
