"""Where blocks of bf16 lie in two registers as their even and their odd elements.

A bf16 is the upper half of a float. With 8 lanes a block of 16 is two registers of floats, and in their order each
costs a widening, a shift, and at the end a packing across halves of a register. Of a register of 16 bf16 the odd
elements are floats after one mask and the even ones after one shift, and a shift and a blend pack them again: two
thirds of the instructions, and no lane moves. Vectors of 16 lanes have instructions for the usual order.

All loops of a kernel over the vectorized one have such blocks, or none: rows that a later phase reads lie as the
registers do.
"""

from __future__ import annotations

import torch

from inductor_cpu.codegen.analysis import Facts, size_of
from inductor_cpu.codegen.orders import is_of_pairs
from inductor_cpu.codegen.tuning import needs_alignment, vertical_units
from inductor_cpu.ir.index import Sym
from inductor_cpu.ir.loop_nest import Index, Load, Reduce, Scan
from inductor_cpu.ir.rewrite import store_operands
from inductor_cpu.ir.scatter import is_scatter

#: Lanes of the vectors without instructions of their own for bf16.
_LANES = 8

#: Units of a block: one for the even elements, one for the odd ones.
UNITS = 2

#: Reductions that do not ask where an element is, nor stop before the end.
_WITHOUT_ORDER = ("sum", "prod", "max", "min", "fmax")

#: A body with more values than this has no registers for two units.
_LONG_BODY = 40


def alternates(facts: Facts) -> bool:
    """Whether no value of a kernel tells where its lane is, but for its place in a pair: all that differs between lanes
    comes from bf16 side by side, and goes there, or into a reduction."""
    kernel = facts.kernel
    loop = kernel.vector.loop
    if loop is None or kernel.vector.lanes != _LANES or facts.tile is not None or len(kernel.body) > _LONG_BODY:
        return False
    if kernel.product is not None or kernel.divided is not None or not _in_whole_blocks(facts, loop):
        return False
    size = size_of(loop).as_int
    if size is not None and size < UNITS * _LANES:
        return False
    return all(_knows_no_order(facts, k) for k in _computed(facts)) and all(
        _has_no_order(facts, access) and not needs_alignment(facts, access, loop) for access in facts.access
    )


def _computed(facts: Facts) -> frozenset[int]:
    """The values that a kernel computes: of masks that are written as numbers, no operands."""
    folds = (k for phase in facts.kernel.phases for k in phase.reduces)
    return facts.closure((*folds, *(k for store in facts.kernel.stores for k in store_operands(store))))


def _in_whole_blocks(facts: Facts, loop: Sym) -> bool:
    """Whether the vectorized loop is the innermost one, or, where lanes are results, goes by blocks."""
    kernel = facts.kernel
    if loop in kernel.inner or not kernel.inner:
        return loop == (kernel.inner or kernel.outer)[-1]
    return loop == kernel.outer[-1] and vertical_units(facts) % UNITS == 0


def _knows_no_order(facts: Facts, position: int) -> bool:
    if position in facts.constant_masks:
        return is_of_pairs(facts.constant_masks[position])
    match facts.kernel.body[position]:
        case Scan():
            return False
        case Reduce(kind):
            return kind in _WITHOUT_ORDER
        case Index():
            return not facts.varying[position]
    return True


def _has_no_order(facts: Facts, access: int) -> bool:
    """Whether an access is of one element for all lanes, or of bf16 side by side."""
    instr, way = facts.instruction(access), facts.load_access(access)
    if isinstance(instr, Load):
        if access in facts.swaps:
            return instr.dtype == torch.bfloat16
        value, dtype = access, instr.dtype
    elif instr.mode == "add" or is_scatter(instr):
        return False
    else:
        value, dtype = instr.value, facts.kernel.body[instr.value].dtype
    if way == "uniform" and not facts.varying[value]:
        return True
    return way == "contiguous" and instr.mask is None and dtype == torch.bfloat16
