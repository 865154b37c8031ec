"""Scatters that threads divide by what they write (`Divided`): pieces with copies of the buffer, or owners of places.

The points are a function of the owner, the memory to write to and the part of the outermost loop, which the prelude
(`scatters.h`) calls in one thread or in several."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import ExitStack

from inductor_cpu.codegen.analysis import Facts, size_of
from inductor_cpu.codegen.cxx import ELEMENT
from inductor_cpu.codegen.text import Writer
from inductor_cpu.codegen.values import Values
from inductor_cpu.ir.index import Expr
from inductor_cpu.ir.kernel import LINE_BYTES, Divided
from inductor_cpu.ir.rewrite import value_positions

#: The part of the outermost loop that a call of the function runs.
BOUNDS = ("begin", "end")


class Division:
    """Writes what is around the points of a divided scatter. define: writes values that are not in scope yet."""

    def __init__(
        self, divided: Divided, facts: Facts, values: Values, writer: Writer, define: Callable[[Iterable[int]], None]
    ) -> None:
        self.divided, self.facts, self.values, self.writer, self.define = divided, facts, values, writer, define
        self.store = facts.kernel.stores[0]
        self.dtype = facts.kernel.body[self.store.value].dtype
        self.pointer = values.pointer(self.store.buffer)

    def open(self, align: str, stack: ExitStack) -> None:
        """Open the function that threads run. align: what the bounds of a piece are multiples of."""
        head = f"(const auto mine, {ELEMENT[self.dtype]}* const {self.pointer}, const int64_t begin, const int64_t end)"
        pieces = self.divided.pieces.as_int
        calls = [] if pieces == 1 else [self._copies(align)]
        calls += [self._owners()] if pieces in (None, 1) else []
        if len(calls) == 1:
            stack.enter_context(self.writer.block(f"{calls[0]}, threads, [&]{head}", "});"))
        else:
            stack.callback(self._choose, *calls)
            stack.enter_context(self.writer.block(f"const auto points = [&]{head}", "};"))
        if self.facts.lists:
            kind = "Adds" if self.store.mode == "add" else "Sets"
            self.writer.line(f"auto stores = icpu::stores_of<icpu::{kind}>(mine, {self.pointer});")

    def _copies(self, align: str) -> str:
        elements, pieces, size = map(self.values.expr, (self.divided.elements, self.divided.pieces, self._size))
        return f"icpu::parallel_copies({self.pointer}, {elements}, {pieces}, {size}, {align}"

    def _owners(self) -> str:
        # Elements that several threads write do not share a line.
        together = max(LINE_BYTES // self.dtype.itemsize, 1) if self.facts.lists else 1
        size, places = self.values.expr(self._size), self.values.expr(self.divided.places)
        return f"icpu::parallel_owners({self.pointer}, {size}, {places}, {self.divided.least}, {together}"

    @property
    def _size(self) -> Expr:
        return size_of(self.facts.kernel.outer[0])

    def _choose(self, copies: str, owners: str) -> None:
        """Where sizes are known at run time, they decide."""
        self.writer.line(f"if ({self.values.expr(self.divided.pieces)} > 1) {copies}, threads, points);")
        self.writer.line(f"else {owners}, threads, points);")

    def ask(self, stack: ExitStack) -> None:
        """Open what only runs where the thread owns the place, at the level where the place is known."""
        place = self.divided.place
        self.define(self.facts.closure(value_positions((place,))))
        if not self.facts.lists:
            stack.enter_context(self.writer.block(f"if (mine.has({self.values.expr(place)}))"))
        elif self.facts.kernel.vector.loop is None:
            self.writer.line(f"const bool wanted = mine.has({self.values.expr(place)});")
        else:
            self.writer.line(f"const auto wanted = mine.has({self.values.lanes_index(place)}) & lanes.mask();")
            stack.enter_context(self.writer.block("if (icpu::any(wanted))"))
