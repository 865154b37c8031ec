"""Linear layers alone: bf16, float and int8, many rows and one, against oneDNN's packed linear and the BLAS."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from bench_suites.gemm.contest import Row, compete, libraries, ours
from bench_suites.gemm.machine import its_peak, read
from bench_suites.suites.gemm import MLPS, ONE_ROW, ROWS, WEIGHTS, Int8Linear, Mlp, WeightOnlyLinear

#: dtype, and the share of its peak that many rows should reach.
DTYPES = {"bf16": (torch.bfloat16, 0.5), "fp32": (torch.float32, 0.75)}
MANY = 128
INT8_SHARE, ONE_ROW_SHARE, GELU = 0.45, 0.9, 1.15


def _size(rows: int, depth: int, columns: int) -> str:
    return f"{rows} x {depth} x {columns}"


@pytest.mark.parametrize("size", [(m, k, n) for k, n in WEIGHTS for m in ROWS], ids=lambda s: "x".join(map(str, s)))
@pytest.mark.parametrize("kind", DTYPES)
@torch.no_grad()
def test_linear(benchmark: Any, rows: list[Row], threads: int, kind: str, size: tuple[int, int, int]) -> None:
    """Many rows. "gelu" is ours with bias and exact gelu."""
    (m, k, n), (dtype, share) = size, DTYPES[kind]
    limit = its_peak(kind, threads)
    plain = nn.Linear(k, n, bias=False).to(dtype)
    gelu = nn.Sequential(nn.Linear(k, n), nn.GELU()).to(dtype)
    x = torch.randn(m, k).to(dtype)
    others = libraries(x, plain.weight)
    calls = {"icpu": ours(plain, x), "gelu": ours(gelu, x), **others}
    row = compete(benchmark, Row(kind, _size(m, k, n), threads, 2.0 * m * k * n, limit), calls)
    row.seconds["best"] = min(row.seconds[name] for name in others)
    if m >= MANY:
        row.bar("share", row.share, share)
    if kind == "bf16":
        row.bar("plain over gelu", row.seconds["icpu"] / row.seconds["gelu"], 1 / GELU)
    rows.append(row)


@pytest.mark.parametrize(
    "size", [(m, k, n) for k, n in WEIGHTS for m in (*ROWS, 1)], ids=lambda s: "x".join(map(str, s))
)
@torch.no_grad()
def test_int8(benchmark: Any, rows: list[Row], threads: int, size: tuple[int, int, int]) -> None:
    """A product of bytes with scales and bias, against oneDNN's product without them."""
    m, k, n = size
    limit = its_peak("int8", threads)
    module, x = Int8Linear(k, n), torch.randint(-128, 128, (m, k), dtype=torch.int8)
    by_columns = module.weight.t()
    calls = {"icpu": ours(module, x), "onednn": lambda: torch._int_mm(x, by_columns)}
    row = Row("int8", _size(m, k, n), threads, 2.0 * m * k * n, limit)
    if m == 1:
        row = Row("int8", _size(m, k, n), threads, float(k * n))
        calls["read"] = lambda: read(threads, [module.weight])
    row = compete(benchmark, row, calls)
    if m >= MANY or m == 1:
        row.bar("share", row.share, INT8_SHARE if m > 1 else ONE_ROW_SHARE)
    rows.append(row)


@pytest.mark.parametrize("size", MLPS, ids=lambda s: "x".join(map(str, s)))
@pytest.mark.parametrize("kind", DTYPES)
@torch.no_grad()
def test_mlp(benchmark: Any, rows: list[Row], threads: int, kind: str, size: tuple[int, int]) -> None:
    """Norm, linear, gelu, linear and residual as one graph, against the same in two, with the hidden rows in memory."""
    (m, k), dtype, limit = size, DTYPES[kind][0], its_peak(kind, threads)
    module, x = Mlp(k).to(dtype), torch.randn(m, k).to(dtype)
    hidden = module.up(x)
    up, down = ours(module.up, x), ours(module.down, x, hidden)

    def halves() -> None:
        up()
        down()

    calls = {"icpu": ours(module, x), "halves": halves}
    rows.append(compete(benchmark, Row(f"{kind} MLP", f"{m} x {k}", threads, 16.0 * m * k * k, limit), calls))


@pytest.mark.parametrize("size", ONE_ROW, ids=lambda s: "x".join(map(str, s)))
@pytest.mark.parametrize("kind", DTYPES)
@torch.no_grad()
def test_one_row(benchmark: Any, rows: list[Row], threads: int, kind: str, size: tuple[int, int, int]) -> None:
    """The limit is how fast a weight's bytes are read."""
    (m, k, n), (dtype, _) = size, DTYPES[kind]
    module, x = nn.Linear(k, n, bias=False).to(dtype), torch.randn(m, k).to(dtype)
    calls = {"icpu": ours(module, x), "read": lambda: read(threads, [module.weight]), **libraries(x, module.weight)}
    work = float(module.weight.nbytes)
    row = compete(benchmark, Row(f"{kind} few rows", _size(m, k, n), threads, work), calls)
    if m == 1 and module.weight.nbytes > 16 << 20:
        row.bar("share", row.share, ONE_ROW_SHARE)
    rows.append(row)


@pytest.mark.parametrize("size", [*ONE_ROW, *((m, 1024, 4096) for m in (32, 128))], ids=lambda s: "x".join(map(str, s)))
@torch.no_grad()
def test_weight_only(benchmark: Any, rows: list[Row], threads: int, size: tuple[int, int, int]) -> None:
    """bf16 by bytes, against ATen's operator; with one row the limit is how fast the bytes are read."""
    m, k, n = size
    module, x = WeightOnlyLinear(k, n), torch.randn(m, k).bfloat16()
    calls = {"icpu": ours(module, x), "torch": lambda: module(x), "read": lambda: read(threads, [module.weight])}
    row = compete(benchmark, Row("bf16 by int8", _size(m, k, n), threads, float(k * n)), calls)
    if m == 1 and k * n >= 16 << 20:
        row.bar("share", row.share, ONE_ROW_SHARE)
    rows.append(row)
