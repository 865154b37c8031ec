"""The kernel of attention: a call of its template. What a model decides is in its text; sizes and strides are
arguments, so one kernel serves all shapes."""

from __future__ import annotations

from collections.abc import Mapping

from inductor_cpu.codegen.analysis import Facts
from inductor_cpu.codegen.cxx import ELEMENT
from inductor_cpu.codegen.kernel import check_kernel, comment, headers
from inductor_cpu.codegen.loops import Loops
from inductor_cpu.codegen.source import HEAD, named
from inductor_cpu.codegen.text import Writer
from inductor_cpu.codegen.tuning import Choices
from inductor_cpu.ir.attention import ATTENTION_KERNELS
from inductor_cpu.ir.index import Expr, Sym
from inductor_cpu.ir.kernel import Scored
from inductor_cpu.ir.nodes import Attention, Buffer
from inductor_cpu.ir.plan import KernelSource
from inductor_cpu.targets.cpu import Target

_SPACE = "icpu::attention"


def pointers_of(node: Attention) -> tuple[str, ...]:
    """The buffers of a kernel's pointers, in order."""
    return (*node.outputs, *(view.buffer for view in (*node.operands, *node.lists)))


def sizes_of(node: Attention, buffers: Mapping[str, Buffer]) -> tuple[Expr, ...]:
    """A kernel's ints, in order: the seven sizes; for each result three strides; for each operand, and each list of
    blocks, its offset and three strides; the size of a block."""
    batch, heads, rows, depth = node.q.sizes
    ints = [batch, heads, node.k.sizes[1], rows, node.k.sizes[2], depth, node.v.sizes[3]]
    for name in node.outputs:
        ints += buffers[name].strides[:3]
    for view in (*node.operands, *node.lists):
        ints += [view.offset, *view.strides[:3]]
    return (*ints, *(() if node.blocks is None else (node.blocks.rows, node.blocks.keys)))


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
        mask = f"{_SPACE}::Changed"
        for header in headers(step.kernel):
            writer.line(f'#include "{header}"')
        comment(step.kernel, target, writer)
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
        for number in range(len(node.lists)):
            name = f"kernel.blocks.lists[{number // 2}].{('counts', 'numbers')[number % 2]}"
            strides = ", ".join(f"sizes[{i}]" for i in range(at + 1, at + 4))
            writer.line(f"{name} = {{static_cast<const int32_t*>(buffers[{pointer}]) + sizes[{at}], {strides}}};")
            pointer, at = pointer + 1, at + 4
        if node.blocks is not None:
            writer.line(f"kernel.blocks.count = {len(node.blocks.lists)};")
            writer.line(f"kernel.blocks.rows = sizes[{at}], kernel.blocks.keys = sizes[{at + 1}];")
            at += 2
        threads = "omp_get_max_threads()" if choices.threads is None else str(choices.threads)
        if isinstance(step, Scored):
            _emit_scores(step, pointer, at, writer, choices)
            writer.line(f"kernel.run({threads}, change);")
            writer.line("return status.bits();")
        else:
            writer.line(f"kernel.run({threads});")
            writer.line("return 0;")
    return named(writer.text(), f"icpu_{node.name}")


def _emit_scores(step: Scored, pointer: int, first: int, writer: Writer, choices: Choices) -> None:
    """Write the function that the template calls for each block of scores. pointer, first: of the first buffer and the
    first int that are its own."""
    kernel, own = step.kernel, {name: pointer + k for k, name in enumerate(score_pointers(step))}
    ints = {size: first + k for k, size in enumerate(score_sizes(step))}
    for number, arg in enumerate(kernel.args):
        if arg.buffer in own:
            kind = f"const {ELEMENT[arg.dtype]}*"
            writer.line(f"{kind} const p{number} = static_cast<{kind}>(buffers[{own[arg.buffer]}]);")
    for number, size in enumerate(kernel.sizes):
        if size in ints:
            writer.line(f"const int64_t n{number} = sizes[{ints[size]}];")
    writer.line("icpu::Status status;")
    numbers = {size: number for number, size in enumerate(kernel.sizes)}
    block = ", ".join(f"const int64_t n{numbers[size]}" for size in step.block)
    scores = next(k for k, arg in enumerate(kernel.args) if arg.buffer == step.attention.accumulator)
    with writer.block(f"const auto change = [&]({block}, float* const p{scores}) ICPU_INLINE", "};"):
        Loops(Facts(kernel, choices.tiling), writer, choices).emit()
