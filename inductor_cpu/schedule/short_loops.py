"""Innermost loops that are shorter than a vector, as one with those around them.

Where memory is contiguous along all of them but some accesses or comparisons see them apart (`x[..., 0] = y`), they
become quotients and remainders of one. Lanes then fill whole vectors; what was a step of an outer loop is an order of
lanes. The vectorizer's cost says whether that is better.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch

from inductor_cpu.ir.index import Expr, Sym, loop_var, of, product
from inductor_cpu.ir.kernel import VectorPlan
from inductor_cpu.ir.loop_nest import Const, Index, LoopNest, Scalar
from inductor_cpu.ir.rewrite import Copier, Editor, prune
from inductor_cpu.ir.scatter import is_scatter, reads_what_others_write
from inductor_cpu.schedule.flat import fixes_order, substitute_loops
from inductor_cpu.schedule.vectorize import plan_cost, plan_vectors

#: Points of the loops inside the outermost one that is merged: more of them fill vectors by themselves.
MOST_INSIDE = 32


def planned(nest: LoopNest, lanes: int) -> tuple[LoopNest, VectorPlan]:
    """A nest and its vector plan: as it is, or with its innermost loops merged where that costs less."""
    best = nest, _plan(nest, lanes)
    least = _cost(*best)
    for merged in _candidates(nest, lanes):
        plan = _plan(merged, lanes)
        cost = _cost(merged, plan)
        if plan.loop == merged.dims[-1] and cost < least:
            best, least = (merged, plan), cost
    return best


def _plan(nest: LoopNest, lanes: int) -> VectorPlan:
    return plan_vectors(nest.dims, nest.reduce_dims, nest.body, nest.stores, lanes, fixes_order(nest.body))


def _cost(nest: LoopNest, plan: VectorPlan) -> float:
    return plan_cost(plan, nest.dims, nest.reduce_dims, nest.body, nest.stores) if plan.vectorized else math.inf


def _candidates(nest: LoopNest, lanes: int) -> Iterator[LoopNest]:
    """The nest with its last two loops merged, with its last three, and so on while those inside are short."""
    if nest.reduce_dims or any(map(is_scatter, nest.stores)) or reads_what_others_write(nest.body, nest.stores):
        return
    sizes = [None if loop.size is None else loop.size.as_int for loop in nest.dims]
    if not sizes or not 1 < (sizes[-1] or 0) < lanes:
        return
    for first in range(len(sizes) - 2, -1, -1):
        inside = sizes[first + 1 :]
        if None in inside or math.prod(size or 1 for size in inside) > MOST_INSIDE:
            return
        yield _merged(nest, nest.dims[first:])


def _merged(nest: LoopNest, loops: Sequence[Sym]) -> LoopNest:
    sizes = [loop.size for loop in loops if loop.size is not None]
    symbol = loop_var("_".join(loop.name for loop in loops), product(sizes))
    place, values = of(symbol), dict[Sym, Expr]()
    for k, loop in enumerate(loops):
        inside = product(sizes[k + 1 :])
        values[loop] = place // inside % sizes[k] if k else place // inside
    nest = replace(substitute_loops(nest, values), dims=(*nest.dims[: -len(loops)], symbol))
    return _without_quotients(nest, symbol)


def _without_quotients(nest: LoopNest, loop: Sym) -> LoopNest:
    """The nest with comparisons of quotients of the loop as those of the loop: `i // 4 >= 2` is `i >= 8`."""
    editor = Editor()
    copier = Copier(editor, nest.body, {})
    for position, instruction in enumerate(nest.body):
        number = _bound(nest, instruction, loop) if isinstance(instruction, Scalar) else None
        if number is None or not isinstance(instruction, Scalar):
            copier.run((position,))
            continue
        sides = editor.emit(Index(of(loop))), editor.emit(Const(number, torch.int64))
        copier.values[position] = editor.scalar(instruction.op, sides, torch.bool)
    stores = tuple(copier.store(store) for store in nest.stores)
    body, stores = prune(editor.instructions, stores)
    return replace(nest, body=body, stores=stores)


def _bound(nest: LoopNest, test: Scalar, loop: Sym) -> int | None:
    """The number to compare the loop with, for a test whether a quotient of it is below a number or not."""
    if test.op not in ("ge", "lt"):
        return None
    index, number = (nest.body[k] for k in test.args)
    if not isinstance(index, Index) or not isinstance(number, Const):
        return None
    (quotient,) = index.expr.functions if len(index.expr.functions) == 1 else (None,)
    if quotient is None or quotient.name != "floordiv" or quotient.args[0] != of(loop):
        return None
    rest, divisor = (index.expr - Expr.of_atom(quotient)).as_int, quotient.args[1].as_int
    return None if rest is None or divisor is None else (int(number.value) - rest) * divisor
