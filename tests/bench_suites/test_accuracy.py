"""Whether two outcomes are the same, by their distance to the outcome in double precision."""

from __future__ import annotations

import pytest
import torch

from bench_suites.accuracy import difference


@pytest.mark.parametrize("cast", [torch.float64, torch.float32])
def test_a_result_cast_to_float32_is_judged_by_its_distance_to_the_exact_one(cast: torch.dtype) -> None:
    exact = torch.linspace(0.1, 3, 1000, dtype=torch.float64)
    noise = torch.randn(2, 1000, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 5e-3
    eager, near, far = (exact + noise[0]).float(), (exact + noise[1]).float(), (exact + 20 * noise[1]).float()

    def compared(other: torch.Tensor) -> str | None:
        return difference({"outputs": [eager]}, {"outputs": [other]}, {"outputs": [exact.to(cast)]}, 1e-3)

    assert compared(near) is None
    assert compared(far) is not None
