"""Weights whose memory is given back (`cpp.drop_original_weights`): which ones, who gets an error, how they return."""

from __future__ import annotations

import copy
import io
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

import inductor_cpu
from inductor_cpu.errors import UserError
from inductor_cpu.runtime.originals import ORIGINALS, memory_of_weights
from inductor_cpu.runtime.weights import memory_of_packed_weights
from tests.e2e.support import compile_counted
from tests.graph.harness import randomize, skip_unless_supported

Tensor = torch.Tensor


@pytest.fixture(autouse=True)
def dropping() -> Iterator[None]:
    with inductor_cpu.config.patch({"cpp.drop_original_weights": True}), torch.no_grad():
        yield


def make() -> nn.Module:
    """A convolution with a batch norm (folded), one without, a depthwise one, and linears of two kinds."""
    net = nn.Sequential(
        nn.Conv2d(4, 32, 3), nn.BatchNorm2d(32), nn.ReLU(), nn.Conv2d(32, 32, 3, groups=32), nn.Conv2d(32, 32, 1),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 8), nn.Linear(8, 64), nn.Linear(64, 64),
    )  # fmt: skip
    return randomize(net).eval()


def image(batch: int = 2) -> Tensor:
    return torch.randn(batch, 4, 6, 6)


def dropped(net: nn.Module) -> set[str]:
    """Names of the weights without memory."""
    tensors = [*net.named_parameters(remove_duplicate=False), *net.named_buffers()]
    return {name for name, tensor in tensors if ORIGINALS.find(tensor) is not None}


def same(actual: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(actual, expected, atol=1e-4, rtol=1e-4)


def compile_and_drop(net: nn.Module, *args: Any) -> Callable[..., Any]:
    compiled, _ = compile_counted(net, dynamic=False)
    expected = net(*args)
    for _ in range(3):
        same(compiled(*args), expected)
    return compiled


#: Columns are whole panels of every kernel (32 and 48): a copy is padded to these.
LAYERS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "conv": (lambda: nn.Conv2d(32, 96, 3, bias=False), (1, 32, 6, 6)),
    "conv and batch norm": (lambda: nn.Sequential(nn.Conv2d(32, 96, 3), nn.BatchNorm2d(96)), (1, 32, 6, 6)),
    "transposed conv": (lambda: nn.ConvTranspose2d(32, 96, 3), (1, 32, 6, 6)),
    "linear": (lambda: nn.Linear(128, 288), (3, 128)),
    "linears on one input": (lambda: Heads(), (3, 128)),
    "a batch of linears": (lambda: Experts(), (3, 5, 128)),
}


class Experts(nn.Module):
    """A weight for each matrix of a batch."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3, 128, 288) / 16)

    def forward(self, x: Tensor) -> Tensor:
        return torch.bmm(x, self.weight)


class Heads(nn.Module):
    """Three linears on one input."""

    def __init__(self) -> None:
        super().__init__()
        self.parts = nn.ModuleList([nn.Linear(128, 64) for _ in range(3)])

    def forward(self, x: Tensor) -> Tensor:
        a, b, c = (part(x) for part in self.parts)
        return a * b + c


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", LAYERS)
def test_weights_and_copies_together_take_the_memory_of_the_weights(name: str, dtype: torch.dtype) -> None:
    skip_unless_supported(dtype)
    layer, shape = LAYERS[name]
    net, x = layer().eval().to(dtype), torch.randn(shape, dtype=dtype)
    size = memory_of_weights(net)
    before, expected = memory_of_packed_weights(), net(x)
    compiled, _ = compile_counted(net)
    for _ in range(3):
        torch.testing.assert_close(compiled(x), expected, atol=3e-2, rtol=3e-2)
    assert memory_of_weights(net) + memory_of_packed_weights() - before <= 1.1 * size


def test_first_call_drops_nothing() -> None:
    net = make()
    compiled, _ = compile_counted(net)
    compiled(image())
    assert not dropped(net)


READERS: dict[str, Callable[[nn.Module], Any]] = {
    "forward in eager mode": lambda net: net(image()),
    "state_dict, saved": lambda net: torch.save(net.state_dict(), io.BytesIO()),
    "state_dict, compared": lambda net: net.state_dict()["0.weight"].sum(),
    "deepcopy": copy.deepcopy,
    "cast": lambda net: net.to(torch.float64),
    "numpy": lambda net: net[0].weight.numpy(),  # type: ignore[index]
    "edit": lambda net: net[0].weight.add_(1),  # type: ignore[index]
    "linear": lambda net: functional.linear(torch.randn(2, 64), net[9].weight),  # type: ignore[index]
    "graph of its own": lambda net: torch.compile(lambda w: w * 2, backend="icpu")(net[0].weight),  # type: ignore[index]
    "graph that is not packed": lambda net: unpacked(net)(image()),
}


def unpacked(net: nn.Module) -> Callable[..., Any]:
    options = {"cpp.weight_prepack": False, "cpp.drop_original_weights": False}
    return torch.compile(lambda x: net(x), backend="icpu", options=options)


def test_reading_a_dropped_weight_says_what_to_do_and_changes_nothing() -> None:
    net = make()
    compiled, x = compile_and_drop(net, image()), image()
    expected, said = compiled(x), {}
    for name, read in READERS.items():
        try:
            read(net)
        except (UserError, RuntimeError) as error:
            said[name] = str(error)
        same(compiled(x), expected)
    told = re.compile(r"given back \(cpp\.drop_original_weights\).*load_state_dict")
    assert [name for name in READERS if not told.search(said.get(name, ""))] == []


def test_training_of_a_dropped_model_says_what_to_do() -> None:
    net = make()
    compiled = compile_and_drop(net, image())
    with torch.enable_grad(), pytest.raises(UserError, match="in training"):
        compiled(image())


def load(net: nn.Module, state: dict[str, Tensor]) -> None:
    net.load_state_dict(state)


def assign(net: nn.Module, state: dict[str, Tensor]) -> None:
    net.load_state_dict({name: value.clone() for name, value in state.items()}, assign=True)


def set_data(net: nn.Module, state: dict[str, Tensor]) -> None:
    for name, tensor in (*net.named_parameters(), *net.named_buffers()):
        tensor.data = state[name].clone()


@pytest.mark.parametrize("change", [load, assign, set_data])
def test_loaded_weights_are_used_and_dropped_again(change: Callable[..., None]) -> None:
    net = make()
    compiled, names, before = compile_and_drop(net, image()), dropped(net), memory_of_packed_weights()
    for _ in range(2):
        other, x = make(), image()
        change(net, other.state_dict())
        same(net(x), other(x))
        for _ in range(3):
            same(compiled(x), other(x))
        assert dropped(net) == names
        assert memory_of_packed_weights() == before


def test_loading_a_part_of_what_a_copy_is_made_from_says_what_to_do() -> None:
    net, x = make(), image()
    compiled = compile_and_drop(net, x)
    state = make().state_dict()
    net.load_state_dict({name: value for name, value in state.items() if name.startswith("1.")}, strict=False)
    for _ in range(2):
        with pytest.raises(UserError, match="load_state_dict"):
            compiled(x)
    net.load_state_dict(state)
    same(compiled(x), net(x))


def test_graphs_compiled_later_use_the_copies() -> None:
    net = make()
    inputs = {batch: image(batch) for batch in (1, 2, 3)}
    expected = {batch: net(x) for batch, x in inputs.items()}
    compiled, before = compile_and_drop(net, inputs[2]), memory_of_packed_weights()
    for batch in (1, 3):
        same(compiled(inputs[batch]), expected[batch])
    torch._dynamo.reset()
    for _ in range(2):
        same(compiled(inputs[2]), expected[2])
    assert memory_of_packed_weights() == before


def test_repack_keeps_copies_of_dropped_weights() -> None:
    net, x = make(), image()
    expected = net(x)
    compiled = compile_and_drop(net, x)
    inductor_cpu.repack(net)
    same(compiled(x), expected)


class Tied(nn.Module):
    """An embedding and a linear of one weight, in one graph or in two, the linear first."""

    def __init__(self, split: bool) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(64, 32), nn.Linear(32, 64, bias=False)
        self.head.weight, self.split = self.embedding.weight, split

    def forward(self, x: Tensor, index: Tensor) -> Tensor:
        y = self.head(x)
        if self.split:
            torch._dynamo.graph_break()
        return y.sum() + self.embedding(index)


@pytest.mark.parametrize("split", [False, True], ids=["one graph", "two graphs"])
def test_weight_that_is_also_read_unpacked_is_kept(split: bool) -> None:
    net, before = Tied(split), memory_of_packed_weights()
    compile_and_drop(net, torch.randn(2, 32), torch.tensor([1, 2]))
    assert not dropped(net)
    assert split or memory_of_packed_weights() == before


def test_weights_that_share_memory_are_kept() -> None:
    net = nn.Linear(64, 64)
    view = net.weight.detach()[:2]
    compile_and_drop(net, torch.randn(2, 64))
    assert not dropped(net)
    same(view, net.weight[:2])


def test_linears_of_one_weight_are_dropped_together() -> None:
    net = nn.Sequential(nn.Linear(64, 64, bias=False), nn.ReLU(), nn.Linear(64, 64, bias=False))
    net[2].weight = net[0].weight
    compile_and_drop(net, torch.randn(2, 64))
    assert dropped(net) == {"0.weight", "2.weight"}


def test_inference_tensors_are_kept() -> None:
    with torch.inference_mode():
        net = nn.Linear(64, 64)
        compile_and_drop(net, torch.randn(2, 64))
    assert not dropped(net)


def test_explain_tells_how_many_weights_may_be_dropped() -> None:
    text = str(inductor_cpu.explain(nn.Linear(64, 64), torch.randn(2, 64)))
    assert "1 weights are read in packed copies only" in text
    assert "1 are read unpacked" in text


def test_nothing_is_dropped_unless_asked_for() -> None:
    net = make()
    with inductor_cpu.config.patch({"cpp.drop_original_weights": False}):
        compile_and_drop(net, image())
    assert not dropped(net)


def test_memory_handed_on_by_dlpack_stays() -> None:
    net = nn.Linear(64, 64).eval().requires_grad_(False)
    expected = net.weight.clone()
    capsule = torch.utils.dlpack.to_dlpack(net.weight)
    compile_and_drop(net, torch.randn(2, 64))
    same(torch.utils.dlpack.from_dlpack(capsule), expected)
