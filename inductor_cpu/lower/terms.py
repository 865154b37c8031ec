"""Formulas over SSA values: a `Term` is an SSA value with Python's operators, so that a rule reads like its formula."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from inductor_cpu.ir.loop_nest import Cast
from inductor_cpu.ir.ops import LOW_PRECISION
from inductor_cpu.lower.body import Body, Number


@dataclass(frozen=True)
class Term:
    """An SSA value of a body. Numbers in a formula become literals of the term's dtype."""

    body: Body
    value: int

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the value."""
        return self.body.dtype(self.value)

    def lift(self, other: Term | Number) -> int:
        """Another term, or a number as a literal of this term's dtype, as an SSA value."""
        return other.value if isinstance(other, Term) else self.body.const(other, self.dtype)

    def const(self, value: Number) -> Term:
        """A literal of this term's dtype."""
        return Term(self.body, self.body.const(value, self.dtype))

    def op(self, name: str, *others: Term | Number) -> Term:
        """A scalar op with this term as its first argument."""
        return Term(self.body, self.body.op(name, self.value, *(self.lift(other) for other in others)))

    def cast(self, dtype: torch.dtype) -> Term:
        """The value in another dtype."""
        return Term(self.body, self.body.cast(self.value, dtype))

    def before_widening(self) -> Term | None:
        """The low-precision term that this one was cast from, if so."""
        instr = self.body.instructions[self.value]
        if not isinstance(instr, Cast) or self.body.dtype(instr.arg) not in LOW_PRECISION:
            return None
        return Term(self.body, instr.arg)

    def __add__(self, other: Term | Number) -> Term:
        return self.op("add", other)

    def __radd__(self, other: Number) -> Term:
        return self.const(other).op("add", self)

    def __sub__(self, other: Term | Number) -> Term:
        return self.op("sub", other)

    def __rsub__(self, other: Number) -> Term:
        return self.const(other).op("sub", self)

    def __mul__(self, other: Term | Number) -> Term:
        return self.op("mul", other)

    def __rmul__(self, other: Number) -> Term:
        return self.const(other).op("mul", self)

    def __truediv__(self, other: Term | Number) -> Term:
        return self.op("div", other)

    def __rtruediv__(self, other: Number) -> Term:
        return self.const(other).op("div", self)

    def __neg__(self) -> Term:
        return self.op("neg")

    def __lt__(self, other: Term | Number) -> Term:
        return self.op("lt", other)

    def __le__(self, other: Term | Number) -> Term:
        return self.op("le", other)

    def __gt__(self, other: Term | Number) -> Term:
        return self.op("gt", other)

    def __ge__(self, other: Term | Number) -> Term:
        return self.op("ge", other)

    def equals(self, other: Term | Number) -> Term:
        """self == other, as a bool term."""
        return self.op("eq", other)

    def differs(self, other: Term | Number) -> Term:
        """self != other, as a bool term."""
        return self.op("ne", other)

    def __and__(self, other: Term) -> Term:
        return self.op("logical_and", other)

    def __or__(self, other: Term) -> Term:
        return self.op("logical_or", other)

    def __xor__(self, other: Term) -> Term:
        return self.op("logical_xor", other)

    def __invert__(self) -> Term:
        return self.op("logical_not")

    def maximum(self, other: Term | Number) -> Term:
        """The larger one; NaN if either is NaN."""
        return self.op("maximum", other)

    def minimum(self, other: Term | Number) -> Term:
        """The smaller one; NaN if either is NaN."""
        return self.op("minimum", other)

    def clamped(self, low: Number, high: Number) -> Term:
        """The nearest value in [low, high]; NaN stays NaN. A zero that equals a bound keeps its sign, as in eager: of
        equal values `maximum` and `minimum` give the second."""
        above = Term(self.body, self.lift(low)).maximum(self)
        return Term(self.body, self.lift(high)).minimum(above)


def where(condition: Term, yes: Term | Number, no: Term | Number) -> Term:
    """yes where the condition (a bool term) holds, else no. At least one of them must be a term."""
    model = yes if isinstance(yes, Term) else no
    assert isinstance(model, Term)
    body = condition.body
    return Term(body, body.op("where", condition.value, model.lift(yes), model.lift(no)))
