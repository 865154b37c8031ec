"""Operators that are taken apart by rules of our own, where torch's decompositions differ from eager mode."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

Tensor = torch.Tensor


@pytest.mark.parametrize("reduction", ["none", "mean"])
@pytest.mark.parametrize("loss", [F.huber_loss, F.soft_margin_loss])
def test_a_loss_has_the_dtype_of_its_first_argument(loss: Callable[..., Tensor], reduction: str) -> None:
    x, target = torch.linspace(-2, 2, 12).view(3, 4).bfloat16(), torch.ones(3, 4)
    for first, second in ((x, target), (target, x)):
        expected = loss(first, second, reduction=reduction)
        actual = torch.compile(loss, backend="icpu")(first, second, reduction=reduction)
        assert actual.dtype == expected.dtype
        torch.testing.assert_close(actual.float(), expected.float(), rtol=2e-2, atol=1e-2)
