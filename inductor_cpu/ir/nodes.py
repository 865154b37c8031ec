"""The loop IR: buffers, loop bodies in SSA form, loop nests, extern calls, and the Program that holds them.

Everything is frozen. The grammar:

    Program   = buffers, nodes in program order, inputs, results
    Node      = LoopNest | Extern | Gemm | Attention | AttentionBackward | Ranking | TilePacking | WeightGradient
    LoopNest  = dims (parallel loops), reduce_dims (inner loops), body: tuple[Instr], stores: tuple[Store]
    Instr     = Const | Index | Load | Scalar | Cast | Reduce | Scan  the SSA value %k is the instruction at position k
    Store     = buffer[index] = %value, or += (mode "add")

What a body means is in `loop_nest`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Union

import torch

from inductor_cpu.ir.index import ONE, Expr, Sym, as_expr
from inductor_cpu.ir.loop_nest import Buffer, Load, LoopNest, View
from inductor_cpu.ir.micro_kernels import MICRO_KERNELS, MicroKernel
from inductor_cpu.ir.windows import Pieces, with_panels

#: The mark in an FX node's meta on a call that must keep its place among others: it has effects.
ORDERED = "icpu_ordered"


def leaves(value: Any) -> Iterator[Any]:
    """What nested tuples and lists hold."""
    if isinstance(value, (tuple, list)):
        for item in value:
            yield from leaves(item)
    else:
        yield value


@dataclass(frozen=True)
class Extern:
    """A call of ATen or any other operator. args and kwargs: nested tuples of constants, `View`s, `Expr`s (ints).

    outputs: buffer names in the order of the operator's flattened results, None for results that nobody reads.
    int_outputs: (position among the results, symbol) for results that are ints. mutates: buffers that the call
    writes; ordered: it must keep its place among the other ordered nodes (random numbers, effects)."""

    name: str
    target: Any
    args: tuple[Any, ...]
    kwargs: tuple[tuple[str, Any], ...]
    outputs: tuple[str | None, ...]
    reason: str
    int_outputs: tuple[tuple[int, Sym], ...] = ()
    mutates: tuple[str, ...] = ()
    ordered: bool = False
    origins: tuple[str, ...] = ()


@dataclass(frozen=True)
class Patches:
    """The windows of images as the rows of a matrix: row (n, y, x), column (ky, kx, channel); with pieces that are
    depthwise, as a matrix for each channel: column (ky, kx); with pieces of groups, as one for each group: column
    (ky, kx, channel of the group).

    image: a view (batch, height, width, channels) with stride 1 along the channels. kernel, stride, padding, dilation:
    of the windows, each (vertical, horizontal); outputs: (rows, columns) of windows in an image; pieces: those of a
    window that are multiplied one by one, each padded in the packed operand (`Pieces.depth`). Padding reads `outside`,
    which is 0 in images of floats."""

    image: View
    kernel: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int]
    dilation: tuple[int, int]
    outputs: tuple[Expr, Expr]
    pieces: Pieces
    outside: int = 0

    @property
    def buffer(self) -> str:
        """The buffer with the images."""
        return self.image.buffer

    @property
    def sizes(self) -> tuple[Expr, Expr]:
        """(rows, depth) of the matrix."""
        batch, channels = self.image.sizes[0], ONE if self.pieces.depthwise else self.image.sizes[3]
        if self.pieces.groups is not None:
            channels = as_expr(self.pieces.groups.inputs)
        return batch * self.outputs[0] * self.outputs[1], channels * (self.kernel[0] * self.kernel[1])


def micro_of(name: str, a: View | Patches) -> MicroKernel:
    """The row of a product's micro kernel, with the columns that its panels have for this first operand."""
    row = MICRO_KERNELS[name]
    return row if isinstance(a, View) else with_panels(row, a.pieces)


@dataclass(frozen=True)
class Gemm:
    """accumulator[m, n] = sum over k of a[m, k] * b[k, n], in the micro kernel's `total`, by a generated kernel.

    a: a view (rows, depth) with stride 1 along the depth, or the windows of a convolution; or a view (batch, rows,
    depth), and then m counts the rows of all the batch. b: a buffer packed for the micro kernel of this name, for each
    of the batch one after the other. The accumulator (kind "accumulator", of that dtype) never is in memory as a whole:
    exactly one nest, without reduction loops, loads it, and becomes the epilogue of the kernel."""

    name: str
    micro_kernel: str
    a: View | Patches
    b: str
    accumulator: str
    origins: tuple[str, ...] = ()


@dataclass(frozen=True)
class Blocks:
    """Where attention looks for keys: for each block of rows a list of blocks of keys, or two. Others do not count.

    lists: pairs of int32 views, (batch, heads, blocks of rows) how many blocks of keys count, and (batch, heads, blocks
    of rows, blocks of keys) which, their last stride 1. rows, keys: of a block; the last one may be cut off."""

    lists: tuple[tuple[View, View], ...]
    rows: Expr
    keys: Expr


@dataclass(frozen=True)
class Attention:
    """out = softmax(q @ k^T * scale + mask) @ v, by a generated kernel.

    q: view (batch, heads, rows, depth); k, v: views (batch, kv_heads, keys, depth or columns), each shared by heads /
    kv_heads neighbouring heads; mask: a view (batch, heads, rows, keys), bool (True: the key counts) or added to the
    scores. All have stride 1 along their last dimension. causal: row r sees keys up to r. nan_rows: a row without any
    key is NaN, as a plain softmax gives, else 0. fill: the scores where a bool mask is False, None for -infinity. out:
    a buffer (batch, heads, rows, columns) with stride 1 along columns; log_sums: a float32 buffer (batch, heads, rows)
    for the logarithms of the softmax's divisors, or in_parts (batch, heads, rows, 2) for numbers whose sums they are:
    beside a mask of large numbers one float forgets how many keys share the weight; or None. A row without any key has
    0 there, with `scores` -infinity.
    kernel: a row of `ATTENTION_KERNELS`. scores: None, or what becomes of each score before the softmax: a nest over
    (batch, heads, rows, keys) that loads scores from its only result and stores there. This float32 buffer, of kind
    "accumulator", never is in memory as a whole. A score of -infinity is a key that does not count.
    blocks: only with `scores`. kept: None, or a bool view (batch, heads, rows, keys): which weights are not dropped
    after the softmax; these are divided by `keep`, the probability of being kept. Not with `scores`."""

    name: str
    kernel: str
    q: View
    k: View
    v: View
    mask: View | None
    scale: float
    causal: bool
    nan_rows: bool
    out: str
    log_sums: str | None
    origins: tuple[str, ...] = ()
    scores: LoopNest | None = None
    blocks: Blocks | None = None
    kept: View | None = None
    keep: float = 1.0
    fill: float | None = None
    in_parts: bool = False

    @property
    def operands(self) -> tuple[View, ...]:
        """The tensors of four dimensions that the template reads."""
        return (self.q, self.k, self.v, *(view for view in (self.mask, self.kept) if view is not None))

    @property
    def lists(self) -> tuple[View, ...]:
        """The lists of blocks, after each other."""
        return () if self.blocks is None else tuple(view for pair in self.blocks.lists for view in pair)

    @property
    def reads(self) -> tuple[str, ...]:
        """The buffers that it reads."""
        loads = () if self.scores is None else [i.buffer for i in self.scores.body if isinstance(i, Load)]
        others = [name for name in loads if name != self.accumulator]
        return tuple(dict.fromkeys((*(view.buffer for view in (*self.operands, *self.lists)), *others)))

    @property
    def accumulator(self) -> str | None:
        """The buffer that the scores are in, where something becomes of them."""
        return None if self.scores is None else self.scores.stores[0].buffer

    @property
    def outputs(self) -> tuple[str, ...]:
        """The buffers that it writes."""
        return (self.out,) if self.log_sums is None else (self.out, self.log_sums)


@dataclass(frozen=True)
class AttentionBackward:
    """The gradients of q, k and v from that of an attention's result, by a generated kernel.

    q, k, v, mask, scale, causal, kernel, kept, keep, fill, in_parts: as in `Attention`; grad_out, out: views (batch,
    heads, rows, columns), and log_sums: a float32 view: the result's gradient, and what `Attention` wrote. All views
    but log_sums have stride 1 along their last dimension, and so have grad_q, grad_k and grad_v: buffers with the
    shapes of q, k and v. slopes: a buffer (batch, heads, rows, keys) for the gradient of a mask that is added, or None;
    not with `causal`."""

    name: str
    kernel: str
    grad_out: View
    q: View
    k: View
    v: View
    out: View
    log_sums: View
    mask: View | None
    scale: float
    causal: bool
    grad_q: str
    grad_k: str
    grad_v: str
    origins: tuple[str, ...] = ()
    kept: View | None = None
    keep: float = 1.0
    fill: float | None = None
    in_parts: bool = False
    slopes: str | None = None

    @property
    def operands(self) -> tuple[View, ...]:
        """The tensors that the template reads."""
        given = (self.grad_out, self.q, self.k, self.v, self.out, self.log_sums)
        return (*given, *(view for view in (self.mask, self.kept) if view is not None))

    @property
    def reads(self) -> tuple[str, ...]:
        """The buffers that it reads."""
        return tuple(dict.fromkeys(view.buffer for view in self.operands))

    @property
    def outputs(self) -> tuple[str, ...]:
        """The buffers that it writes."""
        grads = (self.grad_q, self.grad_k, self.grad_v)
        return grads if self.slopes is None else (*grads, self.slopes)


#: Elements of the longest row that the kernel of short rows orders.
LONGEST_SHORT_ROW = 256

#: Of a long row eager mode finds at most such a part by a partial sort, which the kernel of long rows follows.
PART_OF_LONG_ROW = 64


@dataclass(frozen=True)
class Ranking:
    """The elements of rows in order, by a generated kernel.

    x: rows without gaps, (..., columns). kind: "top" (the first `count` elements; where they are equal, what eager's
    algorithm gives; of long rows a small part) or "sorted" (all; equal ones by position). largest: the largest come
    first. NaN is the largest.
    values, indices: contiguous buffers (..., count) for the elements and, int64, their positions; or None."""

    name: str
    kind: str
    x: View
    count: Expr
    largest: bool
    values: str | None
    indices: str | None
    origins: tuple[str, ...] = ()

    @property
    def long(self) -> bool:
        """Whether its rows are longer than the kernel of short ones takes, or may be."""
        columns = self.x.sizes[-1].as_int
        return columns is None or columns > LONGEST_SHORT_ROW

    @property
    def operands(self) -> tuple[View, ...]:
        """The tensors that the template reads."""
        return (self.x,)

    @property
    def reads(self) -> tuple[str, ...]:
        """The buffers that it reads."""
        return (self.x.buffer,)

    @property
    def outputs(self) -> tuple[str, ...]:
        """The buffers that it writes."""
        return tuple(name for name in (self.values, self.indices) if name is not None)


@dataclass(frozen=True)
class TilePacking:
    """A weight of float32, packed for a micro kernel that multiplies windows of 3 x 3 neighbours by tiles.

    weight: (columns, channels, 3, 3). turned: for the convolution that gives the gradients of the image, whose columns
    are the weight's channels. out: a contiguous buffer with the micro kernel's packed shape."""

    name: str
    micro_kernel: str
    weight: View
    turned: bool
    out: str
    origins: tuple[str, ...] = ()

    @property
    def operands(self) -> tuple[View, ...]:
        """The tensors that the template reads."""
        return (self.weight,)

    @property
    def reads(self) -> tuple[str, ...]:
        """The buffers that it reads."""
        return (self.weight.buffer,)

    @property
    def outputs(self) -> tuple[str, ...]:
        """The buffer that it writes."""
        return (self.out,)


@dataclass(frozen=True)
class WeightGradient:
    """The gradient of the weights of a convolution of 3 x 3 neighbours, in float32, by a micro kernel and tiles.

    image: (batch, height, width, channels); gradients: of the results, (batch, down, across, columns). Their channels
    are next to each other. padding: (vertical, horizontal). out: a contiguous buffer (columns, 3, 3, channels)."""

    name: str
    micro_kernel: str
    image: View
    gradients: View
    padding: tuple[int, int]
    out: str
    origins: tuple[str, ...] = ()

    @property
    def operands(self) -> tuple[View, ...]:
        """The tensors that the template reads."""
        return (self.image, self.gradients)

    @property
    def reads(self) -> tuple[str, ...]:
        """The buffers that it reads."""
        return tuple(dict.fromkeys(view.buffer for view in self.operands))

    @property
    def outputs(self) -> tuple[str, ...]:
        """The buffer that it writes."""
        return (self.out,)


#: Nodes that are a call of a template.
Templated = Attention | AttentionBackward | Ranking | TilePacking | WeightGradient

Node = Union[LoopNest, Extern, Gemm, Attention, AttentionBackward, Ranking, TilePacking, WeightGradient]


@dataclass(frozen=True)
class InputSpec:
    """A graph input: a tensor (buffer), an int (symbol or nothing when unused), or something else that is passed on."""

    position: int
    buffer: str | None = None
    symbol: Sym | None = None


@dataclass(frozen=True)
class SizeBinding:
    """symbol <- size (or stride) of dimension `dim` of a buffer: an input, or an extern's result with unknown sizes."""

    symbol: Sym
    buffer: str
    dim: int
    what: str = "size"


@dataclass(frozen=True)
class Program:
    """A lowered graph.

    results: what the graph returns, in order: `View` (a tensor; a view of the whole buffer returns the buffer itself),
    `Expr` (an int), or None / a Python constant. constants: tensor values by buffer name (not compared, not hashed)."""

    name: str
    buffers: tuple[Buffer, ...]
    inputs: tuple[InputSpec, ...]
    bindings: tuple[SizeBinding, ...]
    nodes: tuple[Node, ...]
    results: tuple[Any, ...]
    constants: dict[str, torch.Tensor] = field(default_factory=dict, compare=False, hash=False, repr=False)

    def buffer(self, name: str) -> Buffer:
        """The buffer with this name. Raises KeyError."""
        return self.buffer_table[name]

    @property
    def buffer_table(self) -> dict[str, Buffer]:
        """Buffers by name."""
        table = self.__dict__.get("_table")
        if table is None:
            table = {buffer.name: buffer for buffer in self.buffers}
            object.__setattr__(self, "_table", table)
        return table
