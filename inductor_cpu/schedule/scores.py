"""What becomes of the scores of an attention, as the kernel of a block of them, which the template runs."""

from __future__ import annotations

from dataclasses import replace

from inductor_cpu.ir.index import Sym, const, loop_var, of, recombine, size_symbol
from inductor_cpu.ir.kernel import Kernel, Scored
from inductor_cpu.ir.loop_nest import Buffer, Load, LoopNest
from inductor_cpu.ir.nodes import Attention
from inductor_cpu.schedule.build import kernel_args, size_symbols
from inductor_cpu.schedule.cost import body_cost
from inductor_cpu.schedule.flat import flatten, substitute_loops
from inductor_cpu.schedule.known import put_known_indices
from inductor_cpu.schedule.vectorize import plan_vectors

_BATCH, _HEAD, _ROW, _KEY, _HEIGHT, _WIDTH, _LEADING = (
    size_symbol(f"score_{name}") for name in ("batch", "head", "row", "key", "height", "width", "leading")
)

#: In the order of the template's arguments.
BLOCK: tuple[Sym, ...] = (_BATCH, _HEAD, _ROW, _KEY, _HEIGHT, _WIDTH, _LEADING)


def scored(attention: Attention, scores: LoopNest, buffers: dict[str, Buffer], lanes: int) -> Scored:
    """The step of an attention with `scores`. Lanes are keys."""
    down, across = loop_var("i0", of(_HEIGHT)), loop_var("i1", of(_WIDTH))
    places = (of(_BATCH), of(_HEAD), of(_ROW) + of(down), of(_KEY) + of(across))
    at = {loop: recombine(place) for loop, place in zip(scores.dims, places, strict=True)}
    nest = substitute_loops(flatten(put_known_indices(scores), buffers), at)
    block = (of(down) * of(_LEADING) + of(across),)
    own = attention.accumulator
    body = tuple(replace(i, index=block) if isinstance(i, Load) and i.buffer == own else i for i in nest.body)
    stores = tuple(replace(store, index=block) for store in nest.stores)
    nest = replace(nest, dims=(down, across), body=body, stores=stores)
    sizes = size_symbols(nest)
    kernel = Kernel(
        label=f"icpu_{attention.name}_scores",
        args=kernel_args(nest, buffers),
        sizes=(*(size for size in sizes if size not in BLOCK), *BLOCK),
        outer=nest.dims,
        inner=(),
        body=nest.body,
        stores=nest.stores,
        phases=(),
        kept=(),
        parallel=0,
        work=const(max(1, body_cost(nest.body) + 1)),
        vector=plan_vectors(nest.dims[1:], (), nest.body, nest.stores, lanes),
        origins=nest.origins,
    )
    return Scored(attention, kernel, BLOCK)
