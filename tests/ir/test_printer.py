"""The printed form of each IR value."""

from __future__ import annotations

from dataclasses import replace

import torch

from inductor_cpu.ir.index import as_expr, of, size_symbol, value_symbol
from inductor_cpu.ir.kernel import ArenaPlace, Divided, Phase, Schedule, VectorPlan
from inductor_cpu.ir.loop_nest import Cast, Const, Index, Reduce, Scalar, Store
from inductor_cpu.ir.nodes import Extern, SizeBinding
from inductor_cpu.ir.plan import (
    Alloc,
    ArenaRef,
    ArenaView,
    Compute,
    ExecutionPlan,
    ExternCall,
    Free,
    KernelCall,
    KernelSource,
    LoadInput,
    LoadInt,
    Reg,
    Restride,
    SizeOf,
    Slot,
    StridedView,
    StrideOf,
)
from inductor_cpu.ir.printer import show
from tests.ir.build import F32, at, buffer, kernel, load, loops, nest, program, whole

S0 = size_symbol("s0", 2)
(D0,), (R0,) = loops(of(S0)), loops(64, prefix="r")
X, R, OUT = buffer("x", (of(S0), 64), "input"), buffer("r", (of(S0),), "extern"), buffer("out", (of(S0),), "output")

NEST = nest(
    (D0,),
    [
        Index(of(R0)),
        Const(7, torch.int64),
        Scalar("lt", (0, 1), torch.bool),
        load("x", at(D0, R0), mask=2, fill=0.0),
        Reduce("sum", 3, F32),
        Cast(4, torch.bfloat16),
    ],
    Store("out", at(D0), 4, mode="add", mask=2),
    reduce=(R0,),
    origins=("sum_1", "relu"),
)
RELU = Extern(
    "extern1", torch.ops.aten.relu.default, (whole(OUT), (1, None)), (("k", of(S0)),), ("r", None), "no rule",
    ((1, size_symbol("u0")),), ("out",), True, ("relu",),
)  # fmt: skip

PROGRAM_TEXT = """\
program test
inputs: 0 -> x
sizes: s0 = x.size(0)
input x: f32[s0, 64; 64, 1]
extern r: f32[s0; 1]
output out: f32[s0; 1]
nest0 for d0 < s0 reduce r0 < 64:  # from sum_1, relu
  %0 = index r0
  %1 = const i64 7
  %2 = lt bool %0, %1
  %3 = load f32 x[d0, r0] if %2 else 0.0
  %4 = reduce sum f32 %3
  %5 = cast bf16 %4
  store out[d0] += %4 if %2
extern1: r, u0 = aten.relu.default(out[s0; 1], (1, None), k=s0) (mutates out; ordered)  # no rule; from relu
return out[s0; 1]
"""


def test_program() -> None:
    p = program([X, R, OUT], [NEST, RELU], bindings=[SizeBinding(S0, "x", 0)])
    assert show(p) == PROGRAM_TEXT


KERNEL_TEXT = """\
kernel test(in f32 x, out f32 out, s0):
  outer o0 < s0  # 1 parallel, work 1
  inner i0 < 64
  vector i0 x 16: %0 contiguous, store 0 uniform
  %0 = load f32 x[i0 + 64*o0]
  %1 = lgamma f32 %0
  %2 = reduce sum f32 %1
  phase 0: %2
  kept %1
  0: outer store out[o0] = %2"""

(O0,), (I0,) = loops(of(S0), prefix="o"), loops(64, prefix="i")
KERNEL = kernel(
    (O0,),
    (I0,),
    [load("x", at(of(O0) * 64 + of(I0))), Scalar("lgamma", (0,), F32), Reduce("sum", 1, F32)],
    [Store("out", at(O0), 2)],
    Phase((2,), ()),
    kept=(1,),
    parallel=1,
    sizes=(S0,),
    vector=VectorPlan(I0, 16, ((0, "contiguous"), (-1, "uniform"))),
)


def test_kernel() -> None:
    assert show(KERNEL) == KERNEL_TEXT


def test_scalar_kernel_says_why() -> None:
    scalar = replace(KERNEL, vector=VectorPlan(None, 1, reasons=("too small",)), parallel=0)
    lines = show(scalar).splitlines()
    assert "  scalar  # too small" in lines
    assert "  outer o0 < s0  # serial" in lines


def test_divided_kernel() -> None:
    place = of(value_symbol(0, of(S0)))
    owners = Divided(as_expr(1), of(S0) * 8, place, of(S0), 16)
    divided = replace(KERNEL, parallel=0, divided=owners)
    assert show(divided).splitlines()[1:3] == [
        "  outer o0 < s0  # divided, work 1",
        "  divided by place %0 of s0, one thread below 16",
    ]
    pieces = "divided in 4 pieces, with copies of 8*s0 elements; by place %0 of s0, one thread below 16"
    assert show(replace(owners, pieces=as_expr(4))) == pieces


def test_schedule() -> None:
    temp = buffer("t", (of(S0),))
    schedule = Schedule(
        program([X, temp, OUT], []), (KERNEL,), (("t", ArenaPlace(as_expr(64))),), of(S0) * 4 + 64, ("a is not fused",)
    )
    text = show(schedule)
    assert text.startswith("schedule test: 1 steps, arena 64 + 4*s0 bytes\ntemp t: f32[s0; 1] at 64\nkernel test(")
    assert text.endswith("\nnote: a is not fused\nreturn out[s0; 1]\n")


PLAN_TEXT = """\
plan: 6 slots, 3 registers
t5 = constant i64[2, 3]
t0 = input 0
r0 = input 1
r1 = size(t0, 0)
r2 = stride(t0, 1)
r2 = mul(r1, 4)
arena r2 bytes
t1 = alloc bf16[r1, 8; 8, 1]
t2 = arena+64 as f32[r1; 1]
t3 = t0+8[2; 1]
kernel sum(t0, arena+r2; r1)  # icpu_1
t4, r0, _ = mm(t2, (t3, r1), out=None)  # too large
restride t4 to [2; 1]
free t2, t3
return t1, r1, None
"""


def test_execution_plan() -> None:
    t = [Slot(k) for k in range(6)]
    r = [Reg(k) for k in range(3)]
    instructions = (
        LoadInput(t[0], 0),
        LoadInt(r[0], 1),
        SizeOf(r[1], t[0], 0),
        StrideOf(r[2], t[0], 1),
        Compute(r[2], "mul", r[1], 4),
        Alloc(t[1], torch.bfloat16, (r[1], 8), (8, 1)),
        ArenaView(t[2], 64, F32, (r[1],), (1,)),
        StridedView(t[3], t[0], (2,), (1,), 8),
        KernelCall("icpu_1", "sum", (t[0], ArenaRef(r[2])), (r[1],)),
        ExternCall(torch.mm, (t[2], (t[3], r[1])), (("out", None),), (t[4], r[0], None), "mm", "too large"),
        Restride(t[4], (2,), (1,)),
        Free((t[2], t[3])),
    )
    constants = ((t[5], torch.zeros(2, 3, dtype=torch.int64)),)
    plan = ExecutionPlan(6, 3, r[2], 5, constants, instructions, (t[1], r[1], None))
    assert show(plan) == PLAN_TEXT


def test_kernel_source_is_its_code() -> None:
    assert show(KernelSource("icpu_1", "sum", "int f();")) == "// sum\nint f();"
