"""All rows of the corpus, and their names."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from bench_suites.kernels.row import F32, KernelRow
from bench_suites.kernels.rows.movement import MOVEMENT
from bench_suites.kernels.rows.pointwise import POINTWISE
from bench_suites.kernels.rows.records import RECORDS
from bench_suites.kernels.rows.reductions import REDUCTIONS
from bench_suites.kernels.rows.training import TRAINING

FAMILIES: dict[str, tuple[KernelRow, ...]] = {
    "pointwise": POINTWISE,
    "reductions": REDUCTIONS,
    "movement": MOVEMENT,
    "records": RECORDS,
    "training": TRAINING,
}


@dataclass(frozen=True)
class Variant:
    """A row in one dtype."""

    row: KernelRow
    dtype: torch.dtype

    @property
    def name(self) -> str:
        """The row's name, with the dtype where it is not float32."""
        return self.row.name if self.dtype == F32 else f"{self.row.name}-{str(self.dtype).removeprefix('torch.')}"


def variants(family: str) -> list[Variant]:
    """The rows of a family, each in all of its dtypes."""
    return [Variant(row, dtype) for row in FAMILIES[family] for dtype in row.dtypes]
