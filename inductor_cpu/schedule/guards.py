"""Values that are only seen under conditions: a chain of updates (`x[1:, 2:-2, 0] = y`) becomes one choice.

Each `x[...] = y` of a functional graph is `where(here, y, x)`, and those within one another read x again under the mask
of the next one out: `where(a, where(b, y, x if a), x)`. Where a condition is known to hold, a load under it may be the
plain load of the same element, a choice by it is decided, and choices that end in one value are a single one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import torch

from inductor_cpu.ir.index import Expr, Sym, const, of
from inductor_cpu.ir.loop_nest import Cast, Const, Index, Instr, Load, LoopNest, Scalar
from inductor_cpu.ir.rewrite import Copier, Editor, may_fail, operands, prune, store_operands

#: Conditions by position, each with the answer that it has.
Facts = frozenset[tuple[int, bool]]
NOTHING: Facts = frozenset()


def simplify_guarded(nest: LoopNest) -> LoopNest:
    """The nest with fewer choices and loads, where its conditions allow it; else the nest as it is."""
    if not any(isinstance(i, Scalar) and i.op == "where" for i in nest.body):
        return nest
    editor, simplifier = Editor(), _Simplifier(nest.body, known_at(nest))
    copier = Copier(editor, nest.body, {})
    simplifier.run(editor, copier)
    body, stores = prune(editor.instructions, tuple(copier.store(store) for store in nest.stores))
    kept = sum(may_fail(nest.body, i) for i in nest.body) == sum(may_fail(body, i) for i in body)
    return replace(nest, body=body, stores=stores) if kept and _size(body) < _size(nest.body) else nest


def _size(body: Sequence[Instr]) -> tuple[int, int]:
    """The choices and loads of a body; equal ones are ordered by all of its instructions."""
    return sum(isinstance(i, Load) or (isinstance(i, Scalar) and i.op == "where") for i in body), len(body)


def known_at(nest: LoopNest) -> list[Facts]:
    """What holds at all points at which a value matters: each of its uses is an arm of a choice, or leads to one.

    Conditions themselves, masks and indices matter everywhere, and so does what may report an error."""
    body = nest.body
    uses: list[list[Facts]] = [[] for _ in body]
    found: list[Facts] = [NOTHING] * len(body)
    for store in nest.stores:
        for position in store_operands(store):
            uses[position].append(NOTHING)
    for position in reversed(range(len(body))):
        instruction = body[position]
        found[position] = frozenset.intersection(*uses[position]) if uses[position] else NOTHING
        if isinstance(instruction, Scalar) and instruction.op == "where":
            condition, yes, no = instruction.args
            uses[condition].append(NOTHING)
            uses[yes].append(found[position] | implied(body, condition, True))
            uses[no].append(found[position] | implied(body, condition, False))
        else:
            passed = found[position] if _passes(body, instruction) else NOTHING
            for operand in operands(instruction):
                uses[operand].append(passed)
    return found


def _passes(body: Sequence[Instr], instruction: Instr) -> bool:
    """Whether an instruction may be computed from anything at points where its result does not matter."""
    pure = isinstance(instruction, (Scalar, Cast)) and not may_fail(body, instruction)
    return pure and instruction.dtype != torch.bool


def implied(body: Sequence[Instr], condition: int, answer: bool) -> Facts:
    """What is known where a condition has this answer: that of each side of an `and` that holds, for one."""
    instruction = body[condition]
    if isinstance(instruction, Scalar) and all(body[k].dtype == torch.bool for k in instruction.args):
        if instruction.op == ("logical_and" if answer else "logical_or"):
            return frozenset().union(*(implied(body, side, answer) for side in instruction.args))
        if instruction.op == "logical_not":
            return implied(body, instruction.args[0], not answer)
    return frozenset({(condition, answer)})


def _contradicts(facts: Facts, known: Facts) -> bool:
    return any((position, not answer) in known for position, answer in facts)


class _Simplifier:
    """Copies a body, value by value, in the order of its positions."""

    def __init__(self, body: Sequence[Instr], known: Sequence[Facts]) -> None:
        self.body, self.known = body, known
        self.loads: dict[tuple[str, torch.dtype], list[int]] = {}
        for position, instruction in enumerate(body):
            if isinstance(instruction, Load):
                self.loads.setdefault((instruction.buffer, instruction.dtype), []).append(position)

    def run(self, editor: Editor, copier: Copier) -> None:
        """Copy the whole body; the copier knows the new values afterwards."""
        for position, instruction in enumerate(self.body):
            known = self.known[position]
            if isinstance(instruction, Load):
                copier.values[position] = self._load(editor, copier, position, instruction, known)
            elif isinstance(instruction, Scalar) and instruction.op == "where":
                copier.values[position] = self._choice(editor, copier, instruction, known)
            else:
                copier.run((position,))

    def _load(self, editor: Editor, copier: Copier, position: int, load: Load, known: Facts) -> int:
        """The load, or the one with the fewest conditions that reads the same element wherever this one matters."""
        mask = self._conditions(load)
        if _contradicts(mask, known):
            return editor.emit(Const(load.fill, load.dtype))
        if not mask <= known:
            return self._copy(editor, copier, load)
        pinned = self._pinned(known)
        place = _place(load, pinned)
        same = [k for k in self.loads[load.buffer, load.dtype] if self._reads(k, place, pinned, known)]
        best = min(same, key=lambda k: (len(self._conditions(self.body[k])), k != position, k))
        found = self.body[best]
        assert isinstance(found, Load)
        return self._copy(editor, copier, found)

    def _copy(self, editor: Editor, copier: Copier, load: Load) -> int:
        """A load as it is, its mask as all of its conditions. Masks and indices come before it, but not before all
        loads that it may stand for."""
        copier.run(operands(load))
        mask = None if load.mask is None else _all(editor, _moved(self._conditions(load), copier.values))
        return editor.emit(replace(load, index=tuple(map(copier.index, load.index)), mask=mask))

    def _conditions(self, load: Instr) -> Facts:
        assert isinstance(load, Load)
        return NOTHING if load.mask is None else implied(self.body, load.mask, True)

    def _reads(self, position: int, place: tuple[Expr, ...], pinned: Mapping[Sym, Expr], known: Facts) -> bool:
        load = self.body[position]
        assert isinstance(load, Load)
        return _place(load, pinned) == place and self._conditions(load) <= known

    def _pinned(self, known: Facts) -> dict[Sym, Expr]:
        """The loops that are known to be at one number."""
        found: dict[Sym, Expr] = {}
        for position, answer in known:
            test = self.body[position]
            if not answer or not isinstance(test, Scalar) or test.op != "eq":
                continue
            index, number = (self.body[k] for k in test.args)
            if isinstance(index, Index) and isinstance(number, Const):
                found |= {s: const(int(number.value)) for s in index.expr.symbols if index.expr == of(s)}
        return found

    def _choice(self, editor: Editor, copier: Copier, choice: Scalar, known: Facts) -> int:
        yes, no = (copier.values[k] for k in choice.args[1:])
        facts = implied(self.body, choice.args[0], True)
        if yes == no or facts <= known:
            return yes
        if _contradicts(facts, known):
            return no
        facts = _moved(facts, copier.values)
        inner = editor.instructions[yes]
        if isinstance(inner, Scalar) and inner.op == "where" and inner.args[2] == no:
            facts |= implied(editor.instructions, inner.args[0], True)
            yes = inner.args[1]
        return editor.emit(Scalar("where", (_all(editor, facts), yes, no), choice.dtype))


def _place(load: Load, pinned: Mapping[Sym, Expr]) -> tuple[Expr, ...]:
    return tuple(expr.substitute(pinned) for expr in load.index) if pinned else load.index


def _moved(facts: Facts, values: Mapping[int, int]) -> Facts:
    return frozenset((values[position], answer) for position, answer in facts)


def _all(editor: Editor, facts: Iterable[tuple[int, bool]]) -> int:
    """The condition that all of these hold; those that were computed first come first, so that masks share them."""
    sides = [k if answer else editor.scalar("logical_not", (k,), torch.bool) for k, answer in sorted(facts)]
    result = sides[0]
    for side in sides[1:]:
        result = editor.scalar("logical_and", (result, side), torch.bool)
    return result
