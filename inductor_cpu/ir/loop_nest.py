"""Loop nests: buffers, loop bodies in SSA form, and views. Part of the loop IR, whose grammar is in `nodes`.

Buffers are addressed by logical index, one expression per dimension; strides are a property of the buffer and only
enter when code is generated. So a view is a substitution of indices and costs nothing.

A body is evaluated for each point of dims x reduce_dims. `Reduce` folds its argument over reduce_dims: its result, and
what is computed from it alone, lives outside the reduction loops. `Scan` gives each point the fold of those up to it.
In a nest with reduce_dims and no scan every store's index and value depend on dims only, unless the nest is one of
several in a fused kernel.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Union

import torch

from inductor_cpu.ir.index import Expr, Sym, as_expr


@dataclass(frozen=True)
class Buffer:
    """Memory with a logical shape. kind: "input" (of the graph), "constant" (a tensor of the graph), "temp", "output",
    "extern" (what a call returns), "accumulator" (of a Gemm or of an Attention).

    sizes, strides: in elements, from the start of the buffer: an input's storage offset is in its data pointer. A temp
    or an output is non-overlapping and dense."""

    name: str
    dtype: torch.dtype
    sizes: tuple[Expr, ...]
    strides: tuple[Expr, ...]
    kind: str

    @property
    def extent(self) -> Expr:
        """One past the largest offset of an element; 0 if there are no elements."""
        if any(size == 0 for size in self.sizes):
            return as_expr(0)
        return sum(((n - 1) * s for n, s in zip(self.sizes, self.strides, strict=True)), as_expr(1))


@dataclass(frozen=True)
class Const:
    """A literal. value is a Python bool, int or float (also inf and nan) that the dtype can hold."""

    value: bool | int | float
    dtype: torch.dtype


@dataclass(frozen=True)
class Index:
    """An index expression as a value: int64, or int32 in kernels, where 32 bits are known to hold it."""

    expr: Expr
    dtype: torch.dtype = torch.int64


@dataclass(frozen=True)
class Load:
    """buffer[index]. Symbols %k of kind "value" in `index` are SSA values. With a mask (a bool value), lanes where it
    is false read nothing and give `fill` instead."""

    buffer: str
    index: tuple[Expr, ...]
    dtype: torch.dtype
    mask: int | None = None
    fill: bool | int | float = 0


@dataclass(frozen=True)
class Scalar:
    """An op of the table `ir/ops.py` applied to SSA values."""

    op: str
    args: tuple[int, ...]
    dtype: torch.dtype


@dataclass(frozen=True)
class Cast:
    """Conversion as eager's `.to(dtype)`: float to int truncates, anything to bool is != 0, narrowing ints wrap."""

    arg: int
    dtype: torch.dtype


@dataclass(frozen=True)
class Reduce:
    """Fold `arg` over the nest's reduce_dims. sum and prod of low-precision values accumulate in f32 (the lowering
    casts); the dtype is the accumulator's. argmax and argmin give int64."""

    kind: str
    arg: int
    dtype: torch.dtype


@dataclass(frozen=True)
class Scan:
    """The fold of `arg` over the points of reduce_dims, in their order, from the first one to this one.

    kind: sum, prod, max, min, logaddexp, or argmax and argmin (int64: the position of the latest extreme so far in the
    flattened range). A NaN stays the extreme; a later one moves the position. Low-precision sums accumulate in f32."""

    kind: str
    arg: int
    dtype: torch.dtype


Instr = Union[Const, Index, Load, Scalar, Cast, Reduce, Scan]


@dataclass(frozen=True)
class Store:
    """buffer[index] = %value; mode "add" adds. With a mask, only where it is true.

    A store that sets at an index without SSA values writes each element once. Others are scatters: points of the loops
    may meet in an element, and then take effect in the order of the loops."""

    buffer: str
    index: tuple[Expr, ...]
    value: int
    mode: str = "set"
    mask: int | None = None


@dataclass(frozen=True)
class LoopNest:
    """name: unique; dims, reduce_dims: loop symbols, each with its size; origins: names of the FX nodes it is of."""

    name: str
    dims: tuple[Sym, ...]
    reduce_dims: tuple[Sym, ...]
    body: tuple[Instr, ...]
    stores: tuple[Store, ...]
    origins: tuple[str, ...] = ()


@dataclass(frozen=True)
class View:
    """A strided view of a buffer, as an argument of an extern call or a result; offset in elements from the buffer's
    start. own: a tensor object of its own, also if another result is the same view (y and y.detach())."""

    buffer: str
    sizes: tuple[Expr, ...]
    strides: tuple[Expr, ...]
    offset: Expr
    own: bool = False

    def is_whole(self, buffer: Buffer) -> bool:
        """Whether the view is the buffer itself; the stride of a dimension of size 1 means nothing."""
        if self.own or self.offset != 0 or self.sizes != buffer.sizes:
            return False
        strides = zip(self.sizes, self.strides, buffer.strides, strict=True)
        return all(size == 1 or ours == theirs for size, ours, theirs in strides)
