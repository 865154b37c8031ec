"""Long reductions of columns, in blocks of rows: as accurate as eager, with any number of threads."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from tests.cases import cases

ROWS, COLUMNS = 1600, 384

DTYPES = (torch.float32, torch.bfloat16, torch.float64, torch.int64)

FUNCTIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "sum": lambda x: x.sum(0),
    "amax": lambda x: x.amax(0),
    "mean of squares": lambda x: (x * x).mean(0),
    "any": lambda x: (x > 3).any(0),
}


@pytest.fixture(params=[1, 2])
def threads(request: pytest.FixtureRequest) -> int:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


#: Two of the dtypes for each in every run: a narrow one of the first two, a wide one.
ALWAYS = [
    (name, dtype)
    for name, narrow, wide in zip(FUNCTIONS, (0, 1, 1, 0), (1, 0, 0, 1), strict=True)
    for dtype in (DTYPES[narrow], DTYPES[2 + wide])
]
MORE = [(name, dtype) for name in FUNCTIONS for dtype in DTYPES if (name, dtype) not in ALWAYS]


@pytest.mark.parametrize(("name", "dtype"), cases(ALWAYS, MORE), ids=str)
def test_blocks_of_rows_are_as_accurate_as_eager(name: str, dtype: torch.dtype, threads: int) -> None:
    if name == "mean of squares" and not dtype.is_floating_point:
        name = "sum"
    torch.manual_seed(0)
    x = (torch.randn(ROWS, COLUMNS) * 4 + 1).to(dtype)
    have, want = torch.compile(FUNCTIONS[name], backend="icpu")(x), FUNCTIONS[name](x)
    assert have.dtype == want.dtype
    exact = FUNCTIONS[name](x.double() if dtype.is_floating_point else x).double()
    wrong, allowed = (have.double() - exact).abs().max(), (want.double() - exact).abs().max()
    assert wrong <= 1.5 * allowed + 4 * torch.finfo(torch.float64).eps * exact.abs().max()


def test_nan_in_one_block_is_nan_in_the_column() -> None:
    x = torch.randn(ROWS, COLUMNS)
    x[700, 5] = float("nan")
    for reduce in (lambda x: x.sum(0), lambda x: x.amax(0)):
        have = torch.compile(reduce, backend="icpu")(x)
        assert have.isnan().nonzero().tolist() == [[5]]
