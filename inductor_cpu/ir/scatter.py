"""Stores at positions that are data, or that several points share: which points of the loops can meet in an element."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch

from inductor_cpu.ir.index import ZERO, Expr, Sym, as_expr, divide_exact, is_nonnegative
from inductor_cpu.ir.loop_nest import Instr, Load, Store
from inductor_cpu.ir.ops import LOW_PRECISION


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


# -- points that meet, in threads ------------------------------------------------------------------------------------
def is_divisible(body: Sequence[Instr], stores: Sequence[Store]) -> bool:
    """Whether threads may divide the points of a scatter by what they write: there is one store, into a buffer that no
    point reads."""
    if len(stores) != 1 or not is_scatter(stores[0]):
        return False
    return not any(isinstance(i, Load) and i.buffer == stores[0].buffer for i in body)


def is_sum(body: Sequence[Instr], store: Store) -> bool:
    """Whether the points of a scatter may be added up in pieces, from the buffer's first element on: numbers which are
    not rounded to fewer digits than sums have."""
    dtype = body[store.value].dtype
    starts = all(monomial for monomial, _ in store.index[0].terms)
    return store.mode == "add" and starts and dtype not in LOW_PRECISION and dtype != torch.bool


def place_of(address: Expr) -> Expr:
    """A number that points which meet have in common, of as few loops as possible: the row, where a row is chosen by
    values and its elements are loops."""
    found = [address]
    for symbol in sorted(address.symbols, key=lambda symbol: symbol.name):
        step = address.coefficient(symbol) if symbol.kind == "value" else None
        if step is not None and len(step.terms) == 1 and is_nonnegative(step):
            high = Expr(tuple(term for term in address.terms if divide_exact(Expr((term,)), step) is not None))
            place = divide_exact(high, step)
            if place is not None and is_place(place, address):
                found.append(place)
    return min(found, key=lambda place: (sum(symbol.kind == "loop" for symbol in place.symbols), -len(place.terms)))


def is_place(place: Expr, address: Expr) -> bool:
    """Whether equal addresses have equal places: the address is step * place + low, where 0 <= low < step."""
    if place == address:
        return True
    steps = (_ratio(address.coefficient(symbol), place.coefficient(symbol)) for symbol in place.symbols)
    step = next((step for step in steps if step is not None), None)
    if step is None:
        return False
    low = address - step * place
    return is_nonnegative(low) and is_nonnegative(step - low - 1)


def _ratio(of: Expr | None, to: Expr | None) -> Expr | None:
    return divide_exact(of, to) if of is not None and to is not None and of.terms and len(to.terms) == 1 else None
