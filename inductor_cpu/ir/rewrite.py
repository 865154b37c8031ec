"""Building and rewriting SSA bodies: append with sharing of equal instructions, copy with substituted indices."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import torch

from inductor_cpu.ir.index import Expr, Sym, of, value_symbol
from inductor_cpu.ir.loop_nest import Cast, Const, Index, Instr, Load, Reduce, Scalar, Scan, Store
from inductor_cpu.ir.ops import CHECKS, DIVISIONS, identity


class Editor:
    """A growing body. Positions that its methods return are SSA values."""

    def __init__(self) -> None:
        self.instructions: list[Instr] = []
        self._known: dict[object, int] = {}

    def emit(self, instruction: Instr) -> int:
        """Append an instruction, or find an equal one. Literals and fills are compared by text: 0.0 is not -0.0."""
        key: object = instruction
        if isinstance(instruction, Const):
            key = repr(instruction.value), instruction.dtype
        elif isinstance(instruction, Load):
            key = instruction, repr(instruction.fill)
        position = self._known.get(key)
        if position is None:
            position = self._known[key] = len(self.instructions)
            self.instructions.append(instruction)
        return position

    def scalar(self, op: str, args: tuple[int, ...], dtype: torch.dtype) -> int:
        """Append a scalar op."""
        return self.emit(Scalar(op, args, dtype))


class Copier:
    """Copies instructions of one body into an editor.

    dims: replacements of the source's loop symbols; mask: a condition (a value of the editor) under which alone the
    copied loads may read; forward: source loads to replace by values of the editor."""

    def __init__(
        self,
        editor: Editor,
        source: Sequence[Instr],
        dims: Mapping[Sym, Expr],
        mask: int | None = None,
        forward: Mapping[int, int] | None = None,
    ) -> None:
        self.editor, self.source, self.mask = editor, source, mask
        self.values: dict[int, int] = dict(forward or {})
        self.substitution: dict[Sym, Expr] = dict(dims)

    def run(self, roots: Iterable[int]) -> None:
        """Copy what the roots need."""
        needed = needed_by(self.source, roots, stop=self.values)
        for position in sorted(needed):
            if position not in self.values:
                self.values[position] = self._copy(self.source[position])

    def index(self, expr: Expr) -> Expr:
        """An index expression of the source in terms of the editor's symbols and values."""
        for symbol in expr.symbols:
            if symbol.kind == "value" and symbol not in self.substitution:
                size = symbol.size.substitute(self.substitution) if symbol.size is not None else None
                self.substitution[symbol] = of(value_symbol(self.values[value_position(symbol)], size))
        return expr.substitute(self.substitution)

    def store(self, store: Store) -> Store:
        """A store of the source, whose value and mask have been copied."""
        return replace(
            store,
            index=tuple(map(self.index, store.index)),
            value=self.values[store.value],
            mask=None if store.mask is None else self.values[store.mask],
        )

    def _copy(self, instruction: Instr) -> int:
        if isinstance(instruction, Index):
            return self.editor.emit(replace(instruction, expr=self.index(instruction.expr)))
        if isinstance(instruction, Scalar):
            return self.editor.emit(replace(instruction, args=tuple(self.values[a] for a in instruction.args)))
        if isinstance(instruction, (Cast, Reduce, Scan)):
            return self.editor.emit(replace(instruction, arg=self.values[instruction.arg]))
        if isinstance(instruction, Load):
            mask = None if instruction.mask is None else self.values[instruction.mask]
            if self.mask is not None:
                mask = self.mask if mask is None else self.editor.scalar("logical_and", (mask, self.mask), torch.bool)
            return self.editor.emit(replace(instruction, index=tuple(map(self.index, instruction.index)), mask=mask))
        return self.editor.emit(instruction)


def value_position(symbol: Sym) -> int:
    """The SSA position that a symbol of kind "value" stands for."""
    return int(symbol.name[1:])


def operands(instruction: Instr) -> tuple[int, ...]:
    """The SSA positions that an instruction reads, also those inside index expressions."""
    if isinstance(instruction, Scalar):
        return instruction.args
    if isinstance(instruction, (Cast, Reduce, Scan)):
        return (instruction.arg,)
    if isinstance(instruction, Index):
        return value_positions((instruction.expr,))
    if isinstance(instruction, Load):
        found = value_positions(instruction.index)
        return found if instruction.mask is None else (*found, instruction.mask)
    return ()


def value_positions(index: Iterable[Expr]) -> tuple[int, ...]:
    """The SSA positions inside index expressions."""
    return tuple(value_position(s) for expr in index for s in expr.symbols if s.kind == "value")


def store_operands(store: Store) -> tuple[int, ...]:
    """The SSA positions that a store reads."""
    mask = () if store.mask is None else (store.mask,)
    return (store.value, *mask, *value_positions(store.index))


def needed_by(body: Sequence[Instr], roots: Iterable[int], stop: Iterable[int] = ()) -> set[int]:
    """Positions that the roots need, transitively; the search does not go through `stop`."""
    barrier = set(stop)
    found: set[int] = set()
    stack = list(roots)
    while stack:
        position = stack.pop()
        if position in found:
            continue
        found.add(position)
        if position not in barrier:
            stack.extend(operands(body[position]))
    return found


def prune(body: Sequence[Instr], stores: Sequence[Store]) -> tuple[tuple[Instr, ...], tuple[Store, ...]]:
    """Drop instructions that no store needs, and renumber."""
    editor = Editor()
    copier = Copier(editor, body, {})
    copier.run(position for store in stores for position in store_operands(store))
    return tuple(editor.instructions), tuple(copier.store(store) for store in stores)


def loop_symbols(instruction: Instr) -> frozenset[Sym]:
    """The loop symbols that an instruction itself mentions."""
    if isinstance(instruction, Index):
        found = instruction.expr.symbols
    elif isinstance(instruction, Load):
        found = frozenset().union(*(expr.symbols for expr in instruction.index))
    else:
        return frozenset()
    return frozenset(symbol for symbol in found if symbol.kind == "loop")


def loops_read(body: Sequence[Instr], folded: Iterable[Sym]) -> tuple[frozenset[Sym], ...]:
    """The loop symbols that each value depends on, also by way of others. A reduction does not depend on the loops that
    are folded, a scan on all of them."""
    found: list[frozenset[Sym]] = []
    inner = frozenset(folded)
    for instruction in body:
        reads = loop_symbols(instruction).union(*(found[k] for k in operands(instruction)))
        if isinstance(instruction, Reduce):
            reads -= inner
        found.append(reads | inner if isinstance(instruction, Scan) else reads)
    return tuple(found)


def depends(body: Sequence[Instr], loops: Iterable[Sym], folded: Iterable[Sym]) -> list[bool]:
    """For each value, whether it depends on one of the loops."""
    wanted = frozenset(loops)
    return [not reads.isdisjoint(wanted) for reads in loops_read(body, folded)]


def start_of(kind: str, dtype: torch.dtype) -> Const:
    """The value with which a fold begins."""
    value = identity(kind, dtype)
    return Const(float(value) if dtype.is_floating_point else value, dtype)


def may_fail(body: Sequence[Instr], instruction: Instr) -> bool:
    """Whether an instruction may report an error: a check, or integers divided by what may be 0."""
    if not isinstance(instruction, Scalar) or instruction.op not in DIVISIONS or instruction.dtype.is_floating_point:
        return isinstance(instruction, Scalar) and instruction.op in CHECKS
    divisor = body[instruction.args[-1]]
    return not (isinstance(divisor, Const) and divisor.value)
