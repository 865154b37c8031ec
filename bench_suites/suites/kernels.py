"""The corpus of loop nests (`bench_suites/kernels/`) as a suite, to run it with other backends and dtypes."""

from __future__ import annotations

import functools

from bench_suites.kernels.row import F32, KernelRow, Size
from bench_suites.kernels.table import FAMILIES
from bench_suites.suites.case import Call, Case, Request, Row, Suite


def _build(row: KernelRow, request: Request) -> Case:
    return Case(Call(row.function), row.build(F32, Size.TINY if request.tiny else Size.FULL))


KERNELS = Suite(
    "kernels",
    tuple(
        Row(row.name, functools.partial(_build, row), modes=("inference",))
        for rows in FAMILIES.values()
        for row in rows
        if not row.random
    ),
    inference=1e-4,
    training=1e-4,
    low_precision=1e-3,
)
