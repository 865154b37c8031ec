"""Recurrent layers, which Dynamo takes with `allow_rnn`: ATen's oneDNN layer runs them, with packed weights."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

from inductor_cpu.runtime.weights import memory_of_packed_weights
from tests.cases import cases
from tests.e2e.support import compile_counted
from tests.graph.harness import LINEAR, TOLERANCES, check, skip_unless_supported

Tensor = torch.Tensor
DTYPES = (torch.float32, torch.bfloat16)

#: How many, and whether each goes in both directions.
LAYERS = [(1, False), (2, False), (2, True)]


@pytest.fixture(autouse=True)
def take_recurrent_layers() -> Iterator[None]:
    with torch._dynamo.config.patch(allow_rnn=True):
        yield


def lstm(layers: int = 1, **options: Any) -> nn.Module:
    return nn.LSTM(12, 16, layers, **options).eval()


def assert_near_exact(compiled: Any, net: nn.Module, x: Tensor, dtype: torch.dtype) -> None:
    """Output and both states, against float64."""
    actual = compiled(x.to(dtype))
    exact = nn.LSTM.forward(_double(net), x.to(dtype).double())
    for a, e in zip((actual[0], *actual[1]), (exact[0], *exact[1]), strict=True):
        assert a.dtype == dtype
        torch.testing.assert_close(a.double(), e, atol=TOLERANCES[dtype], rtol=TOLERANCES[dtype])


def _double(net: nn.Module) -> Any:
    assert isinstance(net, nn.LSTM)
    other = nn.LSTM(
        net.input_size, net.hidden_size, net.num_layers, net.bias, net.batch_first, 0.0, net.bidirectional,
        dtype=torch.float64,
    )  # fmt: skip
    other.load_state_dict(net.state_dict())
    return other.eval()


@torch.no_grad()
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(
    ("layers", "bidirectional", "batch_first", "bias"),
    # In every run each kind of layers with and without batches first, in turns with a bias.
    cases(
        [(layers, both, first, first != both) for layers, both in LAYERS for first in (False, True)],
        [(layers, both, first, first == both) for layers, both in LAYERS for first in (False, True)],
    ),
)
def test_lstm_has_packed_weights(
    layers: int, bidirectional: bool, batch_first: bool, bias: bool, dtype: torch.dtype
) -> None:
    skip_unless_supported(dtype)
    net = lstm(layers, bidirectional=bidirectional, batch_first=batch_first, bias=bias).to(dtype)
    compiled, reports = compile_counted(net)
    before = memory_of_packed_weights()
    for batch in (3, 3):
        assert_near_exact(compiled, net, torch.randn(batch, 5, 12), dtype)
    assert f"{layers * (1 + bidirectional)} recurrent layers packed" in str(reports[0])
    assert memory_of_packed_weights() > before
    net.weight_hh_l0.mul_(2)  # type: ignore[operator]
    assert_near_exact(compiled, net, torch.randn(3, 5, 12), dtype)
    assert len(reports) == 1


@torch.no_grad()
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_dynamic_sizes_and_other_graphs_share_the_packed_weights(dtype: torch.dtype) -> None:
    skip_unless_supported(dtype)
    net, before = lstm(2, bidirectional=True).to(dtype), memory_of_packed_weights()
    compiled, reports = compile_counted(net, dynamic=True)
    for length, batch in ((5, 2), (7, 3), (4, 8)):
        assert_near_exact(compiled, net, torch.randn(length, batch, 12), dtype)
    size = memory_of_packed_weights() - before
    assert len(reports) == 1
    static, _ = compile_counted(net, dynamic=False)
    for length, batch in ((5, 2), (6, 1)):
        assert_near_exact(static, net, torch.randn(length, batch, 12), dtype)
    assert memory_of_packed_weights() - before == size


class Given(nn.Module):
    """An LSTM whose weights are inputs, and so not static."""

    def forward(self, x: Tensor, h: Tensor, c: Tensor, *weights: Tensor) -> Any:
        return torch.lstm(x, (h, c), list(weights), True, 1, 0.0, False, False, False)[0]


@torch.no_grad()
def test_weights_that_are_inputs_are_not_packed() -> None:
    x, state, weights = torch.randn(5, 2, 12), torch.zeros(1, 2, 16), [w.detach() for w in lstm().parameters()]
    compiled, reports = compile_counted(Given())
    torch.testing.assert_close(compiled(x, state, state, *weights), Given()(x, state, state, *weights))
    assert reports[0].packed_weight_bytes == 0


@torch.no_grad()
def test_empty_batch_does_not_reach_the_library() -> None:  # which would end the process
    net, x = lstm(2, bidirectional=True), torch.randn(5, 0, 12)
    compiled, reports = compile_counted(net)
    actual, expected = compiled(x), net(x)
    for a, e in zip((actual[0], *actual[1]), (expected[0], *expected[1]), strict=True):
        torch.testing.assert_close(a, e)
    assert reports[0].packed_weight_bytes == 0


@torch.no_grad()
@pytest.mark.parametrize(
    ("layers", "bidirectional", "bias"), cases([(2, True, True)], [(1, False, True), (2, False, False)])
)
def test_an_lstm_of_bf16_runs_on_any_cpu(layers: int, bidirectional: bool, bias: bool) -> None:
    # Without AVX-512 oneDNN has no such layer, and torch makes the call all the same (tests.fuzz, seed 353482).
    net = lstm(layers, bidirectional=bidirectional, bias=bias).to(torch.bfloat16)
    compiled, reports = compile_counted(net)
    for batch in (3, 5):
        assert_near_exact(compiled, net, torch.randn(7, batch, 12), torch.bfloat16)
    assert reports[0].packed_weight_bytes > 0


class Split(nn.Module):
    """Linears of parts of one parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.randn(24, 12))

    def forward(self, x: Tensor) -> Tensor:
        a, b = self.w.split([8, 16])
        return torch.cat([x @ a.t(), torch.relu(x) @ b.t()], 1)


@torch.no_grad()
def test_the_interpreter_takes_a_layer_without_a_workspace() -> None:
    net = lstm().to(torch.bfloat16)
    compiled = torch.compile(net, backend="icpu", options={"debug_interpret": True})
    assert_near_exact(compiled, net, torch.randn(7, 3, 12), torch.bfloat16)


def test_parts_of_a_weight_are_static() -> None:
    passed = check(Split(), torch.randn(4, 12))
    assert len(passed.calls(LINEAR)) == 2
