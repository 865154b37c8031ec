"""Graphs of quantization: values that are only chosen or moved between dequantize and quantize stay bytes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.ao.quantization.fx._decomposed  # declares the operators
from torch import Tensor, nn
from torch.nn import functional as F

from tests.graph.harness import compile_passed

ops = torch.ops.quantized_decomposed

KEPT: dict[str, Callable[[Tensor], Tensor]] = {
    "nothing": lambda x: x,
    "max_pool": lambda x: F.max_pool2d(x, 3, 2, 1),
    "relu": torch.relu,
    "flatten": lambda x: x.flatten(1),
    "permute": lambda x: x.permute(0, 2, 3, 1),
    "cat": lambda x: torch.cat([x, x[:, :2].relu()], 1),
    "several": lambda x: F.max_pool2d(x.relu(), 2).flatten(1),
}
ARITHMETIC: dict[str, Callable[[Tensor], Tensor]] = {
    "avg_pool": lambda x: F.avg_pool2d(x, 2),
    "add": lambda x: x + x,
    "positions too": lambda x: (lambda y, k: y + k)(*F.max_pool2d(x, 2, return_indices=True)),
}


class Between(nn.Module):
    """A function of values between the two operators. The weight makes passes run."""

    def __init__(
        self, function: Callable[[Tensor], Tensor], first: tuple[object, ...], then: tuple[object, ...]
    ) -> None:
        super().__init__()
        self.function, self.first, self.then = function, first, then
        self.register_buffer("weight", torch.ones(1))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        wide = ops.dequantize_per_tensor(x, *self.first)
        return ops.quantize_per_tensor(self.function(wide), *self.then), self.weight * 2


def is_in_bytes(module: nn.Module, x: Tensor) -> bool:
    """Whether the graph has no floats of the images; its results must be eager's."""
    compiled, passed = compile_passed(module)
    (result, _), (expected, _) = compiled(x), module(x)
    assert result.dtype == expected.dtype
    assert torch.equal(result, expected)
    values = [torch.utils._pytree.tree_leaves(node.meta["val"])[0] for node in passed.calls()]
    return all(value.dtype != torch.float32 or value.numel() == 1 for value in values)


def every_byte(dtype: torch.dtype) -> Tensor:
    info = torch.iinfo(dtype)
    values = torch.arange(info.min, info.max + 1, dtype=dtype)
    return torch.cat([values, values.flip(0)])[torch.randperm(512)].view(2, 4, 8, 8)


GRIDS = {
    torch.uint8: (0.0371, 11, 0, 255, torch.uint8),
    torch.int8: (1.7e-4, -128, -128, 127, torch.int8),
}


@torch.no_grad()
@pytest.mark.parametrize("dtype", GRIDS, ids=str)
@pytest.mark.parametrize("name", KEPT)
def test_what_is_chosen_or_moved_stays_bytes(name: str, dtype: torch.dtype) -> None:
    assert is_in_bytes(Between(KEPT[name], GRIDS[dtype], GRIDS[dtype]), every_byte(dtype))


@torch.no_grad()
@pytest.mark.parametrize("name", ARITHMETIC)
def test_arithmetic_does_not(name: str) -> None:
    assert not is_in_bytes(Between(ARITHMETIC[name], GRIDS[torch.uint8], GRIDS[torch.uint8]), every_byte(torch.uint8))


@torch.no_grad()
@pytest.mark.parametrize(
    "then",
    [
        (0.0372, 11, 0, 255, torch.uint8),
        (0.0371, 12, 0, 255, torch.uint8),
        (0.0371, 11, -128, 127, torch.int8),
    ],
    ids=["scale", "zero point", "type"],
)
def test_bytes_of_another_meaning_are_quantized_again(then: tuple[object, ...]) -> None:
    assert not is_in_bytes(Between(KEPT["max_pool"], GRIDS[torch.uint8], then), every_byte(torch.uint8))


@torch.no_grad()
@pytest.mark.parametrize("scale", [1e-38, 1e31])
def test_scales_without_a_normal_reciprocal_are_quantized_again(scale: float) -> None:
    grid = (scale, 0, 0, 255, torch.uint8)
    assert not is_in_bytes(Between(KEPT["nothing"], grid, grid), every_byte(torch.uint8))


@torch.no_grad()
def test_narrower_limits_become_a_clamp() -> None:
    first, then = GRIDS[torch.uint8], (*GRIDS[torch.uint8][:2], 5, 127, torch.uint8)
    assert is_in_bytes(Between(KEPT["max_pool"], first, then), every_byte(torch.uint8))
