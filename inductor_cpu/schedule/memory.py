"""The memory plan: every temp gets a place in one arena; buffers that are never alive together share places.

Sizes known at compile time are placed largest first at the lowest free offset (a first-fit over lifetimes). Sizes that
depend on symbols share places only with equal sizes, after the static part.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from inductor_cpu.ir.index import Expr, Sym, as_expr, const, product
from inductor_cpu.ir.kernel import ArenaPlace, Kernel, Scored, Step, Strips
from inductor_cpu.ir.loop_nest import Buffer, Load
from inductor_cpu.schedule.uses import reads_of, writes_of

#: Every place starts on a cache line.
ALIGN = 64


@dataclass
class Lifetime:
    """One place-to-be: the buffers that share it in place, its bytes, and the steps from first write to last use."""

    buffers: list[str]
    bytes: Expr
    first: int
    last: int

    def overlaps(self, other: Lifetime) -> bool:
        """Whether both are alive at some step."""
        return self.first <= other.last and other.first <= self.last


def step_reads(step: Step) -> set[str]:
    """Buffers that a step reads."""
    if isinstance(step, (Kernel, Strips)):
        return {a.buffer for a in step.args if a.reads}
    return reads_of(step.attention) if isinstance(step, Scored) else reads_of(step)


def step_writes(step: Step) -> set[str]:
    """Buffers that a step writes."""
    if isinstance(step, (Kernel, Strips)):
        return {a.buffer for a in step.args if a.writes}
    return writes_of(step.attention) if isinstance(step, Scored) else writes_of(step)


def plan_memory(
    steps: Sequence[Step], buffers: Mapping[str, Buffer], known: frozenset[Sym], redzone: int = 0
) -> tuple[tuple[tuple[str, ArenaPlace], ...], Expr]:
    """(places, arena bytes) for the temps of these steps. known: the symbols whose values the inputs give; a temp whose
    size depends on others (on data) gets no place and is allocated when it is written. redzone: bytes that stay free
    before and after each place."""
    lives = _reuse_in_place(steps, _lifetimes(steps, buffers, redzone), buffers)
    lives = [life for life in lives if life.bytes.symbols <= known]
    static = [life for life in lives if life.bytes.as_int is not None]
    dynamic = [life for life in lives if life.bytes.as_int is None]
    places, static_bytes = _place_static(static)
    dynamic_places, total = _place_dynamic(dynamic, const(static_bytes))
    inside = tuple((name, ArenaPlace(place.offset + redzone)) for name, place in (*places, *dynamic_places))
    return inside, total


def _lifetimes(steps: Sequence[Step], buffers: Mapping[str, Buffer], redzone: int) -> dict[str, Lifetime]:
    lives: dict[str, Lifetime] = {}
    for number, step in enumerate(steps):
        for name in step_reads(step) | step_writes(step):
            buffer = buffers[name]
            if buffer.kind != "temp":
                continue
            life = lives.setdefault(name, Lifetime([name], _bytes(buffer) + 2 * redzone, number, number))
            life.last = number
    return lives


def _bytes(buffer: Buffer) -> Expr:
    size = product(buffer.sizes) * buffer.dtype.itemsize
    return (size + (ALIGN - 1)) // ALIGN * ALIGN


def _reuse_in_place(steps: Sequence[Step], lives: dict[str, Lifetime], buffers: Mapping[str, Buffer]) -> list[Lifetime]:
    """Let a kernel's result take the place of an argument that dies in it, where each point is read before written."""
    owner = dict(lives)
    for number, step in enumerate(steps):
        if not isinstance(step, Kernel) or step.phases:
            continue
        for arg in step.args:
            life = owner.get(arg.buffer)
            if life is None or arg.reads or life.first != number or life.buffers != [arg.buffer]:
                continue
            donor = next(
                (
                    owner[other.buffer]
                    for other in step.args
                    if other.buffer in owner
                    and not other.writes
                    and not _is_operand(step, other.buffer)
                    and owner[other.buffer].last == number
                    and owner[other.buffer].first < number
                    and buffers[other.buffer].dtype == arg.dtype
                    and owner[other.buffer].bytes == life.bytes
                    and _same_points(step, other.buffer, arg.buffer)
                ),
                None,
            )
            if donor is not None:
                donor.buffers.append(arg.buffer)
                donor.last = life.last
                owner[arg.buffer] = donor
    unique = {id(life): life for life in owner.values()}
    return list(unique.values())


def _is_operand(kernel: Kernel, name: str) -> bool:
    """Whether a matrix product reads the buffer, again for each panel of its result."""
    return kernel.product is not None and name in (kernel.product.a.buffer, kernel.product.b)


def _same_points(kernel: Kernel, read: str, written: str) -> bool:
    addresses = {i.index[0] for i in kernel.body if isinstance(i, Load) and i.buffer == read}
    addresses |= {s.index[0] for s in kernel.stores if s.buffer == written}
    return len(addresses) == 1 and all(s.mask is None for s in kernel.stores if s.buffer == written)


def _place_static(lives: Sequence[Lifetime]) -> tuple[list[tuple[str, ArenaPlace]], int]:
    placed: list[tuple[int, int, Lifetime]] = []
    end = 0
    for life in sorted(lives, key=lambda item: (-(item.bytes.as_int or 0), item.first)):
        size = life.bytes.as_int or 0
        taken = sorted((start, stop) for start, stop, other in placed if other.overlaps(life))
        offset = 0
        for start, stop in taken:
            if offset + size <= start:
                break
            offset = max(offset, stop)
        placed.append((offset, offset + size, life))
        end = max(end, offset + size)
    return [(name, ArenaPlace(const(start))) for start, _, life in placed for name in life.buffers], end


def _place_dynamic(lives: Sequence[Lifetime], base: Expr) -> tuple[list[tuple[str, ArenaPlace]], Expr]:
    places: list[tuple[Expr, Expr, int]] = []  # offset, bytes, last step of its latest tenant
    result: list[tuple[str, ArenaPlace]] = []
    end = base
    for life in sorted(lives, key=lambda item: item.first):
        for number, (offset, size, last) in enumerate(places):
            if size == life.bytes and last < life.first:
                places[number] = (offset, size, life.last)
                break
        else:
            offset = end
            end = end + life.bytes
            places.append((offset, life.bytes, life.last))
        result.extend((name, ArenaPlace(offset)) for name in life.buffers)
    return result, as_expr(end)
