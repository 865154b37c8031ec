"""Kernels in turns, a piece at a time, as one function: the loops of each, over the points of the piece."""

from __future__ import annotations

from dataclasses import replace

from inductor_cpu.codegen.analysis import STAGE, Facts
from inductor_cpu.codegen.cxx import ELEMENT
from inductor_cpu.codegen.kernel import DEFAULT, check_kernel, comment, headers
from inductor_cpu.codegen.loops import Loops
from inductor_cpu.codegen.product import emit_product
from inductor_cpu.codegen.raw import as_bits
from inductor_cpu.codegen.source import HEAD, named
from inductor_cpu.codegen.text import Writer
from inductor_cpu.codegen.tuning import Choices, total_work
from inductor_cpu.errors import InternalError
from inductor_cpu.ir.index import as_expr
from inductor_cpu.ir.kernel import Kernel, Strips
from inductor_cpu.ir.plan import KernelSource
from inductor_cpu.targets.cpu import Target

#: Slots of a thread's memory for what lives within a piece; rows of kernels have the first ones.
FIRST_SLOT = 100


def generate_strips(strips: Strips, target: Target, choices: Choices = DEFAULT) -> KernelSource:
    """The C++ function of kernels that run in turns. Raises InternalError if a kernel breaks its contract."""
    writer = Writer()
    for kernel in strips.kernels:
        check_kernel(kernel, target)
    for header in sorted({header for kernel in strips.kernels for header in headers(kernel)}):
        writer.line(f'#include "{header}"')
    writer.line(f"// {strips.units} units, {strips.piece} of them at a time through all of:")
    kernels = [as_bits(replace(kernel, parallel=0)) for kernel in strips.kernels]
    for kernel in kernels:
        comment(kernel, target, writer)
    limit = "" if choices.threads is None else f", {choices.threads}"
    work = sum((total_work(kernel) for kernel in strips.kernels), as_expr(0)).as_int
    pieces = -(-strips.units // strips.piece)
    with writer.block(HEAD):
        writer.line(f"const int threads = icpu::threads_for({work}, {choices.grain}{limit});")
        head = f"icpu::parallel_for({pieces}, 1, threads, [&](const int64_t first, const int64_t last)"
        with writer.block(head, "});"):
            _declare_local(strips, kernels, writer)
            with writer.block("for (int64_t piece = first; piece < last; ++piece)"):
                writer.line(f"const int64_t unit = piece * {strips.piece};")
                writer.line(f"const int64_t until = std::min<int64_t>(unit + {strips.piece}, {strips.units});")
                for kernel, share in zip(kernels, strips.shares, strict=True):
                    _turn(strips, kernel, share, writer, choices)
        writer.line("return 0;")
    return named(writer.text(), strips.label)


def _declare_local(strips: Strips, kernels: list[Kernel], writer: Writer) -> None:
    sizes = {arg.buffer: arg.dtype.itemsize for kernel in kernels for arg in kernel.args}
    for number, (name, elements) in enumerate(strips.local):
        count = elements * sizes[name] * strips.piece
        writer.line(f"char* const local{number} = icpu::scratch<char, {FIRST_SLOT + number}>({count});")


def _turn(strips: Strips, kernel: Kernel, share: int, writer: Writer, choices: Choices) -> None:
    """A kernel's loops over the points of the piece."""
    outside = {arg.buffer: number for number, arg in enumerate(strips.args)}
    local = {name: (number, elements) for number, (name, elements) in enumerate(strips.local)}
    with writer.block(""):
        for number, arg in enumerate(kernel.args):
            kind = ("" if arg.writes else "const ") + ELEMENT[arg.dtype]
            if arg.buffer in local:  # as if the whole buffer were there: the piece lies where its memory is
                slot, elements = local[arg.buffer]
                before = f"static_cast<uintptr_t>(unit * {elements * arg.dtype.itemsize})"
                place = f"reinterpret_cast<{kind}*>(reinterpret_cast<uintptr_t>(local{slot}) - {before})"
            else:
                place = f"static_cast<{kind}*>(buffers[{outside[arg.buffer]}])"
            writer.line(f"{kind}* const p{number} = {place};")
        writer.line(f"const int64_t begin = unit * {share}, end = until * {share};")
        bounds = None if kernel.product is not None else ("begin", "end")
        loops = Loops(Facts(kernel, tiling=False), writer, choices, bounds=bounds)
        if loops.values.needs_status:
            raise InternalError(STAGE, f"{kernel.label}: what may report an error cannot run in pieces")
        if kernel.product is None:
            loops.emit()
        else:
            emit_product(kernel.product, loops, writer, choices, ("begin", "end"))
