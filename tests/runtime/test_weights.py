"""Packed weights: whether they are of the weights as they are now."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import torch
from torch import Tensor, fx, nn

from inductor_cpu.runtime.weights import PackedWeights


@torch.no_grad()
def test_a_weight_that_changes_while_it_is_packed_is_packed_again(executor: ModuleType) -> None:
    weight, changes = nn.Parameter(torch.ones(4)), [1.0]

    def pack(given: Tensor) -> Tensor:
        packed = given.clone()
        if changes:  # as another thread would
            given.add_(changes.pop())
        return packed

    graph = fx.Graph()
    source = graph.placeholder("weight")
    result = graph.call_function(pack, (source,))
    result.meta["val"] = torch.empty(4)
    graph.output((result,))
    packed = PackedWeights(fx.GraphModule({}, graph), [0], [[0]], ["changes"], executor.WeightGuard)
    for expected in (1.0, 2.0, 2.0):
        inputs: list[Any] = [weight]
        packed.extend(inputs)
        torch.testing.assert_close(inputs[1], torch.full((4,), expected))
