"""Kernels of attention and of its gradients on their own, for the tests of their templates."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import TypeVar

import pytest
import torch

from inductor_cpu.codegen.attention import generate_attention, generate_attention_backward
from inductor_cpu.codegen.tuning import Choices
from inductor_cpu.ir.index import ZERO
from inductor_cpu.ir.loop_nest import Buffer, View
from inductor_cpu.ir.nodes import Attention, AttentionBackward
from inductor_cpu.ir.plan import KernelSource
from inductor_cpu.targets.cpu import Target
from tests.codegen.harness import FUNCTION, addresses_of
from tests.codegen.test_attention import machine

#: What nodes read, in the order of their fields, and what they write.
READ = ("grad_out", "q", "k", "v", "out", "log_sums", "mask", "kept")
WRITTEN = ("grad_q", "grad_k", "grad_v", "slopes")

#: Views that only name buffers, for sizes and strides are arguments of a kernel.
VIEWS = {name: View(name, (ZERO,) * 4, (ZERO,) * 4, ZERO) for name in READ}

Key = TypeVar("Key")


def load(
    kernel: str, isa: str, dtype: torch.dtype, nodes: Mapping[Key, tuple[Attention | AttentionBackward, torch.dtype]]
) -> dict[Key, int]:
    """The addresses of nodes, each given with the dtype of its mask, compiled together; skips where none runs."""
    found = machine(kernel, isa)
    if found is None:
        pytest.skip(f"{kernel} for {isa} does not run on this machine")
    sources = {key: _source(node, dtype, mask, found[0]) for key, (node, mask) in nodes.items()}
    addresses = addresses_of(sources.values(), found[0], found[1])
    return {key: addresses[made.symbol] for key, made in sources.items()}


def _source(node: Attention | AttentionBackward, dtype: torch.dtype, mask: torch.dtype, target: Target) -> KernelSource:
    dtypes = dict.fromkeys((*READ, *WRITTEN), dtype) | {"log_sums": torch.float32, "mask": mask, "kept": torch.bool}
    buffers = {name: Buffer(name, kind, (), (), "temp") for name, kind in dtypes.items()}
    if isinstance(node, Attention):
        return generate_attention(node, buffers, Choices(), target)
    return generate_attention_backward(node, buffers, Choices())


def call(address: int, sizes: Sequence[int], results: list[torch.Tensor], operands: list[torch.Tensor]) -> None:
    """Call a kernel. sizes: batch, heads, heads of keys and values, rows, keys, depth, columns."""
    ints = list(sizes)
    for result in results:
        ints += result.stride()[:3]
    for operand in operands:
        ints += [0, *operand.stride()[:3]]
    tensors = (*results, *operands)
    pointers = (ctypes.c_void_p * len(tensors))(*[t.data_ptr() for t in tensors])
    assert FUNCTION(address)(pointers, (ctypes.c_int64 * len(ints))(*ints)) == 0
