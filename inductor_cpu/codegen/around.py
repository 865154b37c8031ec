"""Which stores go around the cache.

A store fetches its line first, and the line goes to memory later: two transfers. Results that are larger than what a
core may hope to keep in the last cache are gone when they are read, so that one transfer is enough: whole lines go
straight to memory. Below, it costs the reader its cache. On a Xeon with 480 MB for all its guests, a copy of 16 MB
gained nothing by it, one of 32 MB a third, and a sixth together with a reader. On an EPYC with 32 MB, a copy of 16 MB
and its reader gained a fifth with one thread and nothing with two; of 24 MB a third and a fifth; of 8 MB they lost.

Tiles write a line here and a line there, which takes longer to fetch. On that EPYC transposes of 12 MB and their reader
gained a twentieth to a half, of 20 to 26 MB a fifth to three quarters; of 12 MB to channels-last with two threads, all
in the cache before, they lost a fifth, and gained two fifths where the cache held other data. Of 10 MB they gained
there alone, and of 6 MB with two threads they lost.

Vectors of AVX2 fill a line by two stores or more, and in between it waits in a buffer. Loops that compute for long and
fill lines of several results lose them half full: on an EPYC of the third generation (Zen 3), exp with two results of
float32 took 1.4 times, log 2.5 times as long as with one of them around the cache, which was as fast as none or faster;
of bf16, by quarters of lines, three times as long, and with one a tenth longer. Lighter loops gain by every result.
"""

from __future__ import annotations

from inductor_cpu.codegen.analysis import Facts
from inductor_cpu.codegen.records import records
from inductor_cpu.ir.kernel import LINE_BYTES
from inductor_cpu.ir.loop_nest import Load

#: The part of the last cache that the results of a kernel may take and be found there; not more than this.
SHARE_OF_CACHE, MOST_KEPT = 2, 32 << 20

#: The part of these that tiles may take.
SHARE_OF_TILES = 3 / 4

#: Arithmetic of a loop, in adds, from which on lines that are filled bit by bit are lost (with 18 none were), and the
#: lanes from which on nobody has seen it.
LONG, FEWEST_LANES = 20, 16


def kept_bytes(cache: int) -> int:
    """Results of so many bytes and more are gone when they are read. cache: bytes of the last level."""
    return min(cache // SHARE_OF_CACHE, MOST_KEPT)


def tiles_kept_bytes(cache: int) -> int:
    """The same of results that are written in tiles."""
    return int(kept_bytes(cache) * SHARE_OF_TILES)


def stores_around(facts: Facts, kept: int, tiles_kept: int | None = None) -> frozenset[int]:
    """The numbers of the stores that write around the cache: all results of a kernel with `kept` bytes of them or more,
    `tiles_kept` if it turns tiles over (None: never), or none. Of long loops that fill lines bit by bit the largest, by
    halves of lines."""
    kernel = facts.kernel
    if kernel.parallel == 0 or kernel.product is not None:
        return frozenset()
    if facts.tile is not None:
        if tiles_kept is None or facts.tile.stores:
            return frozenset()
        kept = tiles_kept
    found = {number: size for number in range(len(kernel.stores)) if (size := _bytes(facts, number))}
    if sum(found.values()) < kept:
        return frozenset()
    if kernel.vector.lanes >= FEWEST_LANES or facts.arithmetic(range(len(kernel.body))) < LONG:
        return frozenset(found)
    largest = max(found, key=lambda number: found[number])
    return frozenset({largest} if 2 * _vector_bytes(facts, largest) >= LINE_BYTES else ())


def _vector_bytes(facts: Facts, number: int) -> int:
    return facts.kernel.vector.lanes * facts.itemsize(-1 - number) * _neighbours(facts, number)


def _bytes(facts: Facts, number: int) -> int:
    """What a store writes in all, if it writes every element once, whole lines at a time, and nobody reads them; else
    0."""
    kernel, store = facts.kernel, facts.kernel.stores[number]
    together = facts.access.get(-1 - number) == "contiguous" or _neighbours(facts, number) > 1
    plain = store.mode == "set" and store.mask is None and together
    if not plain or any(isinstance(i, Load) and i.buffer == store.buffer for i in kernel.body):
        return 0
    itemsize = facts.itemsize(-1 - number)
    loops = [loop for loop in (*kernel.outer, *kernel.inner) if loop in store.index[0].symbols]
    sizes = [loop.size.as_int if loop.size is not None else None for loop in loops]
    if None in sizes or not _in_lines(facts, number, itemsize):
        return 0
    total = itemsize
    for size in sizes:
        total *= size or 0
    return total


def _neighbours(facts: Facts, number: int) -> int:
    """How many elements a lane stores side by side."""
    return next((len(record) for record in records(facts.kernel) if number in record), 1)


def _in_lines(facts: Facts, number: int, itemsize: int) -> bool:
    """Whether a vector starts at a multiple of its bytes, wherever the loops are, and in a tile, after which another
    row is written, has whole lines."""
    address, lanes = facts.kernel.stores[number].index[0], facts.kernel.vector.lanes
    vector = _vector_bytes(facts, number)
    if facts.tile is not None and vector % LINE_BYTES:
        return False
    if any(symbol.kind != "loop" for symbol in address.symbols):
        return False
    for loop in address.symbols:
        stride = address.coefficient(loop)
        if stride is None or stride.as_int is None:
            return False
        step = stride.as_int * (lanes if loop == facts.kernel.vector.loop else 1)
        if step * itemsize % min(LINE_BYTES, vector):
            return False
    return True
