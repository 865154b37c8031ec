"""Index expressions as vectors: what is computed in 32 bits."""

from __future__ import annotations

import pytest
import torch

from inductor_cpu.codegen.address import VectorIndex
from inductor_cpu.codegen.kernel import generate
from inductor_cpu.ir.index import Expr, Sym, as_expr, loop_var, maximum, minimum, of, size_symbol, value_symbol

from .build import BF16, F32, F64, Build
from .harness import VECTORS, Library, target

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


@pytest.mark.parametrize(
    ("expr", "step"),
    [
        (of(I) * 224 + maximum(of(J) - 3, 0), 1),
        (minimum(maximum(of(J) - 3, 3 - of(J)), 9) - 7, 1),
        (maximum(of(J) * 2, of(I)) + of(J), 3),
        (of(I) * 7, 0),
        ((of(J) + 1017) % 1024 + of(I) * 1024, 1),
        (5 - (of(J) + 1017) % 1024, None),
        (20 - maximum(of(J), 3), 0),
        (maximum(of(I) - of(J), of(I) - 2 * of(J)), -1),
        (maximum(of(J) // 2, 1), None),
        (maximum(of(J) * of(I), 1), None),
        (maximum(of(DATA), of(J)), None),
    ],
    ids=[
        "clamped",
        "reflected",
        "a sum",
        "the same",
        "turned",
        "turned, reversed",
        "clamped, reversed",
        "falls",
        "quotient",
        "a step of a symbol",
        "data",
    ],
)
def test_most_step_between_lanes_bounds_what_bends(expr: Expr, step: int | None) -> None:
    assert index_of().most_step(expr) == step


@pytest.mark.parametrize("columns", [64, 100, 1000])
@pytest.mark.parametrize("dtype", [F32, F64, BF16, torch.uint8], ids=str)
@pytest.mark.parametrize("isa", VECTORS)
def test_rows_that_go_round_are_read_where_they_are(isa: str, dtype: torch.dtype, columns: int) -> None:
    j = loop_var("j", as_expr(columns))
    b = Build()
    turned = (of(j) + columns - 7) % columns
    b.store("Y", of(I) * columns + of(j), b.load("X", of(I) * columns + turned, dtype, "gather"))
    kernel = b.kernel(isa, (I, j), vector=j)
    x = (torch.randn(64, columns) * 50).abs().to(dtype)
    y = torch.empty_like(x)
    assert "load_bent" in generate(kernel, target(isa)).code
    Library(isa, [kernel]).run(kernel, x, y)
    assert torch.equal(y, x.roll(7, 1))


@pytest.mark.parametrize("columns", [5, 16, 37])
@pytest.mark.parametrize("dtype", [F32, F64, BF16, torch.uint8], ids=str)
@pytest.mark.parametrize("isa", VECTORS)
def test_bent_rows_are_read_where_they_are(isa: str, dtype: torch.dtype, columns: int) -> None:
    j = loop_var("j", as_expr(columns + 6))
    reflected = maximum(of(j) - 3, 3 - of(j))
    reflected = minimum(reflected, 2 * (columns - 1) - reflected)
    clamped = minimum(maximum(of(j) - 3, 0), columns - 1)
    b = Build()
    for name, place in {"Y": clamped, "Z": reflected}.items():
        b.store(name, of(I) * (columns + 6) + of(j), b.load("X", of(I) * columns + place, dtype, "gather"))
    kernel = b.kernel(isa, (I, j), vector=j)
    x = (torch.randn(64, columns) * 50).abs().to(dtype)
    y, z = torch.empty(2, 64, columns + 6).to(dtype)
    library = Library(isa, [kernel])
    library.run(kernel, x, y, z)
    wide = x.to(torch.float64)[None]
    assert torch.equal(y.double(), torch.nn.functional.pad(wide, (3, 3), "replicate")[0])
    assert torch.equal(z.double(), torch.nn.functional.pad(wide, (3, 3), "reflect")[0])
