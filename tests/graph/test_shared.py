"""Results that share memory in eager mode share it behind a packed convolution, too."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from tests.cases import in_turns
from tests.e2e.support import assert_same

CONVOLUTION = torch.nn.Conv2d(2, 7, 1).eval()

CASES: dict[str, Callable[[Tensor], tuple[Tensor, ...]]] = {
    "a result and its views": lambda x: (x, x[:, 1], x.mT),
    "views of a part": lambda x: (x.split(5, 1)[0][1:], x.split(5, 1)[0].flatten(2)),
    "two parts": lambda x: tuple(x.split(5, 1)),
    "views of what follows": lambda x: (lambda y: (y[1:], y.mT, x.sum(0)))(x.relu()),
    "the same twice": lambda x: (x, x),
    "views of views": lambda x: (x.unsqueeze(0).transpose(0, 1), x.unsqueeze(0)[..., 1:], x.sin()),
}


def memories(results: tuple[Tensor, ...]) -> list[tuple[int, int]]:
    """For each result: the first that has the same storage, and the offset in it."""
    storages = [r.untyped_storage().data_ptr() for r in results]
    return [(storages.index(s), r.storage_offset()) for s, r in zip(storages, results, strict=True)]


@pytest.mark.parametrize(("name", "dynamic"), in_turns(CASES, [True, False]))
def test_results_of_a_convolution_share_memory_as_in_eager_mode(name: str, dynamic: bool) -> None:
    def function(x: Tensor) -> tuple[Tensor, ...]:
        return CASES[name](CONVOLUTION(x))

    with torch.no_grad():
        x = torch.randn(3, 2, 4, 5)
        expected = function(x)
        actual = torch.compile(function, backend="icpu", dynamic=dynamic)(x)
    assert_same(actual, expected, atol=1e-5, rtol=1e-5)
    assert memories(actual) == memories(expected)
