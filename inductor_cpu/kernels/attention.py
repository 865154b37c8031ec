"""Who computes attention: a kernel of our own, or ATen."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from inductor_cpu.ir.attention import ATTENTION_KERNELS
from inductor_cpu.kernels.usable import usable_micro_kernels
from inductor_cpu.targets.cpu import Target


@dataclass(frozen=True)
class Decision:
    """kernel: a row of `ATTENTION_KERNELS`, or None for ATen."""

    kernel: str | None
    reason: str


def choose(dtype: torch.dtype, target: Target) -> Decision:
    """The first kernel that takes this dtype and runs on this machine."""
    usable = usable_micro_kernels(target)
    for row in ATTENTION_KERNELS.values():
        runs = target.isa.name in row.isas and (row.micro_kernel is None or row.micro_kernel in usable)
        if dtype in row.dtypes and runs:
            return Decision(row.name, "a kernel of ours, the scores stay in the cache")
    return Decision(None, f"no kernel of ours for {dtype} on {target.isa.name}")
