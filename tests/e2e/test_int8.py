"""Products of 8-bit integers by kernels of our own: exact, with what follows fused."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import inductor_cpu
from inductor_cpu.ir.micro_kernels import MICRO_KERNELS
from inductor_cpu.kernels.usable import usable_micro_kernels
from inductor_cpu.targets.cpu import detect, target_for
from tests.cases import in_turns
from tests.e2e.support import compile_counted

needs_int8 = pytest.mark.skipif(
    "amx_s8" not in usable_micro_kernels(detect()), reason="this CPU, or its system, has no AMX tiles of int8"
)

#: Around tiles and blocks (16, 32), panels (32), steps (64) and the part of the depth in the L1 cache (768).
ROWS = (1, 2, 15, 16, 17, 31, 32, 33, 64, 71)
SIZES = ((64, 32), (16, 16), (65, 31), (100, 100), (768, 64), (833, 40), (1600, 96))


def random_bytes(*sizes: int) -> torch.Tensor:
    """All values of int8, the extremes among them."""
    values = torch.randint(-128, 128, sizes, dtype=torch.int8)
    values.view(-1)[:2] = torch.tensor([-128, 127], dtype=torch.int8)
    return values


class Quantized(nn.Module):
    """A linear layer of int8 with a scale for each row and column."""

    def __init__(self, depth: int, columns: int) -> None:
        super().__init__()
        self.register_buffer("weight", random_bytes(columns, depth))
        self.register_buffer("scale", torch.rand(columns) * 0.01)
        self.register_buffer("bias", torch.randn(columns))

    def forward(self, x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        product = torch._int_mm(x, self.weight.t())
        return torch.relu(product.float() * scale * self.scale + self.bias)


class Exact(nn.Module):
    """The product itself."""

    def __init__(self, weight: torch.Tensor) -> None:
        super().__init__()
        self.register_buffer("weight", weight)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch._int_mm(x, self.weight.t())


@needs_int8
@torch.no_grad()
@pytest.mark.parametrize(("depth", "columns"), SIZES)
def test_a_product_of_any_number_of_rows_is_exact(depth: int, columns: int) -> None:
    torch.manual_seed(depth)
    module = Exact(random_bytes(columns, depth))
    compiled = torch.compile(module, backend="icpu", dynamic=True)
    assert inductor_cpu.explain(module, random_bytes(20, depth)).extern_calls == 0
    for rows in ROWS:
        x = random_bytes(rows, depth)
        result = compiled(x)
        assert result.dtype == torch.int32
        assert torch.equal(result, x.int() @ module.weight.int().t())


@needs_int8
@torch.no_grad()
@pytest.mark.parametrize("threads", [1, 3])
def test_parts_of_rows_depth_and_weights_are_exact(threads: int) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        for rows, depth, columns in ((3, 8000, 81), (500, 6000, 40), (320, 4000, 100)):
            module, x = Exact(random_bytes(columns, depth)), random_bytes(rows, depth)
            expected = x.int() @ module.weight.int().t()
            assert torch.equal(torch.compile(module, backend="icpu")(x), expected)
    finally:
        torch.set_num_threads(before)


@needs_int8
@torch.no_grad()
def test_extreme_sums_are_exact() -> None:
    module = Exact(torch.full((32, 4096), -128, dtype=torch.int8))
    x = torch.full((5, 4096), -128, dtype=torch.int8)
    assert (torch.compile(module, backend="icpu")(x) == 128 * 128 * 4096).all()


@needs_int8
@torch.no_grad()
def test_rows_that_are_far_apart_are_taken() -> None:
    module = Exact(random_bytes(48, 40))
    x = random_bytes(20, 3, 64)[:, 1, 3:43]
    assert torch.equal(torch.compile(module, backend="icpu")(x), x.int() @ module.weight.int().t())


@needs_int8
@torch.no_grad()
@pytest.mark.parametrize("rows", [1, 7, 40])
def test_scales_bias_and_activation_are_part_of_the_kernel(rows: int) -> None:
    module, x, scale = Quantized(200, 72), random_bytes(rows, 200), torch.rand(rows, 1) * 0.01
    explained = inductor_cpu.explain(module, x, scale)
    assert explained.extern_calls == 0
    assert len(explained.kernels) == 1
    result = torch.compile(module, backend="icpu")(x, scale)
    product = x.double() @ module.weight.double().t()
    exact = torch.relu(product * scale.double() * module.scale.double() + module.bias.double())
    torch.testing.assert_close(result, exact.float(), rtol=1e-5, atol=1e-5)


@needs_int8
@torch.no_grad()
def test_an_edited_weight_is_packed_again() -> None:
    module, x = Exact(random_bytes(32, 64)), random_bytes(4, 64)
    compiled = torch.compile(module, backend="icpu")
    compiled(x)
    module.weight.fill_(3)
    assert torch.equal(compiled(x), x.int() @ module.weight.int().t())


@torch.no_grad()
def test_a_weight_that_is_an_argument_is_left_to_the_library() -> None:
    x, weight = random_bytes(20, 64), random_bytes(64, 32)
    assert torch.equal(torch.compile(torch._int_mm, backend="icpu")(x, weight), torch._int_mm(x, weight))


class WeightOnly(nn.Module):
    """A linear layer with a weight of bytes: ATen's operator, or a cast."""

    def __init__(self, depth: int, columns: int, dtype: torch.dtype, cast: bool) -> None:
        super().__init__()
        self.cast = cast
        self.register_buffer("weight", random_bytes(columns, depth))
        self.register_buffer("scale", (torch.rand(columns) * 0.01 + 0.001).to(dtype))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.cast:
            return nn.functional.linear(x, self.weight.to(x.dtype)) * self.scale
        return nn.functional.silu(torch.ops.aten._weight_int8pack_mm(x, self.weight, self.scale))

    def rounded(self, x: torch.Tensor) -> torch.Tensor:
        """The same, rounded where eager rounds; ATen's own operator reads out of bounds for odd sizes."""
        y = x.float() @ self.weight.float().t()
        if self.cast:
            return y.to(x.dtype) * self.scale
        return nn.functional.silu((y * self.scale.float()).to(x.dtype))

    def exact(self, x: torch.Tensor) -> torch.Tensor:
        y = x.double() @ self.weight.double().t() * self.scale.double()
        return y if self.cast else nn.functional.silu(y)


#: Those that make a difference on this CPU, by their micro kernels.
LEVELS = {usable_micro_kernels(target_for(None, level)): level for level in ("avx2", "avx512", None)}


@torch.no_grad()
@pytest.mark.parametrize("level", LEVELS.values())
@pytest.mark.parametrize(
    ("dtype", "cast"),
    in_turns([torch.bfloat16, torch.float32, torch.float16], [False, True]),
    ids=lambda value: {False: "operator", True: "cast"}.get(value, str(value)),
)
def test_floats_by_bytes_read_the_bytes(dtype: torch.dtype, level: str | None, cast: bool) -> None:
    usable = usable_micro_kernels(target_for(None, level))
    if not any((row.dtype, row.weight) == (dtype, torch.int8) for row in map(MICRO_KERNELS.__getitem__, usable)):
        pytest.skip("this CPU has no kernel for it")
    module = WeightOnly(100, 52, dtype, cast)
    with inductor_cpu.config.patch({"cpp.max_isa": level}):
        compiled, reports = compile_counted(module, dynamic=True)
        results = [(x, compiled(x)) for x in (torch.randn(rows, 100).to(dtype) for rows in (20, 2, 1, 33))]
    assert reports
    for report in reports:
        assert report.extern_calls == 0
        assert " by int8: " in str(report)
    for x, result in results:
        exact, eager = module.exact(x), module.rounded(x)
        assert result.dtype == eager.dtype
        limit = (
            (eager.double() - exact).square().mean().sqrt() * 1.2
        ).item() + 2e-7 * exact.square().mean().sqrt().item()
        assert (result.double() - exact).square().mean().sqrt().item() <= limit
