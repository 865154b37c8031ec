"""Joins read the result of an earlier one whose parts they hold."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from tests.graph.harness import aten, compile_passed

Tensors = tuple[torch.Tensor, ...]


def grows(*x: torch.Tensor) -> Tensors:
    return tuple(torch.cat(x[:count], 1) for count in (4, 5, 6, 7))


def grows_in_front(*x: torch.Tensor) -> Tensors:
    return tuple(torch.cat(x[start:], -1) for start in (2, 1, 0))


def around(*x: torch.Tensor) -> Tensors:
    return torch.cat(x[1:6], 0), torch.cat(x, 0)


def longest(*x: torch.Tensor) -> Tensors:
    return torch.cat(x[:5]), torch.cat(x[:6]), torch.cat(x)


def twice_the_same(*x: torch.Tensor) -> Tensors:
    return torch.cat([x[0]] * 5), torch.cat([x[0]] * 7)


def few(*x: torch.Tensor) -> Tensors:
    return torch.cat(x[:4]) + 1, torch.cat(x)


def other_dimension(*x: torch.Tensor) -> Tensors:
    return torch.cat(x[:5], 0), torch.cat(x, 1)


def other_order(*x: torch.Tensor) -> Tensors:
    return torch.cat(x[:5]), torch.cat([x[0], x[2], x[1], *x[3:]])


def other_type(*x: torch.Tensor) -> Tensors:
    """float16 cannot hold these integers."""
    numbers = [torch.full((3, 4), 40000, dtype=torch.int32) + k for k in range(4)]
    halves = [*numbers, x[0].half()]
    return torch.cat(halves), torch.cat([*halves, x[0]])


def empty_part(*x: torch.Tensor) -> Tensors:
    parts = (*x[:4], torch.empty(0), x[4])
    return torch.cat(parts), torch.cat((*parts, x[5]))


def changed_between(*x: torch.Tensor) -> Tensors:
    first = torch.cat(x[:5])
    x[0].add_(1)
    return first, torch.cat(x)


@pytest.mark.parametrize(
    ("function", "parts"),
    [
        (grows, [4, 5, 2, 2]),
        (grows_in_front, [5, 2, 2]),
        (around, [5, 3]),
        (longest, [5, 2, 2]),
        (twice_the_same, [5, 3]),
        (few, [4, 7]),
        (other_dimension, [5, 7]),
        (other_order, [5, 7]),
        (other_type, [5, 6]),
        (empty_part, [6, 7]),
        (changed_between, [5, 7]),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_joins_of_five_parts_and_more_are_parts_of_later_ones(
    function: Callable[..., Tensors], parts: list[int]
) -> None:
    compiled, passed = compile_passed(function)
    given = tuple(torch.randn(3, 4) for _ in range(7))
    expected, found = function(*(x.clone() for x in given)), compiled(*(x.clone() for x in given))
    assert [len(call.args[0]) for call in passed.calls(aten.cat.default)] == parts
    for result, eager in zip(found, expected, strict=True):
        torch.testing.assert_close(result, eager, rtol=0, atol=0)
        assert result.stride() == eager.stride()


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last], ids=str)
@pytest.mark.parametrize("training", [False, True])
def test_a_dense_block_gives_the_numbers_and_strides_of_eager(layout: torch.memory_format, training: bool) -> None:
    torch.manual_seed(0)
    layers = torch.nn.ModuleList([torch.nn.Conv2d(8 + 4 * k, 4, 3, padding=1) for k in range(8)]).train(training)

    def block(x: torch.Tensor) -> torch.Tensor:
        features = [x]
        for layer in layers:
            features.append(layer(torch.cat(features, 1)).relu())
        return torch.cat(features, 1)

    x = torch.randn(2, 8, 7, 9).to(memory_format=layout)
    with torch.set_grad_enabled(training):
        found, expected = torch.compile(block, backend="icpu")(x), block(x)
        torch.testing.assert_close(found, expected)
        assert found.stride() == expected.stride()
    for weight in layers.parameters() if training else ():
        gradients = [torch.autograd.grad(y.square().sum(), weight, retain_graph=True)[0] for y in (found, expected)]
        torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-4)
