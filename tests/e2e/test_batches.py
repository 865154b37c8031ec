"""Products of batches, and products of operands that are not static: numbers against fp64, and what is fused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from inductor_cpu.ir.micro_kernels import MICRO_KERNELS
from inductor_cpu.kernels.usable import usable_micro_kernels
from inductor_cpu.targets.cpu import detect
from tests.cases import cases, in_turns
from tests.e2e.support import compile_counted

Tensor = torch.Tensor
DTYPES = [torch.float32, torch.bfloat16, torch.float16]

#: batch, rows, depth, columns: around blocks, panels and steps.
SIZES = ((1, 1, 1, 16), (3, 5, 16, 20), (6, 33, 40, 70), (2, 17, 100, 48), (5, 4, 64, 97))


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pack at each call, also where a library is faster, and however small."""
    monkeypatch.setattr("inductor_cpu.kernels.linear.pays_per_call", lambda *_: True)
    monkeypatch.setattr("inductor_cpu.kernels.linear.is_small", lambda *_: False)
    monkeypatch.setattr("inductor_cpu.kernels.linear._LEAST_RESULTS_BY_DEPTH", {})


class Weighted(nn.Module):
    """A weight for each matrix of the batch, and what follows."""

    def __init__(self, batch: int, depth: int, columns: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(batch, depth, columns) / depth**0.5)
        self.bias = nn.Parameter(torch.randn(batch, 1, columns))

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(torch.baddbmm(self.bias, x, self.weight))


@pytest.fixture(autouse=True)
def skip_without_kernel(request: pytest.FixtureRequest) -> None:
    """Skip where no kernel of ours multiplies a dtype: f16 on a CPU with tiles of f16."""
    dtype = request.node.callspec.params.get("dtype") if hasattr(request.node, "callspec") else None
    names = usable_micro_kernels(detect())
    if dtype is not None and not any(MICRO_KERNELS[n].dtype == MICRO_KERNELS[n].weight == dtype for n in names):
        pytest.skip(f"a library multiplies {dtype} on this CPU")


def error(value: Tensor, exact: Tensor) -> float:
    """RMSE over the RMS of the exact value."""
    return ((value.double() - exact).square().mean().sqrt() / exact.square().mean().sqrt()).item()


@torch.no_grad()
def check(function: Callable[..., Any], compiled: Callable[..., Any], *args: Tensor) -> None:
    """The compiled result is about as near to fp64 as eager's, with eager's dtype and strides."""
    eager, result = function(*args), compiled(*args)
    exact = function(*(x.double() if x.is_floating_point() else x for x in args))
    assert (result.dtype, result.stride()) == (eager.dtype, eager.stride())
    assert error(result, exact) <= 1.2 * error(eager, exact) + 1e-7


@pytest.mark.parametrize(("size", "dtype"), in_turns(SIZES, DTYPES), ids=str)
def test_a_batch_with_static_weights_is_one_kernel(size: tuple[int, int, int, int], dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    batch, rows, depth, columns = size
    module = Weighted(batch, max(depth, 16), columns).to(dtype).requires_grad_(False)
    compiled, reports = compile_counted(module, dynamic=True)
    exact = Weighted(batch, max(depth, 16), columns).double()
    exact.load_state_dict(module.state_dict())
    for some in (rows, 1, 40):
        x = torch.randn(batch, some, max(depth, 16)).to(dtype)
        with torch.no_grad():
            eager, result, right = module(x), compiled(x), exact(x.double())
        assert result.stride() == eager.stride()
        assert error(result, right) <= 1.2 * error(eager, right) + 1e-7
    assert all((len(report.kernels), len(report.externs)) == (1, 0) for report in reports)


def test_an_edited_weight_of_a_batch_is_packed_again() -> None:
    torch.manual_seed(0)
    module = Weighted(3, 20, 30).requires_grad_(False)
    compiled = torch.compile(module, backend="icpu")
    x = torch.randn(3, 4, 20)
    with torch.no_grad():
        compiled(x)
        module.weight.mul_(2)
        torch.testing.assert_close(compiled(x), module(x))


@pytest.mark.parametrize("once", [False, True])
def test_a_weight_of_a_batch_that_is_read_otherwise_is_not_in_memory_twice(once: bool) -> None:
    weight = nn.Parameter(torch.randn(3, 32, 48), requires_grad=False)

    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = weight

        def forward(self, x: Tensor) -> Tensor:
            return torch.bmm(x, self.weight) + self.weight.select(1, 0).unsqueeze(1) * x.select(2, 0).unsqueeze(2)

    module, x = Both(), torch.randn(3, 5, 32)
    compiled, reports = compile_counted(module, options={"cpp.drop_original_weights": once})
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), module(x))
    assert [len(report.externs) for report in reports] == [once]


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize(("size", "dtype"), in_turns(SIZES[1:], DTYPES), ids=str)
def test_a_batch_whose_operands_are_inputs_is_right(size: tuple[int, int, int, int], dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    batch, rows, depth, columns = size
    compiled, reports = compile_counted(torch.bmm, dynamic=False)
    x, w = torch.randn(batch, rows, depth).to(dtype), torch.randn(batch, depth, columns).to(dtype)
    turned_x, turned_w = x.mT.contiguous().mT, w.mT.contiguous().mT
    # Both have both layouts; the four combinations in turns, so that each size and each dtype meets all.
    together = (SIZES.index(size) + DTYPES.index(dtype)) % 2 == 0
    for a, b in ((x, w), (turned_x, turned_w)) if together else ((x, turned_w), (turned_x, w)):
        check(torch.bmm, compiled, a, b)
    assert [len(report.externs) for report in reports] == [0, 0]


@pytest.mark.usefixtures("always")
def test_a_batch_serves_any_number_of_matrices_and_rows() -> None:
    torch.manual_seed(0)
    compiled, reports = compile_counted(lambda a, b: torch.bmm(a, b) * 2)
    for batch, rows in ((2, 5), (7, 12), (3, 40), (1, 3)):
        a, b = torch.randn(batch, rows, 24), torch.randn(batch, 24, 50)
        for one in (a, b):
            torch._dynamo.mark_dynamic(one, 0)
        check(lambda a, b: torch.bmm(a, b) * 2, compiled, a, b)
    assert not any(report.externs for report in reports)


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize(
    ("sizes", "dtype"), in_turns([(3, 7, 33), (3, 1, 33), (1, 7, 1), (33,), (7, 1)], DTYPES), ids=str
)
def test_what_is_added_to_a_batch_broadcasts(sizes: tuple[int, ...], dtype: torch.dtype) -> None:
    torch.manual_seed(0)

    def add(c: Tensor, a: Tensor, b: Tensor) -> Tensor:
        return torch.baddbmm(c, a, b, beta=0.5, alpha=-2)

    a, b, c = torch.randn(3, 7, 20).to(dtype), torch.randn(3, 20, 33).to(dtype), torch.randn(sizes).to(dtype)
    compiled, reports = compile_counted(add)
    check(add, compiled, c, a, b)
    assert not any(report.externs for report in reports)


@pytest.mark.usefixtures("always")
def test_what_is_multiplied_by_zero_is_not_read() -> None:
    """beta = 0 drops nan, as in eager mode."""
    c, a, b = torch.full((2, 5, 20), torch.nan), torch.randn(2, 5, 16), torch.randn(2, 16, 20)
    add = lambda c, a, b: torch.baddbmm(c, a, b, beta=0)  # noqa: E731
    torch.testing.assert_close(torch.compile(add, backend="icpu")(c, a, b), torch.bmm(a, b))


@pytest.mark.usefixtures("always")
def test_a_batch_takes_rows_that_are_far_apart_and_matrices_that_are_one() -> None:
    torch.manual_seed(0)
    compiled, reports = compile_counted(torch.bmm)
    heads = torch.randn(9, 4, 32)[:, :, 3:29].transpose(0, 1)
    check(torch.bmm, compiled, heads, torch.randn(4, 26, 18))
    check(torch.bmm, compiled, torch.randn(9, 26).expand(4, 9, 26), torch.randn(1, 26, 18).expand(4, 26, 18))
    assert not any(report.externs for report in reports)


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("threads", [1, 2, 3, 5])
def test_threads_share_a_batch_or_each_product(threads: int) -> None:
    torch.manual_seed(0)
    compiled = torch.compile(torch.bmm, backend="icpu", dynamic=False)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(threads)
        for batch, rows in ((1, 300), (2, 150), (3, 100), (16, 3), (45, 20)):
            check(torch.bmm, compiled, torch.randn(batch, rows, 200), torch.randn(batch, 200, 120))
    finally:
        torch.set_num_threads(before)


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("dynamic", [False, True])
def test_heads_are_merged_by_the_kernel_of_the_batch(dynamic: bool) -> None:
    torch.manual_seed(0)

    def merged(a: Tensor, b: Tensor, scale: Tensor) -> Tensor:
        batch, heads, rows, depth = a.shape
        found = torch.bmm(a.view(-1, rows, depth), b.view(-1, depth, 20)).view(batch, heads, rows, 20) * scale
        return found.permute(0, 2, 1, 3).reshape(batch, rows, -1)

    compiled, reports = compile_counted(merged)
    for batch, rows in ((2, 17), (4, 11))[: 1 + dynamic]:
        a, b = torch.randn(batch, 3, rows, 32), torch.randn(batch, 3, 32, 20)
        for tensor, dim in ((a, 0), (a, 2), (b, 0))[: 3 * dynamic]:
            torch._dynamo.mark_dynamic(tensor, dim)
        check(merged, compiled, a, b, torch.randn(20))
    assert [(len(report.kernels), len(report.externs)) for report in reports] == [(2, 0)]  # packing, and the product


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("dtype", cases([torch.bfloat16], [torch.float32, torch.float16]), ids=str)
def test_training_multiplies_by_kernels_of_ours(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(40, 70), nn.GELU(), nn.Linear(70, 32, bias=False)).to(dtype)
    exact = nn.Sequential(nn.Linear(40, 70), nn.GELU(), nn.Linear(70, 32, bias=False)).double()
    exact.load_state_dict(module.state_dict())
    compiled, reports = compile_counted(module)
    x = torch.randn(37, 40).to(dtype)

    def gradients(function: Callable[..., Any], owner: nn.Module, x: Tensor) -> list[Tensor]:
        x = x.clone().requires_grad_()
        function(x).square().sum().backward()
        found = [x.grad, *(p.grad for p in owner.parameters())]
        owner.zero_grad()
        return found  # type: ignore[return-value]

    right = gradients(exact, exact, x.double())
    for eager, ours, e in zip(gradients(module, module, x), gradients(compiled, module, x), right, strict=True):
        assert error(ours, e) <= 1.3 * error(eager, e) + 1e-7
    assert [len(report.externs) for report in reports] == [0, 0]


#: What is a symbol -> these dimensions of both operands, and the sizes that are tried.
SYMBOLS = {
    "columns": ((), (2,), ((2, 5, 32, 50), (2, 5, 32, 144), (2, 5, 32, 7))),
    "depth": ((2,), (1,), ((2, 5, 32, 50), (2, 5, 97, 50), (2, 5, 7, 50))),
    "all": ((0, 1, 2), (0, 1, 2), ((2, 5, 32, 50), (3, 9, 97, 144), (4, 6, 7, 15))),
}


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize(("symbols", "dtype"), in_turns(SYMBOLS, DTYPES), ids=str)
def test_columns_and_depth_that_are_symbols_are_packed_at_each_call(symbols: str, dtype: torch.dtype) -> None:
    torch.manual_seed(0)

    def product(a: Tensor, b: Tensor) -> Tensor:
        return torch.relu(torch.baddbmm(b[:, :1], a, b))

    compiled, reports = compile_counted(product)
    of_a, of_b, sizes = SYMBOLS[symbols]
    for batch, rows, depth, columns in sizes:
        a, b = torch.randn(batch, rows, depth).to(dtype), torch.randn(batch, columns, depth).to(dtype).mT
        for tensor, dim in (*((a, dim) for dim in of_a), *((b, dim) for dim in of_b)):
            torch._dynamo.mark_dynamic(tensor, dim)
        check(product, compiled, a, b)
    assert [(len(report.kernels), len(report.externs)) for report in reports] == [(2, 0)]


@pytest.mark.usefixtures("always")
def test_a_matrix_whose_sizes_are_symbols_is_packed_at_each_call_with_its_bias() -> None:
    torch.manual_seed(0)

    def product(bias: Tensor, a: Tensor, b: Tensor) -> Tensor:
        return torch.addmm(bias, a, b)

    compiled, reports = compile_counted(product, dynamic=True)
    for rows, depth, columns in ((5, 32, 50), (20, 97, 70), (9, 40, 131)):
        check(product, compiled, torch.randn(columns), torch.randn(rows, depth), torch.randn(depth, columns))
    assert [len(report.externs) for report in reports] == [0]


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("batch", [(), (3,)], ids=["matrices", "batches"])
def test_rows_and_matrices_are_as_far_apart_as_a_sum_of_sizes_says(batch: tuple[int, ...]) -> None:
    """The fuzzer's seed 353017: the first row times 2 + n was the first row times 2, and n."""

    def product(a: Tensor, b: Tensor) -> Tensor:
        return nn.functional.pad(a, (1, 1)) @ b

    compiled, reports = compile_counted(product, dynamic=True)
    for rows, depth, columns in ((70, 30, 50), (40, 97, 20)):
        check(product, compiled, torch.randn(*batch, rows, depth), torch.randn(*batch, depth + 2, columns))
    assert [len(report.externs) for report in reports] == [0]


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("of", ["rows", "depth", "columns", "batch"])
def test_sizes_that_depend_on_data_may_be_zero(of: str) -> None:
    torch.manual_seed(0)

    def product(a: Tensor, b: Tensor, wanted: Tensor) -> Tensor:
        some = torch.nonzero(wanted).squeeze(1)
        if of == "rows":
            return torch.mm(a[some], b) + 1
        if of == "depth":
            return torch.mm(a[:, some], b[some]) + 1
        if of == "columns":
            return torch.mm(a, b[:, some]) + 1
        return torch.bmm(a[some].unsqueeze(1).expand(-1, 5, -1), b.expand(len(some), 32, 32)) + 1

    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        compiled, _ = compile_counted(product)
        a, b = torch.randn(32, 32), torch.randn(32, 32)
        for count in (10, 0, 1, 32):
            wanted = torch.arange(32) < count
            torch.testing.assert_close(compiled(a, b, wanted), product(a, b, wanted), rtol=1e-4, atol=1e-5)


def added(c: Tensor, a: Tensor, b: Tensor) -> Tensor:
    return torch.relu(torch.baddbmm(c, a, b, beta=0.5, alpha=-2))


@pytest.mark.parametrize(
    ("dtype", "transposed", "rows"),
    cases(
        [(torch.float16, False, 1), (torch.bfloat16, True, 1), (torch.float16, True, 3)],
        [(torch.float16, True, 1), (torch.bfloat16, False, 2), (torch.float16, True, 2), (torch.bfloat16, False, 3)],
    ),
    ids=str,
)
def test_few_rows_are_multiplied_by_loops_without_instructions_for_their_type(
    dtype: torch.dtype, transposed: bool, rows: int
) -> None:
    if dtype == torch.float16 and "avx512_fp16" in detect().features:
        pytest.skip("this CPU multiplies f16")
    options = {"cpp.max_isa": "avx2"} if dtype == torch.bfloat16 else {}
    torch.manual_seed(0)
    a, b = torch.randn(3, rows, 1000).to(dtype), torch.randn(3, 1000, 70).to(dtype)
    b = b.mT.contiguous().mT if transposed else b
    c, bias = torch.randn(3, 1, 70).to(dtype), torch.randn(70).to(dtype)
    cases = [(torch.bmm, (a, b)), (added, (c, a, b)), (torch.mm, (a[0], b[0])), (torch.addmm, (bias, a[0], b[0]))]
    for function, operands in cases:
        compiled, reports = compile_counted(function, dynamic=False, options=options)
        check(function, compiled, *operands)
        # ATen has vectors for one row of f16 by a matrix that lies transposed.
        library = dtype == torch.float16 and rows == 1 and transposed and function in (torch.mm, torch.addmm)
        (counts,) = [(len(report.kernels), len(report.externs)) for report in reports]
        # Two kernels where sums are divided among threads, which have little else to share with eight lanes.
        assert counts in ([(0, 1)] if library else [(1, 0), (2, 0)])


@pytest.mark.parametrize(
    ("dtype", "size"), in_turns([torch.bfloat16, torch.float16], [(300, 9, 200), (200, 300, 9)]), ids=str
)
def test_narrow_products_are_multiplied_by_loops_without_instructions_for_their_type(
    dtype: torch.dtype, size: tuple[int, int, int]
) -> None:
    torch.manual_seed(0)
    rows, depth, columns = size
    a, b, bias = torch.randn(depth, rows).to(dtype).mT, torch.randn(depth, columns).to(dtype), torch.randn(columns)
    for function, operands in [(torch.mm, (a, b)), (torch.addmm, (bias.to(dtype), a, b))]:
        compiled, reports = compile_counted(function, dynamic=False, options={"cpp.max_isa": "avx2"})
        check(function, compiled, *operands)
        assert [len(report.externs) for report in reports] == [0]


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("kind", ["integers", "doubles", "empty"])
def test_other_products_are_the_library_s(kind: str) -> None:
    dtype = {"integers": torch.int64, "doubles": torch.float64}.get(kind, torch.float32)
    a = torch.ones(2, 5, 0 if kind == "empty" else 16, dtype=dtype)
    b = torch.ones(2, a.shape[2], 24, dtype=dtype)
    compiled, reports = compile_counted(torch.bmm)
    torch.testing.assert_close(compiled(a, b), torch.bmm(a, b))
    assert kind == "empty" or [len(report.externs) for report in reports] == [1]


@pytest.mark.usefixtures("always")
def test_a_product_written_into_its_operand_reads_it_first() -> None:
    torch.manual_seed(0)

    def step(x: Tensor, w: Tensor) -> Tensor:
        return x.copy_(torch.bmm(x, w).relu())

    x, w = torch.randn(8, 60, 64), torch.randn(8, 64, 64)
    expected = torch.bmm(x, w).relu()
    torch.compile(step, backend="icpu")(x, w)
    torch.testing.assert_close(x, expected)


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("packs", [True, False])
def test_products_are_packed_at_each_call_unless_nothing_is_to_be_packed(packs: bool) -> None:
    a, b = torch.randn(3, 5, 32), torch.randn(3, 32, 48)
    compiled, reports = compile_counted(torch.bmm, options={"cpp.weight_prepack": packs})
    torch.testing.assert_close(compiled(a, b), torch.bmm(a, b))
    (report,) = reports
    assert len(report.externs) == (not packs)
    assert any("packed at each call" in note for note in report.notes) == packs
