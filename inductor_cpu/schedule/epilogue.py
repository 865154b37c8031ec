"""From a fused group with a matrix product to a `Kernel`: its loops run over one block of the product."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from inductor_cpu.ir.index import Expr, Sym, loop_var, of, recombine, size_symbol
from inductor_cpu.ir.kernel import KernelArg, Product, VectorPlan
from inductor_cpu.ir.loop_nest import Buffer, Load, LoopNest, View
from inductor_cpu.ir.micro_kernels import MicroKernel
from inductor_cpu.ir.nodes import Gemm, Patches, micro_of
from inductor_cpu.schedule.cost import body_cost
from inductor_cpu.schedule.flat import substitute_loops
from inductor_cpu.schedule.vectorize import plan_vectors


def block_nest(nest: LoopNest, gemm: Gemm, buffers: Mapping[str, Buffer]) -> tuple[LoopNest, Product]:
    """The nest over the rows and columns of one block, and the product it belongs to."""
    micro = micro_of(gemm.micro_kernel, gemm.a)
    columns = buffers[gemm.accumulator].sizes[1]
    product = Product(
        gemm.micro_kernel,
        gemm.a,
        gemm.b,
        columns,
        gemm.accumulator,
        row=size_symbol("block_row"),
        panel=size_symbol("block_panel"),
        height=size_symbol("block_height"),
        width=size_symbol("block_width"),
    )
    down, across = loop_var("i0", of(product.height)), loop_var("i1", of(product.width))
    at = _positions(nest, gemm.accumulator, columns, of(product.row) + of(down), _column(product, micro, across))
    nest = substitute_loops(nest, at)
    body = tuple(
        replace(i, index=(of(down) * micro.columns + of(across),))
        if isinstance(i, Load) and i.buffer == gemm.accumulator
        else i
        for i in nest.body
    )
    dims = (across, down) if micro.overlaps and _lies_along(nest, across) else (down, across)
    return replace(nest, dims=dims, reduce_dims=(), body=body), product


def _lies_along(nest: LoopNest, loop: Sym) -> bool:
    """Whether everything that depends on a loop lies along it. Then it can be the outer one of two, and what all rows
    share (a bias) is read once for some rows, and not for each."""
    addresses = [i.index[0] for i in nest.body if isinstance(i, Load)] + [s.index[0] for s in nest.stores]
    return all(address.coefficient(loop) in (0, 1) for address in addresses)


def _column(product: Product, micro: MicroKernel, across: Sym) -> Expr:
    return of(product.panel) * micro.columns + of(across)


def _positions(nest: LoopNest, accumulator: str, columns: Expr, row: Expr, column: Expr) -> dict[Sym, Expr]:
    """What the nest's loops are inside a block. A loop over one row or one column only is not there."""
    address = next(i.index[0] for i in nest.body if isinstance(i, Load) and i.buffer == accumulator)
    found: dict[Sym, Expr] = {}
    for loop in nest.dims:
        found[loop] = column if address.coefficient(loop) == 1 and columns != 1 else row
    return {loop: recombine(value) for loop, value in found.items()}


def block_vectors(nest: LoopNest, lanes: int) -> VectorPlan:
    """Lanes are columns."""
    across = tuple(loop for loop in nest.dims if loop.size == of(size_symbol("block_width")))
    return plan_vectors(across, (), nest.body, nest.stores, lanes)


def product_args(product: Product, args: tuple[KernelArg, ...], buffers: Mapping[str, Buffer]) -> tuple[KernelArg, ...]:
    """The buffers of the epilogue and the operands, without the accumulator."""
    named = {arg.buffer: arg for arg in args if arg.buffer != product.accumulator}
    for name in (product.a.buffer, product.b):
        known = named.get(name, KernelArg(name, buffers[name].dtype, True, False))
        named[name] = replace(known, reads=True)
    return tuple(named.values())


def product_sizes(product: Product, sizes: tuple[Sym, ...]) -> tuple[Sym, ...]:
    """The size symbols of the epilogue and of the product's operands, those of a block left out."""
    view = product.a if isinstance(product.a, View) else product.a.image
    exprs = (*product.a.sizes, *view.sizes, *view.strides, view.offset, product.columns)
    if isinstance(product.a, Patches):
        exprs += product.a.outputs
    found = {s for expr in exprs for s in expr.symbols} | set(sizes)
    return tuple(sorted(found - set(product.symbols), key=lambda s: s.name))


def epilogue_work(nest: LoopNest) -> int:
    """Rough adds of one element of the product."""
    return max(1, body_cost(nest.body) + len(nest.stores))
