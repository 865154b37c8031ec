"""Rows of a table at positions that are data, as of an embedding: the next ones are asked for while one is read. So are
rows that a scatter adds elsewhere, where lists of its points say their order.

No processor expects them. So the loop that decides which rows are read finds the position of one some points on, by the
values that lead to it, written again with the later point; and while a row is read, the same part of that one is asked
for. Checks of positions may see one twice: they report the same error.
"""

from __future__ import annotations

from inductor_cpu.codegen.analysis import Facts, size_of
from inductor_cpu.ir.index import Sym
from inductor_cpu.ir.loop_nest import Const, Load, Reduce, Scalar, Scan
from inductor_cpu.ir.ops import INDEX_CHECKS
from inductor_cpu.ir.rewrite import value_position, value_positions

#: How far ahead rows are asked for, and how long a row is at least. Measured with AVX2: 4 KB leave memory idle, 24 KB
#: push a row that later passes read again out of the L1 cache.
AHEAD_BYTES, LEAST_ROW_BYTES = 12 << 10, 128

#: A table of fewer bytes is taken to be in a cache already.
TABLE_BYTES = 1 << 20


def deciding_loop(facts: Facts, access: int) -> Sym | None:
    """The loop whose points decide at which positions, which are data, an access reads rows of much memory; None for
    any other access."""
    kernel, vector = facts.kernel, facts.kernel.vector.loop
    address = facts.address(access)
    positions = value_positions((address,))
    in_list = set() if kernel.listed is None else {kernel.outer[0]} & address.symbols
    if access < 0 or not (positions or in_list) or vector is None or facts.tile is not None:
        return None
    load, row = kernel.body[access], row_bytes(facts, access)
    if facts.load_access(access) != "contiguous" or not isinstance(load, Load) or load.mask is not None:
        return None
    loops = in_list.union(*(facts.loops_read[k] for k in positions))
    if not loops or vector in loops or (row is not None and row < LEAST_ROW_BYTES):
        return None
    leading = [kernel.body[k] for k in facts.closure(positions)]
    if any(isinstance(instr, (Reduce, Scan)) for instr in leading):
        return None
    # Positions that the kernel changes may be others by the time that another thread looks ahead at them.
    stored = {store.buffer for store in kernel.stores}
    if any(isinstance(instr, Load) and instr.buffer in stored for instr in leading):
        return None
    loop = max(loops, key=facts.depth.__getitem__)
    level = facts.depth[loop]
    others = {s for s in address.symbols if s.kind == "loop"} - {vector}
    known = level <= facts.outer_level and all(facts.depth[s] <= level for s in others)
    return loop if known and facts.depth[vector] > level and _is_large(facts, access) else None


def row_bytes(facts: Facts, access: int) -> int | None:
    """Bytes that a load reads along the vectorized loop; None if that is not known."""
    vector = facts.kernel.vector.loop
    size = None if vector is None else size_of(vector).as_int
    return None if size is None else size * facts.itemsize(access)


def _is_large(facts: Facts, access: int) -> bool:
    """Whether rows may lie anywhere in much memory, as far as the checks of their positions tell."""
    address = facts.address(access)
    for symbol in (s for s in address.symbols if s.kind == "value"):
        check, stride = facts.kernel.body[value_position(symbol)], address.coefficient(symbol)
        if isinstance(check, Scalar) and check.op in INDEX_CHECKS and stride is not None and stride.as_int is not None:
            size = facts.kernel.body[check.args[1]]
            if isinstance(size, Const) and size.value * stride.as_int * facts.itemsize(access) < TABLE_BYTES:
                return False
    return True
