"""Convolutions: packing, activations, residual adds and layout."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional

from inductor_cpu.graph.convolution import share_inside
from inductor_cpu.ir.depthwise import DEPTHWISE_CONVOLUTION
from tests.graph.harness import (
    CONV,
    CONV_ADD,
    CONV_TRANSPOSE,
    aten,
    check,
    compile_passed,
    mkldnn,
    skip_unless_supported,
)

Tensor = torch.Tensor
DTYPES = (torch.float32, torch.bfloat16, torch.float16)

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": functional.relu,
    "relu6": functional.relu6,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "hardtanh": lambda x: functional.hardtanh(x, -0.5, 0.5),
    "clamp": lambda x: x.clamp(-0.3, 0.4),
    "hardswish": functional.hardswish,
    "hardsigmoid": functional.hardsigmoid,
    "silu": functional.silu,
    "leaky_relu": lambda x: functional.leaky_relu(x, 0.2),
    "gelu": functional.gelu,
    "gelu_tanh": lambda x: functional.gelu(x, approximate="tanh"),
}


class Net(nn.Module):
    """A convolution and a function of its result."""

    def __init__(self, layer: nn.Module, then: Callable[..., Any] = lambda y: y) -> None:
        super().__init__()
        self.layer, self.then = layer, then

    def forward(self, x: Tensor, *more: Tensor) -> Any:
        return self.then(self.layer(x), *more)


LAYERS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "3x3": (lambda: nn.Conv2d(8, 16, 3, padding=1), (2, 8, 9, 9)),
    "1x1": (lambda: nn.Conv2d(8, 16, 1, bias=False), (2, 8, 9, 9)),
    "strided": (lambda: nn.Conv2d(3, 16, 7, stride=2, padding=3), (2, 3, 18, 18)),
    "dilated": (lambda: nn.Conv2d(8, 8, 3, padding=2, dilation=2), (2, 8, 9, 9)),
    "grouped": (lambda: nn.Conv2d(8, 16, 3, groups=4), (2, 8, 9, 9)),
    "depthwise": (lambda: nn.Conv2d(16, 16, 3, padding=1, groups=16), (2, 16, 9, 9)),
    "depth multiplier": (lambda: nn.Conv2d(8, 24, 3, groups=8), (2, 8, 9, 9)),
    "same padding": (lambda: nn.Conv2d(8, 8, 4, padding="same"), (2, 8, 9, 9)),
    "1d": (lambda: nn.Conv1d(8, 16, 3, padding=1, stride=2), (2, 8, 21)),
    "3d": (lambda: nn.Conv3d(4, 8, 3, padding=1), (2, 4, 5, 6, 7)),
    "one channel": (lambda: nn.Conv2d(1, 1, 3), (1, 1, 5, 5)),
}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", LAYERS)
def test_every_convolution_is_packed_with_its_activation(name: str, dtype: torch.dtype) -> None:
    make, shape = LAYERS[name]
    passed = check(Net(make(), torch.relu), torch.randn(shape), dtype=dtype)
    assert not passed.calls(aten.convolution.default)
    if name == "depthwise" and dtype != torch.float32:
        assert len(passed.calls(DEPTHWISE_CONVOLUTION)) == 1  # loops, with the activation in the same kernel
        return
    (conv,) = passed.calls(CONV)
    assert conv.args[7] == "relu"
    assert not passed.calls(aten.relu.default)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (lambda: nn.ConvTranspose2d(8, 6, 3, stride=2, padding=1, output_padding=1), (2, 8, 5, 5)),
        (lambda: nn.ConvTranspose2d(8, 8, 3, stride=2, groups=2, bias=False), (2, 8, 5, 5)),
        (lambda: nn.ConvTranspose3d(4, 4, 3, stride=2), (1, 4, 3, 4, 5)),
        (lambda: nn.ConvTranspose1d(8, 6, 3, stride=2), (2, 8, 5)),
    ],
    ids=["2d", "grouped", "3d", "1d"],
)
def test_transposed_convolution_is_packed_with_its_activation(
    layer: Callable[[], nn.Module], shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    passed = check(Net(layer(), torch.relu), torch.randn(shape), dtype=dtype)
    assert len(passed.calls(CONV_TRANSPOSE)) == 1
    assert not passed.calls(aten.relu.default)


def test_weight_of_transposed_convolution_is_packed_for_the_size_of_its_images() -> None:
    """Else oneDNN may choose another layout at each call, and reorder the weight."""
    passed = check(nn.ConvTranspose2d(8, 6, 3, stride=2), torch.randn(2, 8, 5, 7))
    (recipe,) = (prepared.recipe for prepared in passed.prepared)
    assert recipe is not None
    packer = mkldnn._reorder_convolution_transpose_weight.default
    (packed,) = (node for node in recipe.graph.graph.nodes if node.target == packer)
    assert list(packed.args[6]) == [2, 8, 5, 7]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_every_activation_becomes_a_post_op(name: str, dtype: torch.dtype) -> None:
    passed = check(Net(nn.Conv2d(8, 16, 3), ACTIVATIONS[name]), torch.randn(2, 8, 7, 7), dtype=dtype)
    assert passed.names() in (["aten.clone.default", str(CONV)], [str(CONV)])


@pytest.mark.parametrize(
    "then",
    [
        lambda y: (torch.relu(y), y),
        lambda y: torch.relu(y.float()),
        lambda y: functional.elu(y),
        lambda y: y.clamp(max=1.0),
    ],
    ids=["two readers", "cast and not back", "no post-op", "one bound"],
)
def test_what_is_no_post_op_stays_a_kernel(then: Callable[[Tensor], Any]) -> None:
    passed = check(Net(nn.Conv2d(8, 16, 3), then), torch.randn(2, 8, 7, 7), dtype=torch.bfloat16)
    (conv,) = passed.calls(CONV)
    assert conv.args[7] == "none"


def test_activation_between_casts_becomes_a_post_op() -> None:
    net = Net(nn.Conv2d(8, 16, 3), lambda y: functional.silu(y.float()).to(y.dtype))
    passed = check(net, torch.randn(2, 8, 7, 7), dtype=torch.bfloat16)
    (conv,) = passed.calls(CONV)
    assert conv.args[7] == "swish"


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("activation", [None, torch.relu, functional.silu], ids=["none", "relu", "silu"])
def test_residual_add_and_its_activation_are_fused(activation: Any, dtype: torch.dtype) -> None:
    net = Net(nn.Conv2d(8, 8, 3, padding=1), lambda y, x: activation(x + y) if activation else x + y)
    x = torch.randn(2, 8, 7, 7)
    passed = check(net, x, torch.randn(2, 8, 7, 7), dtype=dtype)
    assert len(passed.calls(CONV_ADD)) == 1
    assert len(passed.calls(aten.silu.default)) == (activation is functional.silu)  # oneDNN's binary has relu only
    assert not passed.calls(aten.add.Tensor, aten.relu.default)


@pytest.mark.parametrize(
    "then",
    [
        lambda y, x: y + x[:1],
        lambda y, x: torch.add(y, x, alpha=2),
        lambda y, x: y + y,
        lambda y, x: (y + x, y),
        lambda y, x: torch.relu(y) + x,
        lambda y, x: y + x.double(),
    ],
    ids=["broadcast", "alpha", "itself", "two readers", "after an activation", "other dtype"],
)
def test_other_adds_stay_kernels(then: Callable[..., Any]) -> None:
    x = torch.randn(2, 8, 7, 7)
    passed = check(Net(nn.Conv2d(8, 8, 3, padding=1), then), x, x * 2)
    assert not passed.calls(CONV_ADD)


def test_convolutions_in_a_row_have_no_reorder_between_them() -> None:
    net = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 8, 3, groups=8), nn.Hardswish(),
        nn.Conv2d(8, 16, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 4),
    )  # fmt: skip
    passed = check(net, torch.randn(2, 3, 16, 16))
    assert len(passed.calls(aten.clone.default)) == 1  # of the input
    assert len(passed.calls(CONV)) == 3


def test_results_keep_the_strides_of_eager_mode() -> None:
    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(4, 4, 3)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            y = self.conv(x)
            return y, (y + 1).transpose(1, 2)

    _, passed = run_both(Both(), torch.randn(2, 4, 6, 6))
    promised = passed.prepared[0].gm.graph.output_node().meta["result_strides"]
    assert promised == [(64, 16, 4, 1), (64, 4, 16, 1)]


def run_both(model: nn.Module, x: Tensor) -> tuple[Any, Any]:
    """The result and the graphs."""
    compiled, passed = compile_passed(model.eval())
    with torch.no_grad():
        return compiled(x), passed


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_dynamic_batch(dtype: torch.dtype) -> None:
    net = Net(nn.Conv2d(8, 8, 3, padding=1), lambda y, x: torch.relu(x + y)).eval().to(dtype)
    check(net, torch.randn(2, 8, 7, 7), torch.randn(2, 8, 7, 7), dtype=dtype, dynamic=True)
    torch._dynamo.reset()
    compiled, passed = compile_passed(net, dynamic=True)
    with torch.no_grad():
        for batch in (2, 3, 5):
            x, z = (torch.randn(batch, 8, 7, 7, dtype=dtype) for _ in range(2))
            tolerance = {"atol": 3e-2, "rtol": 3e-2} if dtype != torch.float32 else {"atol": 1e-4, "rtol": 1e-4}
            torch.testing.assert_close(compiled(x, z), net(x, z), **tolerance)
    assert len(passed.prepared) == 1
    assert len(passed.calls(CONV_ADD)) == 1


@pytest.mark.parametrize(
    ("layer", "x", "reason"),
    [
        (nn.Conv2d(4, 4, 3), torch.randn(0, 4, 6, 6), "empty"),
        (nn.Conv2d(4, 4, 3).double(), torch.randn(2, 4, 6, 6).double(), "float64"),
    ],
    ids=["empty batch", "float64"],
)
def test_refused_convolution_is_right_and_says_why(layer: nn.Module, x: Tensor, reason: str) -> None:
    result, passed = run_both(layer, x)
    torch.testing.assert_close(result, layer(x), atol=1e-5, rtol=1e-5)
    assert not passed.calls(CONV)
    assert reason in passed.notes


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(
    "layer",
    [
        nn.Conv2d(6, 9, 3, groups=3),
        nn.Conv2d(6, 12, 3, groups=6),
        nn.Conv1d(6, 4, 2, groups=2),
        nn.Conv3d(6, 6, 2, groups=6),
        nn.ConvTranspose2d(6, 9, 3, groups=3),
        nn.ConvTranspose2d(6, 6, 3, stride=2, groups=6),
        nn.ConvTranspose3d(6, 4, 2, groups=2),
    ],
    ids=str,
)
def test_groups_of_channels_of_any_size_are_right(layer: nn.Module, dtype: torch.dtype) -> None:
    dims = layer.weight.dim() - 2
    check(Net(layer, torch.relu).eval(), torch.randn(2, 6, *(7, 6, 5)[:dims]), dtype=dtype)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@torch.no_grad()
def test_autocast_casts_the_weights_of_convolutions_once(dtype: torch.dtype) -> None:
    skip_unless_supported(dtype)
    net = Net(nn.Conv2d(4, 8, 3), torch.relu).eval()
    compiled, passed = compile_passed(net)
    x = torch.randn(2, 4, 6, 5)
    with torch.autocast("cpu", dtype=dtype):
        torch.testing.assert_close(compiled(x), net(x), atol=2e-2, rtol=2e-2)
    casts = [node for node in passed.calls(aten._to_copy.default) if node.meta["val"].dtype == dtype]
    assert len(casts) == 1  # that of x
    (call,) = passed.calls(CONV)
    assert call.args[7] == "relu"


@torch.no_grad()
def test_weights_without_memory_give_results_without_memory() -> None:
    net = nn.Sequential(nn.Conv2d(4, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 16, 20)).eval().to("meta")
    x = torch.randn(2, 4, 6, 6, device="meta")
    result = torch.compile(net, backend="icpu")(x)
    assert (result.device.type, result.shape, result.dtype) == ("meta", (2, 20), torch.float32)


def test_unbatched_input() -> None:
    passed = check(Net(nn.Conv2d(4, 4, 3), torch.relu), torch.randn(4, 6, 6))
    assert passed.calls(CONV, aten.convolution.default)


def test_weight_that_is_no_parameter_is_not_packed() -> None:
    class Given(nn.Module):
        def forward(self, x: Tensor, w: Tensor) -> Tensor:
            return functional.conv2d(x, w)

    passed = check(Given(), torch.randn(2, 4, 6, 6), torch.randn(4, 4, 3, 3))
    assert not passed.calls(CONV)


def _fake_layout(x: Tensor) -> Tensor:
    return x.new_empty(x.dim() + 1, dtype=torch.int64)


READ: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], Callable[[Tensor], Tensor]]] = {
    "whole": (lambda: nn.Conv2d(4, 8, 3), (2, 4, 6, 6), lambda y: y),
    "part of the channels": (lambda: nn.Conv2d(4, 8, 3), (2, 4, 6, 6), lambda y: y[:, 1:3]),
    "part, activated": (lambda: nn.Conv2d(4, 8, 3), (2, 4, 6, 6), lambda y: y.relu()[:, :, 1:3].transpose(1, 2)),
    "part of many": (lambda: nn.Conv2d(4, 8, 3), (2, 4, 6, 6), lambda y: y.split(2, 1)[1].unbind(0)[1]),
    "part of rows": (lambda: nn.Conv2d(4, 8, 3), (2, 4, 6, 6), lambda y: y[1:].view(-1, 32)[:, 3:7]),
    "one dimension, activated": (lambda: nn.Conv1d(4, 8, 3), (2, 4, 6), torch.relu),
    "one dimension, transposed and activated": (lambda: nn.Conv1d(4, 8, 3), (2, 4, 6), lambda y: y.mT.relu()),
}


@pytest.mark.parametrize("case", READ)
def test_custom_operator_gets_the_strides_of_eager_mode(case: str) -> None:
    layer, size, view = READ[case]
    with torch.library._scoped_library("icpu_test_strides", "FRAGMENT") as library:
        library.define("layout(Tensor x) -> Tensor")
        library.impl("layout", lambda x: torch.tensor([*x.stride(), x.storage_offset()]), "CPU")
        torch.library.register_fake("icpu_test_strides::layout", _fake_layout, lib=library)
        net, x = Net(layer(), lambda y: torch.ops.icpu_test_strides.layout(view(y))), torch.randn(size)
        result, passed = run_both(net, x)
        assert len(passed.calls(CONV)) == 1
        assert result.tolist() == net(x).tolist()


def test_attention_gets_a_dense_last_dimension() -> None:
    """Its kernel does not look at that stride: whoever calls it has to."""
    net = Net(nn.Conv2d(4, 4, 3), lambda y: functional.scaled_dot_product_attention(y, y.flip(-2), y * 0.5))
    (call,) = check(net, torch.randn(2, 4, 8, 8)).calls(aten._scaled_dot_product_flash_attention_for_cpu.default)
    assert [n.meta["val"].stride(-1) for n in call.all_input_nodes] == [1, 1, 1]


@pytest.mark.parametrize("view", [lambda y: y * 1, lambda y: y[:, 1:3]], ids=["whole", "part"])
def test_as_strided_reads_the_memory_of_eager_mode(view: Callable[[Tensor], Tensor]) -> None:
    net = Net(nn.Conv2d(4, 4, 3), lambda y: view(y).as_strided((2, 16), (48, 1)) + 0)
    check(net, torch.randn(2, 4, 6, 6))


def test_sizes_from_data_after_a_convolution() -> None:
    net = Net(nn.Conv2d(4, 4, 3), lambda y: y[y > 0] * 2)
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        check(net, torch.randn(2, 4, 6, 6))


@pytest.mark.parametrize(
    ("size", "window", "stride", "padding", "dilation"),
    [
        ((9, 9), (3, 3), 1, 1, 1),
        ((65, 65), (3, 3), 1, 12, 12),
        ((65, 33), (3, 5), 2, 36, (12, 7)),
        ((9, 5), (2, 1), 1, 0, 3),
    ],
)
def test_the_share_of_dilated_windows_inside_of_an_image_is_counted(
    size: tuple[int, int], window: tuple[int, int], stride: int, padding: int, dilation: int | tuple[int, int]
) -> None:
    image, ones = torch.ones(2, 1, *size), torch.ones(3, 1, *window)
    gm = make_fx(lambda x, w: functional.conv2d(x, w, None, stride, padding, dilation), tracing_mode="fake")(
        image, ones
    )
    (node,) = gm.graph.find_nodes(op="call_function", target=aten.convolution.default)
    counted = functional.conv2d(image, ones, None, stride, padding, dilation).mean().item() / ones[0].numel()
    assert share_inside(node) == (1.0 if dilation == 1 else pytest.approx(counted))


@torch.no_grad()
@pytest.mark.parametrize("layer", [nn.Conv1d(4, 6, 1), nn.Conv2d(4, 6, 1, bias=False)], ids=["1d", "2d"])
def test_small_convolution_of_single_pixels_in_float64_keeps_all_digits(layer: nn.Module) -> None:
    net, x = Net(layer.double().requires_grad_(False)), torch.randn(2, 4, *[8] * (layer.weight.dim() - 2)).double()
    torch.testing.assert_close(torch.compile(net, backend="icpu")(x), net(x), rtol=1e-13, atol=1e-13)
