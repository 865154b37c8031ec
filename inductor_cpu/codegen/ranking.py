"""The kernels that order short rows and find the first elements of long ones: calls of their templates. Sizes are
arguments."""

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

#: Adds for each element of a long row that is wanted: some enter the heap for it, and it is sorted.
_WORK_OF_ONE = 256


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
    types = f"{str(node.largest).lower()}, {element}"
    order = f"{_SPACE}::{'Top' if node.kind == 'top' else 'Sorted'}<{types}>"
    function = f"select_of_rows<{types}>" if node.long else f"rank_rows<{order}>"
    writer.line(f'#include "../ranking/{"select" if node.long else "rank"}.h"')
    with writer.block(HEAD):
        pointer = 0
        for name, kind, buffer in (("values", element, node.values), ("indices", "int64_t", node.indices)):
            place = "nullptr" if buffer is None else f"static_cast<{kind}*>(buffers[{pointer}])"
            writer.line(f"{kind}* const {name} = {place};")
            pointer += buffer is not None
        writer.line(f"const {element}* const x = static_cast<const {element}*>(buffers[{pointer}]) + sizes[3];")
        passes = "sizes[2] + 4" if node.kind == "top" else "sizes[1]"
        work = f"sizes[1] / 4 + sizes[2] * {_WORK_OF_ONE}" if node.long else f"sizes[1] * ({passes}) / 4"
        writer.line(f"const int64_t work = {work};")
        ints = f"sizes[0], sizes[1], sizes[2], work, {choices.grain}, {choices.most_threads}"
        writer.line(f"{_SPACE}::{function}(x, values, indices, {ints});")
        writer.line("return 0;")
    return named(writer.text(), f"icpu_{node.name}")
