"""What a lowered FX node is: a tensor value, an int (`Expr`), a Python constant, or a tuple of those."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from inductor_cpu.ir.index import ZERO, Expr, Sym, loop_var


def loop_dims(sizes: Sequence[Expr], prefix: str = "d") -> tuple[Sym, ...]:
    """Fresh loop symbols d0, d1, ... for these sizes. Names repeat between nests: a nest is its own name space."""
    return tuple(loop_var(f"{prefix}{k}", size) for k, size in enumerate(sizes))


def point(dims: Sequence[Sym]) -> tuple[Expr, ...]:
    """The dims as index expressions; a dim of size 1 is 0."""
    return tuple(ZERO if dim.size == 1 else Expr((((dim,), 1),)) for dim in dims)


@dataclass(frozen=True)
class TensorValue:
    """A tensor as a view of a buffer: element `dims` of the tensor is element `index` of the buffer.

    dims: one symbol d<k> per dimension, carrying its size; index: one expression per dimension of the buffer."""

    buffer: str
    dtype: torch.dtype
    dims: tuple[Sym, ...]
    index: tuple[Expr, ...]

    @property
    def sizes(self) -> tuple[Expr, ...]:
        """The logical shape."""
        return tuple(dim.size for dim in self.dims if dim.size is not None)

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.dims)

    def at(self, position: Sequence[Expr]) -> tuple[Expr, ...]:
        """The buffer index of the element at a logical position. Dimensions of size 1 broadcast."""
        values = {d: (ZERO if d.size == 1 else p) for d, p in zip(self.dims, position, strict=True)}
        return tuple(expr.substitute(values) for expr in self.index)

    def view(self, sizes: Sequence[Expr], position: Sequence[Expr]) -> TensorValue:
        """A view with these sizes whose element at `loop_dims(sizes)` is this tensor's element at `position`."""
        return TensorValue(self.buffer, self.dtype, loop_dims(sizes), self.at(position))
