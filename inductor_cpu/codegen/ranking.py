"""The kernel that orders short rows: a call of its template. Sizes are arguments."""

from __future__ import annotations

from collections.abc import Mapping

from inductor_cpu.codegen.cxx import ELEMENT
from inductor_cpu.codegen.source import HEAD, named
from inductor_cpu.codegen.text import Writer
from inductor_cpu.codegen.tuning import Choices
from inductor_cpu.ir.index import Expr, product
from inductor_cpu.ir.loop_nest import Buffer
from inductor_cpu.ir.nodes import Ranking
from inductor_cpu.ir.plan import KernelSource

_SPACE = "icpu::ranking"


def ranking_pointers(node: Ranking) -> tuple[str, ...]:
    """The buffers of a kernel's pointers, in order."""
    return (*node.outputs, node.x.buffer)


def ranking_sizes(node: Ranking) -> tuple[Expr, ...]:
    """A kernel's ints, in order: rows, columns, how many are wanted, and the offset of the operand."""
    return product(node.x.sizes[:-1]), node.x.sizes[-1], node.count, node.x.offset


def generate_ranking(node: Ranking, buffers: Mapping[str, Buffer], choices: Choices) -> KernelSource:
    """The C++ function of one ranking."""
    writer = Writer()
    element = ELEMENT[buffers[node.x.buffer].dtype]
    order = f"{_SPACE}::{'Top' if node.kind == 'top' else 'Sorted'}<{str(node.largest).lower()}, {element}>"
    writer.line('#include "../ranking/rank.h"')
    with writer.block(HEAD):
        pointer = 0
        for name, kind, buffer in (("values", element, node.values), ("indices", "int64_t", node.indices)):
            place = "nullptr" if buffer is None else f"static_cast<{kind}*>(buffers[{pointer}])"
            writer.line(f"{kind}* const {name} = {place};")
            pointer += buffer is not None
        writer.line(f"const {element}* const x = static_cast<const {element}*>(buffers[{pointer}]) + sizes[3];")
        passes = "sizes[2] + 4" if node.kind == "top" else "sizes[1]"
        writer.line(f"const int64_t work = sizes[1] * ({passes}) / 4;")
        ints = f"sizes[0], sizes[1], sizes[2], work, {choices.grain}, {choices.most_threads}"
        writer.line(f"{_SPACE}::rank_rows<{order}>(x, values, indices, {ints});")
        writer.line("return 0;")
    return named(writer.text(), f"icpu_{node.name}")
