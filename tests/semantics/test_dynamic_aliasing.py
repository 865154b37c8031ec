"""Results in the memory of inputs or of each other where sizes are symbols: torch makes such views by strides alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from tests.cases import cases
from tests.semantics.support import Tensor, check


def other_shape(x: Tensor) -> tuple[Tensor, Tensor]:
    return x.mul_(3) * 2, x.squeeze(0).unflatten(0, (-1, 1))


def reshaped(x: Tensor) -> tuple[Tensor, Tensor]:
    x.add_(1)
    return x.reshape(-1, 2), x.reshape(2, -1).t()


def parts(x: Tensor) -> tuple[Tensor, Tensor]:
    x.add_(1)
    first, rest = x.split([2, x.shape[0] - 2])
    return rest, first


def part_and_all(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    part = x[2:]
    part.add_(1)
    x.mul_(2)
    return part, x[:3], x


def other_type(x: Tensor) -> tuple[Tensor, Tensor]:
    x.mul_(2)
    return x.view(torch.int32), x[1:]


def copied_onto_itself(x: Tensor) -> tuple[Tensor, Tensor]:
    return x.copy_(x) * 2, x.unflatten(0, (-1, 1))


LAYOUTS: dict[str, Callable[[int], Tensor]] = {
    "with an offset": lambda size: torch.randn(size)[1:],
    "with gaps and an offset": lambda size: torch.randn(2 * size)[3::2],
    "dense": lambda size: torch.randn(size - 1),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    "function", cases([other_shape, reshaped], [parts, part_and_all, other_type, copied_onto_itself])
)
def test_views_of_an_updated_input_have_its_strides_and_offset(function: Callable[..., Any], layout: str) -> None:
    for grad in (False, True):
        with torch.set_grad_enabled(grad):
            check(function, lambda: (LAYOUTS[layout](13),), dynamic=True)


@pytest.mark.parametrize("function", [other_shape, part_and_all])
def test_views_of_an_updated_input_that_has_a_gradient(function: Callable[..., Any]) -> None:
    def run(call: Callable[..., Any]) -> tuple[list[Tensor], Tensor]:
        leaf = torch.arange(20.0).requires_grad_()
        x = (leaf * 1)[3::2]  # updated outside of the graph: its new value is a result
        results = call(x)
        (gradient,) = torch.autograd.grad(sum(r.sum() for r in results), leaf)
        return [x, *results], gradient

    (actual, gradient), (expected, wanted) = run(torch.compile(function, backend="icpu", dynamic=True)), run(function)
    torch.testing.assert_close((actual, gradient), (expected, wanted))
    assert [r.storage_offset() for r in actual] == [r.storage_offset() for r in expected]
    assert [r.stride() for r in actual] == [r.stride() for r in expected]


def test_views_of_one_value_whose_sizes_cannot_be_shown_to_agree() -> None:
    """After the update in place the graph makes the view anew for each result: two reshapes that look like copies."""

    def function(x: Tensor) -> tuple[Tensor, Tensor]:
        v = F.selu(x.t()).reshape(2, -1, 1, 2)
        return v.sigmoid_(), v.unflatten(1, (-1, 1))

    with torch.no_grad():
        check(function, lambda: (torch.randn(4, 31),), dynamic=True)
