"""Which micro kernels run on this machine and in this process."""

from __future__ import annotations

from functools import lru_cache

import torch

from inductor_cpu.ir.micro_kernels import MICRO_KERNELS
from inductor_cpu.targets.cpu import Target


def usable_micro_kernels(target: Target) -> frozenset[str]:
    """Names of the micro kernels that the CPU has, the system allows and no library beats. Asks for AMX where a row
    needs it."""
    return frozenset(
        name
        for name, row in MICRO_KERNELS.items()
        if row.isa == target.isa.name
        and row.needs <= target.features
        and not row.unless & target.features
        and ("amx_tile" not in row.needs or _amx_permitted())
    )


@lru_cache(maxsize=1)
def _amx_permitted() -> bool:
    """Whether the kernel lets this process use tile data (asked for once; it holds for all threads)."""
    return bool(torch.cpu._init_amx())
