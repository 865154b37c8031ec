"""The kernels that sort rows and find their first elements: calls of their templates. Sizes are arguments."""

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

#: Adds for each element of a long row that is sorted.
_WORK_OF_SORTED = 32


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
    header, function, work, count = _call(node, f"{str(node.largest).lower()}, {element}")
    writer.line(f'#include "../ranking/{header}.h"')
    with writer.block(HEAD):
        pointer = 0
        for name, kind, buffer in (("values", element, node.values), ("indices", "int64_t", node.indices)):
            place = "nullptr" if buffer is None else f"static_cast<{kind}*>(buffers[{pointer}])"
            writer.line(f"{kind}* const {name} = {place};")
            pointer += buffer is not None
        writer.line(f"const {element}* const x = static_cast<const {element}*>(buffers[{pointer}]) + sizes[3];")
        ints = f"sizes[0], sizes[1], {count}{work}, {choices.grain}, {choices.most_threads}"
        writer.line(f"{_SPACE}::{function}(x, values, indices, {ints});")
        writer.line("return 0;")
    return named(writer.text(), f"icpu_{node.name}")


def _call(node: Ranking, types: str) -> tuple[str, str, str, str]:
    """The template's file and function, what a row costs in adds, and how many elements are wanted, if it asks."""
    columns, wanted = "sizes[1]", "sizes[2]"
    if node.kind == "top" and node.long:
        return "select", f"select_of_rows<{types}>", f"{columns} / 4 + {wanted} * {_WORK_OF_ONE}", f"{wanted}, "
    if node.long:
        return "sort", f"sort_rows<{types}>", f"{columns} * {_WORK_OF_SORTED}", ""
    order = "Top" if node.kind == "top" else "Sorted"
    passes = f"({wanted} + 4)" if node.kind == "top" else columns
    return "rank", f"rank_rows<{_SPACE}::{order}<{types}>>", f"{columns} * {passes} / 4", f"{wanted}, "
