"""The table of micro kernels of matrix products: what each multiplies and how it wants the second operand packed.

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
    """One row. header, code: file in templates/gemm and the C++ class in it; dtype: of the first operand, and of the
    second unless `weight` says otherwise; total: of the sums; needs: features of the CPU as in /proc/cpuinfo; isa: the
    instruction set that its kernels are compiled for."""

    name: str
    header: str
    code: str
    dtype: torch.dtype
    columns: int
    tile: int
    step: int
    pair: int
    isa: str
    needs: frozenset[str]
    weight: torch.dtype | None = None
    total: torch.dtype = torch.float32

    def packed_shape(self, columns: int, depth: int) -> tuple[int, ...]:
        """(panels, steps, tiles, groups, columns of a tile, values of a group) of a packed operand."""
        panels, steps = -(-columns // self.columns), -(-depth // self.step)
        return (panels, steps, self.columns // self.tile, self.step // self.pair, self.tile, self.pair)

    def split_shape(self, columns: int, depth: int) -> tuple[int, ...]:
        """The shape as which a (columns, depth) matrix, padded with zeros, is seen before `ORDER` permutes it."""
        panels, steps, tiles, groups, tile, pair = self.packed_shape(columns, depth)
        return (panels, tiles, tile, steps, groups, pair)


#: The permutation from `split_shape` to `packed_shape`.
ORDER = (0, 3, 1, 4, 2, 5)

#: Of two rows of a dtype the first one that a machine has is used.
MICRO_KERNELS: Mapping[str, MicroKernel] = {
    row.name: row
    for row in (
        MicroKernel(
            "amx_bf16", "amx_bf16.h", "AmxBf16", torch.bfloat16, 32, 16, 32, 2, "avx512",
            frozenset({"amx_tile", "amx_bf16"}),
        ),
        MicroKernel(
            "split_f32", "split_f32.h", "SplitF32", torch.float32, 32, 32, 32, 1, "avx512",
            frozenset({"amx_tile", "amx_bf16"}),
        ),
        MicroKernel(
            "fma_f32", "fma_f32.h", "FmaF32", torch.float32, 48, 48, 16, 1, "avx512", frozenset({"avx512f"}),
        ),
        MicroKernel(
            "amx_s8", "amx_int8.h", "AmxS8", torch.int8, 32, 16, 64, 4, "avx512", frozenset({"amx_tile", "amx_int8"}),
            torch.int8, torch.int32,
        ),
    )
}  # fmt: skip


def unpack(packed: torch.Tensor, columns: int, depth: int) -> torch.Tensor:
    """The (columns, depth) matrix in a packed operand."""
    panels, steps, tiles, groups, tile, pair = packed.shape
    back = packed.permute(0, 2, 4, 1, 3, 5).reshape(panels * tiles * tile, steps * groups * pair)
    return back[:columns, :depth]
