"""Neighbouring kernels that go through the same memory in the same order run in turns, a piece at a time.

A kernel that reads what another one has just written, or has just read, finds it in a cache only if both go through it
in pieces: all of the first piece, then all of the second (strip mining). So a temp between them never reaches memory.
That is right where each piece of the outermost loop of one kernel needs nothing of the other pieces of the others.

The rows of a matrix product are such a loop: the two of an MLP run in turns where their weights, which all pieces
read, stay in the cache too. So are the rows that a scatter writes, once its points are listed by them (`listed.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import gcd, lcm

from inductor_cpu.ir.index import product as product_of
from inductor_cpu.ir.kernel import Kernel, KernelArg, Product, Step, Strips, kernels_of
from inductor_cpu.ir.loop_nest import Buffer, View
from inductor_cpu.ir.micro_kernels import MICRO_KERNELS
from inductor_cpu.ir.nodes import Program
from inductor_cpu.ir.rewrite import may_fail
from inductor_cpu.ir.strips import points_of, unit_span
from inductor_cpu.schedule.memory import step_reads, step_writes
from inductor_cpu.schedule.uses import result_buffers

#: What kernels share stays in a cache anyway if it is less.
LEAST_BYTES = 1 << 20

#: Bytes of a piece: a part of the second-level cache. One unit may have more, if it must.
PIECE_BYTES, UNIT_BYTES = 512 << 10, 1 << 20

#: The parts of the second-level cache for the weights of products, and for a piece beside them.
WEIGHTS, BESIDE_WEIGHTS = 2, 4

#: Rows of a block of a matrix product: fewer leave some of a tile empty.
BLOCK_ROWS = 32

#: Pieces for each thread, so that all of them end at about the same time.
PIECES_PER_THREAD = 4


def join_strips(
    program: Program,
    steps: Sequence[Step],
    in_lists: Sequence[Kernel | None],
    buffers: Mapping[str, Buffer],
    cores: int,
    cache: int,
) -> list[Step]:
    """The steps, with neighbouring kernels joined where they share much memory piece by piece. in_lists: for each step
    that is a scatter, the kernel that takes its place in turns, if it can be listed (`listed.py`). cores, cache: of the
    target, as for `schedule_program`."""
    found: list[Step] = []
    for step, in_list in zip(steps, in_lists, strict=True):
        before = found[-1] if found else None
        joined = None
        if isinstance(step, Kernel) and isinstance(before, (Kernel, Strips)):
            joined = _joined(kernels_of(before), in_list or step, buffers, cores, cache)
        if joined is None:
            found.append(step)
        else:
            found[-1] = joined
    kept = result_buffers(program) | {binding.buffer for binding in program.bindings}
    return [with_locals(step, found, buffers, kept) if isinstance(step, Strips) else step for step in found]


def _joined(
    before: tuple[Kernel, ...], kernel: Kernel, buffers: Mapping[str, Buffer], cores: int, cache: int
) -> Strips | None:
    kernels = (*before, kernel)
    if not all(_can_run_in_pieces(k) for k in kernels) or _overlap(kernels, buffers):
        return None
    weights = _bytes_of_weights(kernels, buffers)
    if weights > cache // WEIGHTS:
        return None
    sizes = [points_of(k) or 0 for k in kernels]
    units = gcd(*sizes)
    shares = tuple(size // units for size in sizes)
    spans = _spans(kernels, shares)
    if spans is None or units < cores * PIECES_PER_THREAD:
        return None
    common = {arg.buffer for arg in kernel.args} & {arg.buffer for arg in _args(before)}
    shared = sum(spans[name] * units * buffers[name].dtype.itemsize for name in common if name in spans)
    unit = sum(span * buffers[name].dtype.itemsize for name, span in spans.items())
    if shared < LEAST_BYTES or unit > UNIT_BYTES:
        return None
    most = min(PIECE_BYTES, cache // BESIDE_WEIGHTS) if weights else PIECE_BYTES
    piece = _piece(kernels, shares, min(most // unit, units // (cores * PIECES_PER_THREAD)))
    return None if piece is None else Strips(kernels, shares, units, piece, ())


def _args(kernels: Sequence[Kernel]) -> tuple[KernelArg, ...]:
    return tuple(arg for kernel in kernels for arg in kernel.args)


def _bytes_of_weights(kernels: Sequence[Kernel], buffers: Mapping[str, Buffer]) -> int:
    """What each piece of the products reads of their packed operands, which `_can_run_in_pieces` knows."""
    weights = [buffers[name] for name in {k.product.b for k in kernels if k.product is not None}]
    return sum((product_of(weight.sizes).as_int or 0) * weight.dtype.itemsize for weight in weights)


def _can_run_in_pieces(kernel: Kernel) -> bool:
    """Whether the points of its outermost loop are independent, and a piece of them can be written without tiles,
    errors to report or sizes that are known at run time. One that is listed is, and may report errors."""
    if kernel.listed is not None:
        return True
    independent = kernel.parallel > 0 if kernel.product is None else _is_by_rows(kernel.product)
    if not independent or kernel.sizes or (points_of(kernel) or 0) < 2:
        return False
    tiles = not kernel.inner and any(kind == "strided" for _, kind in kernel.vector.access)
    return not tiles and not any(may_fail(kernel.body, i) for i in kernel.body)


def _is_by_rows(product: Product) -> bool:
    """Whether a few rows take no longer than their part of all: each piece would convert a weight anew. A batch has a
    weight for each of its matrices."""
    return (
        isinstance(product.a, View) and len(product.a.sizes) == 2 and not MICRO_KERNELS[product.micro_kernel].converts
    )


def _overlap(kernels: Sequence[Kernel], buffers: Mapping[str, Buffer]) -> bool:
    """Whether a kernel writes memory that another buffer of these kernels may lie in: inputs may be views of each
    other."""
    return any(buffers[arg.buffer].kind not in ("temp", "output") for arg in _args(kernels) if arg.writes)


def _spans(kernels: Sequence[Kernel], shares: Sequence[int]) -> dict[str, int] | None:
    """Buffer -> elements of a unit, where that is the same for all kernels; None if a unit would need the results of
    another one."""
    found: dict[str, int] = {}
    for name in dict.fromkeys(arg.buffer for arg in _args(kernels)):
        users = [(k, n) for k, n in zip(kernels, shares, strict=True) if name in {arg.buffer for arg in k.args}]
        spans = {unit_span(kernel, share, name) for kernel, share in users}
        span = spans.pop() if len(spans) == 1 else None
        if span is not None:
            found[name] = span
        elif len(users) > 1 and any(arg.writes for kernel, _ in users for arg in kernel.args if arg.buffer == name):
            return None
    return found


def _piece(kernels: Sequence[Kernel], shares: Sequence[int], most: int) -> int | None:
    """Units of a piece: at most so many, so that vectors of every kernel, and blocks of products, start and end with a
    piece; None if there is no such number."""
    step = 1
    for kernel, share in zip(kernels, shares, strict=True):
        lanes = kernel.vector.lanes if kernel.vector.loop == kernel.outer[0] else 1
        step = lcm(step, lcm(share, lanes if kernel.product is None else BLOCK_ROWS) // share)
    most = max(most, 1)
    return most // step * step or None


def with_locals(strips: Strips, steps: Sequence[Step], buffers: Mapping[str, Buffer], kept: set[str]) -> Strips:
    """The strips with the temps that no other step touches, and that are not in `kept`, as memory of a piece."""
    elsewhere = kept.union(*(step_reads(step) | step_writes(step) for step in steps if step is not strips))
    names = {arg.buffer for arg in _args(strips.kernels) if arg.writes and buffers[arg.buffer].kind == "temp"}
    spans = _spans(strips.kernels, strips.shares) or {}
    local = tuple((name, spans[name]) for name in sorted(names - elsewhere) if name in spans)
    return replace(strips, local=local)
