"""Stores of two points that are neighbours: both at once, so that a vector of each fills whole lines.

Patches of an image and interleaved results end in a loop over two neighbours which lie apart where they come from. One
point after the other, every vector of such a store is a scatter into every other element, and each line is written
twice.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from inductor_cpu.codegen.cxx import ELEMENT, LANE, NARROW
from inductor_cpu.ir.index import Sym, const
from inductor_cpu.ir.kernel import Kernel
from inductor_cpu.ir.loop_nest import Load, Store
from inductor_cpu.ir.rewrite import Copier, Editor, store_operands

#: Values of a body that is computed twice over without running out of registers.
MOST_VALUES = 12


def as_twins(kernel: Kernel) -> Kernel:
    """The same kernel with both points of a loop in its body, if these store neighbours and other lanes others; else
    the kernel itself."""
    loop = next((loop for loop in kernel.outer if _is_of_twins(loop, kernel)), None)
    if loop is None:
        return kernel
    editor = Editor()
    copiers = [Copier(editor, kernel.body, {loop: const(place)}) for place in (0, 1)]
    for copier in copiers:
        copier.run(store_operands(kernel.stores[0]))
    copies = [{**copier.values, -1: -1 - number} for number, copier in enumerate(copiers)]
    access = {copy[k]: kind for copy in copies for k, kind in kernel.vector.access if k in copy}
    lanewise = tuple(sorted({copy[k] for copy in copies for k in kernel.vector.lanewise if k in copy}))
    return replace(
        kernel,
        outer=tuple(other for other in kernel.outer if other != loop),
        body=tuple(editor.instructions),
        stores=tuple(copier.store(kernel.stores[0]) for copier in copiers),
        work=kernel.work * 2,
        parallel=kernel.parallel - (kernel.outer.index(loop) < kernel.parallel),
        vector=replace(kernel.vector, access=tuple(access.items()), lanewise=lanewise),
    )


def _is_of_twins(loop: Sym, kernel: Kernel) -> bool:
    """Whether the two points of a loop store neighbours, between those of other lanes, and nothing else."""
    two = loop.size is not None and loop.size.as_int == 2
    threads = kernel.parallel == 1 and kernel.outer[0] == loop
    simple = not kernel.inner and kernel.product is None and kernel.divided is None and kernel.across is None
    if not two or threads or not simple or len(kernel.stores) != 1 or len(kernel.body) > MOST_VALUES:
        return False
    store = kernel.stores[0]
    read = any(isinstance(i, Load) and i.buffer == store.buffer for i in kernel.body)
    return not read and store.index[0].coefficient(loop) == 1 and is_every_other(store, kernel)


def is_every_other(store: Store, kernel: Kernel) -> bool:
    """Whether lanes store every other element, of a type that vectors hold as it is or in wider integers."""
    loop, dtype = kernel.vector.loop, kernel.body[store.value].dtype
    if loop is None or store.mode != "set" or store.mask is not None or dtype == torch.bool:
        return False
    looked_up = any(symbol.kind == "value" for symbol in store.index[0].symbols)
    held = LANE[dtype] == ELEMENT[dtype] or dtype in NARROW
    return not looked_up and store.index[0].coefficient(loop) == 2 and held


def are_twins(kernel: Kernel) -> bool:
    """Whether a kernel has two stores, of neighbours."""
    if kernel.inner or len(kernel.stores) != 2:
        return False
    first, second = kernel.stores
    together = first.buffer == second.buffer and second.index[0] - first.index[0] == 1
    return together and is_every_other(first, kernel) and is_every_other(second, kernel)
