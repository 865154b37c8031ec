"""The table of micro kernels: of matrix products, and of convolutions of each channel, or of groups of them, by
themselves. What each multiplies, and how it wants the second operand packed.

A packed operand is a sequence of panels of `columns` columns. A panel holds its columns for the whole depth, rounded up
to a multiple of `step` with zeros, as tiles of `tile` columns: for each step, for each tile, for each group of `pair`
consecutive depths, for each column, the values of the group.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class MicroKernel:
    """One row. header, code: file in templates/gemm and the C++ class in it; dtype, weight: of the operands, the second
    one packed; total: of the sums; isa: the instruction set that its kernels are compiled for; needs: features of the
    CPU as in /proc/cpuinfo; unless: features of CPUs where a library is faster; shifts, tiles: it multiplies shifted
    images, windows of 3 x 3 by tiles of 2 x 2 windows (`ir/windows.py`); converts: it converts the packed operand
    first, which many rows pay for; in_place: it reads windows of few values, and rows that meet few panels, where they
    lie; depthwise: it convolves each channel by itself, and multiplies no matrices; grouped: the same of groups of
    channels, its columns being what lanes hold: those of a panel depend on the groups (`ir/windows.py`)."""

    name: str
    header: str
    code: str
    dtype: torch.dtype
    weight: torch.dtype
    total: torch.dtype
    columns: int
    tile: int
    step: int
    pair: int
    isa: str
    needs: frozenset[str]
    unless: frozenset[str] = frozenset()
    shifts: bool = False
    converts: bool = False
    tiles: bool = False
    depthwise: bool = False
    in_place: bool = False
    grouped: bool = False

    @property
    def multiplies(self) -> bool:
        """Whether it multiplies matrices, and not only images."""
        return not self.depthwise and not self.grouped

    @property
    def overlaps(self) -> bool:
        """Whether the vector units are idle while it multiplies: what follows runs meanwhile, a few rows at a time."""
        return "amx_tile" in self.needs

    def packed_shape(self, columns: int, depth: int) -> tuple[int, ...]:
        """(panels, steps, tiles, groups, columns of a tile, values of a group) of a packed operand."""
        panels, steps = (columns + self.columns - 1) // self.columns, (depth + self.step - 1) // self.step
        return (panels, steps, self.columns // self.tile, self.step // self.pair, self.tile, self.pair)

    def split_shape(self, columns: int, depth: int) -> tuple[int, ...]:
        """The shape as which a (columns, depth) matrix, padded with zeros, is seen before `ORDER` permutes it."""
        panels, steps, tiles, groups, tile, pair = self.packed_shape(columns, depth)
        return (panels, tiles, tile, steps, groups, pair)


#: In place of a micro kernel: loops that read the second operand where it lies, and convert as they go.
BY_LOOPS = "loops"

#: The permutation from `split_shape` to `packed_shape`.
ORDER = (0, 3, 1, 4, 2, 5)

_F32, _BF16, _F16 = torch.float32, torch.bfloat16, torch.float16
_S8, _U8, _S32 = torch.int8, torch.uint8, torch.int32

_AMX_BF16 = frozenset({"amx_tile", "amx_bf16"})
_AMX_INT8 = frozenset({"amx_tile", "amx_int8", "avx512_vnni"})
_AMX = _AMX_BF16 | _AMX_INT8
_AMX_F16 = frozenset({"amx_fp16"})
_F16_ARITHMETIC = frozenset({"avx512_fp16"})
_DOT_BF16 = frozenset({"avx512_bf16"})
_VNNI = frozenset({"avx512_vnni"})
_FMA = frozenset({"avx512f"})
_BYTES = frozenset({"avx512bw"})
_AVX_VNNI = frozenset({"avx_vnni"})
_AVX2 = frozenset({"avx2", "fma"})

#: Of the rows of a pair of dtypes the first one that a machine has is used. dot_bf16 is before fma_bf16 for CPUs
#: without AMX, which take a pair of bf16 in the time of one float or two; CPUs with AMX take longer.
MICRO_KERNELS: Mapping[str, MicroKernel] = {
    row.name: row
    for row in (
        MicroKernel("amx_bf16", "amx_bf16.h", "AmxBf16", _BF16, _BF16, _F32, 32, 16, 32, 2, "avx512", _AMX_BF16,
                    shifts=True),
        MicroKernel("amx_bf16_s8", "amx_bf16_s8.h", "AmxBf16S8", _BF16, _S8, _F32, 32, 16, 64, 4, "avx512", _AMX,
                    converts=True),
        MicroKernel("split_f32", "split_f32.h", "SplitF32", _F32, _F32, _F32, 32, 32, 32, 1, "avx512", _AMX_BF16,
                    shifts=True, converts=True),
        MicroKernel("amx_s8", "amx_int8.h", "AmxS8", _S8, _S8, _S32, 32, 16, 64, 4, "avx512", _AMX_INT8,
                    shifts=True),
        MicroKernel("amx_u8", "amx_int8.h", "AmxU8", _U8, _S8, _S32, 32, 16, 64, 4, "avx512", _AMX_INT8,
                    shifts=True),
        MicroKernel("dot_bf16", "dot_bf16.h", "DotBf16", _BF16, _BF16, _F32, 48, 48, 32, 2, "avx512", _DOT_BF16,
                    in_place=True),
        MicroKernel("dot_bf16_s8", "dot_bf16_s8.h", "DotBf16S8", _BF16, _S8, _F32, 48, 48, 32, 2, "avx512", _DOT_BF16),
        MicroKernel("vnni_s8", "vnni_avx512.h", "VnniS8", _S8, _S8, _S32, 48, 48, 64, 4, "avx512", _VNNI),
        MicroKernel("vnni_u8", "vnni_avx512.h", "VnniU8", _U8, _S8, _S32, 48, 48, 64, 4, "avx512", _VNNI),
        MicroKernel("madd_s8", "madd_avx512.h", "MaddS8", _S8, _S8, _S32, 48, 48, 32, 2, "avx512", _BYTES),
        MicroKernel("madd_u8", "madd_avx512.h", "MaddU8", _U8, _S8, _S32, 48, 48, 32, 2, "avx512", _BYTES),
        MicroKernel("fma_f32", "fma_avx512.h", "FmaF32", _F32, _F32, _F32, 48, 48, 16, 1, "avx512", _FMA, tiles=True,
                    in_place=True),
        MicroKernel("fma_bf16", "fma_avx512.h", "FmaBf16", _BF16, _BF16, _F32, 48, 48, 16, 1, "avx512", _FMA),
        MicroKernel("fma_f16", "fma_avx512.h", "FmaF16", _F16, _F16, _F32, 48, 48, 16, 1, "avx512", _FMA, _AMX_F16),
        MicroKernel("fma_f32_s8", "fma_avx512.h", "FmaF32S8", _F32, _S8, _F32, 48, 48, 16, 1, "avx512", _FMA),
        MicroKernel("fma_bf16_s8", "fma_avx512.h", "FmaBf16S8", _BF16, _S8, _F32, 48, 48, 16, 1, "avx512", _FMA),
        MicroKernel("fma_f16_s8", "fma_avx512.h", "FmaF16S8", _F16, _S8, _F32, 48, 48, 16, 1, "avx512", _FMA),
        MicroKernel("vnni_s8_avx2", "vnni_avx2.h", "VnniAvx2S8", _S8, _S8, _S32, 16, 16, 64, 4, "avx2", _AVX_VNNI),
        MicroKernel("vnni_u8_avx2", "vnni_avx2.h", "VnniAvx2U8", _U8, _S8, _S32, 16, 16, 64, 4, "avx2", _AVX_VNNI),
        MicroKernel("madd_s8_avx2", "madd_avx2.h", "MaddAvx2S8", _S8, _S8, _S32, 16, 16, 32, 2, "avx2", _AVX2),
        MicroKernel("madd_u8_avx2", "madd_avx2.h", "MaddAvx2U8", _U8, _S8, _S32, 16, 16, 32, 2, "avx2", _AVX2),
        MicroKernel("fma_f32_avx2", "fma_avx2.h", "FmaAvx2F32", _F32, _F32, _F32, 16, 16, 16, 1, "avx2", _AVX2,
                    tiles=True, in_place=True),
        MicroKernel("fma_bf16_avx2", "fma_avx2.h", "FmaAvx2Bf16", _BF16, _BF16, _F32, 16, 16, 16, 1, "avx2", _AVX2),
        MicroKernel("fma_f16_avx2", "fma_avx2.h", "FmaAvx2F16", _F16, _F16, _F32, 16, 16, 16, 1, "avx2", _AVX2),
        MicroKernel("fma_f32_s8_avx2", "fma_avx2.h", "FmaAvx2F32S8", _F32, _S8, _F32, 16, 16, 16, 1, "avx2", _AVX2),
        MicroKernel("fma_bf16_s8_avx2", "fma_avx2.h", "FmaAvx2Bf16S8", _BF16, _S8, _F32, 16, 16, 16, 1, "avx2", _AVX2),
        MicroKernel("fma_f16_s8_avx2", "fma_avx2.h", "FmaAvx2F16S8", _F16, _S8, _F32, 16, 16, 16, 1, "avx2", _AVX2),
        MicroKernel("channels_f32", "depthwise.h", "ChannelsF32", _F32, _F32, _F32, 64, 64, 1, 1, "avx512", _FMA,
                    depthwise=True),
        MicroKernel("channels_bf16", "depthwise.h", "ChannelsBf16", _BF16, _BF16, _F32, 64, 64, 1, 1, "avx512", _FMA,
                    depthwise=True),
        MicroKernel("channels_f16", "depthwise.h", "ChannelsF16", _F16, _F16, _F32, 64, 64, 1, 1, "avx512", _FMA,
                    depthwise=True),
        MicroKernel("channels_f32_avx2", "depthwise.h", "ChannelsF32", _F32, _F32, _F32, 64, 64, 1, 1, "avx2", _AVX2,
                    depthwise=True),
        MicroKernel("channels_bf16_avx2", "depthwise.h", "ChannelsBf16", _BF16, _BF16, _F32, 64, 64, 1, 1, "avx2",
                    _AVX2, depthwise=True),
        MicroKernel("channels_f16_avx2", "depthwise.h", "ChannelsF16", _F16, _F16, _F32, 64, 64, 1, 1, "avx2", _AVX2,
                    depthwise=True),
        MicroKernel("groups_f32", "grouped.h", "GroupsF32", _F32, _F32, _F32, 16, 16, 1, 1, "avx512", _FMA,
                    grouped=True),
        MicroKernel("groups_dot_bf16", "grouped_dot_bf16.h", "GroupsDotBf16", _BF16, _BF16, _F32, 16, 16, 2, 2,
                    "avx512", _DOT_BF16, _AMX_BF16, grouped=True),
        MicroKernel("groups_bf16", "grouped.h", "GroupsBf16", _BF16, _BF16, _F32, 16, 16, 1, 1, "avx512", _FMA,
                    _AMX_BF16, grouped=True),
        MicroKernel("groups_f16", "grouped.h", "GroupsF16", _F16, _F16, _F32, 16, 16, 1, 1, "avx512", _FMA,
                    _F16_ARITHMETIC, grouped=True),
        MicroKernel("groups_f32_avx2", "grouped.h", "GroupsF32", _F32, _F32, _F32, 8, 8, 1, 1, "avx2", _AVX2,
                    grouped=True),
        MicroKernel("groups_bf16_avx2", "grouped.h", "GroupsBf16", _BF16, _BF16, _F32, 8, 8, 1, 1, "avx2", _AVX2,
                    grouped=True),
        MicroKernel("groups_f16_avx2", "grouped.h", "GroupsF16", _F16, _F16, _F32, 8, 8, 1, 1, "avx2", _AVX2,
                    grouped=True),
    )
}  # fmt: skip


def pack(row: MicroKernel, weight: torch.Tensor) -> torch.Tensor:
    """A (columns, depth) weight as a packed operand."""
    columns, depth = weight.shape
    padded = torch.nn.functional.pad(weight, (0, -depth % row.step, 0, -columns % row.columns))
    return padded.reshape(row.split_shape(columns, depth)).permute(ORDER).contiguous()


def unpack_each(packed: torch.Tensor, columns: int, depth: int) -> torch.Tensor:
    """The (columns, depth) matrix in a packed operand, or (batch, columns, depth) of a batch of them."""
    if packed.dim() == len(ORDER):
        return unpack(packed, columns, depth)
    each = [unpack(one, columns, depth) for one in packed]
    return torch.stack(each) if each else packed.new_empty((0, columns, depth))


def unpack(packed: torch.Tensor, columns: int, depth: int) -> torch.Tensor:
    """The (columns, depth) matrix in a packed operand."""
    panels, steps, tiles, groups, tile, pair = packed.shape
    back = packed.permute(0, 2, 4, 1, 3, 5).reshape(panels * tiles * tile, steps * groups * pair)
    return back[:columns, :depth]
