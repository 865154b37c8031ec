"""Nearest and linear resizing, which torch takes apart by other rules than ATen's kernels have: these ignore a scale
factor to the size that the image has already (9 pixels by a factor of 1.1), and compute bytes in fixed point."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from inductor_cpu.graph.edit import aten

_PACKETS = (
    *(
        getattr(aten, f"{name}{dims}d")
        for name in ("upsample_nearest", "_upsample_nearest_exact")
        for dims in (1, 2, 3)
    ),
    aten.upsample_linear1d,
    aten.upsample_bilinear2d,
    aten.upsample_trilinear3d,
)


def _by_factors(packet: Any) -> Callable[..., torch.Tensor]:
    """The overload that takes either sizes or factors, by the one that takes sizes and, perhaps, factors. Where a
    gradient is wanted and no size stays, torch's rule is right, and its gradient a loop that others join."""
    torchs = packet.vec.py_kernels.get(torch._C.DispatchKey.Autograd)

    def kernel(x: torch.Tensor, sizes: Any, *others: Any) -> torch.Tensor:
        *options, factors = others
        given, scales = sizes, () if factors is None else factors
        if factors is not None:
            sizes = [torch.sym_int(n * _whole(factor)) for n, factor in zip(x.shape[2:], factors, strict=True)]
        if x.requires_grad and torchs is not None and _all_change(x.shape[2:], sizes):
            return torchs(x, given, *others)
        return packet.default(x, sizes, *options, *scales)

    return kernel


def _all_change(before: Sequence[Any], after: Sequence[Any]) -> bool:
    """Whether all sizes are known, and each becomes another one."""
    known = all(isinstance(size, int) for size in (*before, *after))
    return known and all(old != new for old, new in zip(before, after, strict=True))


def _whole(factor: float) -> float:
    """A factor that is a whole number as an int: the product with a symbolic size stays an integer."""
    return int(factor) if int(factor) == factor else factor


#: Gradients whose fake results torch makes in C++, of sizes that are no symbols.
RESIZING_GRADIENTS: frozenset[Any] = frozenset(
    getattr(aten, f"{name}_backward").default
    for name in (
        "upsample_nearest1d",
        "upsample_nearest3d",
        "_upsample_nearest_exact1d",
        "_upsample_nearest_exact3d",
        "upsample_linear1d",
        "upsample_bilinear2d",
        "upsample_trilinear3d",
        "_upsample_bicubic2d_aa",
    )
)

#: Overload -> the kernel that it has instead of torch's; None for ATen's.
RESIZING: dict[Any, Callable[..., torch.Tensor] | None] = {
    **{packet.vec: _by_factors(packet) for packet in _PACKETS},
    **{packet.default: None for packet in _PACKETS},
}
