"""Folds of two to four points as straight code: the length of a vector, the mean of three colours, windows of four.

Each point's values are in the body, so that the passes over them read memory once, and what they store for each point
is a record (`records.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import product

from inductor_cpu.codegen.analysis import size_of
from inductor_cpu.codegen.unrolled import Unrolled
from inductor_cpu.ir.index import Expr, Sym, const
from inductor_cpu.ir.kernel import Kernel
from inductor_cpu.ir.loop_nest import Instr, Reduce, Scan
from inductor_cpu.ir.ops import accepts
from inductor_cpu.ir.rewrite import Copier, Editor, start_of

#: The op that adds a point to a fold.
FOLDS = {"sum": "add", "prod": "mul", "max": "maximum", "min": "minimum", "any": "logical_or", "all": "logical_and"}

#: Points of all inner loops together.
MOST_POINTS = 4

#: Values of a body at all points that registers hold, with some help from the cache.
MOST_VALUES = 96


def as_straight(kernel: Kernel) -> Kernel:
    """The same kernel with the points of its inner loops in its body, if these are few and its lanes are results; else
    the kernel itself."""
    places = _places(kernel.inner)
    simple = kernel.product is None and kernel.divided is None and kernel.listed is None
    if not places or not simple or kernel.vector.loop is None or kernel.vector.loop in kernel.inner:
        return kernel
    if len(kernel.body) * len(places) > MOST_VALUES or not all(_may_be_straight(kernel, i) for i in kernel.body):
        return kernel
    unrolled = Unrolled(kernel, places)
    for position, instruction in enumerate(kernel.body):
        if isinstance(instruction, Reduce):
            total = _fold(unrolled.editor, instruction, unrolled.copiers)
            for copier in unrolled.copiers:
                copier.values[position] = total
    for number, store in enumerate(kernel.stores):
        once = store.index[0].symbols.isdisjoint(kernel.inner)
        for copier in unrolled.copiers[:1] if once else unrolled.copiers:
            unrolled.store(number, copier)
    return replace(unrolled.kernel(), inner=(), phases=(), kept=())


def _places(inner: tuple[Sym, ...]) -> list[Mapping[Sym, Expr]]:
    """The points of the inner loops, in order; none where they are too many."""
    sizes = [size_of(loop).as_int or 0 for loop in inner]
    if not inner or any(not 0 < size <= MOST_POINTS for size in sizes):
        return []
    every = product(*map(range, sizes))
    points: list[Mapping[Sym, Expr]] = [dict(zip(inner, map(const, place), strict=True)) for place in every]
    return points if len(points) <= MOST_POINTS else []


def _may_be_straight(kernel: Kernel, instruction: Instr) -> bool:
    """Whether an instruction is no fold, or one that is an op for each point."""
    if isinstance(instruction, Scan):
        return False
    if not isinstance(instruction, Reduce):
        return True
    op, dtype = FOLDS.get(instruction.kind), kernel.body[instruction.arg].dtype
    return op is not None and dtype == instruction.dtype and accepts(op, dtype)


def _fold(editor: Editor, reduce: Reduce, copiers: list[Copier]) -> int:
    """A fold of all points, in their order, from the value with which loops begin: 0 makes a sum of -0.0 be 0.0."""
    total = editor.emit(start_of(reduce.kind, reduce.dtype))
    for copier in copiers:
        copier.run([reduce.arg])
        total = editor.scalar(FOLDS[reduce.kind], (total, copier.values[reduce.arg]), reduce.dtype)
    return total
