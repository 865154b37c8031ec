"""A small way to write kernels by hand."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from inductor_cpu.ir.index import Expr, Sym, const, of
from inductor_cpu.ir.kernel import Kernel, KernelArg, Phase, VectorPlan
from inductor_cpu.ir.loop_nest import Cast, Const, Index, Instr, Load, Reduce, Scalar, Store
from inductor_cpu.ir.ops import OPS

LANES = {"avx512": 16, "avx2": 8, "scalar": 0}

F32, F64, BF16, F16 = torch.float32, torch.float64, torch.bfloat16, torch.float16
I64, I32, I16, I8, U8, BOOL = torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool
FLOATS = (F32, F64, BF16, F16)
INTS = (I64, I32, I16, I8, U8)


class Build:
    """Collects the body, the stores and the accesses of a kernel; arguments appear in the order of first use."""

    def __init__(self) -> None:
        self.body: list[Instr] = []
        self.stores: list[Store] = []
        self.access: dict[int, str] = {}
        self.args: dict[str, KernelArg] = {}

    def _add(self, instr: Instr) -> int:
        self.body.append(instr)
        return len(self.body) - 1

    def _touch(self, name: str, dtype: torch.dtype, *, writes: bool) -> None:
        old = self.args.get(name)
        reads = not writes or (old is not None and old.reads)
        self.args[name] = KernelArg(name, dtype, reads, writes or (old is not None and old.writes))

    def load(
        self,
        name: str,
        index: Expr,
        dtype: torch.dtype,
        access: str = "contiguous",
        mask: int | None = None,
        fill: float = 0,
    ) -> int:
        self._touch(name, dtype, writes=False)
        position = self._add(Load(name, (index,), dtype, mask, fill))
        self.access[position] = access
        return position

    def const(self, value: float, dtype: torch.dtype) -> int:
        return self._add(Const(value, dtype))

    def index(self, expr: Expr) -> int:
        return self._add(Index(expr))

    def op(self, name: str, *args: int) -> int:
        dtype = torch.bool if OPS[name].result == "bool" else self.body[args[-1]].dtype
        return self._add(Scalar(name, args, dtype))

    def cast(self, arg: int, dtype: torch.dtype) -> int:
        return self._add(Cast(arg, dtype))

    def reduce(self, kind: str, arg: int) -> int:
        dtype = torch.int64 if kind.startswith("arg") else self.body[arg].dtype
        return self._add(Reduce(kind, arg, dtype))

    def store(
        self,
        name: str,
        index: Expr,
        value: int,
        access: str = "contiguous",
        mode: str = "set",
        mask: int | None = None,
    ) -> int:
        self._touch(name, self.body[value].dtype, writes=True)
        self.stores.append(Store(name, (index,), value, mode, mask))
        self.access[-len(self.stores)] = access
        return len(self.stores) - 1

    def kernel(
        self,
        isa: str,
        outer: Sequence[Sym],
        inner: Sequence[Sym] = (),
        vector: Sym | None = None,
        phases: Sequence[Phase] = (),
        kept: Sequence[int] = (),
        parallel: int = 0,
        work: int = 1,
        sizes: Sequence[Sym] = (),
    ) -> Kernel:
        plan = VectorPlan(None, 0)
        if vector is not None and isa != "scalar":
            plan = VectorPlan(vector, LANES[isa], tuple(self.access.items()))
        return Kernel(
            label="test",
            args=tuple(self.args.values()),
            sizes=tuple(sizes),
            outer=tuple(outer),
            inner=tuple(inner),
            body=tuple(self.body),
            stores=tuple(self.stores),
            phases=tuple(phases),
            kept=tuple(kept),
            parallel=parallel,
            work=const(work),
            vector=plan,
        )


def at(symbol: Sym) -> Expr:
    return of(symbol)
