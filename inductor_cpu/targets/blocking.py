"""How matrix products are cut on a machine, and from which sizes on kernels of ours are worth it: data.

What fits in registers, and how much of a panel stays in the L1 cache, belongs to a micro kernel: its row in
`ir/micro_kernels.py` and its header.
"""

from __future__ import annotations

from dataclasses import dataclass

from inductor_cpu.targets.cpu import Target


@dataclass(frozen=True)
class Blocking:
    """packed_bytes: rows of the first operand that are packed at once, to stay in the L2 cache; block_bytes: of a block
    that stays in the L1 cache; most_blocks: of rows at once, at most; thread_work: multiplications that pay for one
    more thread, in 64s; thread_lines: cache lines of a weight that streams past few rows, the same.

    least_size: fewer columns, or a smaller inner size, leave most of a tile empty; split_channels, split_columns: from
    which on splitting floats pays in a convolution, the columns where windows overlap; small_work_per_call: from so
    many multiplications of floats on packing an operand at each call pays with AVX-512, None where only large products
    gain.
    """

    packed_bytes: int
    block_bytes: int = 16 * 1024
    most_blocks: int = 32
    thread_work: int = 4000
    thread_lines: int = 2000
    least_size: int = 16
    split_channels: int = 32
    split_columns: int = 64
    small_work_per_call: int | None = None


#: The part of the L2 cache for packed rows: panels of the weight, the sums and what an epilogue reads pass through too.
_SHARE_OF_L2 = 2

_SMALL_WORK_PER_CALL = 1 << 20


def blocking_for(target: Target) -> Blocking:
    """The cuts for a machine's caches."""
    small = _SMALL_WORK_PER_CALL if target.gains_by_small_products else None
    return Blocking(packed_bytes=target.l2 // _SHARE_OF_L2, small_work_per_call=small)


def definitions(blocking: Blocking) -> tuple[str, ...]:
    """Compiler flags that tell the templates."""
    values = {
        "PACKED_BYTES": blocking.packed_bytes,
        "BLOCK_BYTES": blocking.block_bytes,
        "MOST_BLOCKS": blocking.most_blocks,
        "THREAD_WORK": blocking.thread_work,
        "THREAD_LINES": blocking.thread_lines,
    }
    return tuple(f"-DICPU_GEMM_{name}={value}" for name, value in values.items())
