"""Kernel -> C++: the entry of code generation."""

from __future__ import annotations

import re

from inductor_cpu.codegen.analysis import STAGE, Facts
from inductor_cpu.codegen.cxx import ELEMENT
from inductor_cpu.codegen.empty import return_if_empty
from inductor_cpu.codegen.loops import Loops
from inductor_cpu.codegen.pairs import as_pairs
from inductor_cpu.codegen.product import emit_product, headers_of, instance_of
from inductor_cpu.codegen.raw import as_bits
from inductor_cpu.codegen.records import as_records
from inductor_cpu.codegen.scalar import HEADERS, LOW_HEADERS
from inductor_cpu.codegen.source import HEAD, named
from inductor_cpu.codegen.starts import from_starts
from inductor_cpu.codegen.straight import as_straight
from inductor_cpu.codegen.text import Writer
from inductor_cpu.codegen.tuning import Choices
from inductor_cpu.errors import InternalError
from inductor_cpu.ir.index import Sym
from inductor_cpu.ir.kernel import Kernel
from inductor_cpu.ir.loop_nest import Scalar, Scan
from inductor_cpu.ir.ops import LOW_PRECISION
from inductor_cpu.ir.plan import Instance, KernelSource
from inductor_cpu.targets.cpu import Target

DEFAULT = Choices()

#: Lanes per vector, by instruction set.
LANES: dict[str, int] = {"avx512": 16, "avx2": 8, "scalar": 0}


def generate(kernel: Kernel, target: Target, choices: Choices = DEFAULT) -> KernelSource:
    """The C++ function of a kernel.

    Its text has no names from the model, and its pointers point at `starts`, so kernels with equal loops have equal
    text and share a symbol.
    Raises InternalError if the kernel breaks the contract of `ir/kernel.py`."""
    check_kernel(kernel, target)
    kernel = as_records(as_pairs(as_straight(from_starts(as_bits(kernel)))))
    writer = Writer()
    for header in headers(kernel):
        writer.line(f'#include "{header}"')
    comment(kernel, target, writer)
    with writer.block(HEAD):
        _parameters(kernel, writer)
        loops = Loops(Facts(kernel, choices.tiling), writer, choices)
        if loops.values.needs_status:
            return_if_empty(loops.facts, loops.values, writer)
            writer.line("icpu::Status status;")
        if kernel.product is None:
            loops.emit()
        else:
            emit_product(kernel.product, loops, writer, choices)
        writer.line("return status.bits();" if loops.values.needs_status else "return 0;")
    return named(writer.text(), kernel.label, instances(kernel))


def check_kernel(kernel: Kernel, target: Target) -> None:
    """Raise InternalError if the vector plan is not one for this target."""
    if not kernel.vector.vectorized:
        return
    if kernel.vector.lanes != LANES[target.isa.name]:
        raise InternalError(STAGE, f"{kernel.label}: {kernel.vector.lanes} lanes on {target.isa.name}")
    if kernel.vector.loop not in (*kernel.outer, *kernel.inner):
        raise InternalError(STAGE, f"{kernel.label}: the vectorized loop {kernel.vector.loop} is not one of its loops")


def instances(kernel: Kernel) -> list[Instance]:
    """The templates' functions that the kernel calls."""
    return [] if kernel.product is None else [instance_of(kernel.product)]


def headers(kernel: Kernel) -> list[str]:
    """What the kernel's code needs besides the prelude that all have."""
    scalars = [instr for instr in kernel.body if isinstance(instr, Scalar)]
    low = [instr for instr in scalars if instr.dtype in LOW_PRECISION]
    needed = {HEADERS.get(instr.op) for instr in scalars} | {LOW_HEADERS.get(instr.op) for instr in low}
    found = sorted(header for header in needed if header is not None)
    if any(isinstance(i, Scan) for i in kernel.body):
        found.append("scan.h")
    if kernel.divided is not None or kernel.listed is not None:
        found.append("scatters.h")
    return found if kernel.product is None else [*found, *headers_of(kernel.product)]


def _parameters(kernel: Kernel, writer: Writer) -> None:
    for number, arg in enumerate(kernel.args):
        kind = ("" if arg.writes else "const ") + ELEMENT[arg.dtype]
        writer.line(f"{kind}* const p{number} = static_cast<{kind}*>(buffers[{number}]);")
    for number in range(len(kernel.sizes)):
        writer.line(f"const int64_t n{number} = sizes[{number}];")


def comment(kernel: Kernel, target: Target, writer: Writer) -> None:
    """Write what the kernel loops over and how it is vectorized. Names of the model stay out: they would make equal
    kernels differ."""
    numbers = {s: f"n{i}" for i, s in enumerate(kernel.sizes)}
    outer = [_loop_text(f"i{i}", s.size, numbers) for i, s in enumerate(kernel.outer)]
    inner = [_loop_text(f"r{i}", s.size, numbers) for i, s in enumerate(kernel.inner)]
    shared = f", the first {kernel.parallel} shared among threads" if kernel.parallel else ""
    shared += "" if kernel.across is None else ", ranges of the last shared among threads"
    shared += "" if kernel.divided is None else ", divided among threads by what they write"
    shared += "" if kernel.listed is None else ", the first in lists, by the rows that its points write"
    writer.line(f"// Loops: {', '.join(outer) or 'none'}{shared}.")
    if inner:
        phases = "phase" if len(kernel.phases) == 1 else "phases"
        writer.line(f"// Inner loops: {', '.join(inner)}, in {len(kernel.phases)} {phases}.")
    if kernel.vector.loop is None:
        writer.line(f"// Scalar code{_reasons(kernel)}.")
        return
    names = {s: f"i{i}" for i, s in enumerate(kernel.outer)} | {s: f"r{i}" for i, s in enumerate(kernel.inner)}
    kind = "lanes of one result" if kernel.vector.loop in kernel.inner else "lanes are results"
    kind = kind if kernel.inner else "pointwise"
    writer.line(
        f"// Vectors: {kernel.vector.lanes} lanes ({target.isa.name}) along {names[kernel.vector.loop]}, {kind}"
        f"{_reasons(kernel)}."
    )


def _loop_text(name: str, size: object, numbers: dict[Sym, str]) -> str:
    text = repr(size)
    for symbol, number in numbers.items():
        text = re.sub(rf"\b{re.escape(repr(symbol))}\b", number, text)
    return f"{name} < {text}"


def _reasons(kernel: Kernel) -> str:
    """The plan's reasons, with a safe alphabet: a backslash at the end of a comment would swallow the next line."""
    text = "; ".join(kernel.vector.reasons)
    return ": " + re.sub(r"[^\w .,;:()<>=+*/%-]", "_", text, flags=re.ASCII) if text else ""
