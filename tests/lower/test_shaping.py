"""cat, pad, repeat, roll, flip, triangles and their relatives."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from tests.lower.harness import check

DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.int8, torch.uint8, torch.bool]


def numbers(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return (torch.randn(shape) * 4).abs().to(dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("dim", [0, 1, -1])
def test_cat(dim: int, dtype: torch.dtype) -> None:
    x = numbers(3, 4, 5, dtype=dtype)
    check(lambda x, y: torch.cat([x, y, x], dim), x, numbers(3, 4, 5, dtype=dtype))
    check(lambda x, y: torch.stack([x, y], dim), x, numbers(3, 4, 5, dtype=dtype))


def test_cat_of_mixed_inputs() -> None:
    check(lambda x, y: torch.cat([x, y]), torch.randn(2, 3), numbers(4, 3, dtype=torch.int32))
    check(lambda x, y: torch.cat([x, y]), torch.randn(2, 3), torch.empty(0))
    check(lambda x, y: torch.cat([x, y], 1), torch.randn(2, 3), torch.empty(2, 0))
    check(lambda x: torch.cat([x]), torch.randn(2, 3))
    check(lambda x: torch.cat([x, x]), torch.empty(0))
    check(lambda x, y: torch.cat([x.t(), y[:, ::2]]), torch.randn(3, 2), torch.randn(4, 6))
    check(lambda x, y: torch.cat([x, y], 1), *(torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),) * 2)
    check(lambda *xs: torch.cat(xs), *(torch.randn(k + 1, 2) for k in range(12)))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_constant_pad(dtype: torch.dtype) -> None:
    x = numbers(3, 4, 5, dtype=dtype)
    check(lambda x: F.pad(x, (1, 2)), x)
    check(lambda x: F.pad(x, (0, 2, 3, 0), value=1), x)
    check(lambda x: F.pad(x, (-1, 2, 1, -2)), x)
    check(lambda x: F.pad(x, (-1, -1)), x)
    check(lambda x: F.pad(x, (0, 0)), x)


def test_constant_pad_with_special_values_and_shapes() -> None:
    check(lambda x: F.pad(x, (1, 1), value=float("-inf")), torch.randn(3))
    check(lambda x: F.pad(x, (1, 1), value=0.1), torch.randn(3, dtype=torch.bfloat16))
    check(lambda x: F.pad(x, (1, 1, 2, 0)), torch.randn(0, 3))
    check(lambda x: F.pad(x, (1, 1)), torch.randn(2, 3, 4, 4).to(memory_format=torch.channels_last))


@pytest.mark.parametrize("mode", ["reflect", "replicate"])
@pytest.mark.parametrize(
    ("shape", "pad"),
    [
        ((2, 3, 7), (2, 3)),
        ((2, 3, 5, 6), (1, 2, 3, 0)),
        ((3, 5, 6), (1, 2, 3, 0)),
        ((1, 2, 4, 5, 6), (1, 2, 3, 1, 2, 0)),
    ],
)
def test_border_pads(mode: str, shape: tuple[int, ...], pad: tuple[int, ...]) -> None:
    check(lambda x: F.pad(x, pad, mode=mode), torch.randn(shape))


def test_circular_pad() -> None:
    check(lambda x: F.pad(x, (1, 2), mode="circular"), torch.randn(2, 3, 6))


@pytest.mark.parametrize("repeats", [(2, 3), (1, 1), (2, 1, 3), (0, 2)])
def test_repeat(repeats: tuple[int, ...]) -> None:
    check(lambda x: x.repeat(repeats), torch.randn(3, 4))
    check(lambda x: x.repeat(repeats), torch.randn(1, 4))


def test_tile_and_repeat_interleave() -> None:
    check(lambda x: x.tile((2, 2)), torch.randn(3, 4))
    check(lambda x: x.repeat_interleave(3, 1), torch.randn(3, 4))
    check(lambda x: x.repeat(0, 2), torch.randn(0, 4))
    check(lambda x: x.repeat(3), torch.tensor(2.0))


def test_roll() -> None:
    check(lambda x: (x.roll(2, 0), x.roll(-1, 1), x.roll((1, 9), (0, 1))), torch.randn(4, 5))
    check(lambda x: x.roll(2), torch.randn(5))
    check(lambda x: x.roll(3), torch.randn(4, 5), calls=["roll.default"])
    check(lambda x: x.roll(2, 0), torch.randn(0, 5))


def test_flip() -> None:
    check(lambda x: (x.flip(0), x.flip(-1, 0), x.fliplr(), torch.rot90(x)), torch.randn(4, 5))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("diagonal", [-2, 0, 1, 9])
def test_triangles(diagonal: int, dtype: torch.dtype) -> None:
    check(lambda x: (x.tril(diagonal), x.triu(diagonal)), numbers(2, 4, 5, dtype=dtype))


def test_ops_that_decompose_to_views() -> None:
    check(lambda x: F.pixel_shuffle(x, 2), torch.randn(2, 8, 3, 4))
    check(lambda x: F.pixel_unshuffle(x, 2), torch.randn(2, 2, 6, 4))
    check(lambda x: F.channel_shuffle(x, 2), torch.randn(2, 8, 3, 4))
    check(lambda x: torch.diag_embed(x), torch.randn(3, 4))
    check(lambda x: torch.meshgrid(x, x, indexing="ij"), torch.randn(3))
    check(lambda x: torch.block_diag(x, x), torch.randn(2, 3))


def test_unfold_of_images_and_back() -> None:
    check(lambda x: F.unfold(x, 3, padding=1), torch.randn(2, 3, 5, 6))


def test_dynamic_shapes() -> None:
    check(lambda x, y: torch.cat([x, y], 1) * 2, torch.randn(3, 4), torch.randn(3, 5), dynamic=True)
    check(lambda x: F.pad(x, (1, 2, 3, 0)), torch.randn(4, 5), dynamic=True)
    check(lambda x: x.repeat(2, 3), torch.randn(4, 5), dynamic=True)
    check(lambda x: x.roll(2, 0).flip(1), torch.randn(4, 5), dynamic=True)
    check(lambda x: x.tril(), torch.randn(4, 5), dynamic=True)
    check(lambda x: F.pad(x, (1, 2), mode="reflect"), torch.randn(2, 4, 5), dynamic=True)
