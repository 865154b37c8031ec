"""Scatters into rows that run in turns with what fills and reads the buffer, a piece of rows at a time.

The gradient of an embedding is a buffer of zeros, to whose rows others are added wherever the data says, and a cast of
it: three times through memory that no cache holds. With the points listed by the pieces of rows that they write, one
piece is filled, added to and cast while it is in the cache, and the buffer between need not be anywhere else. The
points of a row keep their order, so that no bit of its sum changes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from inductor_cpu.ir.index import Sym, of, product
from inductor_cpu.ir.kernel import Kernel, Listed
from inductor_cpu.ir.loop_nest import Buffer
from inductor_cpu.ir.scatter import is_scatter, place_of
from inductor_cpu.ir.strips import can_be_listed
from inductor_cpu.schedule.build import build_kernel
from inductor_cpu.schedule.group import Group

#: Bytes of a row that take longer than to list it.
LEAST_ROW_BYTES = 256

#: Rows of the buffer for each point: of fewer points most rows are only filled, which is faster alone.
MOST_ROWS = 4


def listed(group: Group, buffers: dict[str, Buffer], lanes: int, cache: int) -> Kernel | None:
    """The kernel of a group that is a scatter into rows, as one whose points are listed; None if it is no such scatter,
    or its buffer is in a cache anyway. lanes, cache: of the target, as for `schedule_program`."""
    if group.inner or group.gemm is not None or not any(map(is_scatter, group.nest.stores)):
        return None
    kernel = build_kernel(group, buffers, lanes, 1, cache)
    row = _row(kernel)
    if row is None:
        return None
    kernel = replace(kernel, divided=None, listed=Listed(row))
    return kernel if can_be_listed(kernel, Listed(row)) and _pays(kernel, Listed(row), buffers, cache) else None


def _row(kernel: Kernel) -> Sym | None:
    """The value that is the row which a point writes, if it is one."""
    address = kernel.stores[0].index[0]
    place = place_of(address)
    return next((s for s in address.symbols if s.kind == "value" and place == of(s)), None)


def _pays(kernel: Kernel, listed: Listed, buffers: Mapping[str, Buffer], cache: int) -> bool:
    """Whether no cache of a core holds the buffer, and listing points costs little beside what they do."""
    buffer = buffers[kernel.stores[0].buffer]
    elements, points = product(buffer.sizes).as_int, kernel.outer[0].size
    if elements is None or points is None or points.as_int is None or not listed.rows:
        return False
    row = elements // listed.rows * buffer.dtype.itemsize
    return (
        elements * buffer.dtype.itemsize > cache and row >= LEAST_ROW_BYTES and points.as_int * MOST_ROWS >= listed.rows
    )
