"""Checks of one loop body: SSA order, arity, dtypes, ranks, masks and symbols."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import NoReturn

import torch

from inductor_cpu.errors import InternalError
from inductor_cpu.ir.index import Expr, Sym, within
from inductor_cpu.ir.loop_nest import Cast, Const, Index, Instr, Load, Reduce, Scalar, Scan, Store
from inductor_cpu.ir.ops import FLOAT8, LOOP_DTYPES, LOW_PRECISION, OPS, REDUCTIONS, SCANS, accepts, result_dtype
from inductor_cpu.ir.rewrite import operands, store_operands, value_position

#: The stages whose results are verified.
LOWER, SCHEDULE = "lower", "schedule"


@dataclass(frozen=True)
class Checker:
    """Where the complaints come from: the stage that made the IR, and the node."""

    stage: str
    where: str

    def fail(self, message: str) -> NoReturn:
        """Raise the complaint."""
        raise InternalError(self.stage, f"{self.where}: {message}")

    def require(self, condition: bool, message: str) -> None:
        """Complain unless the condition holds. (Where the text is costly, callers write `if` and `fail`.)"""
        if not condition:
            self.fail(message)


@dataclass(frozen=True)
class Scope:
    """What a body may use: loops, size symbols, and buffers (name -> dtype and the number of index expressions)."""

    loops: frozenset[Sym]
    sizes: Collection[Sym]
    buffers: Callable[[str], tuple[torch.dtype, int] | None]


def check_expr(check: Checker, expr: Expr, scope: Scope, dtypes: Sequence[torch.dtype] = ()) -> None:
    """Loops and sizes are declared, SSA values are earlier integers."""
    for symbol in expr.symbols:
        if symbol.kind == "loop":
            if symbol not in scope.loops:
                check.fail(f"loop {symbol} < {symbol.size} in {expr} is not declared")
        elif symbol.kind == "size":
            if symbol not in scope.sizes:
                check.fail(f"size {symbol} in {expr} has no value here")
        else:
            position = value_position(symbol)
            if position >= len(dtypes):
                check.fail(f"{symbol} in {expr} is used before it is computed")
            if dtypes[position].is_floating_point or dtypes[position] == torch.bool:
                check.fail(f"{symbol} in {expr} is {dtypes[position]}, not an integer")


def check_body(check: Checker, body: Sequence[Instr], scope: Scope, folds: bool) -> None:
    """Every instruction. folds: whether there are loops for Reduce to fold."""
    dtypes: list[torch.dtype] = []
    for position, instr in enumerate(body):
        at = Checker(check.stage, f"{check.where}, %{position}")
        for operand in operands(instr):
            at.require(0 <= operand < position, f"%{operand} is used before it is computed")
        if instr.dtype not in LOOP_DTYPES:
            at.fail(f"{instr.dtype} has no loops")
        if isinstance(instr, Scalar):
            _check_scalar(at, instr, [dtypes[a] for a in instr.args])
        elif isinstance(instr, Load):
            _check_access(at, instr, scope, dtypes)
        elif isinstance(instr, Const):
            _check_const(at, instr)
        elif isinstance(instr, Index):
            check_expr(at, instr.expr, scope, dtypes)
            _check_index(at, instr)
        elif isinstance(instr, (Reduce, Scan)):
            at.require(folds, f"{instr.kind} has no reduction loops")
            _check_reduce(at, instr, dtypes[instr.arg])
        else:
            at.require(isinstance(instr, Cast), f"unknown instruction {type(instr).__name__}")
        dtypes.append(instr.dtype)


def check_stores(check: Checker, body: Sequence[Instr], stores: Iterable[Store], scope: Scope) -> None:
    """Every store: a computed value of the buffer's dtype, at a valid index."""
    dtypes = [instr.dtype for instr in body]
    for number, store in enumerate(stores):
        at = Checker(check.stage, f"{check.where}, store {number}")
        for operand in store_operands(store):
            at.require(0 <= operand < len(body), f"%{operand} does not exist")
        at.require(store.mode in ("set", "add"), f"unknown mode {store.mode!r}")
        kept = store.mode == "add" and (dtypes[store.value] == torch.bool or dtypes[store.value] in FLOAT8)
        at.require(not kept, f"{dtypes[store.value]} values cannot be added")
        _check_access(at, store, scope, dtypes)


def _check_access(check: Checker, access: Load | Store, scope: Scope, dtypes: Sequence[torch.dtype]) -> None:
    dtype = access.dtype if isinstance(access, Load) else dtypes[access.value]
    known = scope.buffers(access.buffer)
    if known is None:
        check.fail(f"buffer {access.buffer} does not exist")
    declared, rank = known
    if dtype != declared:
        check.fail(f"{access.buffer} is {declared}, but the access is {dtype}")
    if len(access.index) != rank:
        check.fail(f"{access.buffer} takes {rank} index expressions, got {len(access.index)}")
    if access.mask is not None:
        check.require(dtypes[access.mask] == torch.bool, f"the mask %{access.mask} is not bool")
    for expr in access.index:
        check_expr(check, expr, scope, dtypes)


def _check_const(check: Checker, const: Const) -> None:
    value, dtype = const.value, const.dtype
    if dtype == torch.bool or isinstance(value, bool):
        fits = dtype == torch.bool and isinstance(value, bool)
    elif dtype.is_floating_point:
        fits = isinstance(value, float)
    else:
        info = torch.iinfo(dtype)
        fits = isinstance(value, int) and info.min <= value <= info.max
    if not fits:
        check.fail(f"{value!r} is no {dtype} literal")


def _check_index(check: Checker, index: Index) -> None:
    """An index value is int64, or int32 where that holds it and all that it is computed from."""
    if index.dtype == torch.int32:
        info = torch.iinfo(torch.int32)
        data = any(symbol.kind == "value" for symbol in index.expr.symbols)
        check.require(not data and within(index.expr, info.min, info.max), f"{index.expr} is not known to fit int32")
    else:
        check.require(index.dtype == torch.int64, "an index value is int64 or int32")


def _check_scalar(check: Checker, instr: Scalar, args: Sequence[torch.dtype]) -> None:
    row = OPS.get(instr.op)
    if row is None:
        check.fail(f"unknown op {instr.op!r}")
    if len(args) != row.arity:
        check.fail(f"{instr.op} takes {row.arity} arguments, got {len(args)}")
    common = args[1:] if instr.op == "where" else args
    if instr.op == "where" and args[0] != torch.bool:
        check.fail("the condition of where is not bool")
    if len(set(common)) != 1:
        check.fail(f"{instr.op} takes arguments of one dtype, got {', '.join(map(str, common))}")
    if not accepts(instr.op, common[0]):
        check.fail(f"{instr.op} does not take {common[0]}")
    if instr.dtype != result_dtype(instr.op, tuple(args)):
        check.fail(f"{instr.op} gives {result_dtype(instr.op, tuple(args))}, not {instr.dtype}")


def _check_reduce(check: Checker, instr: Reduce | Scan, arg: torch.dtype) -> None:
    kind = instr.kind
    check.require(kind in (REDUCTIONS if isinstance(instr, Reduce) else SCANS), f"unknown reduction {kind!r}")
    if isinstance(instr, Scan) and arg == torch.bool:
        check.fail("a scan does not take bool")
    boolean, either = kind in ("any", "all"), kind in ("max", "min", "argmax", "argmin")
    if kind == "fmax" and not arg.is_floating_point:
        check.fail(f"fmax does not take {arg}")
    if not either and (arg == torch.bool) != boolean:
        check.fail(f"{kind} does not take {arg}")
    if kind in ("sum", "prod") and arg in LOW_PRECISION:
        check.fail(f"{kind} of {arg} has to accumulate in float32")
    expected = torch.int64 if kind.startswith("arg") else arg
    if instr.dtype != expected:
        check.fail(f"{kind} of {arg} gives {expected}, not {instr.dtype}")


def store_depends(store: Store, values: Sequence[bool], loops: Collection[Sym]) -> bool:
    """Whether a store's value, index or mask depends on one of the loops (`values`: from `depends`)."""
    symbols = {s for expr in store.index for s in expr.symbols}
    return any(values[k] for k in store_operands(store)) or any(s in loops for s in symbols)
