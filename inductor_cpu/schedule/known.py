"""Indices that are data only in form: an `arange` that was inlined into a gather or a scatter, or a sum of such, as the
positions of windows (`unfold`), is an index expression, and a check that it always passes is no check. The address is
then affine in the loops, as that of any view."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import replace

import torch

from inductor_cpu.ir.index import Expr, below, const, is_nonnegative, within
from inductor_cpu.ir.loop_nest import Cast, Const, Index, Instr, Load, LoopNest, Scalar
from inductor_cpu.ir.ops import INDEX_CHECKS
from inductor_cpu.ir.rewrite import Copier, Editor, prune, value_position

#: Integers that an index may be held in on its way, and what they hold.
_LARGEST = {dtype: torch.iinfo(dtype).max for dtype in (torch.int32, torch.int64)}

#: Arithmetic of index expressions that gives one.
_ARITHMETIC: Mapping[str, Callable[[Expr, Expr], Expr]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
}


def put_known_indices(nest: LoopNest) -> LoopNest:
    """The nest with checks that cannot fail left out, and index expressions in place of values that are such."""
    if not any(isinstance(i, Index) for i in nest.body):
        return nest
    editor = Editor()
    copier = Copier(editor, nest.body, {})
    known: dict[int, Expr] = {}
    for position, instruction in enumerate(nest.body):
        exprs = instruction.index if isinstance(instruction, Load) else ()
        exprs = (instruction.expr,) if isinstance(instruction, Index) else exprs
        _substitute(copier, exprs, known)
        value = _value(nest.body, instruction, copier, known)
        if value is not None:
            known[position] = value
        if value is not None and instruction.dtype == torch.int64 and value.as_int is None:
            copier.values[position] = editor.emit(Index(value))
        else:
            copier.run((position,))
    for store in nest.stores:
        _substitute(copier, store.index, known)
    body, stores = prune(editor.instructions, tuple(copier.store(store) for store in nest.stores))
    return replace(nest, body=body, stores=stores)


def _substitute(copier: Copier, exprs: tuple[Expr, ...], known: dict[int, Expr]) -> None:
    """Let the copier put known values in the place of symbols."""
    for expr in exprs:
        for symbol in expr.symbols:
            if symbol.kind == "value" and value_position(symbol) in known:
                copier.substitution[symbol] = known[value_position(symbol)]


def _value(body: tuple[Instr, ...], instruction: Instr, copier: Copier, known: dict[int, Expr]) -> Expr | None:
    """An integer value as an index expression over loops and sizes; None if it is not known to be one."""
    if isinstance(instruction, Const):
        return const(int(instruction.value)) if instruction.dtype == torch.int64 else None
    if isinstance(instruction, Index):
        expr = copier.index(instruction.expr)
        return None if any(symbol.kind == "value" for symbol in expr.symbols) else expr
    if isinstance(instruction, Cast):
        value = known.get(instruction.arg)
        limit = _LARGEST.get(instruction.dtype)
        return value if value is not None and limit is not None and below(value, const(limit)) else None
    if not isinstance(instruction, Scalar):
        return None
    if instruction.op in INDEX_CHECKS:
        index, size = (known.get(k) for k in instruction.args)
        inside = index is not None and size is not None and below(index, size)
        return index if inside else None
    if instruction.op in _ARITHMETIC:
        return _computed(instruction, known)
    return _not_negative(body, instruction, known) if instruction.op == "where" else None


def _computed(instruction: Scalar, known: dict[int, Expr]) -> Expr | None:
    """A sum, a difference or a multiple of known values, where its type is known to hold it."""
    left, right = (known.get(k) for k in instruction.args)
    limit = _LARGEST.get(instruction.dtype)
    if left is None or right is None or limit is None:
        return None
    if instruction.op == "mul" and left.as_int is None and right.as_int is None:
        return None
    value = _ARITHMETIC[instruction.op](left, right)
    return value if within(value, -limit, limit) else None


def _not_negative(body: tuple[Instr, ...], choice: Scalar, known: dict[int, Expr]) -> Expr | None:
    """The last operand of where(index < 0, other, index) for an index that is not negative."""
    test, index = body[choice.args[0]], known.get(choice.args[2])
    if index is None or not isinstance(test, Scalar) or test.op != "lt" or test.args[0] != choice.args[2]:
        return None
    zero = known.get(test.args[1])
    return index if zero is not None and zero == 0 and is_nonnegative(index) else None
