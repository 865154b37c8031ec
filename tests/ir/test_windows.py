"""The pieces of the windows of convolutions, and packed weights with zeros between them."""

from __future__ import annotations

import pytest
import torch

from inductor_cpu.ir.micro_kernels import MICRO_KERNELS, pack
from inductor_cpu.ir.windows import Pieces, pieces_of, unpack_windows

BF16 = MICRO_KERNELS["amx_bf16"]


@pytest.mark.parametrize(
    ("kernel", "stride", "channels", "pieces"),
    [
        ((3, 3), (1, 1), 64, Pieces(9, 64)),
        ((3, 3), (2, 2), 48, Pieces(9, 48)),  # 18 steps, 15 as lines: too few to pack three times as much
        ((3, 3), (1, 1), 16, Pieces(3, 48)),
        ((7, 7), (2, 2), 3, Pieces(7, 21)),
        ((1, 1), (2, 2), 64, Pieces(1, 64)),
        ((4, 4), (4, 4), 3, Pieces(1, 48)),
    ],
)
def test_windows_that_overlap_come_in_pixels_or_lines(
    kernel: tuple[int, int], stride: tuple[int, int], channels: int, pieces: Pieces
) -> None:
    assert pieces_of(BF16, kernel, stride, channels) == pieces


def test_a_kernel_that_reads_no_shifted_images_gets_whole_windows() -> None:
    assert pieces_of(MICRO_KERNELS["fma_f32"], (3, 3), (1, 1), 64) == Pieces(1, 9 * 64)


def test_zeros_between_pieces_do_not_come_back() -> None:
    pieces = Pieces(9, 40)
    weight = torch.randn(48, pieces.count, pieces.values).bfloat16()
    padded = torch.nn.functional.pad(weight, (0, 24)).reshape(48, -1)
    assert padded.shape[1] == pieces.depth(BF16.step)
    packed = pack(BF16, padded)
    assert torch.equal(unpack_windows(BF16, packed, 48, pieces), weight.reshape(48, -1))
