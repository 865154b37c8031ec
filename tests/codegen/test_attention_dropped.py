"""The templates of attention and of its gradients where weights are dropped, over remainders, strides and masks."""

from __future__ import annotations

import ctypes
import functools

import pytest
import torch

from inductor_cpu.codegen.attention import generate_attention, generate_attention_backward
from inductor_cpu.codegen.tuning import Choices
from inductor_cpu.ir.index import ZERO
from inductor_cpu.ir.loop_nest import Buffer, View
from inductor_cpu.ir.nodes import Attention, AttentionBackward
from inductor_cpu.paths import prelude
from inductor_cpu.runtime.cache import open_cache
from inductor_cpu.runtime.compile import load_kernels
from tests.codegen.harness import FUNCTION
from tests.codegen.test_attention import ALL, BOUND, apart, error, machine
from tests.codegen.test_attention_backward import hidden

Tensor = torch.Tensor
SCALE, KEEP = -0.3, 0.7
MASKS = ("none", "causal", "bool")
#: batch, heads, heads of keys and values, rows, keys, depth, columns
SIZES = ((2, 4, 2, 33, 64, 32, 24), (1, 2, 2, 130, 549, 20, 33), (1, 1, 1, 1, 300, 16, 16), (2, 1, 1, 20, 1, 8, 40))


@functools.cache
def functions(kernel: str, isa: str, dtype: torch.dtype) -> dict[tuple[str, str], int]:
    """(direction, mask) -> address, compiled together; skips where none runs."""
    found = machine(kernel, isa)
    if found is None:
        pytest.skip(f"{kernel} for {isa} does not run on this machine")
    names = ("grad_out", "q", "k", "v", "out", "log_sums", "mask", "kept", "grad_q", "grad_k", "grad_v")
    dtypes = dict.fromkeys(names, dtype) | {"log_sums": torch.float32, "mask": torch.bool, "kept": torch.bool}
    buffers = {name: Buffer(name, kind, (), (), "temp") for name, kind in dtypes.items()}
    views = {name: View(name, (ZERO,) * 4, (ZERO,) * 4, ZERO) for name in names}
    grad_out, q, k, v, out, log_sums = (views[name] for name in names[:6])
    sources = {}
    for mask in MASKS:
        shared = (views["mask"] if mask == "bool" else None, SCALE, mask == "causal")
        more = {"kept": views["kept"], "keep": KEEP}
        forward = Attention("forward", kernel, q, k, v, *shared, False, "out", "log_sums", **more)  # type: ignore[arg-type]
        backward = AttentionBackward(
            "backward",
            kernel,
            grad_out,
            q,
            k,
            v,
            out,
            log_sums,
            *shared,
            *names[8:],
            **more,  # type: ignore[arg-type]
        )
        sources["forward", mask] = generate_attention(forward, buffers, Choices(), found[0])
        sources["backward", mask] = generate_attention_backward(backward, buffers, Choices())
    addresses = load_kernels(list(sources.values()), found[0], prelude(), open_cache(), found[1])
    return {key: addresses[made.symbol] for key, made in sources.items()}


def call(address: int, sizes: tuple[int, ...], results: list[Tensor], operands: list[Tensor]) -> None:
    ints = list(sizes)
    for result in results:
        ints += result.stride()[:3]
    for operand in operands:
        ints += [0, *operand.stride()[:3]]
    tensors = (*results, *operands)
    pointers = (ctypes.c_void_p * len(tensors))(*[t.data_ptr() for t in tensors])
    assert FUNCTION(address)(pointers, (ctypes.c_int64 * len(ints))(*ints)) == 0


def exact(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, kept: Tensor, causal: bool) -> Tensor:
    """In fp64."""
    groups = q.shape[1] // k.shape[1]
    k, v = (x.repeat_interleave(groups, 1) for x in (k, v))
    scores = hidden(q @ k.transpose(2, 3) * SCALE, mask, causal)
    return scores.softmax(-1).nan_to_num() * kept / KEEP @ v


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize(("kernel", "isa", "dtype"), ALL, ids=str)
def test_dropped_weights_count_in_the_divisor_alone(kernel: str, isa: str, dtype: torch.dtype, mask: str) -> None:
    addresses = functions(kernel, isa, dtype)
    for number, sizes in enumerate(SIZES):
        batch, heads, kv_heads, rows, keys, depth, columns = sizes
        order = ((0, 1, 2, 3), (0, 2, 1, 3))[number % 2]
        q, grad_out = (apart((batch, heads, rows, n), dtype, order) for n in (depth, columns))
        k, v = (apart((batch, kv_heads, keys, n), dtype, order) for n in (depth, columns))
        kept = torch.rand(batch, heads, rows, keys + 3)[..., :-3] < KEEP
        hides = (torch.rand(batch, 1, rows, keys) < 0.8).expand_as(kept) if mask == "bool" else None
        out, sums = torch.full((batch, heads, rows, columns), torch.nan, dtype=dtype), torch.empty(batch, heads, rows)
        masks = [kept] if hides is None else [hides, kept]
        call(addresses["forward", mask], sizes, [out, sums], [q, k, v, *masks])
        wide = [x.double().requires_grad_() for x in (q, k, v)]
        best = exact(*wide, hides, kept, mask == "causal")
        assert error(out, best.detach()) <= 1.5 * BOUND[dtype]
        grads = [torch.full_like(x, torch.nan) for x in (q, k, v)]
        call(addresses["backward", mask], sizes, grads, [grad_out, q, k, v, out, sums, *masks])
        for grad, want in zip(grads, torch.autograd.grad(best, wide, grad_out.double()), strict=True):
            if want.any():
                assert error(grad, want) <= 4 * BOUND[dtype]
            else:  # a row that sees one key
                assert grad.abs().max() <= 16 * BOUND[dtype]
