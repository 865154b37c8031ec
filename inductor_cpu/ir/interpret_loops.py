"""Loops in the reference interpreter: nests and scheduled kernels, over all loop points at once.

A value is a tensor with one axis per loop, of extent 1 along the loops it does not depend on. Large grids are cut along
the outermost loop. Every index is checked: an unmasked access outside of its buffer raises InternalError("interpret",
...).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import Union

import torch

from inductor_cpu.errors import InternalError
from inductor_cpu.ir.index import Expr, Sym
from inductor_cpu.ir.kernel import Kernel
from inductor_cpu.ir.loop_nest import Cast, Const, Index, Instr, Load, LoopNest, Reduce, Scalar, Scan, Store
from inductor_cpu.ir.meaning import held, physical, reduction, scalar, scan
from inductor_cpu.ir.rewrite import needed_by, store_operands, value_position

Tensor = torch.Tensor
IntOrTensor = Union[int, Tensor]

#: The largest number of loop points evaluated at once.
CHUNK_POINTS = 1 << 24


class Memory:
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
        memory: Memory,
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


def run_nest(nest: LoopNest, memory: Memory, symbols: Mapping[Sym, int]) -> None:
    """Run one nest of a program, in place."""
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
    memory = Memory(buffers, {})
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
