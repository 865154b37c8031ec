"""The reference interpreter: runs a Program with plain torch ops. Slow, and the oracle.

Loops are those of `interpret_loops`.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from inductor_cpu.errors import InternalError
from inductor_cpu.ir.attention import attend, attend_backward
from inductor_cpu.ir.index import Expr, Sym
from inductor_cpu.ir.interpret_loops import Memory, Tensor, run_nest
from inductor_cpu.ir.loop_nest import Buffer, Load, LoopNest, View
from inductor_cpu.ir.micro_kernels import MICRO_KERNELS, unpack, unpack_each
from inductor_cpu.ir.nodes import (
    Attention,
    AttentionBackward,
    Blocks,
    Extern,
    Gemm,
    Patches,
    Program,
    Ranking,
    TilePacking,
    WeightGradient,
    leaves,
)
from inductor_cpu.ir.ops import LOOP_DTYPES
from inductor_cpu.ir.strided import with_strides
from inductor_cpu.ir.windows import unpack_windows
from inductor_cpu.ir.winograd import differentiate_weights, tiles_of


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
        self.resized: set[str] = set()  # results of operators that have other sizes than declared

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
            elif isinstance(node, TilePacking):
                self.pack(node)
            elif isinstance(node, WeightGradient):
                self.differentiate(node)
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
        if name in self.resized:
            raise InternalError("interpret", f"{name} is {list(self.tensors[name].shape)}, declared {buffer}")
        if name not in self.layout:
            sizes, strides = self.ints(buffer.sizes), self.ints(buffer.strides)
            self.layout[name] = (sizes, strides)
            if name not in self.tensors:
                self.tensors[name] = _poison(torch.empty_strided(sizes, strides, dtype=buffer.dtype))
        return buffer

    def nest(self, nest: LoopNest) -> None:
        for instr in nest.body:
            if isinstance(instr, Load):
                self.provide(instr.buffer)
        for store in nest.stores:
            self.provide(store.buffer)
        run_nest(nest, Memory(self.tensors, self.layout), self.symbols)

    def view(self, view: View) -> Tensor:
        """A view as a tensor: the buffer's own tensor when it is all of it."""
        if view.buffer in self.resized and view.is_whole(self.program.buffer(view.buffer)):
            return self.tensors[view.buffer]
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
        # As in the executor, only operators of the program see the caller's modes. Under AOTAutograd's own one, torch
        # computes some operators of complex numbers wrong.
        of_torch = getattr(node.target, "namespace", None) == "aten"
        with _disable_current_modes() if of_torch else contextlib.nullcontext():
            returned = node.target(*args, **kwargs)
        results = [] if returned is None else list(leaves(returned))
        if len(results) != len(node.outputs):
            raise InternalError("interpret", f"{node.name} gave {len(results)} results, expected {len(node.outputs)}")
        for position, symbol in node.int_outputs:
            self.symbols[symbol] = int(results[position])
        for name, tensor in zip(node.outputs, results, strict=True):
            if name is not None and tensor is not None:  # oneDNN's recurrent layers give no workspace in inference
                self.tensors[name] = tensor.detach()
                self.bind(name)
                self.restride(name)

    def multiply(self, node: Gemm) -> Tensor:
        a = self.view(node.a) if isinstance(node.a, View) else self.patches(node.a)
        columns, packed = self.ints(self.program.buffer(node.accumulator).sizes)[1], self.tensors[node.b]
        row = MICRO_KERNELS[node.micro_kernel]
        total = row.total
        if isinstance(node.a, Patches) and node.a.pieces.depthwise:
            taps = unpack(packed, columns, node.a.pieces.values).to(total).mT
            return (a.to(total).reshape(-1, *taps.shape) * taps).sum(1)
        if isinstance(node.a, Patches) and (groups := node.a.pieces.groups) is not None:
            weight = unpack_windows(row, packed, columns, node.a.pieces).to(total)
            weight = weight.reshape(-1, groups.outputs, node.a.pieces.count, groups.inputs)
            pixels = a.to(total).reshape(len(a), node.a.pieces.count, -1, groups.inputs)
            return torch.einsum("rpgi,gopi->rgo", pixels, weight).reshape(-1, columns)
        if isinstance(node.a, Patches):
            b = unpack_windows(row, packed, columns, node.a.pieces)
        else:
            b = unpack_each(packed, columns, a.shape[-1])
        return (a.to(total) @ b.to(total).mT).reshape(-1, columns)

    def attend(self, node: Attention) -> None:
        q, k, v = self.view(node.q), self.view(node.k), self.view(node.v)
        mask, kept = (None if view is None else self.view(view) for view in (node.mask, node.kept))
        become = None if node.scores is None else functools.partial(self.score, node)
        settings = node.scale, node.causal, node.nan_rows, kept, node.keep, node.fill, node.in_parts
        results = attend(q, k, v, mask, *settings, become=become)
        for name, value in zip(node.outputs, results, strict=False):
            self.provide(name)
            self.tensors[name].copy_(value)

    def attend_backward(self, node: AttentionBackward) -> None:
        grad_out, q, k, v, out, log_sums = (self.view(view) for view in node.operands[:6])
        mask, kept = (None if view is None else self.view(view) for view in (node.mask, node.kept))
        settings = node.scale, node.causal, kept, node.keep, node.fill
        grads = attend_backward(grad_out, q, k, v, out, log_sums, mask, *settings)
        for name, value in zip(node.outputs, grads, strict=False):
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

    def pack(self, node: TilePacking) -> None:
        self.provide(node.out)
        self.tensors[node.out].copy_(tiles_of(self.view(node.weight), node.turned, node.micro_kernel))

    def differentiate(self, node: WeightGradient) -> None:
        image, gradients = (self.view(view).permute(0, 3, 1, 2) for view in node.operands)
        self.provide(node.out)
        self.tensors[node.out].copy_(differentiate_weights(image, gradients, node.padding).permute(0, 2, 3, 1))

    def patches(self, windows: Patches) -> Tensor:
        """The windows of a convolution as rows (n, y, x) of (ky, kx, channel)."""
        images = self.view(windows.image).permute(0, 3, 1, 2).float()
        n, channels = images.shape[:2]
        down, across = windows.padding
        padded = torch.nn.functional.pad(images, (across, across, down, down), value=windows.outside)
        columns = torch.nn.functional.unfold(
            padded, windows.kernel, windows.dilation, 0, windows.stride
        )  # (n, channel * ky * kx, y * x)
        split = columns.reshape(n, channels, windows.kernel[0] * windows.kernel[1], -1)
        return split.permute(0, 3, 2, 1).reshape(-1, split.shape[1] * split.shape[2])

    def restride(self, name: str) -> None:
        """Give an extern result the declared strides and dtype, as the executor does (fake tensors have other ones).
        Sizes may differ where nobody reads it."""
        buffer, tensor = self.program.buffer(name), self.tensors[name].resolve_conj().resolve_neg()
        sizes, strides = self.ints(buffer.sizes), self.ints(buffer.strides)
        if list(tensor.shape) != sizes:
            self.resized.add(name)
            return
        tensor = tensor.to(buffer.dtype)
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
