"""Builds the SSA body of one loop nest, sharing equal instructions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from inductor_cpu.errors import Unsupported
from inductor_cpu.ir.index import Expr, as_expr, of, value_symbol
from inductor_cpu.ir.loop_nest import Cast, Const, Index, Load, Reduce, Scalar
from inductor_cpu.ir.numbers import round_to, wrapped
from inductor_cpu.ir.ops import FLOAT8, result_dtype
from inductor_cpu.ir.rewrite import Editor, value_positions
from inductor_cpu.lower.values import TensorValue

Number = bool | int | float


def represent(value: Number, dtype: torch.dtype) -> Number:
    """A Python number as the dtype holds it: an unsigned one holds a negative number modulo its range. Raises
    Unsupported for a number out of the range of an integer dtype or of a float of 8 bits, for which eager raises an
    error."""
    if dtype == torch.bool:
        return bool(value)
    if dtype in FLOAT8 and abs(value) > torch.finfo(dtype).max:
        raise Unsupported(None, f"the number {value}, which {dtype} does not hold")
    if dtype.is_floating_point:
        return round_to(value, dtype)
    limits = torch.iinfo(dtype)
    least = limits.min or -limits.max
    if not least <= value <= limits.max:  # also NaN
        raise Unsupported(None, f"the number {value}, which {dtype} does not hold")
    return wrapped(int(value), dtype)


def check_held(value: Any, dtype: torch.dtype) -> None:
    """Raise Unsupported for a number that the dtype does not hold, where eager raises an error: fills, paddings and
    bounds. Arithmetic makes it an infinity. Anything else than a number passes."""
    if not isinstance(value, (bool, int, float)):
        return
    represent(value, dtype)
    if dtype.is_floating_point and math.isfinite(value) and abs(value) > torch.finfo(dtype).max:
        raise Unsupported(None, f"the number {value}, which {dtype} does not hold")


class Body(Editor):
    """A growing loop body with the vocabulary of lowering rules. Methods return SSA positions."""

    def dtype(self, value: int) -> torch.dtype:
        """The dtype of an SSA value."""
        return self.instructions[value].dtype

    def const(self, value: Number, dtype: torch.dtype) -> int:
        """A literal, converted (and rounded) to the dtype."""
        return self.emit(Const(represent(value, dtype), dtype))

    def index(self, expr: Expr | int) -> int:
        """An index expression as an int64 value."""
        expr = as_expr(expr)
        constant = expr.as_int
        return self.const(constant, torch.int64) if constant is not None else self.emit(Index(expr))

    def load(self, tensor: TensorValue, position: Sequence[Expr], mask: int | None = None, fill: Number = 0) -> int:
        """The tensor's element at a logical position (sizes of 1 broadcast)."""
        loaded = self.emit(Load(tensor.buffer, tensor.at(position), tensor.dtype, mask, represent(fill, tensor.dtype)))
        # A checked index into one element is not part of the address. The check has to stay.
        for checked in value_positions(p for d, p in zip(tensor.dims, position, strict=True) if d.size == 1):
            loaded = self.op("where", self.op("ge", checked, self.const(0, torch.int64)), loaded, loaded)
        return loaded

    def op(self, name: str, *args: int) -> int:
        """A scalar op on values of one dtype (see `ir/ops.py`)."""
        if name == "div" and (inverse := self._exact_inverse(args[1])) is not None:
            name, args = "mul", (args[0], self.const(inverse, self.dtype(args[1])))
        return self.emit(Scalar(name, args, result_dtype(name, tuple(self.dtype(a) for a in args))))

    def _exact_inverse(self, divisor: int) -> float | None:
        """The reciprocal of a literal that is a power of two: products with it are the quotients, to the last bit, and
        take a fifth of the time."""
        literal = self.instructions[divisor]
        if not isinstance(literal, Const) or not literal.dtype.is_floating_point:
            return None
        if abs(math.frexp(literal.value)[0]) != 0.5:
            return None
        limits, inverse = torch.finfo(literal.dtype), 1 / literal.value
        return inverse if limits.tiny <= abs(inverse) <= limits.max else None

    def cast(self, value: int, dtype: torch.dtype) -> int:
        """The value in another dtype."""
        return value if self.dtype(value) == dtype else self.emit(Cast(value, dtype))

    def reduce(self, kind: str, value: int) -> int:
        """Fold a value over the nest's reduction loops."""
        dtype = torch.int64 if kind in ("argmax", "argmin") else self.dtype(value)
        return self.emit(Reduce(kind, value, dtype))

    def as_index(self, value: int, size: Expr | None) -> Expr:
        """An SSA value as an index expression, known to be in [0, size) when size is given."""
        return of(value_symbol(value, size))

    def checked_index(self, value: int, size: Expr, wrap: bool = True, error: type[Exception] = IndexError) -> Expr:
        """A data-dependent index, negative ones wrapped, out-of-range ones reported by the kernel."""
        return self.as_index(self.checked(value, size, wrap, error), size)

    def checked(self, value: int, size: Expr, wrap: bool = True, error: type[Exception] = IndexError) -> int:
        """`checked_index` as an SSA value. Without `wrap` a negative index is out of range, too. error: what eager
        raises, IndexError or (never with `wrap`) RuntimeError."""
        value, limit = self.cast(value, torch.int64), self.index(size)
        if error is RuntimeError:
            return self.op("check_element", value, limit)
        if not wrap:
            value = self.op("where", self.op("lt", value, self.const(0, torch.int64)), limit, value)
        return self.op("check_index", value, limit)
