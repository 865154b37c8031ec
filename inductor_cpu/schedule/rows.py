"""How what follows a matrix product walks its rows: in any order of their digits.

The product's rows are one loop. A nest that follows may have several loops for them, or one for a part of them only: an
image that is put together of windows has the line's window and the line within it in one loop. Its loops are cut where
it divides them, aligned with the rows, and become expressions in the row.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from inductor_cpu.ir.index import Expr, Sym, loop_var, of
from inductor_cpu.ir.loop_nest import Load, LoopNest
from inductor_cpu.schedule.flat import substitute_loops


def in_digits(nest: LoopNest, buffers: Collection[str], names: Iterator[str]) -> LoopNest:
    """The nest with its loops cut where the addresses of what it loads from these buffers divide them. names: for new
    loops."""
    found = _division(nest, buffers)
    while found is not None:
        loop, upper, divisor = found
        high, low = loop_var(next(names), upper), loop_var(next(names), divisor)
        dims = tuple(piece for dim in nest.dims for piece in ((high, low) if dim == loop else (dim,)))
        nest = replace(substitute_loops(nest, {loop: of(high) * divisor + of(low)}), dims=dims)
        found = _division(nest, buffers)
    return nest


def _division(nest: LoopNest, buffers: Collection[str]) -> tuple[Sym, Expr, Expr] | None:
    """A loop that an address divides, its size over the divisor, and the divisor; None without one that fits."""
    addresses = [i.index[0] for i in nest.body if isinstance(i, Load) and i.buffer in buffers]
    quotients = [f for address in addresses for f in address.functions if f.name in ("floordiv", "mod")]
    for loop in nest.dims:
        for dividend, divisor in (quotient.args for quotient in quotients):
            if dividend == of(loop) and loop.size is not None:
                upper = loop.size // divisor
                if not upper.functions and upper * divisor == loop.size:
                    return loop, upper, divisor
    return None


def over_whole_rows(nest: LoopNest, loops: Sequence[Sym], pieces: Sequence[Sym]) -> LoopNest | None:
    """A nest over pieces of a product's loops as one over its loops (rows, columns); None if these columns are cut."""
    row, *columns = loops
    if list(pieces[-1:]) != columns:
        return None
    return replace(substitute_loops(nest, _digits(row, pieces[:-1])), dims=tuple(loops))


def _digits(loop: Sym, pieces: Sequence[Sym]) -> dict[Sym, Expr]:
    """The pieces of a loop, outermost first, as expressions in the loop."""
    found: dict[Sym, Expr] = {}
    left = of(loop)
    for piece in reversed(pieces[1:]):
        assert piece.size is not None
        found[piece], left = left % piece.size, left // piece.size
    return {**found, **dict.fromkeys(pieces[:1], left)}
