"""Short ways to write IR by hand in tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from inductor_cpu.ir.index import ZERO, Expr, IntoExpr, Sym, as_expr, loop_var, of
from inductor_cpu.ir.kernel import Kernel, KernelArg, Phase, VectorPlan
from inductor_cpu.ir.loop_nest import Buffer, Instr, Load, LoopNest, Store, View
from inductor_cpu.ir.nodes import InputSpec, Program

F32 = torch.float32


def exprs(values: Sequence[IntoExpr]) -> tuple[Expr, ...]:
    return tuple(as_expr(value) for value in values)


def buffer(name: str, sizes: Sequence[IntoExpr], kind: str = "temp", dtype: torch.dtype = F32) -> Buffer:
    strides: list[Expr] = []
    step = as_expr(1)
    for size in reversed(exprs(sizes)):
        strides.insert(0, step)
        step = step * size
    return Buffer(name, dtype, exprs(sizes), tuple(strides), kind)


def loops(*sizes: IntoExpr, prefix: str = "d") -> tuple[Sym, ...]:
    return tuple(loop_var(f"{prefix}{k}", size) for k, size in enumerate(sizes))


def at(*symbols: Sym | int | Expr) -> tuple[Expr, ...]:
    return tuple(of(s) if isinstance(s, Sym) else as_expr(s) for s in symbols)


def load(name: str, index: tuple[Expr, ...], dtype: torch.dtype = F32, **kw: Any) -> Load:
    return Load(name, index, dtype, **kw)


def nest(dims: Sequence[Sym], body: Sequence[Instr], *stores: Store, reduce: Sequence[Sym] = (), **kw: Any) -> LoopNest:
    return LoopNest(kw.pop("name", "nest0"), tuple(dims), tuple(reduce), tuple(body), stores, **kw)


def whole(buf: Buffer) -> View:
    return View(buf.name, buf.sizes, buf.strides, ZERO)


def program(
    buffers: Sequence[Buffer], nodes: Sequence[Any], results: Sequence[Any] | None = None, **kw: Any
) -> Program:
    """Buffers of kind input are the inputs, in order; the results are the buffers of kind output unless given."""
    inputs = [b for b in buffers if b.kind == "input"]
    return Program(
        name="test",
        buffers=tuple(buffers),
        inputs=kw.pop("inputs", tuple(InputSpec(k, buffer=b.name) for k, b in enumerate(inputs))),
        bindings=tuple(kw.pop("bindings", ())),
        nodes=tuple(nodes),
        results=tuple(whole(b) for b in buffers if b.kind == "output") if results is None else tuple(results),
        **kw,
    )


def kernel(
    outer: Sequence[Sym],
    inner: Sequence[Sym],
    body: Sequence[Instr],
    stores: Sequence[Store],
    *phases: Phase,
    **kw: Any,
) -> Kernel:
    """A scalar, serial kernel; its arguments follow from its loads and stores."""
    dtypes = {i.buffer: i.dtype for i in body if isinstance(i, Load)}
    reads = set(dtypes)
    writes = {s.buffer for s in stores}
    dtypes.update({s.buffer: body[s.value].dtype for s in stores})
    return Kernel(
        label="test",
        args=tuple(KernelArg(name, dtype, name in reads, name in writes) for name, dtype in dtypes.items()),
        sizes=tuple(kw.pop("sizes", ())),
        outer=tuple(outer),
        inner=tuple(inner),
        body=tuple(body),
        stores=tuple(stores),
        phases=phases,
        kept=tuple(kw.pop("kept", ())),
        parallel=kw.pop("parallel", 0),
        work=as_expr(1),
        vector=kw.pop("vector", VectorPlan(None, 1)),
        **kw,
    )
