"""Products as CPUs of every generation compute them: the setting `cpp.max_isa` makes this CPU one of them."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import inductor_cpu
from inductor_cpu.ir.micro_kernels import MICRO_KERNELS
from inductor_cpu.kernels.usable import usable_micro_kernels
from inductor_cpu.targets.cpu import target_for
from tests.cases import in_turns

#: (generation, dtype) -> the micro kernel of a linear layer.
KERNELS = {
    ("amx", torch.bfloat16): "amx_bf16",
    ("amx", torch.float32): "split_f32",
    ("amx", torch.float16): "fma_f16",
    ("avx512_bf16", torch.bfloat16): "dot_bf16",
    ("avx512_bf16", torch.float32): "fma_f32",
    ("avx512", torch.bfloat16): "fma_bf16",
    ("avx2", torch.bfloat16): "fma_bf16_avx2",
    ("avx2", torch.float16): "fma_f16_avx2",
    ("avx2", torch.float32): "fma_f32_avx2",
}
INTEGERS = {
    "amx": "amx_s8",
    "avx512_vnni": "vnni_s8",
    "avx512": "madd_s8",
    "avx2_vnni": "vnni_s8_avx2",
    "avx2": "madd_s8_avx2",
}


class Product(nn.Module):
    """A product of int8."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("weight", torch.randint(-128, 128, (50, 70), dtype=torch.int8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch._int_mm(x, self.weight.t())


def require(name: str, level: str) -> None:
    if name not in usable_micro_kernels(target_for(None, level)):
        pytest.skip(f"this CPU, or its system, lacks {', '.join(sorted(MICRO_KERNELS[name].needs))}")


def error(value: torch.Tensor, exact: torch.Tensor) -> float:
    return ((value.double() - exact).square().mean().sqrt() / exact.square().mean().sqrt()).item()


@torch.no_grad()
@pytest.mark.parametrize(("level", "dtype"), KERNELS, ids=str)
def test_a_linear_runs_on_the_kernel_of_its_generation(level: str, dtype: torch.dtype) -> None:
    name = KERNELS[level, dtype]
    require(name, level)
    module = nn.Sequential(nn.Linear(70, 50), nn.GELU()).to(dtype).requires_grad_(False)
    with inductor_cpu.config.patch({"cpp.max_isa": level}):
        explained = inductor_cpu.explain(module, torch.randn(9, 70).to(dtype))
        torch._dynamo.reset()
        compiled = torch.compile(module, backend="icpu", dynamic=True)
        results = [(x, compiled(x)) for x in (torch.randn(rows, 70).to(dtype) for rows in (9, 1, 33))]
    assert f": {name}, a kernel of ours" in str(explained)
    assert explained.extern_calls == 0
    for x, result in results:
        eager, exact = module(x), module.double()(x.double())
        module.to(dtype)
        assert error(result, exact) <= 1.2 * error(eager, exact) + 2e-7


@torch.no_grad()
@pytest.mark.parametrize(("dtype", "kernel"), in_turns([torch.bfloat16, torch.float16], [3, 1]), ids=str)
@pytest.mark.parametrize("level", ["avx512_bf16", "avx512", "avx2"])
def test_a_convolution_of_low_precision_is_ours_before_tiles(level: str, dtype: torch.dtype, kernel: int) -> None:
    name = KERNELS.get((level, dtype), "fma_f16")
    require(name, level)
    module = nn.Sequential(nn.Conv2d(24, 40, kernel, padding=kernel // 2), nn.SiLU()).to(dtype).requires_grad_(False)
    x = torch.randn(2, 24, 9, 11).to(dtype)
    with inductor_cpu.config.patch({"cpp.max_isa": level}):
        explained = inductor_cpu.explain(module, x)
        torch._dynamo.reset()
        result = torch.compile(module, backend="icpu")(x)
    assert explained.extern_calls == 0
    eager, exact = module(x), module.double()(x.double())
    assert error(result, exact) <= 1.2 * error(eager, exact) + 2e-7


@torch.no_grad()
@pytest.mark.parametrize(
    ("level", "kernel", "channels", "height", "own"),
    [
        ("avx512", 1, 144, 40, True),
        ("avx512", 3, 24, 9, True),
        ("avx512", 3, 40, 9, False),
        ("avx2", 1, 144, 9, True),
        ("avx2", 1, 24, 40, True),
        ("avx2", 1, 144, 40, False),
        ("avx2", 3, 24, 9, True),
        ("avx2", 3, 40, 9, False),
    ],
)
def test_a_convolution_of_floats_is_ours_where_windows_have_few_values_or_a_pixel_and_for_avx2_these_are_few(
    level: str, kernel: int, channels: int, height: int, own: bool
) -> None:
    require({"avx512": "fma_f32", "avx2": "fma_f32_avx2"}[level], level)
    module = nn.Sequential(nn.Conv2d(channels, 40, kernel), nn.Hardswish()).requires_grad_(False)
    x = torch.randn(2, channels, height, 11)
    with inductor_cpu.config.patch({"cpp.max_isa": level}):
        explained = inductor_cpu.explain(module, x)
        torch._dynamo.reset()
        result = torch.compile(module, backend="icpu")(x)
    assert (explained.extern_calls == 0) == own
    eager, exact = module(x), module.double()(x.double())
    assert error(result, exact) <= 1.2 * error(eager, exact) + 2e-7


@torch.no_grad()
@pytest.mark.parametrize("level", INTEGERS)
def test_a_product_of_integers_runs_on_the_kernel_of_its_generation(level: str) -> None:
    name = INTEGERS[level]
    require(name, level)
    module = Product()
    x = torch.randint(-128, 128, (33, 70), dtype=torch.int8)
    with inductor_cpu.config.patch({"cpp.max_isa": level}):
        explained = inductor_cpu.explain(module, x)
        torch._dynamo.reset()
        result = torch.compile(module, backend="icpu")(x)
    assert f": {name}, a kernel of ours" in str(explained)
    assert torch.equal(result, x.int() @ module.weight.int().t())
