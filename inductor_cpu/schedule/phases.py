"""The passes over the inner loops of a fused nest, and which values are kept in a row between passes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from inductor_cpu.ir.index import Sym
from inductor_cpu.ir.kernel import Phase, VectorPlan
from inductor_cpu.ir.loop_nest import Const, Index, Instr, Load, Reduce, Scalar, Store
from inductor_cpu.ir.rewrite import depends, needed_by, operands, store_operands
from inductor_cpu.schedule.cost import scalar_cost

#: A value is kept in a row rather than computed again when that takes at least this much arithmetic: in a short row,
#: which stays in the first-level cache or near it, and in one that the second-level cache takes and gives back.
KEEP_COST, KEEP_FAR_COST = 6, 16
#: Bytes of a short row.
NEAR_BYTES = 64 << 10
#: The part of the second-level cache that a row may take. Operands want some, too.
ROW_SHARE = 4


def split_phases(body: Sequence[Instr], stores: Sequence[Store], inner: Sequence[Sym]) -> tuple[Phase, ...]:
    """The phases in order. A reduction belongs to the first phase in which its argument is known, a store to the first
    one in which its value is, but not ahead of a phase that reads what it overwrites."""
    level = depends(body, inner, inner)
    rank: list[int] = []
    for instruction in body:
        own = max((rank[p] for p in operands(instruction)), default=0)
        rank.append(own + 1 if isinstance(instruction, Reduce) else own)
    loops = set(inner)
    reduces: dict[int, list[int]] = {}
    for position, instruction in enumerate(body):
        if isinstance(instruction, Reduce):
            reduces.setdefault(rank[position] - 1, []).append(position)
    phase_of = {
        number: max(rank[p] for p in store_operands(store))
        for number, store in enumerate(stores)
        if store.index[0].symbols & loops or any(level[p] for p in store_operands(store))
    }
    while _delay_overwrites(body, stores, reduces, phase_of):
        pass
    return tuple(
        Phase(tuple(reduces.get(k, ())), tuple(n for n, phase in sorted(phase_of.items()) if phase == k))
        for k in sorted({*reduces, *phase_of.values()})
    )


def _delay_overwrites(
    body: Sequence[Instr], stores: Sequence[Store], reduces: Mapping[int, list[int]], phase_of: dict[int, int]
) -> bool:
    """Move stores to buffers that the body loads to the last phase that evaluates such a load; whether any moved."""
    loaded = {i.buffer for i in body if isinstance(i, Load)}
    if not any(stores[number].buffer in loaded for number in phase_of):
        return False
    folded = {position for positions in reduces.values() for position in positions}
    last: dict[str, int] = {}
    for phase in sorted({*reduces, *phase_of.values()}):
        roots = [p for r in reduces.get(phase, ()) for p in operands(body[r])]
        roots += [p for number, own in phase_of.items() if own == phase for p in store_operands(stores[number])]
        needed = needed_by(body, roots, folded) - folded
        last.update({i.buffer: phase for i in (body[p] for p in needed) if isinstance(i, Load)})
    late = {n: last[stores[n].buffer] for n, own in phase_of.items() if last.get(stores[n].buffer, -1) > own}
    phase_of.update(late)
    return bool(late)


def kept_values(
    body: Sequence[Instr],
    stores: Sequence[Store],
    phases: Sequence[Phase],
    inner: Sequence[Sym],
    vector: VectorPlan,
    cache: int,
) -> tuple[int, ...]:
    """Values that an earlier phase computes, a later one needs again, and that are dear to compute. cache: bytes of the
    second level."""
    size = 1
    for symbol in inner:
        extent = symbol.size.as_int if symbol.size is not None else None
        if extent is None:
            return ()
        size *= extent
    if len(phases) < 2:
        return ()
    lanes = vector.lanes if vector.loop is not None and vector.loop not in inner else 1
    level = depends(body, inner, inner)
    kept: set[int] = set()
    computed: set[int] = set()
    for phase in phases:
        roots = [body[p].arg for p in phase.reduces]  # type: ignore[union-attr]
        roots += [p for n in phase.stores for p in store_operands(stores[n])]
        barrier = {p for p in range(len(body)) if not level[p]} | kept
        needed = {p for p in needed_by(body, roots, barrier) if level[p]}
        again = needed & computed
        for position in _frontier(body, needed, roots, again):
            if _pays(_subtree_cost(body, position, barrier), size * lanes * body[position].dtype.itemsize, cache):
                kept.add(position)
        computed |= needed
    return tuple(sorted(kept))


def _pays(cost: int, row: int, cache: int) -> bool:
    """Whether to keep a row of so many bytes rather than to compute its values again at this cost each."""
    return cost >= KEEP_COST and (row <= NEAR_BYTES or (cost >= KEEP_FAR_COST and row <= cache // ROW_SHARE))


def _frontier(body: Sequence[Instr], needed: set[int], roots: Sequence[int], again: set[int]) -> list[int]:
    """Values computed before that new values of this phase use directly."""
    used_by_new = {p for q in needed - again for p in operands(body[q])}
    return sorted(p for p in again if p in used_by_new or p in roots)


def _subtree_cost(body: Sequence[Instr], position: int, barrier: set[int]) -> int:
    if isinstance(body[position], (Load, Const, Index)):
        return 0
    total = 0
    for p in needed_by(body, (position,), barrier):
        instruction = body[p]
        total += scalar_cost(instruction) if isinstance(instruction, Scalar) else isinstance(instruction, Load)
    return total
