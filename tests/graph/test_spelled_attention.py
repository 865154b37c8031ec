"""Attention that a program spells out and trains, with eager operators: what is recognized with its gradients, and what
is not; numbers are as exact as in eager mode."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint
from transformers import BertConfig, GPT2Config, T5Config
from transformers.models.bert.modeling_bert import BertModel
from transformers.models.gpt2.modeling_gpt2 import GPT2Model
from transformers.models.t5.modeling_t5 import T5EncoderModel

from tests.graph.harness import compile_split
from tests.spelled import added, dropped, operands, outcomes, plain, scores_of

Tensor = torch.Tensor
Function = Any


def check(function: Function, inputs: Sequence[Tensor], own: bool = True, times: float = 1.5) -> None:
    """Results and gradients are about as near to fp64 as eager's. own: all products are operators of ours."""
    compiled, names = compile_split(function)
    wide = [x.detach().double().requires_grad_(x.requires_grad) if x.is_floating_point() else x for x in inputs]
    for mine, eager, exact in zip(
        *(outcomes(f, i) for f, i in ((compiled, inputs), (function, inputs), (function, wide))), strict=True
    ):
        assert (mine.dtype, mine.shape) == (eager.dtype, eager.shape)
        assert error(mine, exact) <= times * error(eager, exact) + 2e-7
    assert is_own(names) == own


def error(value: Tensor, exact: Tensor) -> float:
    return ((value.double() - exact).norm() / exact.norm()).item()


def is_own(names: list[str]) -> bool:
    """Whether no product of batches is left in either direction."""
    return not any("bmm" in name for name in names)


def test_one_position_bias_of_several_layers_gets_the_sum_of_its_gradients() -> None:
    def layers(q: Tensor, k: Tensor, v: Tensor, bias: Tensor, mask: Tensor) -> Tensor:
        both = bias + mask
        x = (q @ k.mT + both).softmax(-1) @ v
        return ((x + q) @ k.mT + both).softmax(-1) @ v

    square = [torch.randn(2, 3, 40, 16, requires_grad=True) for _ in "qkv"]
    mask = torch.zeros(2, 1, 1, 40).masked_fill(torch.rand(2, 1, 1, 40) < 0.3, torch.finfo(torch.float32).min)
    check(layers, [*square, torch.randn(1, 3, 40, 40, requires_grad=True), mask])


@pytest.mark.parametrize("fill", [-1e4, -1e9, torch.finfo(torch.float32).min])
@pytest.mark.parametrize("is_added", [False, True])
def test_rows_of_large_numbers_alone_share_their_weight(fill: float, is_added: bool) -> None:
    visible = torch.rand(40, 57) < 0.5
    visible[[3, 17]] = False
    if is_added:
        check(added, [*operands(), torch.zeros(40, 57).masked_fill(~visible, fill)])
    else:
        check(lambda q, k, v, m: scores_of(q, k).masked_fill(m, fill).softmax(-1) @ v, [*operands(), ~visible])


def test_under_autocast_products_are_of_low_precision() -> None:
    def function(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=q.dtype == torch.float32):
            return (scores_of(q, k).softmax(-1) @ v).to(q.dtype)

    check(function, operands())


def test_a_checkpoint_computes_it_again_and_drops_the_same() -> None:
    def function(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        return checkpoint(lambda *x: dropped(*x).sin(), q, k, v, mask, use_reentrant=False)

    check(function, [*operands(), torch.randn(40, 57)])


def test_keys_that_need_no_gradient() -> None:
    q, k, v = operands()
    check(plain, [q, k.detach(), v])
    torch._dynamo.reset()
    check(plain, [q, k, v.detach()])


# -- near misses -------------------------------------------------------------------------------------------------------
def weights_too(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    weights = scores_of(q, k).softmax(-1)
    return torch.cat([weights @ v, weights], -1)


def weights_twice(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    weights = scores_of(q, k).softmax(-1)
    return weights @ v + weights @ (v * 2).sin()


def scores_too(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scores = scores_of(q, k)
    return torch.cat([scores.softmax(-1) @ v, scores], -1)


def other_dimension(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return scores_of(q, k).softmax(-2) @ v


def mask_scaled(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return ((q @ k.mT + q[..., :1]) * 0.3).softmax(-1) @ v


def times_a_tensor(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return (scores_of(q, k) * q[..., :1]).softmax(-1) @ v


def hidden_and_more(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return (scores_of(q, k).masked_fill(k.new_ones(40, 57).tril() == 0, -1e4) + q[..., :1]).softmax(-1) @ v


@pytest.mark.parametrize(
    "function",
    [weights_too, weights_twice, scores_too, other_dimension, mask_scaled, times_a_tensor, hidden_and_more],
    ids=lambda f: f.__name__,
)
def test_look_alikes_stay_what_they_are(function: Function) -> None:
    check(function, operands(), own=False)


def test_small_matrices_of_scores_stay_products_of_batches() -> None:
    check(plain, operands(rows=16, keys=16), own=False)


def test_double_precision_stays_with_aten() -> None:
    check(plain, [x.detach().double().requires_grad_() for x in operands()], own=False)


# -- models ------------------------------------------------------------------------------------------------------------
class Block(nn.Module):
    """Causal attention as small GPTs have it."""

    def __init__(self, width: int, heads: int, longest: int) -> None:
        super().__init__()
        self.heads = heads
        self.into, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.register_buffer("bias", torch.tril(torch.ones(longest, longest)).view(1, 1, longest, longest))

    def forward(self, x: Tensor) -> Tensor:
        batch, rows, width = x.shape
        q, k, v = (part.view(batch, rows, self.heads, -1).transpose(1, 2) for part in self.into(x).split(width, dim=2))
        scores = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
        scores = scores.masked_fill(self.bias[:, :, :rows, :rows] == 0, float("-inf"))
        weights = F.dropout(F.softmax(scores, dim=-1), 0.1)
        return self.out((weights @ v).transpose(1, 2).contiguous().view(batch, rows, width))


def check_model(model: nn.Module, *inputs: Tensor, **more: Tensor) -> None:
    """The loss and the gradients of all weights are eager's, and no product of batches is left."""
    compiled, names = compile_split(model)
    grads = []
    for run in (model, compiled):
        torch.manual_seed(4)
        out = run(*inputs, **more)
        out = out if isinstance(out, Tensor) else out.last_hidden_state
        weights = [w for w in model.parameters() if w.requires_grad]
        loss = out.square().mean()
        grads.append([loss, *(g for g in torch.autograd.grad(loss, weights, allow_unused=True) if g is not None)])
    for mine, eager in zip(*grads[::-1], strict=True):
        torch.testing.assert_close(mine, eager, rtol=1e-3, atol=1e-5)
    assert is_own(names)


def test_causal_attention_of_a_small_gpt() -> None:
    check_model(Block(48, 4, 64), torch.randn(2, 33, 48))


@pytest.mark.parametrize("name", ["bert", "gpt2", "t5"])
def test_models_of_transformers_with_attention_of_their_own(name: str) -> None:
    ids, mask = torch.randint(0, 90, (2, 40)), torch.ones(2, 40, dtype=torch.long)
    mask[0, :5] = 0  # rows of padding see no key in a causal model
    more: dict[str, Any] = {"vocab_size": 90, "attn_implementation": "eager", "use_cache": False}
    if name == "bert":
        bert = BertConfig(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64, **more)
        model: nn.Module = BertModel(bert, add_pooling_layer=False)
    elif name == "gpt2":
        model = GPT2Model(GPT2Config(n_positions=64, n_embd=32, n_layer=2, n_head=4, **more))
    else:
        model = T5EncoderModel(T5Config(d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, **more))
    check_model(model.train(), ids, attention_mask=mask)
