"""Stores at positions that are data, or that several points share: which points of the loops can meet in an element."""

from __future__ import annotations

from collections.abc import Iterable

from inductor_cpu.ir.index import ZERO, Expr, Sym, as_expr, divide_exact, is_nonnegative
from inductor_cpu.ir.loop_nest import Instr, Load, Store


def is_scatter(store: Store) -> bool:
    """Whether two points of the loops may write one element: the order of the points is then part of the meaning."""
    return store.mode != "set" or any(symbol.kind == "value" for symbol in store.index[0].symbols)


def reads_what_others_write(body: Iterable[Instr], stores: Iterable[Store]) -> bool:
    """Whether a point may read an element that another point writes (flat addresses): then the order of all points is
    part of the meaning."""
    written = [(store.buffer, store.index[0]) for store in stores]
    loads = [i for i in body if isinstance(i, Load)]
    return any(i.buffer == buffer and i.index[0] != index for i in loads for buffer, index in written)


def keeps_apart(loop: Sym, stores: Iterable[Store]) -> bool:
    """Whether points with different values of a loop never meet in a scatter (flat addresses): the loop may then run
    in any order and in several threads, and its points may be lanes."""
    return all(_decided_by(store.index[0], loop) for store in stores if is_scatter(store))


def _decided_by(address: Expr, loop: Sym) -> bool:
    """Whether equal addresses have equal values of the loop: the address is high + step * loop + low, where high is a
    multiple of step * size and 0 <= low < step, like a digit of a number."""
    step = address.coefficient(loop)
    if step is None or not step.terms or not is_nonnegative(step):
        return False
    period = step * as_expr(loop.size if loop.size is not None else ZERO)
    rest = address - step * Expr((((loop,), 1),))
    low = Expr(tuple(term for term in rest.terms if divide_exact(Expr((term,)), period) is None))
    return is_nonnegative(low) and is_nonnegative(step - low - 1)
