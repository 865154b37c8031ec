"""The gradients of calls that were made together, such that each call has those that it would have alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.utils._pytree import tree_leaves


def gradients_of(functions: list[Any], inputs: list[Any], results: list[Any]) -> list[list[torch.Tensor | None]]:
    """For each call the gradients of its inputs and parameters, for fixed gradients of all results, in one backward.
    What comes in for a call does not depend on the calls beside it: alone, and in float64, it gets the same."""
    wanted = [_differentiable((given, list(_parameters(f)))) for f, given in zip(functions, inputs, strict=True)]
    outputs = [_differentiable(result) for result in results]
    flat_outputs = [t for of_call in outputs for t in of_call]
    if not flat_outputs or not any(wanted):
        return [[] for _ in wanted]
    seeds = [seed for of_call in outputs for seed in _seeds(of_call)]
    leaves = [t for of_call in wanted for t in of_call]
    flat = iter(torch.autograd.grad(flat_outputs, leaves, seeds, allow_unused=True))
    return [[next(flat) for _ in of_call] for of_call in wanted]


def _seeds(outputs: list[torch.Tensor]) -> list[torch.Tensor]:
    """The gradients that come in for the results of one call: numbers from 0.5 to 1.5 with few digits."""
    generator = torch.Generator().manual_seed(2)
    seeds = [torch.rand(t.shape, generator=generator, dtype=torch.float64).add(0.5) for t in outputs]
    return [seed.to(torch.bfloat16).to(t.dtype) for seed, t in zip(seeds, outputs, strict=True)]


def _differentiable(tree: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor) and leaf.requires_grad]


def _parameters(function: Any) -> Iterator[torch.Tensor]:
    return function.parameters() if isinstance(function, torch.nn.Module) else iter(())
