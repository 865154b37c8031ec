"""The reference interpreter: runs a Program or a scheduled Kernel with plain torch ops. Slow, and the oracle.

A body is evaluated over its whole grid of loop points at once. A value is a tensor with one axis per loop, of extent 1
along the loops it does not depend on. Large grids are cut along the outermost loop.

Every index is checked: an unmasked access outside of its buffer raises InternalError("interpret", ...).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import Any, Union

import torch

from inductor_cpu.errors import InternalError
from inductor_cpu.ir.attention import attend, attend_backward
from inductor_cpu.ir.index import Expr, Sym
from inductor_cpu.ir.kernel import Kernel
from inductor_cpu.ir.meaning import held, physical, reduction, scalar, scan
from inductor_cpu.ir.micro_kernels import MICRO_KERNELS, unpack
from inductor_cpu.ir.nodes import (
    Attention,
    AttentionBackward,
    Blocks,
    Buffer,
    Cast,
    Const,
    Extern,
    Gemm,
    Index,
    Instr,
    Load,
    LoopNest,
    Patches,
    Program,
    Ranking,
    Reduce,
    Scalar,
    Scan,
    Store,
    View,
    leaves,
)
from inductor_cpu.ir.ops import LOOP_DTYPES
from inductor_cpu.ir.rewrite import needed_by, store_operands, value_position
from inductor_cpu.ir.strided import with_strides
from inductor_cpu.ir.windows import unpack_windows

Tensor = torch.Tensor
IntOrTensor = Union[int, Tensor]

#: The largest number of loop points evaluated at once.
CHUNK_POINTS = 1 << 24


class _Memory:
    """Buffers by name. `layout`: sizes and strides of logically addressed buffers; the others have flat addresses."""

    def __init__(
        self, tensors: Mapping[str, Tensor], layout: Mapping[str, tuple[Sequence[int], Sequence[int]]]
    ) -> None:
        self.tensors, self.layout = tensors, layout

    def flat(self, name: str) -> Tensor:
        """All elements from the buffer's first one to the end of its storage."""
        if name not in self.tensors:
            raise InternalError("interpret", f"buffer {name} is used before it is written")
        tensor = self.tensors[name].detach()
        start = tensor.storage_offset()
        extent = tensor.untyped_storage().nbytes() // tensor.element_size() - start
        return torch.as_strided(tensor, (max(extent, 0),), (1,), start)

    def address(self, name: str, index: Sequence[IntOrTensor], mask: Tensor | None) -> IntOrTensor:
        """The offset of an element; 0 where the mask is false."""
        bounds: tuple[Sequence[int], Sequence[int]]
        bounds = self.layout[name] if name in self.layout else ((self.flat(name).numel(),), (1,))
        offset: IntOrTensor = 0
        for value, size, stride in zip(index, *bounds, strict=True):
            _check_bounds(name, value, size, mask)
            offset = offset + value * stride
        return offset if mask is None else torch.where(mask, offset, 0)


def _check_bounds(name: str, value: IntOrTensor, size: int, mask: Tensor | None) -> None:
    wrong = torch.as_tensor((value < 0) | (value >= size))
    if mask is not None:
        wrong = wrong & mask
    elif isinstance(value, Tensor) and value.numel() == 0:
        return
    if bool(wrong.any()):
        raise InternalError("interpret", f"an index of {name} leaves [0, {size}): {value}")


class _Grid:
    """Loop points and the SSA values on them. axes: outer loops, then the `folded` loops that Reduce folds."""

    def __init__(
        self,
        axes: Sequence[Sym],
        extents: Sequence[tuple[int, int]],
        folded: int,
        symbols: Mapping[Sym, int],
        body: Sequence[Instr],
        memory: _Memory,
    ) -> None:
        self.folded, self.symbols, self.body, self.memory = folded, symbols, body, memory
        self.values: dict[int, Tensor] = {}
        self.loops: dict[Sym, Tensor] = {}
        self.shape = tuple(high - low for low, high in extents) if axes else (1,)
        for axis, (symbol, (low, high)) in enumerate(zip(axes, extents, strict=True)):
            shape = [1] * len(axes)
            shape[axis] = high - low
            self.loops[symbol] = torch.arange(low, high).reshape(shape)

    def expr(self, expr: Expr) -> IntOrTensor:
        """An index expression at every point."""
        total: IntOrTensor = 0
        for monomial, coef in expr.terms:
            term: IntOrTensor = coef
            for atom in monomial:
                if isinstance(atom, Sym):
                    term = term * self.symbol(atom)
                else:
                    term = term * _int_function(atom.name, *(self.expr(arg) for arg in atom.args))
            total = total + term
        return total

    def symbol(self, symbol: Sym) -> IntOrTensor:
        """A loop variable, a size or an SSA value used as an index."""
        if symbol.kind == "value":
            return self.values[value_position(symbol)].to(torch.int64)
        known = self.loops.get(symbol)
        if known is not None:
            return known
        if symbol not in self.symbols:
            raise InternalError("interpret", f"symbol {symbol} has no value here")
        return self.symbols[symbol]

    def spread(self, value: IntOrTensor) -> Tensor:
        """An int or a tensor as a tensor with all axes."""
        tensor = torch.as_tensor(value)
        return tensor.reshape((1,) * len(self.shape)) if tensor.ndim == 0 else tensor

    def evaluate(self, positions: Sequence[int]) -> None:
        """Compute the SSA values at these positions, in order."""
        for position in positions:
            self.values[position] = self.instruction(self.body[position])

    def instruction(self, instr: Instr) -> Tensor:
        """One instruction on the values so far."""
        if isinstance(instr, Scalar):
            return scalar(instr.op, tuple(self.values[a] for a in instr.args), instr.dtype)
        if isinstance(instr, Load):
            return self.load(instr)
        if isinstance(instr, Const):
            return self.spread(torch.tensor(instr.value, dtype=physical(instr.dtype)))
        if isinstance(instr, Index):
            return self.spread(self.expr(instr.expr)).to(instr.dtype)
        if isinstance(instr, Cast):
            return held(self.values[instr.arg], instr.dtype)
        return self.fold(instr)

    def fold(self, instr: Reduce | Scan) -> Tensor:
        """Fold a value over the folded axes, once or up to each point."""
        value = self.values[instr.arg]
        outer = value.shape[: value.ndim - self.folded]
        whole = value.expand(*outer, *self.shape[len(outer) :])
        return (reduction if isinstance(instr, Reduce) else scan)(instr.kind, whole, self.folded, instr.dtype)

    def load(self, instr: Load) -> Tensor:
        """Gather; masked lanes read element 0 of nothing and give the fill value."""
        flat = self.memory.flat(instr.buffer)
        if not flat.numel() and 0 in self.shape:  # no point reads it, whatever its index says
            return self.spread(torch.tensor(instr.fill, dtype=instr.dtype)).to(physical(instr.dtype))
        mask = None if instr.mask is None else self.values[instr.mask]
        index = [self.expr(e) for e in instr.index]
        address = self.spread(self.memory.address(instr.buffer, index, mask))
        if flat.dtype != instr.dtype:
            raise InternalError("interpret", f"{instr.buffer} is {flat.dtype}, loaded as {instr.dtype}")
        if mask is None:
            return flat[address].to(physical(instr.dtype))
        fill = torch.tensor(instr.fill, dtype=instr.dtype)
        loaded = flat[address] if flat.numel() else fill
        return torch.where(mask, loaded, fill).to(physical(instr.dtype))

    def store(self, store: Store) -> None:
        """Scatter. A store that does not depend on the folded loops runs once per outer point."""
        if 0 in self.shape[: len(self.shape) - self.folded]:
            return
        mask = None if store.mask is None else self.values[store.mask]
        index = [self.expr(e) for e in store.index]
        address = self.spread(self.memory.address(store.buffer, index, mask))
        value = self.values[store.value]
        parts = [address, value] if mask is None else [address, value, mask]
        outer = len(self.shape) - self.folded
        inner = self.shape[outer:] if any(prod(p.shape[outer:]) != 1 for p in parts) else (1,) * self.folded
        spread = [p.expand(*self.shape[:outer], *inner) for p in parts]
        if mask is not None:
            spread = [p[spread[2]] for p in spread[:2]]
        flat = self.memory.flat(store.buffer)
        flat.index_put_((spread[0],), spread[1].to(_stored(store, flat, self.body)), accumulate=store.mode == "add")


def _stored(store: Store, flat: Tensor, body: Sequence[Instr]) -> torch.dtype:
    dtype = body[store.value].dtype
    if dtype != flat.dtype:
        raise InternalError("interpret", f"%{store.value} is {dtype} and is stored in {store.buffer}, {flat.dtype}")
    return dtype


def _int_function(name: str, left: IntOrTensor, right: IntOrTensor) -> IntOrTensor:
    if isinstance(left, int) and isinstance(right, int):
        a, b = left, right
        return {"floordiv": lambda: a // b, "mod": lambda: a % b, "min": lambda: min(a, b), "max": lambda: max(a, b)}[
            name
        ]()
    x, y = torch.as_tensor(left), torch.as_tensor(right)
    if name == "floordiv":
        return torch.div(x, y, rounding_mode="floor")
    if name == "mod":
        return torch.remainder(x, y)
    return torch.minimum(x, y) if name == "min" else torch.maximum(x, y)


def _chunks(outer: Sequence[int], inner: Sequence[int]) -> Iterator[list[tuple[int, int]]]:
    """Ranges of all axes, cut along the first outer one."""
    whole = [(0, n) for n in (*outer, *inner)]
    points = prod(outer) * prod(inner)
    if not outer or points <= CHUNK_POINTS:
        yield whole
        return
    step = max(1, CHUNK_POINTS * outer[0] // points)
    for low in range(0, outer[0], step):
        yield [(low, min(low + step, outer[0])), *whole[1:]]


def _run_nest(nest: LoopNest, memory: _Memory, symbols: Mapping[Sym, int]) -> None:
    sizes = [[_size(dim, symbols) for dim in dims] for dims in (nest.dims, nest.reduce_dims)]
    if 0 in sizes[0]:
        return  # what does not depend on a loop would be computed all the same, and divide by zero
    for ranges in _chunks(*sizes):
        axes = (*nest.dims, *nest.reduce_dims)
        grid = _Grid(axes, ranges, len(nest.reduce_dims), symbols, nest.body, memory)
        grid.evaluate(range(len(nest.body)))
        for store in nest.stores:
            grid.store(store)


def _size(dim: Sym, symbols: Mapping[Sym, int]) -> int:
    if dim.size is None:
        raise InternalError("interpret", f"loop {dim} has no size")
    return dim.size.evaluate(symbols)


@torch.no_grad()
def run_kernel(kernel: Kernel, buffers: Mapping[str, Tensor], symbols: Mapping[Sym, int]) -> None:
    """Run one scheduled kernel on buffers, in place. Addresses count elements from each tensor's first one.

    Loads see what earlier phases stored. Raises IndexError for a data-dependent index out of range."""
    memory = _Memory(buffers, {})
    phased = {s for phase in kernel.phases for s in phase.stores}
    rest = [s for s in range(len(kernel.stores)) if s not in phased]
    runs = [(phase.reduces, phase.stores) for phase in kernel.phases] + [((), tuple(rest))]
    sizes = [[_size(loop, symbols) for loop in loops] for loops in (kernel.outer, kernel.inner)]
    for ranges in _chunks(*sizes):
        axes = (*kernel.outer, *kernel.inner)
        grid = _Grid(axes, ranges, len(kernel.inner), symbols, kernel.body, memory)
        lasting: set[int] = set()
        for reduces, stores in runs:
            grid.values = {k: v for k, v in grid.values.items() if k in lasting}
            roots = [*reduces, *(k for s in stores for k in store_operands(kernel.stores[s]))]
            grid.evaluate(sorted(needed_by(kernel.body, roots, grid.values) - grid.values.keys()))
            lasting.update(reduces, (k for k in kernel.kept if k in grid.values))
            for number in stores:
                grid.store(kernel.stores[number])


@torch.no_grad()
def run(program: Program, inputs: Sequence[object]) -> list[object]:
    """Run a program. Inputs are used in place, so stores to them are seen by the caller.

    Returns tensors (an input itself where the result is the whole input buffer), ints and constants."""
    return _Run(program, inputs).run()


class _Run:
    def __init__(self, program: Program, inputs: Sequence[object]) -> None:
        self.program, self.inputs = program, inputs
        self.tensors: dict[str, Tensor] = dict(program.constants)
        self.symbols: dict[Sym, int] = {}
        self.layout: dict[str, tuple[Sequence[int], Sequence[int]]] = {}

    def run(self) -> list[object]:
        for spec in self.program.inputs:
            value = self.inputs[spec.position]
            if spec.buffer is not None:
                assert isinstance(value, Tensor)
                self.tensors[spec.buffer] = value
            elif spec.symbol is not None:
                assert isinstance(value, int)
                self.symbols[spec.symbol] = int(value)
        for name in self.tensors:
            self.bind(name)
        for node in self.program.nodes:
            if isinstance(node, Extern):
                self.call(node)
            elif isinstance(node, Gemm):
                self.tensors[node.accumulator] = self.multiply(node)
            elif isinstance(node, Attention):
                self.attend(node)
            elif isinstance(node, AttentionBackward):
                self.attend_backward(node)
            elif isinstance(node, Ranking):
                self.rank(node)
            else:
                self.nest(node)
        return [self.result(value) for value in self.program.results]

    def bind(self, name: str) -> None:
        """Size symbols that come from this tensor."""
        for binding in self.program.bindings:
            if binding.buffer == name:
                tensor = self.tensors[name]
                values = tensor.shape if binding.what == "size" else tensor.stride()
                self.symbols[binding.symbol] = values[binding.dim]

    def ints(self, exprs: Sequence[Expr]) -> list[int]:
        return [expr.evaluate(self.symbols) for expr in exprs]

    def provide(self, name: str) -> Buffer:
        """Make sure that the buffer has memory; new memory is poisoned, so that a read before a write shows."""
        buffer = self.program.buffer(name)
        if name not in self.layout:
            sizes, strides = self.ints(buffer.sizes), self.ints(buffer.strides)
            self.layout[name] = (sizes, strides)
            if buffer.alias_of is not None:
                self.provide(buffer.alias_of)
                base = self.tensors[buffer.alias_of]
                start = base.storage_offset() + (buffer.offset.evaluate(self.symbols) if buffer.offset else 0)
                self.tensors[name] = torch.as_strided(base.detach(), sizes, strides, start)
            elif name not in self.tensors:
                self.tensors[name] = _poison(torch.empty_strided(sizes, strides, dtype=buffer.dtype))
        return buffer

    def nest(self, nest: LoopNest) -> None:
        for instr in nest.body:
            if isinstance(instr, Load):
                self.provide(instr.buffer)
        for store in nest.stores:
            self.provide(store.buffer)
        _run_nest(nest, _Memory(self.tensors, self.layout), self.symbols)

    def view(self, view: View) -> Tensor:
        """A view as a tensor: the buffer's own tensor when it is all of it."""
        self.provide(view.buffer)
        tensor = self.tensors[view.buffer]
        sizes, strides = self.ints(view.sizes), self.ints(view.strides)
        offset = view.offset.evaluate(self.symbols)
        if offset == 0 and list(tensor.shape) == sizes and list(tensor.stride()) == strides:
            return tensor
        return torch.as_strided(tensor.detach(), sizes, strides, tensor.storage_offset() + offset)

    def value(self, value: Any) -> Any:
        """An extern argument: views become tensors, expressions ints, at any depth."""
        if isinstance(value, View):
            return self.view(value).detach()
        if isinstance(value, Expr):
            return value.evaluate(self.symbols)
        if isinstance(value, (tuple, list)):
            return [self.value(item) for item in value]
        return value

    def call(self, node: Extern) -> None:
        args, kwargs = [self.value(a) for a in node.args], {k: self.value(v) for k, v in node.kwargs}
        returned = node.target(*args, **kwargs)
        results = [] if returned is None else list(leaves(returned))
        if len(results) != len(node.outputs):
            raise InternalError("interpret", f"{node.name} gave {len(results)} results, expected {len(node.outputs)}")
        for position, symbol in node.int_outputs:
            self.symbols[symbol] = int(results[position])
        for name, tensor in zip(node.outputs, results, strict=True):
            if name is not None:
                self.tensors[name] = tensor.detach()
                self.bind(name)
                self.restride(name)

    def multiply(self, node: Gemm) -> Tensor:
        a = self.view(node.a) if isinstance(node.a, View) else self.patches(node.a)
        columns, packed = self.ints(self.program.buffer(node.accumulator).sizes)[1], self.tensors[node.b]
        row = MICRO_KERNELS[node.micro_kernel]
        total = row.total
        if isinstance(node.a, Patches):
            b = unpack_windows(row, packed, columns, node.a.pieces)
        else:
            b = unpack(packed, columns, a.shape[1])
        return a.to(total) @ b.to(total).t()

    def attend(self, node: Attention) -> None:
        q, k, v = self.view(node.q), self.view(node.k), self.view(node.v)
        mask = None if node.mask is None else self.view(node.mask)
        results = attend(q, k, v, mask, node.scale, node.causal, node.nan_rows, functools.partial(self.score, node))
        for name, value in zip(node.outputs, results, strict=False):
            self.provide(name)
            self.tensors[name].copy_(value)

    def attend_backward(self, node: AttentionBackward) -> None:
        grad_out, q, k, v, out, log_sums = (self.view(view) for view in node.operands[:6])
        mask = None if node.mask is None else self.view(node.mask)
        grads = attend_backward(grad_out, q, k, v, out, log_sums, mask, node.scale, node.causal)
        for name, value in zip(node.outputs, grads, strict=True):
            self.provide(name)
            self.tensors[name].copy_(value)

    def score(self, node: Attention, scores: Tensor) -> Tensor:
        """What becomes of scores."""
        if node.scores is None or node.accumulator is None:
            return scores
        self.tensors[node.accumulator] = scores.contiguous()
        self.nest(node.scores)
        changed = self.tensors.pop(node.accumulator)
        return changed if node.blocks is None else changed.masked_fill(~self.seen(node.blocks, changed), -math.inf)

    def seen(self, blocks: Blocks, scores: Tensor) -> Tensor:
        """Which keys are in the blocks of lists."""
        found = torch.zeros((), dtype=torch.bool)
        for counts, numbers in ((self.view(counts), self.view(numbers)) for counts, numbers in blocks.lists):
            counted = torch.arange(numbers.shape[-1]) < counts.unsqueeze(-1)
            found = found | torch.zeros(numbers.shape, dtype=torch.bool).scatter(-1, numbers.long(), counted)
        rows, keys = self.ints((blocks.rows, blocks.keys))
        whole = found.repeat_interleave(rows, 2).repeat_interleave(keys, 3)
        return whole[:, :, : scores.shape[2], : scores.shape[3]]

    def rank(self, node: Ranking) -> None:
        x, count = self.view(node.x), node.count.evaluate(self.symbols)
        if node.kind == "top":
            values, indices = torch.topk(x, count, largest=node.largest)
        else:
            values, indices = torch.sort(x, stable=True, descending=node.largest)
        for name, value in ((node.values, values), (node.indices, indices)):
            if name is not None:
                self.provide(name)
                self.tensors[name].copy_(value)

    def patches(self, windows: Patches) -> Tensor:
        """The windows of a convolution as rows (n, y, x) of (ky, kx, channel)."""
        images = self.view(windows.image).permute(0, 3, 1, 2).float()
        n, channels = images.shape[:2]
        columns = torch.nn.functional.unfold(
            images, windows.kernel, windows.dilation, windows.padding, windows.stride
        )  # (n, channel * ky * kx, y * x)
        split = columns.reshape(n, channels, windows.kernel[0] * windows.kernel[1], -1)
        return split.permute(0, 3, 2, 1).reshape(-1, split.shape[1] * split.shape[2])

    def restride(self, name: str) -> None:
        """Give an extern result the declared strides."""
        buffer, tensor = self.program.buffer(name), self.tensors[name].resolve_conj().resolve_neg()
        sizes, strides = self.ints(buffer.sizes), self.ints(buffer.strides)
        if list(tensor.shape) != sizes or tensor.dtype != buffer.dtype:
            raise InternalError("interpret", f"{name} is {tensor.dtype} {list(tensor.shape)}, declared {buffer}")
        if any(n > 1 and a != b for n, a, b in zip(sizes, tensor.stride(), strides, strict=True)):
            tensor = with_strides(tensor, strides)
        self.tensors[name] = tensor

    def result(self, value: Any) -> object:
        if isinstance(value, View):
            return self.view(value).detach() if value.own else self.view(value)
        return value.evaluate(self.symbols) if isinstance(value, Expr) else value


def _poison(tensor: Tensor) -> Tensor:
    if tensor.dtype not in LOOP_DTYPES or tensor.dtype == torch.bool:
        return tensor
    return tensor.fill_(float("nan") if tensor.dtype.is_floating_point else torch.iinfo(tensor.dtype).max)
