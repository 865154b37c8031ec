"""Kernels in turns, a piece at a time, as one function: the loops of each, over the points of the piece."""

from __future__ import annotations

from dataclasses import replace

from inductor_cpu.codegen.analysis import STAGE, Facts, size_of
from inductor_cpu.codegen.cxx import ELEMENT
from inductor_cpu.codegen.empty import return_if_empty
from inductor_cpu.codegen.kernel import DEFAULT, check_kernel, comment, headers, instances
from inductor_cpu.codegen.loops import Loops
from inductor_cpu.codegen.product import emit_product
from inductor_cpu.codegen.raw import as_bits
from inductor_cpu.codegen.source import HEAD, named
from inductor_cpu.codegen.text import Writer
from inductor_cpu.codegen.tuning import Choices, total_work
from inductor_cpu.codegen.values import Values
from inductor_cpu.errors import InternalError
from inductor_cpu.ir.index import as_expr
from inductor_cpu.ir.kernel import Kernel, KernelArg, Listed, Strips
from inductor_cpu.ir.loop_nest import Load
from inductor_cpu.ir.plan import KernelSource
from inductor_cpu.ir.rewrite import may_fail, value_position
from inductor_cpu.targets.cpu import Target

#: Slots of a thread's memory for what lives within a piece; rows of kernels have the first ones.
FIRST_SLOT = 100

#: The first slot for lists of points.
FIRST_LIST = 500


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
    work = sum((total_work(kernel) for kernel in strips.kernels), as_expr(0)).as_int
    pieces = -(-strips.units // strips.piece)
    fails = any(may_fail(kernel.body, i) for kernel in kernels for i in kernel.body)
    with writer.block(HEAD):
        if fails:
            writer.line("icpu::Status status;")
            for kernel in kernels:
                facts = Facts(kernel, tiling=False)
                return_if_empty(facts, Values(facts, writer, choices, tables=False), writer)
        for number, kernel in enumerate(kernels):
            if kernel.listed is not None:
                _list_points(strips, number, kernel, kernel.listed, writer, choices)
        writer.line(f"const int threads = {choices.threads_for(str(work))};")
        head = f"{_shared(strips, pieces)}, threads, [&](const int64_t first, const int64_t last)"
        with writer.block(head, "});"):
            _declare_local(strips, kernels, writer)
            with writer.block("for (int64_t piece = first; piece < last; ++piece)"):
                writer.line(f"const int64_t unit = piece * {strips.piece};")
                writer.line(f"const int64_t until = std::min<int64_t>(unit + {strips.piece}, {strips.units});")
                for number, kernel in enumerate(kernels):
                    _turn(strips, number, kernel, writer, choices)
        writer.line("return status.bits();" if fails else "return 0;")
    return named(writer.text(), strips.label, (one for kernel in strips.kernels for one in instances(kernel)))


def _declare_local(strips: Strips, kernels: list[Kernel], writer: Writer) -> None:
    sizes = {arg.buffer: arg.dtype.itemsize for kernel in kernels for arg in kernel.args}
    for number, (name, elements) in enumerate(strips.local):
        count = elements * sizes[name] * strips.piece
        writer.line(f"char* const local{number} = icpu::scratch<char, {FIRST_SLOT + number}>({count});")


def _shared(strips: Strips, pieces: int) -> str:
    """The call that shares the pieces among threads, without its last arguments."""
    for number, (kernel, share) in enumerate(zip(strips.kernels, strips.shares, strict=True)):
        if kernel.listed is not None:
            return f"icpu::parallel_pieces(list{number}, {pieces}, {strips.piece * share}"
    return f"icpu::parallel_for({pieces}, 1"


def _list_points(strips: Strips, number: int, kernel: Kernel, listed: Listed, writer: Writer, choices: Choices) -> None:
    """The points of a scatter by the pieces whose rows they write."""
    facts = Facts(kernel, tiling=False)
    values = Values(facts, writer, choices, tables=False)
    count, pieces = values.expr(size_of(kernel.outer[0])), -(-strips.units // strips.piece)
    head = f"const auto list{number} = icpu::list_points<{FIRST_LIST + number}>({count}, {pieces}, "
    with writer.block(f"{head}[&](const int64_t {values.symbol(kernel.outer[0])})", "});"):
        needed = facts.closure([value_position(listed.row)])
        read = {instr.buffer for k in needed if isinstance(instr := kernel.body[k], Load)}
        for k, arg in enumerate(kernel.args):
            if arg.buffer in read:
                writer.line(f"const {ELEMENT[arg.dtype]}* const p{k} = {_outside(strips, arg)};")
        for k in sorted(needed):
            values.emit(k)
        writer.line(f"return {values.symbol(listed.row)} / {strips.piece * strips.shares[number]};")


def _outside(strips: Strips, arg: KernelArg) -> str:
    """The memory of an argument that does not only live within a piece."""
    kind = ("" if arg.writes else "const ") + ELEMENT[arg.dtype]
    place = [other.buffer for other in strips.args].index(arg.buffer)
    return f"static_cast<{kind}*>(buffers[{place}])"


def _turn(strips: Strips, number: int, kernel: Kernel, writer: Writer, choices: Choices) -> None:
    """A kernel's loops over the points of the piece."""
    local = {name: (slot, elements) for slot, (name, elements) in enumerate(strips.local)}
    share = strips.shares[number]
    with writer.block(""):
        for k, arg in enumerate(kernel.args):
            kind = ("" if arg.writes else "const ") + ELEMENT[arg.dtype]
            if arg.buffer in local:  # as if the whole buffer were there: the piece lies where its memory is
                slot, elements = local[arg.buffer]
                before = f"static_cast<uintptr_t>(unit * {elements * arg.dtype.itemsize})"
                place = f"reinterpret_cast<{kind}*>(reinterpret_cast<uintptr_t>(local{slot}) - {before})"
            else:
                place = _outside(strips, arg)
            writer.line(f"{kind}* const p{k} = {place};")
        if kernel.listed is None:
            writer.line(f"const int64_t begin = unit * {share}, end = until * {share};")
        else:
            writer.line(f"const int32_t* const points = list{number}.points;")
            writer.line(f"const int64_t begin = list{number}.starts[piece], end = list{number}.starts[piece + 1];")
        bounds = None if kernel.product is not None else ("begin", "end")
        loops = Loops(Facts(kernel, tiling=False), writer, choices, bounds=bounds)
        if loops.values.needs_status and kernel.listed is None:
            raise InternalError(STAGE, f"{kernel.label}: what may report an error cannot run in pieces")
        if kernel.product is None:
            loops.emit()
        else:
            emit_product(kernel.product, loops, writer, choices, ("begin", "end"))
