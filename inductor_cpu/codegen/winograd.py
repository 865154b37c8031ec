"""The kernels that pack weights for tiles of windows, and that give the gradients of weights: calls of their templates.
Sizes and strides are arguments."""

from __future__ import annotations

from inductor_cpu.codegen.source import HEAD, named
from inductor_cpu.codegen.text import Writer
from inductor_cpu.codegen.tuning import Choices
from inductor_cpu.ir.index import Expr
from inductor_cpu.ir.micro_kernels import MICRO_KERNELS
from inductor_cpu.ir.nodes import TilePacking, WeightGradient
from inductor_cpu.ir.plan import Instance, KernelSource

_SPACE = "icpu::gemm"


def tile_pointers(node: TilePacking | WeightGradient) -> tuple[str, ...]:
    """The buffers of a kernel's pointers, in order."""
    return (*node.outputs, *(view.buffer for view in node.operands))


def tile_sizes(node: TilePacking | WeightGradient) -> tuple[Expr, ...]:
    """A kernel's ints, in order.

    Packing: (columns, channels) of the weight, its four strides and its offset. A gradient: the sizes (height, width,
    channels) of images, those of gradients, three strides of each, the number of images, and the two offsets."""
    if isinstance(node, TilePacking):
        return (*node.weight.sizes[:2], *node.weight.strides, node.weight.offset)
    images, gradients = node.operands
    sizes = (*images.sizes[1:], *gradients.sizes[1:], *images.strides[:3], *gradients.strides[:3])
    return (*sizes, images.sizes[0], images.offset, gradients.offset)


def generate_tiles(node: TilePacking | WeightGradient, choices: Choices) -> KernelSource:
    """The C++ function of one node."""
    writer, micro = Writer(), MICRO_KERNELS[node.micro_kernel]
    template = "winograd_pack.h" if isinstance(node, TilePacking) else "winograd_weights.h"
    headers = (f"../gemm/{template}", f"../gemm/{micro.header}")
    for header in headers:
        writer.line(f'#include "{header}"')
    with writer.block(HEAD):
        writer.line("float* const out = static_cast<float*>(buffers[0]);")
        writer.line("const float* const first = static_cast<const float*>(buffers[1]);")
        kind = f"{_SPACE}::{micro.code}"
        if isinstance(node, TilePacking):
            declaration = _emit_packing(node, kind, writer, choices)
        else:
            declaration = _emit_gradient(node, kind, writer, choices)
        writer.line("return 0;")
    return named(writer.text(), f"icpu_{node.name}", [Instance(headers, declaration)])


def _emit_packing(node: TilePacking, kind: str, writer: Writer, choices: Choices) -> str:
    """Write the call, and return the declaration of what it calls."""
    sizes, values = "sizes[0], sizes[1], sizes[2], sizes[3], sizes[4], sizes[5]", "first + sizes[6]"
    if node.turned:
        sizes = "sizes[1], sizes[0], sizes[3], sizes[2], -sizes[4], -sizes[5]"
        values += " + 2 * (sizes[4] + sizes[5])"
    writer.line(f"{_SPACE}::pack_tiles<{kind}>({{{values}, {sizes}}}, out, {choices.most_threads});")
    return f"void {_SPACE}::pack_tiles<{kind}>(const {_SPACE}::TileWeights&, float*, int)"


def _emit_gradient(node: WeightGradient, kind: str, writer: Writer, choices: Choices) -> str:
    """The same."""
    writer.line("const float* const images = first + sizes[13];")
    writer.line("const float* const values = static_cast<const float*>(buffers[2]) + sizes[14];")
    image, strides = "sizes[0], sizes[1], sizes[2], sizes[3], sizes[4]", "sizes[6], sizes[7], sizes[8]"
    constants = f"3, 3, 1, 1, {node.padding[0]}, {node.padding[1]}, 1, 1, 0"
    writer.line(f"const {_SPACE}::Patches windows{{{image}, {strides}, {constants}}};")
    writer.line(f"const {_SPACE}::ResultGradients gradients{{values, sizes[5], sizes[9], sizes[10], sizes[11]}};")
    ends = f"sizes[12] * sizes[3] * sizes[4], out, {choices.most_threads}"
    writer.line(f"{_SPACE}::gradient_of_weights<{kind}>(windows, images, gradients, {ends});")
    given = f"const {_SPACE}::Patches&, const float*, const {_SPACE}::ResultGradients&, int64_t, float*, int"
    return f"void {_SPACE}::gradient_of_weights<{kind}>({given})"
