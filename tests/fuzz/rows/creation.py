"""Values that are made, not given."""

from __future__ import annotations

from tests.fuzz.rows.row import Row, along, anything, both, one, rank

NUMBERS = ("float32", "bfloat16", "int64", "int32", "float64")

ROWS: tuple[Row, ...] = (
    Row("zeros_like", "torch.zeros_like({0})", one, anything, keeps=True),
    Row("ones_like", "torch.ones_like({0}, dtype={dtype})", one, anything, {"dtype": NUMBERS}, keeps=True),
    Row("full_like", "torch.full_like({0}, 3, dtype={dtype})", one, anything, {"dtype": NUMBERS}, keeps=True),
    Row("arange", "torch.arange({0}.shape[{dim}], dtype={dtype})", along, anything, {"dtype": NUMBERS}, keeps=True),
    Row("arange_step", "torch.arange(3, 3 + 2 * {0}.shape[{dim}], 2)", along, anything, keeps=True),
    Row("eye", "torch.eye({0}.shape[{dim}], dtype={dtype})", along, anything, {"dtype": NUMBERS}, keeps=True),
    Row("new_full", "{0}.new_full({0}.shape[-1:], 2)", one, both(anything, rank(1)), keeps=True),
    Row(
        "causal_mask",
        "torch.arange({0}.shape[-2])[:, None] >= torch.arange({0}.shape[-1])",
        one,
        both(anything, rank(2)),
        keeps=True,
    ),
    Row("linspace", "torch.linspace(0, 1, {0}.shape[{dim}], dtype={dtype})", along, anything, {"dtype": ("float32",)}),
)
