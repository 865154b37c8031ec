"""The kernel of attention: a call of its template. What a model decides is in its text; sizes and strides are
arguments, so one kernel serves all shapes."""

from __future__ import annotations

from collections.abc import Mapping

from inductor_cpu.codegen.cxx import ELEMENT
from inductor_cpu.codegen.source import HEAD, named
from inductor_cpu.codegen.text import Writer
from inductor_cpu.codegen.tuning import Choices
from inductor_cpu.ir.attention import ATTENTION_KERNELS
from inductor_cpu.ir.index import Expr
from inductor_cpu.ir.nodes import Attention, Buffer
from inductor_cpu.ir.plan import KernelSource

_SPACE = "icpu::attention"


def pointers_of(node: Attention) -> tuple[str, ...]:
    """The buffers of a kernel's pointers, in order."""
    return (*node.outputs, *(view.buffer for view in node.operands))


def sizes_of(node: Attention, buffers: Mapping[str, Buffer]) -> tuple[Expr, ...]:
    """A kernel's ints, in order: the seven sizes; for each result three strides; for each operand its offset and three
    strides."""
    batch, heads, rows, depth = node.q.sizes
    ints = [batch, heads, node.k.sizes[1], rows, node.k.sizes[2], depth, node.v.sizes[3]]
    for name in node.outputs:
        ints += buffers[name].strides[:3]
    for view in node.operands:
        ints += [view.offset, *view.strides[:3]]
    return tuple(ints)


def generate_attention(node: Attention, buffers: Mapping[str, Buffer], choices: Choices) -> KernelSource:
    """The C++ function of one attention."""
    row, writer = ATTENTION_KERNELS[node.kernel], Writer()
    element = ELEMENT[buffers[node.q.buffer].dtype]
    mask = f"{_SPACE}::None" if node.mask is None else ELEMENT[buffers[node.mask.buffer].dtype]
    writer.line(f'#include "../attention/{row.header}"')
    writer.line('#include "../attention/attention.h"')
    with writer.block(HEAD):
        empty = "kNan" if node.nan_rows else "kZero"
        flags = f"{str(node.causal).lower()}, {_SPACE}::Empty::{empty}"
        writer.line(f"{_SPACE}::Attention<{_SPACE}::{row.code}, {element}, {mask}, {flags}> kernel{{}};")
        writer.line("kernel.sizes = {sizes[0], sizes[1], sizes[2], sizes[3], sizes[4], sizes[5], sizes[6]};")
        writer.line(f"kernel.scale = {float(node.scale)!r};")
        pointer, at = 0, 7
        for name, kind in (("out", element), ("log_sums", "float"))[: len(node.outputs)]:
            strides = ", ".join(f"sizes[{i}]" for i in range(at, at + 3))
            writer.line(f"kernel.{name} = {{static_cast<{kind}*>(buffers[{pointer}]), {strides}}};")
            pointer, at = pointer + 1, at + 3
        for name, _ in zip(("q", "k", "v", "mask"), node.operands, strict=False):
            kind = mask if name == "mask" else element
            strides = ", ".join(f"sizes[{i}]" for i in range(at + 1, at + 4))
            place = f"static_cast<const {kind}*>(buffers[{pointer}]) + sizes[{at}]"
            writer.line(f"kernel.{name} = {{{place}, {strides}}};")
            pointer, at = pointer + 1, at + 4
        threads = "omp_get_max_threads()" if choices.threads is None else str(choices.threads)
        writer.line(f"kernel.run({threads});")
        writer.line("return 0;")
    return named(writer.text(), f"icpu_{node.name}")
