"""Kernels that only move low-precision floats move integers: nothing is widened to floats and rounded again."""

from __future__ import annotations

from dataclasses import replace

import torch

from inductor_cpu.ir.kernel import Kernel
from inductor_cpu.ir.loop_nest import Cast, Const, Instr, Load, Reduce, Scalar, Scan
from inductor_cpu.ir.numbers import round_to
from inductor_cpu.ir.ops import LOW_PRECISION

#: The integers that floats are moved as.
RAW: dict[torch.dtype, torch.dtype] = {d: torch.int16 if d.itemsize == 2 else torch.int8 for d in LOW_PRECISION}


def as_bits(kernel: Kernel) -> Kernel:
    """The same kernel on integers, if it computes nothing with its low-precision values but chooses among them; else
    the kernel itself."""
    moves = any(isinstance(i, Load) and i.dtype in LOW_PRECISION for i in kernel.body)
    if kernel.product is not None or not moves or not all(_only_moves(kernel, i) for i in kernel.body):
        return kernel
    if any(s.mode != "set" for s in kernel.stores if kernel.body[s.value].dtype in LOW_PRECISION):
        return kernel
    return replace(
        kernel,
        args=tuple(replace(arg, dtype=_raw(arg.dtype)) for arg in kernel.args),
        body=tuple(map(_bits, kernel.body)),
    )


def _raw(dtype: torch.dtype) -> torch.dtype:
    return RAW.get(dtype, dtype)


def _only_moves(kernel: Kernel, instr: Instr) -> bool:
    """Whether an instruction has nothing to do with the low-precision values, or only passes them on."""
    if isinstance(instr, (Cast, Reduce, Scan)):
        return instr.dtype not in LOW_PRECISION and kernel.body[instr.arg].dtype not in LOW_PRECISION
    if isinstance(instr, Scalar) and instr.op != "where":
        return all(kernel.body[k].dtype not in LOW_PRECISION for k in instr.args)
    return True


def _bits(instr: Instr) -> Instr:
    if isinstance(instr, Load) and instr.dtype in LOW_PRECISION:
        return replace(instr, dtype=RAW[instr.dtype], fill=_bits_of(float(instr.fill), instr.dtype))
    if isinstance(instr, Const) and instr.dtype in LOW_PRECISION:
        return Const(_bits_of(float(instr.value), instr.dtype), RAW[instr.dtype])
    if isinstance(instr, Scalar) and instr.dtype in LOW_PRECISION:
        return replace(instr, dtype=RAW[instr.dtype])
    return instr


def _bits_of(value: float, dtype: torch.dtype) -> int:
    """The bits of a number in a low-precision dtype, as a signed integer."""
    return int(torch.tensor(round_to(value, dtype), dtype=dtype).view(RAW[dtype]).item())
