"""The templates of attention and of its gradients as spelled-out attention uses them: divisors in two parts, scores
that a number takes the place of, and the gradient of a mask."""

from __future__ import annotations

import pytest
import torch

from inductor_cpu.ir.nodes import Attention, AttentionBackward
from tests.cases import in_turns
from tests.codegen.attention import VIEWS, WRITTEN, call, load
from tests.codegen.test_attention import ALL, BOUND, Row, apart, error

Tensor = torch.Tensor
SCALE, FILL = 0.3, -1e9
#: batch, heads, heads of keys and values, rows, keys, depth, columns
SIZES = ((2, 4, 2, 33, 64, 32, 24), (1, 2, 2, 130, 549, 20, 33), (1, 2, 1, 3, 300, 16, 16))


def functions(row: Row, hides: bool) -> dict[str, int]:
    """direction -> address, with a mask of booleans or an added one; skips where none runs."""
    kernel, isa, dtype = row
    grad_out, q, k, v, out, log_sums, mask, _ = VIEWS.values()
    fill, kind = (FILL, torch.bool) if hides else (None, dtype)
    forward = Attention(
        "forward", kernel, q, k, v, mask, SCALE, False, True, "out", "log_sums", fill=fill, in_parts=True
    )
    backward = AttentionBackward(
        "backward", kernel, grad_out, q, k, v, out, log_sums, mask, SCALE, False, *WRITTEN[:3],
        fill=fill, in_parts=True, slopes="slopes",
    )  # fmt: skip
    return load(kernel, isa, dtype, {"forward": (forward, kind), "backward": (backward, kind)})


def exact(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    groups = q.shape[1] // k.shape[1]
    k, v = (x.repeat_interleave(groups, 1) for x in (k, v))
    scores = q @ k.transpose(2, 3) * SCALE
    return (scores.masked_fill(~mask, FILL) if mask.dtype == torch.bool else scores + mask).softmax(-1) @ v


@pytest.mark.parametrize(("row", "hides"), in_turns(ALL, [False, True]), ids=str)
def test_rows_that_nothing_is_left_of_weigh_all_keys_alike(row: Row, hides: bool) -> None:
    addresses, dtype = functions(row, hides), row[2]
    for number, sizes in enumerate(SIZES):
        batch, heads, kv_heads, rows, keys, depth, columns = sizes
        order = ((0, 1, 2, 3), (0, 2, 1, 3))[number % 2]
        q, grad_out = (apart((batch, heads, rows, n), dtype, order) for n in (depth, columns))
        k, v = (apart((batch, kv_heads, keys, n), dtype, order) for n in (depth, columns))
        shown = torch.rand(batch, heads, rows, keys) < 0.7
        shown[:, :, 1] = False
        least = -1000.0 if dtype == torch.float16 else torch.finfo(dtype).min
        mask = shown if hides else torch.zeros(shown.shape, dtype=dtype).masked_fill(~shown, least)
        out, sums = (
            torch.full((batch, heads, rows, columns), torch.nan, dtype=dtype),
            torch.empty(batch, heads, rows, 2),
        )
        call(addresses["forward"], sizes, [out, sums], [q, k, v, mask])
        wide = [x.double().requires_grad_() for x in (q, k, v)]
        added = mask if hides else mask.double().requires_grad_()
        best = exact(*wide, added)
        assert error(out, best.detach()) <= 1.5 * BOUND[dtype]
        grads = [torch.full_like(x, torch.nan) for x in (q, k, v)]
        slopes = torch.full(shown.shape, torch.nan, dtype=dtype)
        call(addresses["backward"], sizes, [*grads, slopes], [grad_out, q, k, v, out, sums, mask])
        of = wide if hides else [*wide, added]
        for grad, want in zip((*grads, slopes), torch.autograd.grad(best, of, grad_out.double()), strict=False):
            assert error(grad, want) <= 4 * BOUND[dtype]
        assert not hides or not slopes[~shown].any()
