"""Every activation after every operator: a post-op of oneDNN, or one loop kernel after the product."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from inductor_cpu.graph.post_ops import UNARY
from tests.e2e.support import compile_counted
from tests.graph.harness import (
    CONV,
    CONV_ADD,
    CONV_TRANSPOSE,
    LINEAR,
    TOLERANCES,
    aten,
    check,
    compile_passed,
    skip_unless_supported,
)
from tests.graph.test_convolution import ACTIVATIONS, DTYPES

Tensor = torch.Tensor


class Product(nn.Module):
    """x @ w, or with a bias before it."""

    def __init__(self, bias: bool) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.randn(12, 20) / 4)
        self.b = nn.Parameter(torch.randn(20)) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.w if self.b is None else torch.addmm(self.b, x, self.w)


#: operator -> (the layer, its input's shape, what it becomes)
OPERATORS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], Any]] = {
    "conv1d": (lambda: nn.Conv1d(4, 8, 3), (2, 4, 9), CONV),
    "conv2d": (lambda: nn.Conv2d(4, 8, 3), (2, 4, 6, 5), CONV),
    "conv3d": (lambda: nn.Conv3d(4, 8, 2), (2, 4, 3, 4, 5), CONV),
    "conv_transpose2d": (lambda: nn.ConvTranspose2d(4, 8, 3, stride=2), (2, 4, 5, 4), CONV_TRANSPOSE),
    "conv_transpose3d": (lambda: nn.ConvTranspose3d(4, 8, 3, stride=2), (2, 4, 3, 4, 5), CONV_TRANSPOSE),
    "linear": (lambda: nn.Linear(12, 20), (2, 3, 12), LINEAR),
    "addmm": (lambda: Product(True), (3, 12), LINEAR),
    "mm": (lambda: Product(False), (3, 12), LINEAR),
}


class Branches(nn.Module):
    """One layer for each activation, on inputs of their own: equal layers on one input would become one."""

    def __init__(self, layer: Callable[[], nn.Module], between_casts: bool) -> None:
        super().__init__()
        self.layers = nn.ModuleList([layer() for _ in ACTIVATIONS])
        self.between_casts = between_casts

    def forward(self, x: Tensor) -> list[Tensor]:
        results = []
        for k, (layer, f) in enumerate(zip(self.layers, ACTIVATIONS.values(), strict=True)):
            y = layer(x + k / 64)
            results.append(f(y.float()).to(y.dtype) if self.between_casts and y.dtype != torch.float64 else f(y))
        return results


@pytest.mark.parametrize("between_casts", [False, True], ids=["plain", "between casts"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", OPERATORS)
def test_every_activation_is_a_post_op_of_every_operator(name: str, dtype: torch.dtype, between_casts: bool) -> None:
    if between_casts and dtype == torch.float32:
        pytest.skip("a cast to the same dtype is no operator")
    layer, shape, target = OPERATORS[name]
    passed = check(Branches(layer, between_casts), torch.randn(shape), dtype=dtype)
    assert len(passed.calls(target)) == len(ACTIVATIONS)
    assert not passed.calls(*UNARY, aten._to_copy.default, aten.add.Scalar)
    attribute = {CONV: 7, CONV_TRANSPOSE: 8, LINEAR: 3}[target]
    assert all(node.args[attribute] != "none" for node in passed.calls(target))


class Elu(nn.Module):
    """An activation that oneDNN's interface does not have."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        return functional.elu(self.layer(x))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", OPERATORS)
def test_activation_without_a_post_op_is_one_kernel(name: str, dtype: torch.dtype) -> None:
    skip_unless_supported(dtype)
    layer, shape, target = OPERATORS[name]
    net, x = Elu(layer()).eval(), torch.randn(shape)
    passed = check(net, x, dtype=dtype)
    (call,) = passed.calls(target)
    assert "none" in call.args
    assert activation_kernels(net.to(dtype), x.to(dtype)) == 1


@torch.no_grad()
def activation_kernels(net: Callable[..., Any], *args: Tensor) -> int:
    """Kernels of the compiled graph that do more than copy."""
    compiled, reports = compile_counted(net)
    dtype = args[0].dtype
    torch.testing.assert_close(compiled(*args), net(*args), atol=10 * TOLERANCES[dtype], rtol=10 * TOLERANCES[dtype])
    return sum("clone" not in kernel.name for kernel in reports[0].kernels)


BATCHED: dict[str, Callable[..., Tensor]] = {
    "bmm": lambda x, y, z: torch.bmm(x, y),
    "baddbmm": lambda x, y, z: torch.baddbmm(z, x, y),
    "baddbmm, scaled": lambda x, y, z: torch.baddbmm(z, x, y, beta=0.5, alpha=2.0),
}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", BATCHED)
@torch.no_grad()
def test_what_follows_a_batched_product_is_one_kernel(name: str, dtype: torch.dtype, dynamic: bool) -> None:
    skip_unless_supported(dtype)
    product = BATCHED[name]

    def f(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
        return functional.gelu(product(x, y, z)) * z + functional.elu(z).float().to(z.dtype)

    compiled, reports = compile_counted(f, dynamic=dynamic)
    for batch in (2, 3) if dynamic else (2,):
        x, y, z = (torch.randn(batch, *s, dtype=dtype) / 4 for s in ((5, 16), (16, 24), (5, 24)))
        exact = f(x.double(), y.double(), z.double())
        torch.testing.assert_close(compiled(x, y, z).double(), exact, atol=3 * TOLERANCES[dtype], rtol=3e-2)
    assert len(reports) == 1
    assert len(reports[0].kernels) <= 1 + (name != "bmm")
    assert reports[0].packed_weight_bytes == 0


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("then", [torch.add, torch.sub, torch.mul], ids=["add", "sub", "mul"])
@pytest.mark.parametrize("name", ["conv1d", "conv2d", "conv3d"])
def test_operation_with_another_tensor_is_fused_into_every_convolution(
    name: str, then: Any, dtype: torch.dtype
) -> None:
    layer, shape, _ = OPERATORS[name]

    class Two(nn.Module):
        """relu(layer(x) op layer(y))."""

        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = layer(), layer()

        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            return torch.relu(then(self.a(x), self.b(y)))

    passed = check(Two(), torch.randn(shape), torch.randn(shape), dtype=dtype)
    assert len(passed.calls(CONV_ADD)) == 1
    assert not passed.calls(aten.add.Tensor, aten.sub.Tensor, aten.mul.Tensor, aten.relu.default)


@pytest.mark.parametrize("name", OPERATORS)
@torch.no_grad()
def test_dynamic_batch_of_every_operator(name: str) -> None:
    layer, shape, target = OPERATORS[name]
    net = nn.Sequential(layer(), nn.SiLU()).eval()
    compiled, passed = compile_passed(net, dynamic=True)
    for batch in (2, 3, 5):
        x = torch.randn(batch, *shape[1:])
        torch.testing.assert_close(compiled(x), net(x), atol=1e-5, rtol=1e-5)
    assert len(passed.prepared) == 1
    assert len(passed.calls(target)) == 1
    assert not passed.calls(aten.silu.default)
