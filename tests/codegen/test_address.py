"""Index expressions as vectors: what is computed in 32 bits."""

from __future__ import annotations

import pytest
import torch

from inductor_cpu.codegen.address import VectorIndex
from inductor_cpu.ir.index import Expr, Sym, as_expr, loop_var, of, size_symbol, value_symbol

from .build import F32, Build
from .harness import VECTORS, Library

I, J = loop_var("i", as_expr(64)), loop_var("j", as_expr(224))
N = loop_var("n", of(size_symbol("n")))
DATA = value_symbol(1, as_expr(100))


def index_of(loop: Sym = J) -> VectorIndex:
    return VectorIndex(str, loop, lambda symbol: symbol == DATA, str, str)


@pytest.mark.parametrize(
    ("expr", "narrow"),
    [
        (of(J) % 2 * 12544 + of(J) // 2 + of(I) * 50176, True),
        (of(J) * 3 + of(I), False),  # a stride is one vector already
        (of(J) % 2 * 2**31 + of(J) // 2, False),  # 32 bits do not hold it
        ((of(J) + of(I) * 2**26) // 2 % 5, False),  # nor what is divided
        (of(J) // 2 + of(DATA), False),  # a value of 64 bits takes part
    ],
    ids=["quotients", "stride", "too large", "too large a dividend", "data"],
)
def test_quotients_are_computed_in_32_bits_where_these_hold_all_parts(expr: Expr, narrow: bool) -> None:
    text = index_of().text_by_32_bits(expr)
    assert (text is not None) == narrow
    assert text is None or (("iota32" in text or "<int32_t>" in text) and text.startswith("icpu::convert<int64_t>("))


def test_a_loop_of_any_size_has_64_bits() -> None:
    assert index_of(N).text_by_32_bits(of(N) // 2 + of(N) % 2 * 7) is None


@pytest.mark.parametrize("isa", VECTORS)
def test_pixels_that_are_shuffled_are_gathered_from_where_they_are(isa: str) -> None:
    b = Build()
    b.store("Y", of(I) * 224 + of(J), b.load("X", of(J) % 2 * 7168 + of(J) // 2 + of(I) * 112, F32, "gather"))
    kernel = b.kernel(isa, (I, J), vector=J)
    x, y = torch.randn(2 * 7168), torch.empty(64, 224)
    Library(isa, [kernel]).run(kernel, x, y)
    assert torch.equal(y, x.view(2, 64, 112).permute(1, 2, 0).reshape(64, 224))
