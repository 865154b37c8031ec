"""Positions in vectors are int32 where 32 bits are known to hold them.

Indices are int64, as eager's are. In a vector they take two registers where a float takes one, and twice the
instructions. What is computed from them in integers, up to a comparison or a conversion, is done in int32 then. Values
that anything else needs (stores, addresses, reductions) stay as they are: to convert them would cost what it saves.

A number of any size, such as a label or a length that was loaded, may be compared with a position all the same if all
lanes have the same one: it is held between the numbers just outside the positions', which is done once.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import torch

from inductor_cpu.ir.index import INT32
from inductor_cpu.ir.kernel import VectorPlan
from inductor_cpu.ir.loop_nest import Cast, Const, Index, Instr, LoopNest, Scalar, Store
from inductor_cpu.ir.rewrite import Copier, Editor, depends, operands, store_operands
from inductor_cpu.schedule.value_ranges import MaybeRange, Range, small_ranges

_COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")


@dataclass(frozen=True)
class _Values:
    """Those of a nest: what 32 bits hold of them, and which differ from lane to lane."""

    body: Sequence[Instr]
    ranges: Sequence[MaybeRange]
    varies: Sequence[bool]

    def limits(self, instr: Instr) -> dict[int, Range]:
        """Of a comparison of positions with a number that is the same for all lanes: between which numbers that may be
        held, so that 32 bits have it, too."""
        if not isinstance(instr, Scalar) or instr.op not in _COMPARISONS:
            return {}
        for number, position in (instr.args, instr.args[::-1]):
            known = self.ranges[position]
            if not self._is_fixed(number) or not self.varies[position] or known is None:
                continue
            if INT32[0] < known[0] and known[1] < INT32[1]:
                return {number: (known[0] - 1, known[1] + 1)}
        return {}

    def _is_fixed(self, number: int) -> bool:
        """Whether all lanes have the same number, which may be too large. Not an index: to the generator a comparison
        of two is the end of a loop."""
        return self.ranges[number] is None and not self.varies[number] and not isinstance(self.body[number], Index)


def narrow_positions(nest: LoopNest, vector: VectorPlan) -> tuple[LoopNest, VectorPlan]:
    """The nest with int64 values in 32 bits where that changes no number and makes vectors shorter, and its plan."""
    loop = vector.loop
    if loop is None:
        return nest, vector
    varies = depends(nest.body, (loop,), nest.reduce_dims)
    values = _Values(nest.body, small_ranges(nest.body), varies)
    chosen = _chosen(values, nest.stores)
    if not any(varies[k] for k in chosen):
        return nest, vector
    return _Narrower(nest, values, chosen).run(vector)


def _chosen(values: _Values, stores: Sequence[Store]) -> frozenset[int]:
    """The values to narrow: those that fit, and whose every use is narrowed with them or takes any integer. Numbers are
    written once for each width."""
    body = values.body
    found = {k for k, known in enumerate(values.ranges) if known is not None}
    while True:
        wide = {k for store in stores for k in store_operands(store)}
        wide.update(k for p, instr in enumerate(body) if not _takes(instr, p, values, found) for k in operands(instr))
        lost = {k for k in found if not isinstance(body[k], Const) and (k in wide or not _has(body[k], values, found))}
        if not lost:
            return frozenset(found)
        found -= lost


def _has(instr: Instr, values: _Values, narrow: Collection[int]) -> bool:
    """Whether all int64 operands of an instruction are narrow, or can be held in 32 bits for it."""
    wide = [k for k in operands(instr) if values.body[k].dtype == torch.int64 and k not in narrow]
    return values.limits(instr).keys() >= set(wide)


def _takes(instr: Instr, position: int, values: _Values, narrow: Collection[int]) -> bool:
    """Whether an instruction gives the same with its int64 operands in 32 bits, where all of them are: a comparison, a
    conversion, an op whose result is narrow."""
    if isinstance(instr, Scalar):
        return (instr.dtype != torch.int64 or position in narrow) and _has(instr, values, narrow)
    return isinstance(instr, Cast)


class _Narrower:
    """Copies a body. A value of it is held as it was (in the copier) or as int32."""

    def __init__(self, nest: LoopNest, values: _Values, chosen: frozenset[int]) -> None:
        self.nest, self.values, self.chosen = nest, values, chosen
        self.editor = Editor()
        self.copier = Copier(self.editor, nest.body, {})
        self.narrow: dict[int, int] = {}

    def run(self, vector: VectorPlan) -> tuple[LoopNest, VectorPlan]:
        """The nest with the chosen values as int32, and its plan."""
        body = self.nest.body
        for position, instr in enumerate(body):
            if isinstance(instr, Const):
                continue  # written for the first use
            if position in self.chosen:
                self.narrow[position] = self._narrowed(instr)
            elif _takes(instr, position, self.values, self.chosen) and not self.chosen.isdisjoint(operands(instr)):
                self.copier.values[position] = self._user(instr)
            else:
                self.copier.run((position,))
        self.copier.run(k for store in self.nest.stores for k in store_operands(store))
        stores = tuple(self.copier.store(store) for store in self.nest.stores)
        access = {(self.copier.values[at] if at >= 0 else at): kind for at, kind in vector.access}
        nest = replace(self.nest, body=tuple(self.editor.instructions), stores=stores)
        return nest, replace(vector, access=tuple(access.items()))

    def _operand(self, position: int) -> int:
        """A value of the source in the copy: as int32 if it is chosen."""
        if position not in self.chosen:
            self.copier.run((position,))
            return self.copier.values[position]
        if position not in self.narrow:
            self.narrow[position] = self._narrowed(self.nest.body[position])
        return self.narrow[position]

    def _narrowed(self, instr: Instr) -> int:
        """A chosen value as int32."""
        if isinstance(instr, Scalar):
            args = tuple(map(self._operand, instr.args))
            return self.editor.emit(replace(instr, args=args, dtype=torch.int32))
        if isinstance(instr, Cast):
            return self._cast(instr.arg, torch.int32)
        assert isinstance(instr, (Const, Index))
        return self.editor.emit(replace(instr, dtype=torch.int32))

    def _user(self, instr: Instr) -> int:
        """A comparison or a conversion of chosen values."""
        if isinstance(instr, Cast):
            return self._cast(instr.arg, instr.dtype)
        assert isinstance(instr, Scalar)
        limits = self.values.limits(instr)
        args = (self._held(k, limits[k]) if k in limits else self._operand(k) for k in instr.args)
        return self.editor.emit(replace(instr, args=tuple(args)))

    def _held(self, number: int, limits: Range) -> int:
        """A number, not less or more than its limits, as int32."""
        held = self._operand(number)
        for op, limit in zip(("maximum", "minimum"), limits, strict=True):
            held = self.editor.emit(Scalar(op, (held, self.editor.emit(Const(limit, torch.int64))), torch.int64))
        return self.editor.emit(Cast(held, torch.int32))

    def _cast(self, arg: int, dtype: torch.dtype) -> int:
        operand = self._operand(arg)
        return operand if self.editor.instructions[operand].dtype == dtype else self.editor.emit(Cast(operand, dtype))
