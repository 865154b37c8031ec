"""The templates of attention and of its gradients where weights are dropped, over remainders, strides and masks."""

from __future__ import annotations

import pytest
import torch

from inductor_cpu.ir.nodes import Attention, AttentionBackward
from tests.cases import in_turns
from tests.codegen.attention import VIEWS, WRITTEN, call, load
from tests.codegen.test_attention import ALL, BOUND, Row, apart, error
from tests.codegen.test_attention_backward import hidden

Tensor = torch.Tensor
SCALE, KEEP = -0.3, 0.7
MASKS = ("none", "causal", "bool")
#: batch, heads, heads of keys and values, rows, keys, depth, columns
SIZES = ((2, 4, 2, 33, 64, 32, 24), (1, 2, 2, 130, 549, 20, 33), (1, 1, 1, 1, 300, 16, 16), (2, 1, 1, 20, 1, 8, 40))


def functions(row: Row, mask: str) -> dict[str, int]:
    """direction -> address; skips where none runs."""
    kernel, isa, dtype = row
    grad_out, q, k, v, out, log_sums, hides, kept = VIEWS.values()
    masked, causal = hides if mask == "bool" else None, mask == "causal"
    forward = Attention(
        "forward", kernel, q, k, v, masked, SCALE, causal, False, "out", "log_sums", kept=kept, keep=KEEP
    )
    backward = AttentionBackward(
        "backward", kernel, grad_out, q, k, v, out, log_sums, masked, SCALE, causal, *WRITTEN[:3],
        kept=kept, keep=KEEP,
    )  # fmt: skip
    return load(kernel, isa, dtype, {"forward": (forward, torch.bool), "backward": (backward, torch.bool)})


def exact(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, kept: Tensor, causal: bool) -> Tensor:
    """In fp64."""
    groups = q.shape[1] // k.shape[1]
    k, v = (x.repeat_interleave(groups, 1) for x in (k, v))
    scores = hidden(q @ k.transpose(2, 3) * SCALE, mask, causal)
    return scores.softmax(-1).nan_to_num() * kept / KEEP @ v


# Weights are dropped after the mask had its say, and that does not look at their dtype.
@pytest.mark.parametrize(("row", "mask"), in_turns(ALL, MASKS), ids=str)
def test_dropped_weights_count_in_the_divisor_alone(row: Row, mask: str) -> None:
    addresses, dtype = functions(row, mask), row[2]
    for number, sizes in enumerate(SIZES):
        batch, heads, kv_heads, rows, keys, depth, columns = sizes
        order = ((0, 1, 2, 3), (0, 2, 1, 3))[number % 2]
        q, grad_out = (apart((batch, heads, rows, n), dtype, order) for n in (depth, columns))
        k, v = (apart((batch, kv_heads, keys, n), dtype, order) for n in (depth, columns))
        kept = torch.rand(batch, heads, rows, keys + 3)[..., :-3] < KEEP
        hides = (torch.rand(batch, 1, rows, keys) < 0.8).expand_as(kept) if mask == "bool" else None
        out, sums = torch.full((batch, heads, rows, columns), torch.nan, dtype=dtype), torch.empty(batch, heads, rows)
        masks = [kept] if hides is None else [hides, kept]
        call(addresses["forward"], sizes, [out, sums], [q, k, v, *masks])
        wide = [x.double().requires_grad_() for x in (q, k, v)]
        best = exact(*wide, hides, kept, mask == "causal")
        assert error(out, best.detach()) <= 1.5 * BOUND[dtype]
        grads = [torch.full_like(x, torch.nan) for x in (q, k, v)]
        call(addresses["backward"], sizes, grads, [grad_out, q, k, v, out, sums, *masks])
        for grad, want in zip(grads, torch.autograd.grad(best, wide, grad_out.double()), strict=True):
            if want.any():
                assert error(grad, want) <= 4 * BOUND[dtype]
            else:  # a row that sees one key
                assert grad.abs().max() <= 16 * BOUND[dtype]
