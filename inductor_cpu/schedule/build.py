"""From a fused group to a `Kernel`: loop order, merging, phases, vector plan, parallel depth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from inductor_cpu.ir.index import Expr, Sym, as_expr, const, loop_var, of, product
from inductor_cpu.ir.kernel import Kernel, KernelArg, VectorPlan
from inductor_cpu.ir.loop_nest import Buffer, Load, LoopNest
from inductor_cpu.ir.nodes import Gemm
from inductor_cpu.schedule.cost import CACHE, body_cost, points
from inductor_cpu.schedule.divide import divide
from inductor_cpu.schedule.epilogue import block_nest, block_vectors, epilogue_work, product_args, product_sizes
from inductor_cpu.schedule.flat import (
    expressions,
    merge_loops,
    merge_short_loop,
    ordered,
    substitute_loops,
)
from inductor_cpu.schedule.group import Group
from inductor_cpu.schedule.narrow import narrow_positions
from inductor_cpu.schedule.phases import kept_values, split_phases
from inductor_cpu.schedule.share import across, in_order, share
from inductor_cpu.schedule.short_loops import planned


def build_kernel(group: Group, buffers: dict[str, Buffer], lanes: int, cores: int, cache: int = CACHE) -> Kernel:
    """The kernel of a group. lanes, cores, cache: of the target, as for `schedule_program`."""
    nest = replace(group.nest, dims=group.outer, reduce_dims=group.inner)
    if group.gemm is not None:
        return _build_product(group, group.gemm, nest, buffers, lanes)
    if not group.inner:
        nest = replace(nest, dims=ordered(nest, nest.dims))
    nest, vector = planned(merge_short_loop(merge_loops(nest), lanes), lanes)
    alone = in_order(nest, vector), vector
    nest, vector, parallel = share(nest, vector, cores)
    shared = points(nest.dims[:parallel])
    if parallel and divide(*alone, buffers, shared, cores, cache) is not None:
        (nest, vector), parallel = alone, 0
    nest, vector = narrow_positions(*_renamed(nest, vector))
    columns = across(nest, parallel, cores)
    loops = parallel or columns is not None
    divided = None if loops else divide(nest, vector, buffers, shared, cores, cache)
    phases = split_phases(nest.body, nest.stores, nest.reduce_dims) if nest.reduce_dims else ()
    kept = kept_values(nest.body, nest.stores, phases, nest.reduce_dims, vector, cache)
    return Kernel(
        label=_label(nest, group),
        args=kernel_args(nest, buffers),
        sizes=size_symbols(nest, () if divided is None else divided.expressions),
        outer=nest.dims,
        inner=nest.reduce_dims,
        body=nest.body,
        stores=nest.stores,
        phases=phases,
        kept=kept,
        parallel=parallel,
        work=_work(nest, len(phases)),
        vector=vector,
        origins=nest.origins,
        across=columns,
        divided=divided,
    )


def _build_product(group: Group, gemm: Gemm, nest: LoopNest, buffers: dict[str, Buffer], lanes: int) -> Kernel:
    """The kernel of a matrix product with its epilogue. The template shares its blocks among threads."""
    nest, product = block_nest(nest, gemm, buffers)
    return Kernel(
        label=_label(nest, group),
        args=product_args(product, kernel_args(nest, buffers), buffers),
        sizes=product_sizes(product, size_symbols(nest)),
        outer=nest.dims,
        inner=(),
        body=nest.body,
        stores=nest.stores,
        phases=(),
        kept=(),
        parallel=0,
        work=const(epilogue_work(nest)),
        vector=block_vectors(nest, lanes),
        origins=nest.origins,
        product=product,
    )


def _renamed(nest: LoopNest, vector: VectorPlan) -> tuple[LoopNest, VectorPlan]:
    """Loops named by their place, so that equal kernels of a model are equal code."""
    new = {loop: loop_var(f"i{k}", loop.size) for k, loop in enumerate(nest.dims) if loop.size is not None}
    new |= {loop: loop_var(f"r{k}", loop.size) for k, loop in enumerate(nest.reduce_dims) if loop.size is not None}
    moved = substitute_loops(nest, {old: of(symbol) for old, symbol in new.items()})
    dims, reduce_dims = tuple(new[loop] for loop in nest.dims), tuple(new[loop] for loop in nest.reduce_dims)
    vector = replace(vector, loop=new[vector.loop] if vector.loop else None)
    return replace(moved, dims=dims, reduce_dims=reduce_dims), vector


def kernel_args(nest: LoopNest, buffers: dict[str, Buffer]) -> tuple[KernelArg, ...]:
    """The buffers of a nest, those written first."""
    reads = dict.fromkeys(i.buffer for i in nest.body if isinstance(i, Load))
    reads.update(dict.fromkeys(s.buffer for s in nest.stores if s.mode == "add"))
    writes = dict.fromkeys(s.buffer for s in nest.stores)
    names = dict.fromkeys((*writes, *reads))
    return tuple(KernelArg(n, buffers[n].dtype, n in reads, n in writes) for n in names)


def size_symbols(nest: LoopNest, others: Sequence[Expr] = ()) -> tuple[Sym, ...]:
    """The size symbols that a nest and other expressions read, sorted by name."""
    exprs: list[Expr] = [*expressions(nest.body, nest.stores), *others]
    exprs += [d.size for d in (*nest.dims, *nest.reduce_dims) if d.size is not None]
    found = {s for expr in exprs for s in expr.symbols if s.kind == "size"}
    return tuple(sorted(found, key=lambda s: s.name))


def _work(nest: LoopNest, phases: int) -> Expr:
    """Rough adds of one point of the outer loops."""
    per_point = max(1, body_cost(nest.body) + len(nest.stores))
    inner = product(as_expr(s.size) for s in nest.reduce_dims if s.size is not None)
    return inner * per_point * max(1, min(phases, 2)) if nest.reduce_dims else const(per_point)


def _label(nest: LoopNest, group: Group) -> str:
    """A short name from the FX nodes it computes, for people and profiles."""
    names = [origin for origin in nest.origins if origin]
    text = "_".join(reversed(names[:3])) if names else group.members[0]
    return "icpu_" + "".join(c if c.isalnum() or c == "_" else "_" for c in text)[:60]
