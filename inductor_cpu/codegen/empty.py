"""Checked indices into dimensions that may have no element: such a kernel returns its error before it reads any.

Everywhere else a kernel goes on with element 0 for an index that is out of range, and reports the error at its end."""

from __future__ import annotations

from inductor_cpu.codegen.analysis import STAGE, Facts, size_of
from inductor_cpu.codegen.text import Writer
from inductor_cpu.codegen.values import Values
from inductor_cpu.errors import InternalError
from inductor_cpu.ir.index import Expr, Sym, as_expr, product
from inductor_cpu.ir.kernel import Product
from inductor_cpu.ir.loop_nest import Cast, Const, Index, Instr, Scalar
from inductor_cpu.ir.ops import INDEX_CHECKS

#: What a kernel returns for a check that fails.
ERRORS: dict[str, str] = {"check_index": "icpu::kBadIndex", "check_element": "icpu::kBadElement"}


def return_if_empty(facts: Facts, values: Values, writer: Writer) -> None:
    """Write, before the loops, the return for each check that some point of the loops makes in an empty dimension.
    Raises InternalError for a check of something else than a size."""
    body, tests, of_blocks = facts.kernel.body, dict[str, None](), _sizes_of_blocks(facts.kernel.product)
    for position, instr in enumerate(body):
        if not isinstance(instr, Scalar) or instr.op not in INDEX_CHECKS:
            continue
        size = _size_checked(body, instr.args[1])
        if size.as_int is None or size.as_int == 0:
            loops = sorted(facts.loops_read[position], key=repr)
            points = product(size_of(loop).substitute(of_blocks) for loop in loops)
            empty = f"({values.expr(size)}) == 0 && ({values.expr(points)}) != 0"
            tests[f"if ({empty}) return {ERRORS[instr.op]};"] = None
    for test in tests:
        writer.line(test)


def _sizes_of_blocks(of: Product | None) -> dict[Sym, Expr]:
    """How large a product is whose blocks the loops go through: before it, no block is known."""
    return {} if of is None else {of.height: product(of.a.sizes[:-1]), of.width: of.columns}


def _size_checked(body: tuple[Instr, ...], position: int) -> Expr:
    """The size that a check compares with, also where it became a narrower integer."""
    instr = body[position]
    while isinstance(instr, Cast):
        instr = body[instr.arg]
    if isinstance(instr, Const):
        return as_expr(int(instr.value))
    if not isinstance(instr, Index):
        raise InternalError(STAGE, f"%{position} is checked against, but is no size")
    return instr.expr
