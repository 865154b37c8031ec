"""Which windows of a line the template of convolutions of groups sums at once."""

from __future__ import annotations

import pytest

from inductor_cpu.codegen.groups import shape_of_groups
from inductor_cpu.ir.index import Expr, Sym, as_expr, of, size_symbol
from inductor_cpu.ir.kernel import Product
from inductor_cpu.ir.loop_nest import View
from inductor_cpu.ir.micro_kernels import MICRO_KERNELS
from inductor_cpu.ir.nodes import Patches
from inductor_cpu.ir.windows import of_groups


def shape(name: str, outputs: int, across: Expr, stride: int = 1, taps: int = 3) -> tuple[int, ...]:
    """The template's arguments for four groups of eight channels."""
    pieces = of_groups(MICRO_KERNELS[name], (3, taps), 8, outputs, 4)
    assert pieces is not None
    assert pieces.groups is not None
    image = View("a", (as_expr(1),) * 4, (as_expr(1),) * 4, as_expr(0))
    windows = Patches(image, (3, taps), (1, stride), (1, 1), (1, 1), (as_expr(1), across), pieces)
    symbol = Sym("n", "value")
    product = Product(name, windows, "b", as_expr(4 * outputs), "c", symbol, symbol, symbol, symbol)
    return shape_of_groups(product, windows, pieces.groups)


@pytest.mark.parametrize("name", ["groups_f32", "groups_f32_avx2"])
@pytest.mark.parametrize("outputs", [8, 32, 40, 64])
def test_lines_of_known_length_are_summed_in_numbers_of_windows_that_the_template_has(name: str, outputs: int) -> None:
    for across in range(1, 400):
        *_, least, most = shape(name, outputs, as_expr(across))
        assert most - least <= 1
        left = across
        while left > 0:  # as the template does
            parts = -(-left // most)
            count = -(-left // parts)
            assert least <= count <= most, (across, left)
            left -= count


def test_lines_that_are_equally_many_windows_at_once_share_what_is_compiled() -> None:
    assert len({shape("groups_f32", 8, as_expr(across)) for across in (14, 28, 56, 112)}) == 1


def test_lines_of_unknown_length_have_any_number_of_windows_at_once() -> None:
    *_, least, most = shape("groups_f32", 8, of(size_symbol("width")))
    assert (least, most) == (1, 14)


@pytest.mark.parametrize(
    ("name", "outputs", "stride", "taps", "together"),
    [
        ("groups_f32", 8, 1, 7, 7),
        ("groups_f32", 8, 1, 9, 1),  # more weights than registers hold
        ("groups_f32", 8, 2, 3, 1),  # windows are no neighbours
        ("groups_f32", 32, 1, 3, 1),  # two vectors of results
        ("groups_f32_avx2", 8, 1, 3, 3),
        ("groups_f32_avx2", 8, 1, 5, 1),
    ],
)
def test_taps_of_a_line_are_summed_together_where_registers_hold_them(
    name: str, outputs: int, stride: int, taps: int, together: int
) -> None:
    assert shape(name, outputs, as_expr(28), stride, taps)[6] == together
