"""Packed weights of compiled models: they follow every change, are shared, and go with the model."""

from __future__ import annotations

import copy
import gc
import os
import signal
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

import inductor_cpu
from inductor_cpu.runtime import weights
from inductor_cpu.runtime.weights import memory_of_packed_weights
from inductor_cpu.trace import CompileReport
from tests.e2e.support import compile_counted
from tests.graph.harness import skip_unless_supported

Tensor = torch.Tensor


def make() -> nn.Module:
    """A convolution with a batch norm, and a linear."""
    net = nn.Sequential(
        nn.Conv2d(4, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5)
    )
    return net.eval()


def edit_in_place(net: nn.Module) -> None:
    for p in net.parameters():
        p.mul_(1.5)


def load(net: nn.Module) -> None:
    net.load_state_dict(make().state_dict())


def assign_data(net: nn.Module) -> None:
    for p in net.parameters():
        p.data = p.data * 1.5


def assign_state(net: nn.Module) -> None:
    net.load_state_dict(make().state_dict(), assign=True)


def change_buffers(net: nn.Module) -> None:
    net[1].running_mean.add_(0.7)  # type: ignore[index]
    net[1].running_var = torch.full((8,), 2.0)  # type: ignore[index]


def optimize(net: nn.Module) -> None:
    optimizer = torch.optim.SGD(net.parameters(), lr=0.5)
    with torch.enable_grad():
        net(torch.randn(2, 4, 6, 6)).square().sum().backward()
    optimizer.step()
    optimizer.zero_grad()


def edit_data(net: nn.Module) -> None:
    for p in net.parameters():
        p.data.mul_(1.5)
    assert inductor_cpu.repack(net) == 1


def edit_one(net: nn.Module) -> None:
    net[5].bias.add_(3.0)  # type: ignore[index]
    net[0].weight[0].zero_()  # type: ignore[index]


CHANGES: dict[str, Callable[[nn.Module], None]] = {
    "in place": edit_in_place,
    "load_state_dict": load,
    "weight.data assigned": assign_data,
    "load_state_dict, assign": assign_state,
    "buffers": change_buffers,
    "optimizer step": optimize,
    "weight.data edited, then repack": edit_data,
    "some weights": edit_one,
}


@torch.no_grad()
@pytest.mark.parametrize("name", CHANGES)
def test_result_follows_a_change_of_weights_without_a_compile(name: str) -> None:
    net, x = make(), torch.randn(2, 4, 6, 6)
    compiled, reports = compile_counted(net)
    torch.testing.assert_close(compiled(x), net(x), atol=1e-5, rtol=1e-5)
    for _ in range(2):
        before = net(x)
        CHANGES[name](net)
        assert not torch.allclose(net(x), before) or name == "load_state_dict"
        torch.testing.assert_close(compiled(x), net(x), atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(compiled(x), net(x), atol=1e-5, rtol=1e-5)
    assert len(reports) == 1


@torch.no_grad()
def test_address_and_storage_used_again_do_not_bring_back_old_copies() -> None:
    net, x = nn.Linear(64, 64, bias=False), torch.randn(2, 64)
    compiled, _ = compile_counted(net)
    for k in range(6):
        net.weight.data = torch.full((64, 64), float(k))
        torch.testing.assert_close(compiled(x), net(x))
        gc.collect()


def packed_bytes(reports: list[CompileReport]) -> list[int]:
    return [r.packed_weight_bytes for r in reports]


#: Windows of 3 x 3 that are multiplied by tiles have 16 packed numbers for 9.
MOST = 16 / 9


@torch.no_grad()
def test_graphs_for_several_shapes_share_one_copy() -> None:
    """Columns are a multiple of those of a panel, which are 16 to 48."""
    net = nn.Sequential(nn.Conv2d(32, 96, 3), nn.ReLU(), nn.Flatten(2), nn.Linear(64, 96)).eval()
    before = memory_of_packed_weights()
    compiled, reports = compile_counted(net, dynamic=False)
    compiled(torch.randn(1, 32, 10, 10))
    once = memory_of_packed_weights() - before
    weights = sum(p.numel() * p.element_size() for p in net.parameters())
    assert 0 < once <= 1.01 * MOST * weights
    compiled(torch.randn(3, 32, 10, 10))
    compiled(torch.randn(7, 32, 10, 10))
    assert len(reports) == 3
    assert memory_of_packed_weights() - before == once
    assert packed_bytes(reports) == [once] * 3
    net[0].weight.mul_(2)
    for batch in (1, 3, 7):
        x = torch.randn(batch, 32, 10, 10)
        torch.testing.assert_close(compiled(x), net(x), atol=1e-4, rtol=1e-4)
    assert memory_of_packed_weights() - before == once


class Embedded(nn.Module):
    """Words and positions: the second part of the sum depends on weights and on the size of the input alone."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places, self.linear = nn.Embedding(64, 32), nn.Embedding(40, 32), nn.Linear(32, 32)
        self.register_buffer("order", torch.arange(40).expand(1, -1))

    def forward(self, x: Tensor) -> Tensor:
        order = self.get_buffer("order")[:, : x.shape[1]].expand(x.shape[0], -1)
        return self.linear(self.words(x) + self.places(order))


def convolutions() -> nn.Module:
    return nn.Sequential(nn.Conv2d(32, 96, 3), nn.BatchNorm2d(96), nn.ReLU(), nn.Conv2d(96, 96, 1), nn.Flatten(2))


KINDS: dict[str, tuple[Callable[[], nn.Module], Callable[[int], Tensor]]] = {
    # columns: whole panels of every kernel (32 and 48), to which a copy is padded
    "convolutions": (convolutions, lambda batch: torch.randn(batch, 32, 7, 7)),
    "linears": (lambda: nn.Sequential(nn.Linear(64, 96), nn.GELU(), nn.Linear(96, 192)), lambda b: torch.randn(b, 64)),
    "embeddings": (Embedded, lambda batch: torch.randint(64, (batch, 5))),
    "embeddings, lengths": (Embedded, lambda batch: torch.randint(64, (2, 3 * batch))),
}


@torch.no_grad()
@pytest.mark.parametrize(
    ("name", "dtype"),
    [*((name, torch.float32) for name in KINDS), ("convolutions", torch.bfloat16), ("linears", torch.bfloat16)],
    ids=str,
)
def test_extra_memory_is_one_copy_of_each_weight(name: str, dtype: torch.dtype) -> None:
    skip_unless_supported(dtype)
    build, inputs = KINDS[name]
    net, before = build().eval().to(dtype), memory_of_packed_weights()
    seen = []
    # Graphs for two sizes, one for a size and one for all others, and one of another function.
    for function, dynamic, batches in (
        (net, False, (1, 5)),
        (net, True, (1, 2, 5)),
        (lambda x: torch.sin(net(x)), False, (2,)),
    ):
        compiled, _ = compile_counted(function, dynamic=dynamic)
        for batch in batches:
            x = inputs(batch)
            compiled(x.to(dtype) if x.is_floating_point() else x)
            seen.append(memory_of_packed_weights() - before)
    assert seen[0] > 0
    assert set(seen) == {seen[0]}
    most = MOST if (name, dtype) == ("convolutions", torch.float32) else 1
    assert seen[0] <= 1.1 * most * sum(w.nbytes for w in net.parameters())


@torch.no_grad()
def test_copies_go_with_the_model() -> None:
    net = nn.Linear(128, 128)
    before = memory_of_packed_weights()
    compiled, _ = compile_counted(net)
    compiled(torch.randn(2, 128))
    assert memory_of_packed_weights() > before
    weight = weakref.ref(net.weight)
    del net, compiled
    torch._dynamo.reset()
    gc.collect()
    assert weight() is None
    assert memory_of_packed_weights() == before


@torch.no_grad()
def test_two_models_of_one_class_have_their_own_weights() -> None:
    nets = [nn.Linear(16, 16) for _ in range(3)]
    x = torch.randn(2, 16)
    for _ in range(2):
        for net in nets:
            torch.testing.assert_close(torch.compile(net, backend="icpu")(x), net(x), atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_tied_weights() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding, self.head = nn.Embedding(50, 16), nn.Linear(16, 50, bias=False)
            self.head.weight = self.embedding.weight

        def forward(self, x: Tensor) -> Tensor:
            return self.head(torch.tanh(self.embedding(x)))

    net, x = Tied(), torch.tensor([[1, 2, 3]])
    compiled, reports = compile_counted(net)
    for _ in range(2):
        torch.testing.assert_close(compiled(x), net(x), atol=1e-5, rtol=1e-5)
        net.embedding.weight.mul_(1.1)
    assert len(reports) == 1


@torch.no_grad()
@pytest.mark.parametrize(
    "weight",
    [
        torch.randn(20, 12).t(),
        torch.randn(12, 40)[:, ::2],
        torch.randn(1, 20).expand(12, 20),
        torch.randn(300)[5:245].view(12, 20),
    ],
    ids=["transposed", "strided", "expanded", "offset"],
)
def test_weights_that_are_not_contiguous(weight: Tensor) -> None:
    net = nn.Linear(20, 12)
    net.weight = nn.Parameter(weight, requires_grad=False)
    x = torch.randn(3, 20)
    torch.testing.assert_close(torch.compile(net, backend="icpu")(x), net(x), atol=1e-5, rtol=1e-5)
    net.weight.data = net.weight.data.clone()
    torch.testing.assert_close(torch.compile(net, backend="icpu")(x), net(x), atol=1e-5, rtol=1e-5)


def test_weights_are_not_packed_in_training() -> None:
    net, x = nn.Linear(20, 12), torch.randn(3, 20)
    before = memory_of_packed_weights()
    compiled, reports = compile_counted(net)
    compiled(x).sum().backward()
    assert net.weight.grad is not None
    assert {r.kind for r in reports} == {"forward", "backward"}
    assert memory_of_packed_weights() == before


@torch.no_grad()
def test_setting_turns_packing_off() -> None:
    net, x = nn.Linear(20, 12), torch.randn(3, 20)
    before = memory_of_packed_weights()
    with inductor_cpu.config.patch({"cpp.weight_prepack": False}):
        compiled, reports = compile_counted(net)
        torch.testing.assert_close(compiled(x), net(x))
    assert not any("mkldnn" in e.op for e in reports[0].externs)
    assert memory_of_packed_weights() == before


@torch.no_grad()
@pytest.mark.parametrize(
    "f",
    [lambda w, x: (w * 2, x + 1), lambda w, x: ((w * 2).t()[:2], x @ (w * 2)), lambda w, x: ((w + 1).chunk(2)[0], x)],
)
def test_results_computed_from_weights_are_new_at_each_call(f: Callable[..., Any]) -> None:
    class Own(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = nn.Parameter(torch.randn(4, 4))

        def forward(self, x: Tensor) -> Any:
            return f(self.w, x)

    net, x = Own(), torch.randn(3, 4)
    compiled, _ = compile_counted(net)
    compiled(x)[0].fill_(7.0)
    torch.testing.assert_close(compiled(x), net(x), atol=1e-5, rtol=1e-5)


@torch.no_grad()
@pytest.mark.parametrize("layer", [nn.Conv1d(4, 3, 3), nn.ConvTranspose1d(4, 3, 3), nn.Linear(9, 5)])
@pytest.mark.parametrize("finish", [torch.atan, lambda y: y], ids=["atan", "as it is"])
def test_layer_of_weights_alone_whose_result_is_returned_reads_a_packed_weight(
    layer: nn.Module, finish: Callable[[Tensor], Tensor]
) -> None:
    # The fuzzer's seed 240831: the call stays in the graph, and its packed weight is none that kernels could copy.
    class Own(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w, self.layer = nn.Parameter(torch.randn(2, 4, 9)), layer

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            return finish(self.layer(self.w.tanh())), x + 1

    net, x = Own(), torch.randn(3, 4)
    compiled, _ = compile_counted(net)
    for _ in range(2):
        y = compiled(x)[0]
        torch.testing.assert_close(y, net(x)[0], atol=1e-5, rtol=1e-5)
        y.fill_(7.0)


@torch.no_grad()
@torch.no_grad()
def test_attention_among_weights_has_the_strides_that_the_graph_was_told_of() -> None:
    """The operator that takes its place has the heads of a row next to each other."""

    class Learned(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = nn.Parameter(torch.randn(2, 8, 3, 5))

        def forward(self, x: Tensor) -> Tensor:
            return x - functional.scaled_dot_product_attention(self.w, self.w.flip(-2), self.w)

    torch.manual_seed(0)
    net, x = Learned().requires_grad_(False), torch.randn(2, 8, 3, 5)
    torch.testing.assert_close(torch.compile(net, backend="icpu")(x), net(x))


def test_weight_that_is_a_result() -> None:
    class Own(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 4)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            return self.linear(x), self.linear.weight, self.linear.weight.t()

    net, x = Own(), torch.randn(3, 4)
    compiled, _ = compile_counted(net)
    _, weight, view = compiled(x)
    assert weight is net.linear.weight
    assert view.data_ptr() == weight.data_ptr()


@torch.no_grad()
def test_buffer_that_the_graph_writes() -> None:
    class Moving(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("w", torch.randn(4, 4))

        def forward(self, x: Tensor) -> Tensor:
            w = self.get_buffer("w")
            y = functional.linear(x, w)
            w.add_(1.0)
            return y + functional.linear(x, w)

    ours, theirs = (net := Moving()), copy.deepcopy(net)
    compiled, reports = compile_counted(ours)
    x = torch.randn(3, 4)
    for _ in range(3):
        torch.testing.assert_close(compiled(x), theirs(x), atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(ours.w, theirs.w)
    assert len(reports) == 1


@torch.no_grad()
def test_order_of_weights_in_a_recipe_counts() -> None:
    class Difference(nn.Module):
        def __init__(self, swap: bool, a: nn.Parameter, b: nn.Parameter) -> None:
            super().__init__()
            self.a, self.b, self.swap = a, b, swap

        def forward(self, x: Tensor) -> Tensor:
            touched = x + self.a.sum() + self.b.sum()  # both graphs take a first, then b
            return touched @ (self.b - self.a if self.swap else self.a - self.b)

    a, b, x = nn.Parameter(torch.randn(4, 4)), nn.Parameter(torch.randn(4, 4)), torch.randn(2, 4)
    nets = [Difference(swap, a, b) for swap in (False, True)]
    compiled = [compile_counted(net)[0] for net in nets]
    for function, net in zip(compiled, nets, strict=True):
        torch.testing.assert_close(function(x), net(x), atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_inference_mode_weights() -> None:
    with torch.inference_mode():
        net, x = nn.Linear(8, 8), torch.randn(2, 8)
        compiled, _ = compile_counted(net)
        torch.testing.assert_close(compiled(x), net(x), atol=1e-5, rtol=1e-5)
        net.weight.mul_(2)
        assert inductor_cpu.repack(net) == 1
        torch.testing.assert_close(compiled(x), net(x), atol=1e-5, rtol=1e-5)


def test_repack_of_a_model_that_was_not_compiled() -> None:
    assert inductor_cpu.repack(nn.Linear(3, 3)) == 0


@torch.no_grad()
def test_explain_tells_what_was_packed() -> None:
    text = inductor_cpu.explain(nn.Sequential(nn.Linear(64, 96), nn.ReLU()), torch.randn(2, 64))
    assert text.packed_weight_bytes == 64 * 96 * 4
    assert "1 linears and 0 recurrent layers packed" in str(text)


@torch.no_grad()
def test_a_graph_that_cannot_be_lowered_runs_with_its_own_weights() -> None:
    """The passes had packed the weight when the lowering met the sparse tensor."""

    class Mixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(32, 64)

        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            return torch.sparse.mm(y, torch.relu(self.linear(x)))

    net = Mixed().eval()
    x, y = torch.randn(8, 32), torch.eye(8).to_sparse()
    compiled, _ = compile_counted(net)
    torch.testing.assert_close(compiled(x, y), net(x, y))


@torch.no_grad()
def test_weights_of_a_compiled_module_can_be_swapped() -> None:
    net, x = nn.Linear(8, 8).eval(), torch.randn(2, 8)
    compiled = torch.compile(net, backend="icpu")  # a report would hold fake tensors, and they the weights
    torch.testing.assert_close(compiled(x), net(x), atol=1e-5, rtol=1e-5)
    torch.utils.swap_tensors(net.weight, nn.Parameter(torch.randn(8, 8)))
    torch.testing.assert_close(compiled(x), net(x), atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_a_process_forked_while_weights_are_packed_packs_its_own() -> None:
    net, x = nn.Linear(8, 8).eval(), torch.randn(2, 8)
    compiled, _ = compile_counted(net)
    compiled(x)
    net.weight.mul_(2)
    expected = net(x)
    locks = [packed._lock for packed in weights._LIVE]
    for lock in locks:
        lock.acquire()
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        torch.set_num_threads(1)
        os._exit(0 if torch.allclose(compiled(x), expected, atol=1e-5) else 1)
    for lock in locks:
        lock.release()
    assert os.waitpid(child, 0)[1] == 0
