"""What the suite of kernels alone measures, and against what."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from bench_suites.gemm.contest import MOST, Call, Row, compete, libraries, ours
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


class Pedantic:
    """What `compete` uses of pytest-benchmark: a set-up before each timed call."""

    def __init__(self) -> None:
        self.extra_info: dict[str, Any] = {}
        self.stats = SimpleNamespace(stats=SimpleNamespace(median=4.0))

    def pedantic(self, call: Call, setup: Call, rounds: int, iterations: int) -> None:
        for _ in range(rounds):
            setup()
            for _ in range(iterations):
                call()


def test_the_limit_is_measured_before_each_round_and_its_median_counts() -> None:
    order: list[str] = []
    paces = iter([50.0, 100.0, 5.0] * MOST)

    def limit() -> float:
        order.append("limit")
        return next(paces)

    calls = {name: partial(order.append, name) for name in ("icpu", "other")}
    row = compete(Pedantic(), Row("fp32", "a", 1, work=100.0, limit=limit), calls)
    rounds = order[order.index("limit") :]
    assert len(rounds) == 3 * MOST  # such short calls fit into the budget as often as is allowed
    assert rounds == ["limit", "other", "icpu"] * MOST
    assert row.share == pytest.approx(100 / 50 / 4)


def test_onednn_takes_part_only_where_it_has_the_dtype(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: False)
    x, weight = torch.randn(4, 32), torch.randn(16, 32)
    assert list(libraries(x, weight)) == ["blas", "onednn"]
    assert list(libraries(x.bfloat16(), weight.bfloat16())) == ["blas"]


@pytest.mark.skipif("avx2" not in detect().features, reason="this CPU has no AVX2")
def test_peaks_are_measured_here() -> None:
    assert peak("fp32", 1) > 1e9
    assert peak("bf16", 1) > 1e9
    assert peak("int8", 1) > 1e9
    read(1, [torch.zeros(100_000)])
