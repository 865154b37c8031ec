"""The kernels of attention and of its gradients: a call of a template. What a model decides is in its text; sizes and
strides are arguments, so one kernel serves all shapes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count

import torch

from inductor_cpu.codegen.analysis import Facts
from inductor_cpu.codegen.cxx import ELEMENT, literal
from inductor_cpu.codegen.kernel import check_kernel, comment, headers
from inductor_cpu.codegen.loops import Loops
from inductor_cpu.codegen.source import HEAD, named
from inductor_cpu.codegen.text import Writer
from inductor_cpu.codegen.tuning import Choices
from inductor_cpu.ir.attention import ATTENTION_KERNELS, AttentionKernel
from inductor_cpu.ir.index import Expr, Sym
from inductor_cpu.ir.kernel import Scored
from inductor_cpu.ir.loop_nest import Buffer, View
from inductor_cpu.ir.nodes import Attention, AttentionBackward
from inductor_cpu.ir.plan import Instance, KernelSource
from inductor_cpu.targets.cpu import Target

_SPACE = "icpu::attention"

#: As kMostOfHead and kMostRows in decode.h.
MOST_OF_HEAD = 4
MOST_ROWS = 8


def pointers_of(node: Attention | AttentionBackward) -> tuple[str, ...]:
    """The buffers of a kernel's pointers, in order."""
    return (*node.outputs, *(view.buffer for view in _tensors_of(node)))


def _tensors_of(node: Attention | AttentionBackward) -> tuple[View, ...]:
    """What a kernel reads, in the order of its pointers."""
    return (*node.operands, *(node.lists if isinstance(node, Attention) else ()))


def sizes_of(node: Attention | AttentionBackward, buffers: Mapping[str, Buffer]) -> tuple[Expr, ...]:
    """A kernel's ints, in order: the seven sizes; for each result three strides; for each operand, and each list of
    blocks, its offset and three strides; the size of a block."""
    batch, heads, rows, depth = node.q.sizes
    ints = [batch, heads, node.k.sizes[1], rows, node.k.sizes[2], depth, node.v.sizes[3]]
    for name in node.outputs:
        ints += buffers[name].strides[:3]
    for view in _tensors_of(node):
        ints += [view.offset, *view.strides[:3]]
    blocks = node.blocks if isinstance(node, Attention) else None
    return (*ints, *(() if blocks is None else (blocks.rows, blocks.keys)))


def score_pointers(step: Scored) -> tuple[str, ...]:
    """The buffers of the pointers that follow the template's own, in order: those that scores depend on."""
    return tuple(arg.buffer for arg in step.kernel.args if arg.buffer != step.attention.accumulator)


def score_sizes(step: Scored) -> tuple[Sym, ...]:
    """The sizes that follow the template's own ints, in order."""
    return tuple(size for size in step.kernel.sizes if size not in step.block)


def generate_attention(
    step: Attention | Scored, buffers: Mapping[str, Buffer], choices: Choices, target: Target
) -> KernelSource:
    """The C++ function of one attention."""
    node = step.attention if isinstance(step, Scored) else step
    row, writer = ATTENTION_KERNELS[node.kernel], Writer()
    element = ELEMENT[buffers[node.q.buffer].dtype]
    mask = f"{_SPACE}::None" if node.mask is None else ELEMENT[buffers[node.mask.buffer].dtype]
    if isinstance(step, Scored):
        check_kernel(step.kernel, target)
        mask = f"{_SPACE}::Changed" if node.log_sums is None else f"{_SPACE}::ChangedAndSummed"
        for header in headers(step.kernel):
            writer.line(f'#include "{header}"')
        comment(step.kernel, target, writer)
    writer.line(f'#include "../attention/{row.header}"')
    writer.line('#include "../attention/attention.h"')
    with writer.block(HEAD):
        empty = "kNan" if node.nan_rows else "kZero"
        flags = f"{str(node.causal).lower()}, {_SPACE}::Empty::{empty}, {_dropped(node)}, {_few(step)}"
        kernel_type = f"{_SPACE}::Attention<{_SPACE}::{row.code}, {element}, {mask}, {flags}>"
        writer.line(f"{kernel_type} kernel{{}};")
        given = _begin(node, writer)
        for name, kind in (("out", element), ("log_sums", "float"))[: len(node.outputs)]:
            writer.line(f"kernel.{name} = {given.tensor(kind)};")
        names = ("q", "k", "v", *(("mask",) if node.mask is not None else ()), "kept")
        _emit_operands(node, names, {"mask": mask}, element, given, writer)
        for number in range(len(node.lists)):
            name = f"lists[{number // 2}].{('counts', 'numbers')[number % 2]}"
            writer.line(f"kernel.blocks.{name} = {given.tensor('const int32_t', offset=True)};")
        if node.blocks is not None:
            writer.line(f"kernel.blocks.count = {len(node.blocks.lists)};")
            writer.line(f"kernel.blocks.rows = {given.number()}, kernel.blocks.keys = {given.number()};")
        if isinstance(step, Scored):
            _emit_scores(step, given, writer, choices)
        writer.line(f"{_SPACE}::run(kernel, {choices.most_threads});")
        writer.line("return status.bits();" if isinstance(step, Scored) else "return 0;")
    return named(writer.text(), f"icpu_{node.name}", [_instance(row, "attention.h", kernel_type)])


def generate_attention_backward(
    node: AttentionBackward, buffers: Mapping[str, Buffer], choices: Choices
) -> KernelSource:
    """The C++ function of the gradients of one attention."""
    row, writer = ATTENTION_KERNELS[node.kernel], Writer()
    element = ELEMENT[buffers[node.q.buffer].dtype]
    mask = f"{_SPACE}::None" if node.mask is None else ELEMENT[buffers[node.mask.buffer].dtype]
    writer.line(f'#include "../attention/{row.header}"')
    writer.line('#include "../attention/backward.h"')
    with writer.block(HEAD):
        flags = f"{str(node.causal).lower()}, {_dropped(node)}"
        kernel_type = f"{_SPACE}::Backward<{_SPACE}::{row.code}, {element}, {mask}, {flags}>"
        writer.line(f"{kernel_type} kernel{{}};")
        given = _begin(node, writer)
        for name in ("grad_q", "grad_k", "grad_v", "all_slopes")[: len(node.outputs)]:
            writer.line(f"kernel.{name} = {given.tensor(element)};")
        names = ("grad_out", "q", "k", "v", "out", "log_sums", *(("mask",) if node.mask is not None else ()), "kept")
        _emit_operands(node, names, {"log_sums": "float", "mask": mask}, element, given, writer)
        writer.line(f"{_SPACE}::run(kernel, {choices.most_threads});")
        writer.line("return 0;")
    return named(writer.text(), f"icpu_{node.name}", [_instance(row, "backward.h", kernel_type)])


def _instance(row: AttentionKernel, header: str, kernel_type: str) -> Instance:
    """The function of the templates that runs a kernel of this class, in `header`."""
    headers = (f"../attention/{row.header}", f"../attention/{header}")
    return Instance(headers, f"void {_SPACE}::run<{kernel_type}>(const {kernel_type}&, int)")


def _begin(node: Attention | AttentionBackward, writer: Writer) -> _Given:
    """Write what every kernel begins with; returns what it is given beside."""
    writer.line("kernel.sizes = {sizes[0], sizes[1], sizes[2], sizes[3], sizes[4], sizes[5], sizes[6]};")
    writer.line(f"kernel.scale = {literal(node.scale, torch.float32)};")
    if node.in_parts:
        writer.line("kernel.in_parts = true;")
    if node.fill is not None:
        writer.line(f"kernel.fill = {literal(node.fill, torch.float32)};")
    return _Given()


def _dropped(node: Attention | AttentionBackward) -> str:
    """Whether weights are dropped, as C++."""
    return str(node.kept is not None).lower()


def _few(step: Attention | Scored) -> str:
    """How many rows share a head of keys, if so few that the template has a way of its own for them, as C++. To compile
    that and the way for many takes two seconds each, so only what may be needed is.

    Gradients, which log_sums are for, make scores as blocks of queries do, to the last bit: with scores in the
    thousands other roundings are other weights. Weights that are dropped have no such way either."""
    node = step.attention if isinstance(step, Scored) else step
    if node.kept is not None or (isinstance(step, Attention) and step.log_sums is not None):
        return f"{_SPACE}::kManyRows"
    rows, heads, shared = node.q.sizes[2].as_int, node.q.sizes[1].as_int, node.k.sizes[1].as_int
    if rows is not None and rows > MOST_OF_HEAD:
        return f"{_SPACE}::kManyRows"
    if rows is None or not heads or not shared:
        return f"{_SPACE}::kAnyRows"
    together = rows * (heads // shared)
    return str(together) if 0 < together <= MOST_ROWS else f"{_SPACE}::kManyRows"


def _emit_operands(
    node: Attention | AttentionBackward,
    names: Sequence[str],
    kinds: Mapping[str, str],
    element: str,
    given: _Given,
    writer: Writer,
) -> None:
    """Write the template's operands. kinds: of those whose elements are no `element`."""
    kinds = {"kept": "bool", **kinds}
    for name, _ in zip(names, node.operands, strict=False):
        writer.line(f"kernel.{name} = {given.tensor(f'const {kinds.get(name, element)}', offset=True)};")
    if node.kept is not None:
        writer.line(f"kernel.keep = {float(node.keep)!r};")


class _Given:
    """A kernel's pointers and ints as C++, one after the other; the seven sizes come first."""

    def __init__(self) -> None:
        self._pointers, self._ints = count(), count(7)

    def pointer(self, kind: str) -> str:
        """The next pointer, to elements of a type."""
        return f"static_cast<{kind}*>(buffers[{next(self._pointers)}])"

    def number(self) -> str:
        """The next int."""
        return f"sizes[{next(self._ints)}]"

    def tensor(self, kind: str, offset: bool = False) -> str:
        """The members of the template's `Tensor`: the next pointer, with its offset, and three strides."""
        start = f"{self.pointer(kind)} + {self.number()}" if offset else self.pointer(kind)
        return f"{{{start}, {self.number()}, {self.number()}, {self.number()}}}"


def _emit_scores(step: Scored, given: _Given, writer: Writer, choices: Choices) -> None:
    """Write the function that the template calls for each block of scores."""
    kernel, scores = step.kernel, 0
    for number, arg in enumerate(kernel.args):
        if arg.buffer == step.attention.accumulator:
            scores = number
            continue
        kind = f"const {ELEMENT[arg.dtype]}"
        writer.line(f"{kind}* const p{number} = {given.pointer(kind)};")
    for number, size in enumerate(kernel.sizes):
        if size not in step.block:
            writer.line(f"const int64_t n{number} = {given.number()};")
    writer.line("icpu::Status status;")
    block = ", ".join(f"const int64_t n{kernel.sizes.index(size)}" for size in step.block)
    with writer.block(f"const auto changed = [&]({block}, float* const p{scores})", "};"):
        Loops(Facts(kernel, choices.tiling), writer, choices).emit()
    writer.line(f"const {_SPACE}::Change change(changed);")
    writer.line("kernel.change = &change;")
