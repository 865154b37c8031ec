"""Copies that move pairs of neighbours: both at once, as one integer of twice the size.

Space to depth, patches of an image and complex numbers seen as real ones end in a loop over two neighbours. Element by
element every other vector of such a copy is a gather or a scatter. A pair starts where an element may start: vectors,
gathers and scatters need no alignment.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from inductor_cpu.codegen.unrolled import without_loop
from inductor_cpu.ir.index import Expr, Sym, const, divide_exact
from inductor_cpu.ir.kernel import Kernel, VectorPlan
from inductor_cpu.ir.loop_nest import Instr, Load, Store

#: The integer that holds two elements of so many bytes.
PAIR: dict[int, torch.dtype] = {1: torch.int16, 2: torch.int32, 4: torch.int64}


def as_pairs(kernel: Kernel) -> Kernel:
    """The same kernel on pairs, if it only copies and has a loop over two neighbours; else the kernel itself."""
    accesses = _copied(kernel)
    loop = next((loop for loop in kernel.outer if _is_of_neighbours(loop, kernel, accesses)), None)
    if loop is None:
        return kernel
    pair = PAIR[kernel.args[0].dtype.itemsize]
    body = tuple(_paired(instr, loop, pair) for instr in kernel.body)
    stores = tuple(replace(store, index=(_halved(store.index[0], loop),)) for store in kernel.stores)
    return replace(
        without_loop(kernel, loop),
        args=tuple(replace(arg, dtype=pair) for arg in kernel.args),
        body=body,
        stores=stores,
        vector=_plan(kernel.vector, body, stores),
    )


def _copied(kernel: Kernel) -> list[Load | Store]:
    """The accesses of a kernel that only copies, each of whose lanes have places of their own; empty for others."""
    simple = not kernel.inner and kernel.product is None and kernel.vector.vectorized
    size = kernel.args[0].dtype.itemsize
    if not simple or size not in PAIR or any(arg.dtype.itemsize != size for arg in kernel.args):
        return []
    loads = [i for i in kernel.body if isinstance(i, Load) and i.mask is None]
    stores = [s for s in kernel.stores if s.mode == "set" and s.mask is None]
    whole = len(loads) == len(kernel.body) and len(stores) == len(kernel.stores)
    return [*loads, *stores] if whole and "uniform" not in dict(kernel.vector.access).values() else []


def _is_of_neighbours(loop: Sym, kernel: Kernel, accesses: list[Load | Store]) -> bool:
    """Whether the two points of a loop are neighbours in all accesses, at the same side of a border between pairs."""
    two = loop.size is not None and loop.size.as_int == 2
    threads = kernel.parallel == 1 and kernel.outer[0] == loop
    if not two or threads or loop == kernel.vector.loop or not accesses:
        return False
    return all(_has_pairs(access.index[0], loop) for access in accesses)


def _has_pairs(index: Expr, loop: Sym) -> bool:
    looked_up = any(symbol.kind == "value" for symbol in index.symbols)
    return not looked_up and index.coefficient(loop) == 1 and _half(index, loop) is not None


def _half(index: Expr, loop: Sym) -> Expr | None:
    """The number of the pair that an index lies in; None where pairs do not begin at even places."""
    return divide_exact(index.substitute({loop: const(0)}), const(2))


def _halved(index: Expr, loop: Sym) -> Expr:
    half = _half(index, loop)
    assert half is not None
    return half


def _paired(instr: Instr, loop: Sym, pair: torch.dtype) -> Instr:
    assert isinstance(instr, Load)
    return replace(instr, index=(_halved(instr.index[0], loop),), dtype=pair, fill=0)


def _plan(vector: VectorPlan, body: tuple[Instr, ...], stores: tuple[Store, ...]) -> VectorPlan:
    """The plan for pairs: a stride of two elements is one of one pair."""
    assert vector.loop is not None
    found: dict[int, Load | Store] = {k: instr for k, instr in enumerate(body) if isinstance(instr, Load)}
    found |= {-1 - n: store for n, store in enumerate(stores)}
    near = {k for k, access in found.items() if access.index[0].coefficient(vector.loop) == 1}
    return replace(vector, access=tuple((k, "contiguous" if k in near else kind) for k, kind in vector.access))
