"""Which function of the templates computes a product."""

from __future__ import annotations

import pytest

from inductor_cpu.codegen.product import headers_of, instance_of
from inductor_cpu.ir.index import Expr, Sym, as_expr, size_symbol
from inductor_cpu.ir.kernel import Product
from inductor_cpu.ir.loop_nest import View

ANY = Expr.of_atom(size_symbol("n"))


@pytest.mark.parametrize(
    ("kernel", "rows", "columns", "in_place"),
    [
        ("fma_f32", as_expr(50), as_expr(192), True),
        ("fma_f32", as_expr(50), as_expr(193), False),  # packed for so many panels
        ("fma_f32", as_expr(4), as_expr(20), False),  # the weight streams past so few rows
        ("fma_f32", ANY, as_expr(20), False),  # which may be as few
        ("fma_f32", as_expr(50), ANY, False),
        ("fma_f32_avx2", as_expr(50), as_expr(64), True),
        ("fma_f16", as_expr(50), as_expr(20), False),  # rows become floats as they are packed
    ],
)
def test_many_rows_that_meet_few_panels_are_read_in_place(
    kernel: str, rows: Expr, columns: Expr, in_place: bool
) -> None:
    matrix, name = View("a", (rows, as_expr(64)), (as_expr(64), as_expr(1)), as_expr(0)), Sym("m", "value")
    product = Product(kernel, matrix, "b", columns, "c", name, name, name, name)
    assert ("multiply_in_place" in instance_of(product).declaration) == in_place
    assert any("in_place" in header for header in headers_of(product)) == in_place
