"""How far ahead the accesses of a streaming kernel ask for memory.

The processor's own prefetchers stop at the end of every page and start late on stores: a loop that only copies gets
60 % of the bandwidth. An access of much memory therefore asks for the lines that it will need some 2 KB later, in the
order in which the loops run. Rows that several passes read are asked for a row ahead, by the pass that computes most:
then memory works while the processor does. The epilogue of a matrix product touches one or two lines of every row, so
its next panel is as many lines that no processor expects: they are asked for one panel ahead. Beside AMX tiles the
epilogue runs some rows at a time, with time between them, and asks for what comes some rows on.
Rows of a table at positions that are data: `lookups.py`. Rows that jump by remainders and quotients of loops, as the
windows of an image do, are asked for as these are: where the loops will be some rows on.

Some processors do better alone where neighbours follow one another (`Choices.runs`): on an EPYC (Zen 4) asking along a
run only takes time, a twentieth to a third of copies, sums and layer norms, and so does asking for the next row if it
follows; on the core before it (Zen 3) the same kernels are up to 1.5 times as fast if asked, 1.1 in the mean. They
do not find their way through gaps, to tables, to tiles, or to a row so long that its second pass delays
the next. Nor are they in time for a run out of memory while other operands come out of the second-level cache again and
again, as the sines and cosines of a rotary embedding do: on that EPYC 16 MB beside 1 MB of these took 1.15 to 1.5 times
as long unless asked for, but 4 MB, which were in the last cache, 0.8 to 0.9 times. Where rows jump, to compute where
they will be takes as long as to copy them: 1.2 to 10 MB took 1.3 to 1.9 times as long if asked for, 19 MB 0.8 to 0.9.
Nor do their stores fetch lines while a long row is still computed: the pass before asks for the row that the last one
will write, into the second-level cache. Of rows of 128 KB log_softmax and the gradient of a cross entropy took 0.73 to
0.92 of the time; of rows of 3 KB light norms took 1.05 times as long if asked, a softmax's gradient 0.92 times.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from inductor_cpu.codegen import lookups
from inductor_cpu.codegen.analysis import Facts
from inductor_cpu.codegen.tiles import Tile, goes_in_columns, is_long
from inductor_cpu.ir.index import Expr, Sym, of
from inductor_cpu.ir.kernel import LINE_BYTES, Product
from inductor_cpu.ir.loop_nest import Reduce
from inductor_cpu.ir.rewrite import store_operands

#: How far ahead an access asks for memory: several times what is on its way at a time.
AHEAD_BYTES = 2048

#: The same beside a tile, which reads and writes many rows at a time: the first-level cache holds no more of each.
TILE_AHEAD_BYTES = 256

#: How many tiles on a short row or column of them asks, along the tiles' own loop.
TILES_AHEAD = 4

#: Loops with gaps between what they touch are stepped over as a whole if that is no more than this.
NEAR_BYTES = 8 << 10

#: An operand of fewer bytes is taken to be in a cache already.
STREAM_BYTES = 1 << 20

#: A run of so many bytes comes out of memory, and operands of so many that are read again are not in the first cache.
LONG_RUN_BYTES, AGAIN_BYTES = 8 << 20, 256 << 10

#: Arithmetic of a loop, in adds, that takes longer than memory does (a softmax).
HEAVY = 20

#: Rows that jump are asked for from so many bytes on if the processor does well alone.
JUMPS_BYTES = 16 << 20

#: What a pass over the inner loops reads and a later pass finds in the cache.
PASS_BYTES = 512 << 10

#: Rows of more bytes are asked for into the second-level cache: the first one has no place for a row ahead.
FAR_BYTES = 16 << 10

#: A first-level cache has so many places for lines whose addresses differ by multiples of so many bytes.
WAYS, WAY_BYTES = 8, 4 << 10

#: The second one has places for so many lines that lie whole pages apart.
FAR_PLACES = 256

#: Rows of results of products that lie in pages of their own.
LONG_ROW_BYTES = 4 << 10

#: How many rows of a block of a product on its epilogue asks: it runs a third of a block at a time.
PANEL_ROWS_AHEAD = 8

#: Fewer steps than so many times the distance leave too much that is asked for beyond the end.
LEAST_STEPS = 4

#: So many are enough to leave little.
LONG_STEPS = 16


@dataclass(frozen=True)
class Ahead:
    """distance: in elements; with `loops`, whose points decide where a row lies, in points of these, the innermost
    first. phase: the only one that asks, for results also the one before theirs; None for each that has the access.
    far: it takes long until the memory is needed. beside: every second panel of a product asks, also for so many
    elements further on."""

    distance: int
    phase: int | None = None
    far: bool = False
    loops: tuple[Sym, ...] = ()
    beside: int | None = None


def plan_ahead(facts: Facts, units: int, tables: bool = True, runs: bool = True) -> dict[int, Ahead]:
    """Access (as in `VectorPlan.access`) -> how it asks for memory ahead, for those that do. units: per vector, where
    the lanes are results of a reduction. tables: whether rows may be asked for that the points of loops decide; runs:
    whether neighbours that follow one another are."""
    if facts.kernel.product is not None:
        by_rows = facts.kernel.outer[0] == facts.kernel.vector.loop
        return (_next_rows_of_panel if by_rows else _next_panel)(facts, facts.kernel.product)
    if facts.tile is not None and _has_rows_of_tiles(facts, facts.tile):
        return _beside_tiles(facts, facts.tile, runs)
    if facts.tile is not None and not runs:
        column = goes_in_columns(facts.kernel, facts.tile) and is_long(facts.tile.loop, facts.kernel)
        return (_next_rows if column else _further_on)(facts, facts.tile)
    passes = _passes(facts)
    found = {} if runs else _rows_to_write(facts)
    for access in facts.access:
        if access in found:
            continue
        if tables and (loop := lookups.deciding_loop(facts, access)) is not None:
            rows = max(1, lookups.AHEAD_BYTES // (lookups.row_bytes(facts, access) or lookups.AHEAD_BYTES))
            if _long_enough(loop, rows):
                found[access] = Ahead(rows, _first_reader(passes, access), loops=(loop,))
            continue
        if not streams(facts, access):
            continue
        readers = [number for number, needed in enumerate(passes) if access in needed]
        distance = _next_row(facts, access, units, runs) if len(readers) > 1 else None
        if distance is not None:
            heaviest = max(readers, key=lambda number: (facts.arithmetic(passes[number]), number))
            found[access] = Ahead(distance, heaviest, row_bytes(facts, access, units) > FAR_BYTES)
            continue
        rows_on = _rows_on(facts, access) if tables and (runs or bytes_touched(facts, access) >= JUMPS_BYTES) else None
        if rows_on is not None:
            found[access] = Ahead(rows_on, _first_reader(passes, access), loops=_deciding_loops(facts, rows_on))
            continue
        further = _further(facts, access, units, runs or _is_beside_others(facts, access))
        if further is not None:
            found[access] = further
    return found


def _rows_to_write(facts: Facts) -> dict[int, Ahead]:
    """The results of a later pass over long rows that a cache holds: the pass before asks for the same row of them."""
    kernel = facts.kernel
    if kernel.vector.loop not in kernel.inner:
        return {}
    found: dict[int, Ahead] = {}
    for number, phase in enumerate(kernel.phases[1:]):
        for access in (-1 - store for store in phase.stores):
            if streams(facts, access) and FAR_BYTES < row_bytes(facts, access, 1) <= PASS_BYTES:
                found[access] = Ahead(0, number, far=True)
    return found


def _first_reader(passes: list[frozenset[int]], access: int) -> int | None:
    return next((number for number, needed in enumerate(passes) if access in needed), None)


def _rows_on(facts: Facts, access: int) -> int | None:
    """How many points of the loops around a row a load looks ahead, where rows jump by remainders or quotients, as
    windows of an image do: there is no stride from one to the next."""
    around, row = _around_rows(facts), lookups.row_bytes(facts, access)
    if access < 0 or row is None or facts.tile is not None or not lookups.LEAST_ROW_BYTES <= row < NEAR_BYTES:
        return None
    address = facts.address(access)
    if all(_stride(address, loop) is not None for loop in _within(around, NEAR_BYTES // row)):
        return None
    steps = max(1, AHEAD_BYTES // row)
    points = _points(around)
    return steps if points is None or points >= LEAST_STEPS * steps else None


def _deciding_loops(facts: Facts, steps: int) -> tuple[Sym, ...]:
    """As many of the loops around a row as lead on for long: what is asked for at their very end comes too late."""
    return _within(_around_rows(facts), LONG_STEPS * steps)


def _around_rows(facts: Facts) -> tuple[Sym, ...]:
    """The loops around a vectorized one that is the innermost, from the inside out."""
    kernel, vector = facts.kernel, facts.kernel.vector.loop
    inside_out = (*reversed(kernel.inner), *reversed(kernel.outer))
    if vector is None or vector != inside_out[0] or len(kernel.inner) > 1 or kernel.listed is not None:
        return ()
    return inside_out[1:]


def _within(loops: tuple[Sym, ...], points: int) -> tuple[Sym, ...]:
    """The first loops that together have so many points, or all."""
    count = 1
    for number, loop in enumerate(loops, 1):
        size = _size(loop)
        if size is None or (count := count * size) >= points:
            return loops[:number]
    return loops


def _next_panel(facts: Facts, product: Product) -> dict[int, Ahead]:
    """Accesses to long rows in the epilogue of a product: the same columns of the next panel. The processor itself
    finds its way through short ones."""
    rows = next(loop for loop in facts.kernel.outer if loop.size == of(product.height))
    points, row = (product.a.sizes[0] * product.columns).as_int, product.columns.as_int
    found: dict[int, Ahead] = {}
    for access in facts.access:
        address, distance = facts.address(access), _stride(facts.address(access), product.panel)
        if not distance or address.coefficient(rows) == 0 or not _is_plain(facts, access):
            continue
        itemsize = facts.itemsize(access)
        much = points is None or points * itemsize >= STREAM_BYTES
        long = row is None or row * itemsize >= LONG_ROW_BYTES
        if much and long and facts.load_access(access) == "contiguous":
            found[access] = Ahead(distance)
    return found


def _next_rows_of_panel(facts: Facts, product: Product) -> dict[int, Ahead]:
    """Accesses in the epilogue of a product whose rows are the inner loop: some rows on. Two neighbouring lines come in
    little more time than one, so that of two panels of one line the first asks for both. They would not last until the
    next panel where more rows than the second cache has places for lie whole pages apart."""
    rows, found, many = facts.kernel.outer[1], dict[int, Ahead](), product.a.sizes[0].as_int
    for access in facts.access:
        panel, row = (_stride(facts.address(access), loop) for loop in (product.panel, rows))
        if not panel or not row or not _is_plain(facts, access) or facts.load_access(access) != "contiguous":
            continue
        short, apart = panel * facts.itemsize(access) <= LINE_BYTES, row * facts.itemsize(access)
        if short and apart % WAY_BYTES == 0 and (many is None or many > FAR_PLACES):
            continue
        found[access] = Ahead(PANEL_ROWS_AHEAD * row, beside=panel if short else None)
    return found


def _has_rows_of_tiles(facts: Facts, tile: Tile) -> bool:
    """Whether the innermost loop goes from tile to tile along the lanes, for long."""
    kernel, vector = facts.kernel, facts.kernel.vector.loop
    assert vector is not None
    inside = kernel.outer.index(vector) > kernel.outer.index(tile.loop)
    return inside and is_long(vector, kernel)


def _beside_tiles(facts: Facts, tile: Tile, runs: bool) -> dict[int, Ahead]:
    """Accesses in a row of tiles: the lanes of the next tile, or some bytes on in each row of a plain access. Whole
    lines beside a tile are runs."""
    vector = facts.kernel.vector.loop
    assert vector is not None
    found: dict[int, Ahead] = {}
    for access in facts.access:
        known = tile.has(access) or facts.load_access(access) == "contiguous"
        stride = _stride(facts.address(access), vector)
        if not known or not stride or not _is_plain(facts, access) or not _is_much(facts, access):
            continue
        if not runs and not tile.has(access) and _fills_lines(facts, access):
            continue
        near = TILE_AHEAD_BYTES // facts.itemsize(access)
        found[access] = Ahead(near if stride == 1 else stride * facts.kernel.vector.lanes)
    return found


def _next_rows(facts: Facts, tile: Tile) -> dict[int, Ahead]:
    """Stores in a long column of tiles: the rows of the next tile."""
    strides = {
        access: _stride(facts.address(access), tile.loop)
        for access in facts.access
        if access < 0 and facts.load_access(access) == "contiguous" and _is_plain(facts, access)
    }
    lanes = facts.kernel.vector.lanes
    return {access: Ahead(stride * lanes) for access, stride in strides.items() if stride and _is_much(facts, access)}


def _further_on(facts: Facts, tile: Tile) -> dict[int, Ahead]:
    """Loads of tiles where both loops are short: whole lines some tiles on, where each lane goes on reading."""
    found = [k for k in tile.loads if _is_plain(facts, k) and _is_much(facts, k) and _fills_lines(facts, k)]
    return {k: Ahead(TILES_AHEAD * facts.kernel.vector.lanes) for k in found}


def _fills_lines(facts: Facts, access: int) -> bool:
    """Whether a vector has whole cache lines of an access."""
    return facts.kernel.vector.lanes * facts.itemsize(access) >= LINE_BYTES


def streams(facts: Facts, access: int) -> bool:
    """Whether an access reads all of much memory, in an order that is known, and needs it soon after."""
    tiled = facts.tile is not None and facts.tile.has(access)
    if tiled or not _is_plain(facts, access):
        return False
    return facts.load_access(access) == "contiguous" and _is_much(facts, access)


def _is_plain(facts: Facts, access: int) -> bool:
    """Whether it depends on loops only where an access goes, and that it goes there."""
    instr = facts.instruction(access)
    read = instr.mask is None or (facts.tile is not None and access in facts.tile.rooms)
    return read and not any(symbol.kind == "value" for symbol in facts.address(access).symbols)


def _is_much(facts: Facts, access: int) -> bool:
    return bytes_touched(facts, access) >= STREAM_BYTES


def _is_beside_others(facts: Facts, access: int) -> bool:
    """Whether an access reads a long run out of memory while loads that leave out some of its loops read theirs out of
    a cache, and little is computed."""
    if access < 0 or bytes_touched(facts, access) < LONG_RUN_BYTES:
        return False
    if facts.arithmetic(range(len(facts.kernel.body))) >= HEAVY:
        return False
    loops = _touching(facts, access)
    others = [k for k in facts.access if k >= 0 and _touching(facts, k) < loops]
    again = {(facts.instruction(k).buffer, facts.address(k)): bytes_touched(facts, k) for k in others}
    return sum(again.values()) >= AGAIN_BYTES


def _touching(facts: Facts, access: int) -> frozenset[Sym]:
    """The loops that decide where an access goes."""
    address, loops = facts.address(access), (*facts.kernel.outer, *facts.kernel.inner)
    return frozenset(loop for loop in loops if address.coefficient(loop) != 0)


def bytes_touched(facts: Facts, access: int) -> float:
    """What an access touches in all."""
    touched = _points(_touching(facts, access))
    return math.inf if touched is None else touched * facts.itemsize(access)


def _passes(facts: Facts) -> list[frozenset[int]]:
    """The values of the inner loops that each phase computes; one that is kept is read from its row later."""
    kernel = facts.kernel
    reduces = frozenset(k for k, instr in enumerate(kernel.body) if isinstance(instr, Reduce))
    filled: frozenset[int] = frozenset()
    found: list[frozenset[int]] = []
    for phase in kernel.phases:
        roots = [kernel.body[k].arg for k in phase.reduces]  # type: ignore[union-attr]
        roots += [k for n in phase.stores for k in store_operands(kernel.stores[n])]
        needed = facts.closure(roots, reduces | filled) - reduces - filled
        found.append(frozenset(k for k in needed if facts.level[k] > facts.outer_level))
        filled |= needed & frozenset(kernel.kept)
    return found


def _by_results(facts: Facts) -> bool:
    """Whether lanes are results, so that the loops of the reduction run inside of each vector."""
    return bool(facts.kernel.inner) and facts.kernel.vector.loop in facts.kernel.outer


def _next_row(facts: Facts, access: int, units: int, runs: bool) -> int | None:
    """The distance to what the next point (or block of lanes) of the outer loops reads; None where a row is more than
    the cache keeps for a later pass, or short and the next one follows it in a run that need not be asked for."""
    kernel = facts.kernel
    row = row_bytes(facts, access, units)
    if row > PASS_BYTES or not kernel.outer:
        return None
    stride = _stride(facts.address(access), kernel.outer[-1])
    if not runs and row <= FAR_BYTES and stride == _points(kernel.inner):
        return None
    steps = math.ceil(AHEAD_BYTES / row) * (units * kernel.vector.lanes if _by_results(facts) else 1)
    return stride * steps if stride and _long_enough(kernel.outer[-1], steps) else None


def row_bytes(facts: Facts, access: int, units: int) -> float:
    """What an access reads in one pass over the inner loops."""
    points = _points(facts.kernel.inner)
    block = units * facts.kernel.vector.lanes if _by_results(facts) else 1
    return math.inf if points is None else points * block * facts.itemsize(access)


def _further(facts: Facts, access: int, units: int, runs: bool) -> Ahead | None:
    """Some AHEAD_BYTES on the way of the loops: along a run of neighbours, if these are asked for, or as many runs on,
    which loads ask for into the second-level cache where the first one has no place for all of them."""
    kernel = facts.kernel
    address, itemsize, vector = facts.address(access), facts.itemsize(access), kernel.vector.loop
    assert vector is not None
    run = units * kernel.vector.lanes if _by_results(facts) else _size(vector)
    gaps = False  # between what the loops inside touch
    for loop in reversed([loop for loop in (*kernel.outer, *kernel.inner) if loop != vector]):
        if run is None or run * itemsize >= (NEAR_BYTES if gaps else 2 * AHEAD_BYTES):
            break
        stride = _stride(address, loop)
        if not stride:  # the same elements again, or no telling which
            return None
        steps = max(1, AHEAD_BYTES // (run * itemsize))
        # An access that has a part of the vectorized loop goes on in less than that.
        gaps = gaps or not 0 < stride <= run
        if gaps and _long_enough(loop, steps):
            meet = steps >= WAYS and stride * itemsize % WAY_BYTES == 0
            return Ahead(steps * stride, far=meet and access >= 0)
        size = _size(loop)  # all of the loop is near: the next one out decides
        run = None if size is None else run * size
    return Ahead(AHEAD_BYTES // itemsize) if runs and not gaps else None


def _long_enough(loop: Sym, steps: int) -> bool:
    size = _size(loop)
    return size is None or size >= LEAST_STEPS * steps


def _stride(address: Expr, loop: Sym) -> int | None:
    coefficient = address.coefficient(loop)
    return None if coefficient is None else coefficient.as_int


def _size(loop: Sym) -> int | None:
    return None if loop.size is None else loop.size.as_int


def _points(loops: Iterable[Sym]) -> int | None:
    """How many points loops have, None if that is not known."""
    total = 1
    for loop in loops:
        size = _size(loop)
        if size is None:
            return None
        total *= size
    return total
