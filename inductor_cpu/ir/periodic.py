"""Addresses that repeat along a loop with a short period, as those of three numbers for the channels of each pixel."""

from __future__ import annotations

from inductor_cpu.ir.index import Expr, Sym


def period(address: Expr, loop: Sym) -> tuple[Expr, int] | None:
    """(first, n) of an address that is `first + loop % n`, with `first` the same at all points of all loops."""
    functions = [f for f in address.functions if loop in f.args[0].symbols]
    if len(functions) != 1 or functions[0].name != "mod":
        return None
    remainder = functions[0]
    top, divisor = remainder.args
    length = divisor.as_int
    if length is None or len(top.terms) != 1 or top.coefficient(loop) != 1:
        return None
    first = Expr(tuple(term for term in address.terms if term != ((remainder,), 1)))
    if len(first.terms) != len(address.terms) - 1 or any(symbol.kind != "size" for symbol in first.symbols):
        return None
    return first, length
