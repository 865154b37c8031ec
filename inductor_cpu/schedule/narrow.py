"""Positions in vectors are int32 where 32 bits are known to hold them.

Indices are int64, as eager's are. In a vector they take two registers where a float takes one, and twice the
instructions. What is computed from them in integers, up to a comparison or a conversion, is done in int32 then. Values
that anything else needs (stores, addresses, reductions) stay as they are: to convert them would cost what it saves.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

import torch

from inductor_cpu.ir.kernel import VectorPlan
from inductor_cpu.ir.loop_nest import Cast, Const, Index, Instr, LoopNest, Scalar, Store
from inductor_cpu.ir.rewrite import Copier, Editor, depends, operands, store_operands
from inductor_cpu.schedule.value_ranges import small_ranges


def narrow_positions(nest: LoopNest, vector: VectorPlan) -> tuple[LoopNest, VectorPlan]:
    """The nest with int64 values in 32 bits where that changes no number and makes vectors shorter, and its plan."""
    loop = vector.loop
    if loop is None:
        return nest, vector
    chosen = _chosen(nest.body, nest.stores)
    varies = depends(nest.body, (loop,), nest.reduce_dims)
    if not any(varies[k] for k in chosen):
        return nest, vector
    return _Narrower(nest, chosen).run(vector)


def _chosen(body: Sequence[Instr], stores: Sequence[Store]) -> frozenset[int]:
    """The values to narrow: those that fit, and whose every use is narrowed with them or takes any integer. Numbers are
    written once for each width."""
    found = {k for k, known in enumerate(small_ranges(body)) if known is not None}
    while True:
        wide = {k for store in stores for k in store_operands(store)}
        wide.update(k for p, instr in enumerate(body) if not _takes(instr, p, body, found) for k in operands(instr))
        lost = {k for k in found if not isinstance(body[k], Const) and (k in wide or not _has(body[k], body, found))}
        if not lost:
            return frozenset(found)
        found -= lost


def _has(instr: Instr, body: Sequence[Instr], narrow: Collection[int]) -> bool:
    """Whether all int64 operands of an instruction are narrow."""
    return all(k in narrow for k in operands(instr) if body[k].dtype == torch.int64)


def _takes(instr: Instr, position: int, body: Sequence[Instr], narrow: Collection[int]) -> bool:
    """Whether an instruction gives the same with its int64 operands in 32 bits, where all of them are: a comparison, a
    conversion, an op whose result is narrow."""
    if isinstance(instr, Scalar):
        return (instr.dtype != torch.int64 or position in narrow) and _has(instr, body, narrow)
    return isinstance(instr, Cast)


class _Narrower:
    """Copies a body. A value of it is held as it was (in the copier) or as int32."""

    def __init__(self, nest: LoopNest, chosen: frozenset[int]) -> None:
        self.nest, self.chosen = nest, chosen
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
            elif _takes(instr, position, body, self.chosen) and not self.chosen.isdisjoint(operands(instr)):
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
        return self.editor.emit(replace(instr, args=tuple(map(self._operand, instr.args))))

    def _cast(self, arg: int, dtype: torch.dtype) -> int:
        operand = self._operand(arg)
        return operand if self.editor.instructions[operand].dtype == dtype else self.editor.emit(Cast(operand, dtype))
