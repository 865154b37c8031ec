"""Records: loads and stores of two to four values that are neighbours, all at once, so that vectors of them fill whole
lines.

Boxes, complex numbers, colours of a pixel, patches of an image and interleaved results end in values which are computed
apart, or come from apart, and lie side by side. One after the other, every vector of such a store is a scatter into
every second to fourth element, and each line is written as often. So it is with loads of all parts of a record.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from inductor_cpu.codegen.analysis import Facts, size_of
from inductor_cpu.codegen.unrolled import Unrolled, without_loop
from inductor_cpu.ir.index import Expr, Sym, const
from inductor_cpu.ir.kernel import Kernel
from inductor_cpu.ir.loop_nest import Load, Store
from inductor_cpu.ir.rewrite import store_operands

#: Values of a record that registers are sorted for.
SIZES = range(2, 5)

#: Values of a body with all points of a loop: what registers do not hold comes from the cache sooner than scatters go.
MOST_VALUES = 64


def as_records(kernel: Kernel) -> Kernel:
    """The same kernel with all points of a loop in its body, if all that it stores are records then; else the kernel
    itself."""
    simple = not kernel.inner and kernel.product is None and kernel.divided is None and kernel.across is None
    written = {store.buffer for store in kernel.stores}
    if simple and not any(isinstance(i, Load) and i.buffer in written for i in kernel.body):
        for loop in kernel.outer:
            threads = kernel.parallel == 1 and kernel.outer[0] == loop
            if threads or not _may_be_places(loop, kernel):
                continue
            unrolled = _unrolled(kernel, loop)
            stored = sum(map(len, records(unrolled)))
            if stored == len(unrolled.stores) and len(unrolled.body) <= MOST_VALUES:
                return unrolled
    return kernel


def _may_be_places(loop: Sym, kernel: Kernel) -> bool:
    """Whether the points of a loop, whose lanes are others, store neighbours."""
    few = size_of(loop).as_int in SIZES and loop != kernel.vector.loop
    return few and all(store.index[0].coefficient(loop) == 1 for store in kernel.stores)


def _unrolled(kernel: Kernel, loop: Sym) -> Kernel:
    """The same kernel with all points of a loop in its body."""
    points = size_of(loop).as_int or 0
    unrolled = Unrolled(kernel, [{loop: const(place)} for place in range(points)])
    roots = [k for store in kernel.stores for k in store_operands(store)]
    for copier in unrolled.copiers:
        copier.run(roots)
        for number in range(len(kernel.stores)):
            unrolled.store(number, copier)
    return replace(without_loop(unrolled.kernel(), loop), work=kernel.work * points)


def _is_of_a_record(store: Store, kernel: Kernel, size: int) -> bool:
    """Whether lanes store elements that lie so far apart, of a type that vectors of lanes hold."""
    loop, dtype = kernel.vector.loop, kernel.body[store.value].dtype
    if loop is None or store.mode != "set" or store.mask is not None or dtype == torch.bool:
        return False
    looked_up = any(symbol.kind == "value" for symbol in store.index[0].symbols)
    return not looked_up and store.index[0].coefficient(loop) == size


def records(kernel: Kernel) -> tuple[tuple[int, ...], ...]:
    """The stores of each record of a kernel, by number, in the order of their places in memory."""
    if kernel.inner or kernel.product is not None:
        return ()
    buffers: dict[str, list[int]] = {}
    for number, store in enumerate(kernel.stores):
        buffers.setdefault(store.buffer, []).append(number)
    return tuple(found for numbers in buffers.values() if (found := _record(kernel, numbers)))


def _record(kernel: Kernel, numbers: Sequence[int]) -> tuple[int, ...]:
    """The stores of a buffer in order, if they are a record; else nothing."""
    size, stores = len(numbers), kernel.stores
    if size not in SIZES or not all(_is_of_a_record(stores[n], kernel, size) for n in numbers):
        return ()
    places = {(stores[n].index[0] - stores[numbers[0]].index[0]).as_int: n for n in numbers}
    if None in places or len(places) < size:
        return ()
    order = sorted(places, key=lambda place: place or 0)
    return tuple(places[place] for place in order) if (order[-1] or 0) - (order[0] or 0) == size - 1 else ()


def loaded_records(facts: Facts) -> dict[int, tuple[int, ...]]:
    """The record of each load that is part of one: its loads, one for each place, in their order."""
    kernel, loop = facts.kernel, facts.kernel.vector.loop
    if loop is None or kernel.inner or kernel.product is not None:
        return {}
    rows: dict[tuple[str, int, Expr], dict[int, int]] = {}
    for position in (k for k, instr in enumerate(kernel.body) if isinstance(instr, Load)):
        size = _record_of_a_load(facts, position, loop)
        if size is not None:
            load, index = facts.instruction(position), facts.address(position)
            rows.setdefault((load.buffer, size, index - index.added), {}).setdefault(index.added, position)
    found: dict[int, tuple[int, ...]] = {}
    for (_, size, _), places in rows.items():
        for first in sorted(places):
            record = tuple(places[place] for place in range(first, first + size) if place in places)
            if len(record) == size and found.keys().isdisjoint(record):
                found |= dict.fromkeys(record, record)
    return found


def _record_of_a_load(facts: Facts, position: int, loop: Sym) -> int | None:
    """How many elements a record has that a load would be a part of; None if it cannot be one."""
    tiled = facts.tile is not None and position in facts.tile.loads
    plain = facts.load_access(position) == "strided" and facts.kernel.body[position].dtype.itemsize in (2, 4)
    apart = facts.address(position).coefficient(loop)
    if tiled or not plain or apart is None or apart.as_int not in SIZES:
        return None
    load = facts.instruction(position)
    return apart.as_int if isinstance(load, Load) and load.mask is None else None
