"""Which part of a buffer belongs to one unit of the outermost loops of several kernels."""

from __future__ import annotations

from inductor_cpu.errors import InternalError
from inductor_cpu.ir.index import ZERO, is_nonnegative, upper_bound
from inductor_cpu.ir.kernel import Kernel, Strips
from inductor_cpu.ir.loop_nest import Load


def unit_span(kernel: Kernel, share: int, buffer: str) -> int | None:
    """The number of elements s for which unit u of a kernel (`share` points of its outermost loop) only touches the
    elements [u * s, (u + 1) * s) of a buffer; None if there is none that can be shown."""
    loop = kernel.outer[0]
    addresses = [i.index[0] for i in kernel.body if isinstance(i, Load) and i.buffer == buffer]
    addresses += [store.index[0] for store in kernel.stores if store.buffer == buffer]
    spans: set[int] = set()
    for address in addresses:
        stride = address.coefficient(loop)
        if stride is None or stride.as_int is None or stride.as_int <= 0:
            return None
        rest = address.substitute({loop: ZERO})
        last = upper_bound(rest)
        span = stride.as_int * share
        if last is None or not is_nonnegative(rest) or last + stride.as_int * (share - 1) >= span:
            return None
        spans.add(span)
    return spans.pop() if len(spans) == 1 else None


def verify_strips(strips: Strips, stage: str = "schedule") -> None:
    """Raise InternalError(stage, ...) if units of the kernels are not as the strips say, or not independent."""
    kernels = strips.kernels
    for kernel, share in zip(kernels, strips.shares, strict=True):
        size = kernel.outer[0].size
        if not kernel.parallel or size is None or size.as_int != strips.units * share:
            raise InternalError(stage, f"{kernel.label} does not have {strips.units} units of {share} points")
    local = dict(strips.local)
    for name in {arg.buffer for kernel in kernels for arg in kernel.args}:
        users = [(k, n) for k, n in zip(kernels, strips.shares, strict=True) if name in {a.buffer for a in k.args}]
        written = any(arg.writes for kernel, _ in users for arg in kernel.args if arg.buffer == name)
        if name not in local and (len(users) == 1 or not written):
            continue
        spans = {unit_span(kernel, share, name) for kernel, share in users}
        if len(spans) != 1 or None in spans or (name in local and spans != {local[name]}):
            raise InternalError(stage, f"{strips.label}: units of {name} are not apart")
