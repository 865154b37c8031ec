"""The state of one lowering: buffers and nodes so far, and the few ways to add to them.

Rules get it as `ctx`. It is the only mutable object of the stage and lives for one graph.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from inductor_cpu.errors import Unsupported
from inductor_cpu.ir.index import ONE, Expr, contiguous_strides, recombine
from inductor_cpu.ir.loop_nest import Buffer, LoopNest, Store, View
from inductor_cpu.ir.nodes import Node
from inductor_cpu.ir.ops import LOOP_DTYPES
from inductor_cpu.lower.body import Body
from inductor_cpu.lower.sizes import size_expr, size_exprs, stride_exprs
from inductor_cpu.lower.values import TensorValue, loop_dims, point

PointFunction = Callable[[Body, tuple[Expr, ...]], int]
ReduceFunction = Callable[[Body, tuple[Expr, ...], tuple[Expr, ...]], int]


def meta_of(node: fx.Node) -> Any:
    """The fake value of a node."""
    return node.meta["val"]


class Lowering:
    """Buffers and nodes of the program that is being built."""

    def __init__(self, graph_name: str) -> None:
        self.graph_name = graph_name
        self.buffers: dict[str, Buffer] = {}
        self.nodes: list[Node] = []
        self.constants: dict[str, torch.Tensor] = {}
        self.overwrites: dict[fx.Node, str] = {}  # a node that writes to the memory of an input, and its buffer
        self._count = 0

    # -- buffers -----------------------------------------------------------------------------------------------------
    def fresh(self, prefix: str) -> str:
        """A new name."""
        self._count += 1
        return f"{prefix}{self._count}"

    def new_buffer(
        self, dtype: torch.dtype, sizes: Sequence[Expr], strides: Sequence[Expr] | None = None, kind: str = "temp"
    ) -> Buffer:
        """A new dense buffer; contiguous when no strides are given."""
        if dtype not in LOOP_DTYPES and kind == "temp":
            raise Unsupported(None, f"dtype {dtype} has no loops")
        strides = contiguous_strides(sizes) if strides is None else tuple(strides)
        buffer = Buffer(self.fresh("buf"), dtype, tuple(sizes), strides, kind)
        self.buffers[buffer.name] = buffer
        return buffer

    def whole(self, buffer: Buffer) -> TensorValue:
        """The tensor value that is the whole buffer."""
        dims = loop_dims(buffer.sizes)
        return TensorValue(buffer.name, buffer.dtype, dims, point(dims))

    # -- loop nests --------------------------------------------------------------------------------------------------
    def pointwise(
        self,
        node: fx.Node,
        compute: PointFunction,
        sizes: Sequence[Expr] | None = None,
        dtype: torch.dtype | None = None,
        strides: Sequence[Expr] | None = None,
    ) -> TensorValue:
        """A new buffer with compute(body, position) at every position. Shape, dtype and strides are the node's own
        unless given; the computed value is cast to the dtype."""
        sizes, dtype, strides = self._layout(node, sizes, dtype, strides)
        out = self.new_buffer(dtype, sizes, strides)
        dims, body = loop_dims(sizes), Body()
        value = body.cast(compute(body, point(dims)), dtype)
        self.add_nest(node, dims, (), body, (Store(out.name, point(dims), value),))
        return self.whole(out)

    def reduction(
        self,
        node: fx.Node,
        compute: ReduceFunction,
        reduce_sizes: Sequence[Expr],
        sizes: Sequence[Expr] | None = None,
        dtype: torch.dtype | None = None,
        strides: Sequence[Expr] | None = None,
    ) -> TensorValue:
        """A new buffer with compute(body, position, reduce_position) at every position; compute must call
        body.reduce and return a value that depends on the reductions' results (cast to the dtype)."""
        sizes, dtype, strides = self._layout(node, sizes, dtype, strides)
        out = self.new_buffer(dtype, sizes, strides)
        dims, reduce_dims, body = loop_dims(sizes), loop_dims(reduce_sizes, "r"), Body()
        value = body.cast(compute(body, point(dims), point(reduce_dims)), dtype)
        self.add_nest(node, dims, reduce_dims, body, (Store(out.name, point(dims), value),))
        return self.whole(out)

    def add_nest(
        self, node: fx.Node, dims: tuple[Any, ...], reduce_dims: tuple[Any, ...], body: Body, stores: tuple[Store, ...]
    ) -> None:
        """Append a loop nest built by hand (several stores, scatter, writes into a part of a buffer)."""
        name = self.fresh("nest")
        self.nodes.append(LoopNest(name, dims, reduce_dims, tuple(body.instructions), stores, (node.name,)))

    def _layout(
        self, node: fx.Node, sizes: Any, dtype: torch.dtype | None, strides: Any
    ) -> tuple[tuple[Expr, ...], torch.dtype, tuple[Expr, ...] | None]:
        if sizes is not None:
            if dtype is None:
                dtype = meta_of(node).dtype
            return tuple(sizes), dtype, strides
        fake = meta_of(node)
        return size_exprs(fake.shape), dtype or fake.dtype, strides or dense_strides(fake)

    # -- tensors as arguments of extern calls and results ------------------------------------------------------------
    def with_rows(self, node: fx.Node, tensor: TensorValue) -> View:
        """The tensor as a strided view whose last dimension is contiguous, copied if it is none."""
        view = self.strided(tensor)
        if view is None or view.strides[-1] != 1:
            view = self.strided(self.copy(node, tensor))
        if view is None:
            raise Unsupported(node, "its input is no strided tensor")
        return view

    def strided(self, tensor: TensorValue) -> View | None:
        """The tensor as a strided view of its buffer; None if it is not one (a flip, a reshape of a transpose)."""
        buffer = self.buffers[tensor.buffer]
        offset = recombine(sum((i * s for i, s in zip(tensor.index, buffer.strides, strict=True)), Expr(())))
        strides: list[Expr] = []
        symbols = frozenset(tensor.dims)
        for dim in tensor.dims:
            if dim.size == 1:
                strides.append(ONE)
                continue
            coefficient = offset.coefficient(dim)
            if coefficient is None or coefficient.symbols & symbols:
                return None
            if (value := coefficient.as_int) is not None and value < 0:
                return None
            strides.append(coefficient)
            offset = offset - coefficient * Expr((((dim,), 1),))
        if offset.symbols & symbols:
            return None
        return View(tensor.buffer, tensor.sizes, tuple(strides), offset)

    def copy(self, node: fx.Node, tensor: TensorValue, strides: Sequence[Expr] | None = None) -> TensorValue:
        """The tensor in a buffer of its own, with these strides (contiguous by default)."""
        return self.pointwise(
            node,
            lambda body, at: body.load(tensor, at),
            tensor.sizes,
            tensor.dtype,
            contiguous_strides(tensor.sizes) if strides is None else strides,
        )


def dense_strides(fake: torch.Tensor) -> tuple[Expr, ...]:
    """The strides of a fake tensor if it is non-overlapping and dense, else those that keep its order of dimensions."""
    sizes, strides = size_exprs(fake.shape), stride_exprs(fake.stride())
    order = sorted(range(len(sizes)), key=lambda d: (_stride_hint(fake, d), -d), reverse=True)
    expected: dict[int, Expr] = {}
    step = ONE
    for d in reversed(order):
        expected[d] = step
        if sizes[d] != 0:
            step = step * sizes[d]
    dense = tuple(expected[d] for d in range(len(sizes)))
    if all(a == b or sizes[k] == 1 for k, (a, b) in enumerate(zip(strides, dense, strict=True))):
        return strides
    return dense if all(_stride_hint(fake, d) > 0 for d in range(len(sizes))) else contiguous_strides(sizes)


def _stride_hint(fake: torch.Tensor, dim: int) -> int:
    stride: Any = fake.stride(dim)
    if isinstance(stride, torch.SymInt):
        hint = stride.node.hint
        return int(hint) if hint is not None else 1 << 40
    return int(stride)


__all__ = ["Lowering", "dense_strides", "meta_of", "size_expr", "size_exprs"]
