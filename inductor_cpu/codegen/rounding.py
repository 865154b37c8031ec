"""Where bf16 and f16 values are rounded, and how: they are computed as floats.

Every op that is not exact is rounded, as eager rounds it, but no value more than once: a store rounds what it writes,
and rounding may wait for it behind ops that give the same for rounded and for unrounded values.
"""

from __future__ import annotations

from functools import cached_property

import torch

from inductor_cpu.codegen.cxx import ROUND
from inductor_cpu.ir.kernel import Kernel
from inductor_cpu.ir.loop_nest import Cast, Const, Index, Load, Reduce, Scalar, Scan
from inductor_cpu.ir.ops import FLOAT8, LOW_PRECISION, OPS
from inductor_cpu.ir.rewrite import operands, store_operands

#: Ops f with f(round(x)) = round(f(x)): rounding keeps the order and the sign.
COMMUTING = frozenset({"neg", "abs", "relu", "maximum", "minimum", "where"})

#: Ops of floats that give a NaN of an argument, or the processor's own: arguments whose NaN have a low half of zeros
#: give such a NaN again, which rounding cannot carry into the sign.
KEEPS_NAN_PLAIN = frozenset(
    {
        *("neg", "abs", "sign", "relu", "add", "sub", "mul", "div", "maximum", "minimum", "fmax", "fmin", "where"),
        *("floor", "ceil", "round", "trunc", "sqrt", "rsqrt", "reciprocal", "copysign", "quotient", "fma"),
        *("exp", "tanh", "erf", "sigmoid", "silu", "low_exp", "gelu_slope", "low_gelu_slope", "exp_of_nonpositive"),
    }
)

#: Types whose every value is one of bf16 and of f16, too.
_FEW_BITS = frozenset({torch.bool, torch.int8, torch.uint8, *FLOAT8})

_PLAIN_FOLDS = frozenset({"sum", "prod", "max", "min", "fmax"})


class Rounding:
    """Which values of a kernel are rounded where they are computed."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel

    def function(self, position: int, *, vector: bool) -> str | None:
        """The C++ function that rounds a value, None for one that needs none."""
        dtype = self.kernel.body[position].dtype
        if not self._inexact(position) or self.waits[position]:
            return None
        plain = vector and dtype == torch.bfloat16 and self._plain_nan[position]
        return "icpu::round_plain_bf16" if plain else ROUND[dtype]

    def is_rounded(self, position: int) -> bool:
        """Whether a value has no more bits than its low-precision dtype."""
        return self.kernel.body[position].dtype in LOW_PRECISION and self._rounded[position]

    def rounds_plain(self, position: int) -> bool:
        """Whether a store to bf16 rounds this value, of whose NaN it knows that a sum cannot carry into the sign."""
        dtype = self.kernel.body[position].dtype
        return dtype == torch.bfloat16 and not self._rounded[position] and self._plain_nan[position]

    def _inexact(self, position: int) -> bool:
        """Whether an instruction gives a low-precision result that has to be rounded at some time."""
        instr = self.kernel.body[position]
        if instr.dtype not in LOW_PRECISION:
            return False
        if isinstance(instr, Cast):
            exact = {torch.bool} if instr.dtype in FLOAT8 else _FEW_BITS
            return self.kernel.body[instr.arg].dtype not in (instr.dtype, *exact)
        if isinstance(instr, Scalar) and instr.op == "mul":
            return not any(self._is_truth_value(k) for k in instr.args)
        return isinstance(instr, Scalar) and not OPS[instr.op].exact

    def _is_truth_value(self, position: int) -> bool:
        """Whether a value is 0 or 1."""
        instr = self.kernel.body[position]
        return isinstance(instr, Cast) and self.kernel.body[instr.arg].dtype == torch.bool

    @cached_property
    def waits(self) -> tuple[bool, ...]:
        """Whether every use of a value is a store that rounds it, or an op behind which rounding may wait for one."""
        body = self.kernel.body
        stored = {store.value for store in self.kernel.stores if store.mode == "set"}
        needed = {k for store in self.kernel.stores for k in store_operands(store) if store.mode != "set"}
        needed |= {k for store in self.kernel.stores for k in store_operands(store) if k != store.value}
        waits = [k in stored for k in range(len(body))]
        for k in reversed(range(len(body))):
            instr = body[k]
            commutes = isinstance(instr, Scalar) and instr.op in COMMUTING and instr.dtype in LOW_PRECISION
            if commutes and waits[k] and k not in needed:
                for arg in operands(instr):
                    waits[arg] = True
            else:
                needed.update(operands(instr))
        return tuple(waits[k] and k not in needed for k in range(len(body)))

    @cached_property
    def _rounded(self) -> tuple[bool, ...]:
        found: list[bool] = []
        for k, instr in enumerate(self.kernel.body):
            if instr.dtype not in LOW_PRECISION or isinstance(instr, (Load, Const)):
                found.append(True)
            elif self._inexact(k):
                found.append(not self.waits[k])
            elif isinstance(instr, Reduce):
                found.append(instr.kind in ("max", "min", "fmax") and found[instr.arg])
            else:
                found.append(not isinstance(instr, Scan) and all(found[j] for j in operands(instr)))
        return tuple(found)

    @cached_property
    def _plain_nan(self) -> tuple[bool, ...]:
        """Whether NaN among a value's lanes have a low half of zeros."""
        found: list[bool] = []
        for instr in self.kernel.body:
            if isinstance(instr, Load):
                # Of the bits of f16 three lie in a float's low half.
                low = instr.dtype in LOW_PRECISION and instr.dtype != torch.float16
                found.append(low or not instr.dtype.is_floating_point)
            elif isinstance(instr, (Const, Index)):
                found.append(True)
            elif isinstance(instr, Scalar):
                known = instr.op in KEEPS_NAN_PLAIN or not instr.dtype.is_floating_point
                found.append(known and instr.dtype != torch.float64 and all(found[j] for j in instr.args))
            elif isinstance(instr, (Reduce, Scan)):
                found.append(instr.kind in _PLAIN_FOLDS and found[instr.arg])
            else:
                found.append(found[instr.arg])
        return tuple(found)
