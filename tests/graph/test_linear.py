"""Linears: packing, activations, residual adds, several on one input."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from tests.graph.harness import LINEAR, LINEAR_ADD, aten, check, compile_passed, skip_unless_supported
from tests.graph.test_convolution import ACTIVATIONS, DTYPES, Net

Tensor = torch.Tensor


class Product(nn.Module):
    """x @ w for a parameter that is not transposed."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.randn(12, 20) / 4)

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.w


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_every_activation_becomes_a_post_op(name: str, dtype: torch.dtype) -> None:
    passed = check(Net(nn.Linear(12, 20), ACTIVATIONS[name]), torch.randn(2, 3, 12), dtype=dtype)
    assert passed.names() == [str(LINEAR)]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("rank", [1, 2, 3, 4])
@pytest.mark.parametrize(
    "layer",
    [lambda: nn.Linear(12, 20), lambda: nn.Linear(12, 20, bias=False), Product],
    ids=["bias", "plain", "by columns"],
)
def test_linear_is_packed(layer: Callable[[], nn.Module], rank: int, dtype: torch.dtype) -> None:
    passed = check(Net(layer()), torch.randn((2, 3, 4, 12)[4 - rank :]), dtype=dtype)
    assert len(passed.calls(LINEAR)) == 1 or rank == 1


class Strided(nn.Module):
    """A layer whose bias is a view with other strides, or one number that is added to its result."""

    def __init__(self, product: Callable[..., Tensor], weight: tuple[int, ...], bias: Callable[[Tensor], Tensor]):
        super().__init__()
        self.product, self.view = product, bias
        self.weight, self.bias = nn.Parameter(torch.randn(weight) / 4), nn.Parameter(torch.randn(40))

    def forward(self, x: Tensor) -> Tensor:
        bias = self.view(self.bias)
        y = self.product(x, self.weight, bias)
        return y + self.weight.amax() if bias is None else y


@pytest.mark.parametrize(
    "bias", [lambda b: b[::2], lambda b: b[:1].expand(20), lambda b: None], ids=["gaps", "one", "no"]
)
@pytest.mark.parametrize(
    ("product", "weight", "x"),
    [
        (functional.linear, (20, 12), (4, 12)),
        (functional.conv2d, (20, 12, 3, 3), (2, 12, 7, 7)),
        (functional.conv_transpose2d, (12, 20, 3, 3), (2, 12, 7, 7)),
        (functional.conv3d, (20, 12, 3, 3, 3), (1, 12, 5, 5, 5)),
    ],
)
def test_a_bias_that_is_not_contiguous_is_read_where_it_lies(
    product: Callable[..., Tensor], weight: tuple[int, ...], x: tuple[int, ...], bias: Callable[[Tensor], Tensor]
) -> None:
    passed = check(Strided(product, weight, bias), torch.randn(x))
    assert any(str(name).startswith("mkldnn") for name in passed.names())


@pytest.mark.parametrize(
    "then",
    [lambda y: (torch.relu(y), y), lambda y: functional.elu(y), lambda y: torch.relu(y[:, :5])],
    ids=["two readers", "no post-op", "part"],
)
def test_what_is_no_post_op_stays_a_kernel(then: Callable[[Tensor], Any]) -> None:
    passed = check(Net(nn.Linear(12, 20), then), torch.randn(4, 12))
    (linear,) = passed.calls(LINEAR)
    assert linear.args[3] == "none"


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(
    "then",
    [
        lambda y, z: y + z,
        lambda y, z: z + y,
        lambda y, z: y - z,
        lambda y, z: y * z,
        lambda y, z: y.permute(0, 2, 1) + z.permute(0, 2, 1),
        lambda y, z: torch.relu(y + z),
    ],
    ids=["y + z", "z + y", "y - z", "y * z", "transposed", "then relu"],
)
def test_operation_with_another_tensor_is_fused(then: Callable[..., Tensor], dtype: torch.dtype) -> None:
    passed = check(Net(nn.Linear(12, 20), then), torch.randn(2, 3, 12), torch.randn(2, 3, 20), dtype=dtype)
    assert len(passed.calls(LINEAR_ADD)) == 1
    assert not passed.calls(aten.add.Tensor, aten.sub.Tensor, aten.mul.Tensor)


@pytest.mark.parametrize(
    "then",
    [
        lambda y, z: z - y,
        lambda y, z: y + z[:1],
        lambda y, z: y + y,
        lambda y, z: (y + z, y),
        lambda y, z: y.permute(0, 2, 1) + z.transpose(1, 2).contiguous(),
        lambda y, z: y + z.double(),
    ],
    ids=["z - y", "broadcast", "itself", "two readers", "other layout", "other dtype"],
)
def test_other_operations_stay_kernels(then: Callable[..., Any]) -> None:
    passed = check(Net(nn.Linear(12, 20), then), torch.randn(2, 3, 12), torch.randn(2, 3, 20))
    assert not passed.calls(LINEAR_ADD)


def test_residual_of_a_residual() -> None:
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(12, 12), nn.Linear(12, 12)

        def forward(self, x: Tensor) -> Tensor:
            y = x + self.a(x)
            return y + self.b(torch.tanh(y))

    passed = check(Block(), torch.randn(2, 3, 12))
    assert len(passed.calls(LINEAR_ADD)) == 2


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_dynamic_rows(dtype: torch.dtype) -> None:
    skip_unless_supported(dtype)
    net = Net(nn.Linear(12, 20), lambda y, z: functional.gelu(y) + z).eval().to(dtype)
    compiled, passed = compile_passed(net, dynamic=True)
    tolerance = {"atol": 3e-2, "rtol": 3e-2} if dtype != torch.float32 else {"atol": 1e-5, "rtol": 1e-5}
    with torch.no_grad():
        for batch in (2, 3, 5):
            x, z = torch.randn(batch, 7, 12, dtype=dtype), torch.randn(batch, 7, 20, dtype=dtype)
            torch.testing.assert_close(compiled(x, z), net(x, z), **tolerance)
    assert len(passed.prepared) == 1
    assert len(passed.calls(LINEAR)) == 1


@torch.no_grad()
def test_number_of_rows_that_depends_on_data_may_be_zero() -> None:
    net = Net(nn.Linear(12, 20), torch.relu)
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        compiled, passed = compile_passed(lambda x, keep: net(x[keep]))
        x = torch.randn(4, 12)
        for keep in (x[:, 0] > 0, torch.zeros(4, dtype=torch.bool)):
            torch.testing.assert_close(compiled(x, keep), net(x[keep]), atol=1e-5, rtol=1e-5)
    assert len(passed.calls(LINEAR)) == 1


@pytest.mark.parametrize(
    ("model", "x", "reason"),
    [
        (nn.Linear(12, 20), torch.randn(0, 12), "empty"),
        (nn.Linear(12, 20).double(), torch.randn(2, 12).double(), "float64"),
    ],
    ids=["empty batch", "float64"],
)
@torch.no_grad()
def test_refused_linear_is_right_and_says_why(model: nn.Module, x: Tensor, reason: str) -> None:
    compiled, passed = compile_passed(model)
    torch.testing.assert_close(compiled(x), model(x))
    assert not passed.calls(LINEAR)
    assert reason in passed.notes


@torch.no_grad()
def test_weight_that_would_grow_four_times_is_not_kept() -> None:
    class Quantized(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("w", torch.randint(-8, 8, (20, 12), dtype=torch.int8))

        def forward(self, x: Tensor) -> Tensor:
            return functional.linear(x, self.get_buffer("w").float())

    net = Quantized()
    compiled, passed = compile_passed(net)
    x = torch.randn(3, 12)
    torch.testing.assert_close(compiled(x), net(x), atol=1e-4, rtol=1e-4)
    assert not passed.calls(LINEAR)
    assert "4.0 times as large" in passed.notes


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@torch.no_grad()
def test_autocast_casts_the_weights_once(dtype: torch.dtype) -> None:
    skip_unless_supported(dtype)
    net = Net(nn.Linear(12, 20), functional.gelu)
    compiled, passed = compile_passed(net)
    x = torch.randn(4, 12)
    with torch.autocast("cpu", dtype=dtype):
        torch.testing.assert_close(compiled(x), net(x), atol=2e-2, rtol=2e-2)
    assert passed.names() == ["aten._to_copy.default", str(LINEAR)]  # the cast of x


# -- several linears on one input --------------------------------------------------------------------------------------
class Heads(nn.Module):
    """Several linears on one input, and a function of their results."""

    def __init__(self, widths: tuple[int, ...], then: Callable[..., Any], bias: bool = True) -> None:
        super().__init__()
        self.parts = nn.ModuleList([nn.Linear(16, w, bias=bias) for w in widths])
        self.then = then

    def forward(self, x: Tensor) -> Any:
        return self.then(*[part(x) for part in self.parts])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("dynamic", [None, True])
def test_query_key_and_value_are_one_product(bias: bool, dynamic: bool | None, dtype: torch.dtype) -> None:
    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        q, k, v = (t.view(t.shape[0], t.shape[1], -1, 8).transpose(1, 2) for t in (q, k, v))
        k, v = (t.repeat_interleave(q.shape[1] // t.shape[1], 1) for t in (k, v))
        return functional.scaled_dot_product_attention(q, k, v)

    passed = check(Heads((16, 8, 8), attend, bias), torch.randn(2, 5, 16), dtype=dtype, dynamic=dynamic)
    assert len(passed.calls(LINEAR)) == 1
    assert "are one product" in passed.notes


def test_gate_and_up_are_one_product() -> None:
    passed = check(Heads((24, 24), lambda g, u: functional.silu(g) * u), torch.randn(2, 5, 16))
    assert len(passed.calls(LINEAR)) == 1


class ScaledHeads(nn.Module):
    """Two linears on one input; the second is scaled by a parameter, which is folded into its weights."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(16, 8), nn.Linear(16, 8)
        self.scale = nn.Parameter(torch.rand(8) + 0.5)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.first(x), self.second(x) * self.scale


def test_linears_whose_weights_were_scaled_are_one_product() -> None:
    passed = check(ScaledHeads(), torch.randn(4, 16))
    assert "are one product" in passed.notes
    assert len(passed.calls(LINEAR)) == 1


def test_linears_with_activations_to_fuse_stay_apart() -> None:
    passed = check(Heads((24, 24), lambda a, b: torch.relu(a) * torch.tanh(b)), torch.randn(2, 5, 16))
    assert len(passed.calls(LINEAR, LINEAR_ADD)) == 2
    assert "has an activation of its own" in passed.notes


def test_linears_on_different_inputs_stay_apart() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(16, 8), nn.Linear(16, 8)

        def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
            return self.a(x), self.b(y)

    passed = check(Two(), torch.randn(3, 16), torch.randn(3, 16))
    assert len(passed.calls(LINEAR)) == 2


def test_large_linears_stay_apart() -> None:
    class Large(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = (nn.Linear(1024, 2048, bias=False) for _ in range(2))

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            return self.a(x), self.b(x)

    passed = check(Large(), torch.randn(1, 1024))
    assert len(passed.calls(LINEAR)) == 2
    assert "the joined weight would have" in passed.notes


def test_weight_used_elsewhere_is_not_joined() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(16, 8), nn.Linear(16, 8)

        def forward(self, x: Tensor) -> tuple[Tensor, ...]:
            return self.a(x), self.b(x), self.a(x * 2)

    passed = check(Tied(), torch.randn(3, 16))
    assert len(passed.calls(LINEAR)) == 3
    assert "also used elsewhere" in passed.notes
