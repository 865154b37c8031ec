"""Where a kernel's pointers point: at the first element of a buffer that it touches, as far as that is a number.

Kernels that do the same with other parts of a buffer, such as the pieces of a split, are one function then."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from inductor_cpu.ir.kernel import Kernel, Strips
from inductor_cpu.ir.loop_nest import Instr, Load, Store


def starts(kernel: Kernel | Strips) -> tuple[int, ...]:
    """For each argument, how many elements behind the start of its buffer the kernel's pointer points."""
    if isinstance(kernel, Strips) or kernel.product is not None:
        return (0,) * len(kernel.args)
    least: dict[str, int] = {}
    accesses: list[Load | Store] = [i for i in kernel.body if isinstance(i, Load)]
    for access in (*accesses, *kernel.stores):
        first = access.index[0].added
        least[access.buffer] = min(first, least.get(access.buffer, first))
    return tuple(max(least.get(arg.buffer, 0), 0) for arg in kernel.args)


def from_starts(kernel: Kernel) -> Kernel:
    """The same kernel with addresses that count from its starts."""
    moved = {arg.buffer: start for arg, start in zip(kernel.args, starts(kernel), strict=True) if start}
    if not moved:
        return kernel
    return replace(
        kernel,
        body=tuple(_moved(instr, moved) for instr in kernel.body),
        stores=tuple(replace(s, index=(s.index[0] - moved.get(s.buffer, 0),)) for s in kernel.stores),
    )


def _moved(instr: Instr, by: Mapping[str, int]) -> Instr:
    if not isinstance(instr, Load) or instr.buffer not in by:
        return instr
    return replace(instr, index=(instr.index[0] - by[instr.buffer],))
