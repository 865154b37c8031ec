"""What the suite of kernels alone measures, and against what."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from bench_suites.gemm.contest import Row, ours
from bench_suites.gemm.machine import peak, read
from bench_suites.suites.gemm import Int8Linear
from inductor_cpu.targets.cpu import detect


def test_ours_computes_the_module_without_its_guards() -> None:
    module, x = nn.Linear(32, 48), torch.randn(5, 32)
    with torch.no_grad():
        (result,) = ours(module, x)()
        torch.testing.assert_close(result, module(x))


def test_ours_computes_a_linear_layer_of_bytes() -> None:
    module, x = Int8Linear(64, 48), torch.randint(-128, 128, (20, 64), dtype=torch.int8)
    (result,) = ours(module, x)()
    torch.testing.assert_close(result, module(x))


def test_a_row_compares_with_the_limit_and_with_others() -> None:
    row = Row("bf16", "a", 1, work=100.0, limit=lambda: 50.0, seconds={"icpu": 4.0, "limit": 2.0, "onednn": 8.0})
    assert (row.share, row.times("onednn")) == (0.5, 2.0)
    row.bar("share", row.share, 0.5)
    row.bar("share", row.share, 0.6)
    assert [reached for _, reached in row.bars] == [True, False]
    assert Row("decode", "b", 1, work=100.0, seconds={"icpu": 4.0, "read": 3.0}).share == 0.75


@pytest.mark.skipif("avx2" not in detect().features, reason="this CPU has no AVX2")
def test_peaks_are_measured_here() -> None:
    assert peak("fp32", 1) > 1e9
    assert peak("bf16", 1) > 1e9
    assert peak("int8", 1) > 1e9
    read(1, [torch.zeros(100_000)])
