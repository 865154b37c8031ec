"""The template of attention's gradients on its own: every kernel that runs here, over remainders, strides, masks, head
sizes and numbers of threads."""

from __future__ import annotations

import ctypes
import functools
import math
from collections.abc import Iterable
from itertools import product
from typing import Any

import pytest
import torch

from inductor_cpu.codegen.attention import generate_attention_backward
from inductor_cpu.codegen.tuning import Choices
from inductor_cpu.ir.attention import attend, attend_backward
from inductor_cpu.ir.index import ZERO
from inductor_cpu.ir.loop_nest import Buffer, View
from inductor_cpu.ir.nodes import AttentionBackward
from inductor_cpu.ir.plan import KernelSource
from tests.cases import cases, every_run, in_turns
from tests.codegen.harness import FUNCTION, addresses_of
from tests.codegen.test_attention import ALL, BOUND, MASKS, Row, apart, error, machine

SCALE = -0.3

#: batch, heads, heads of keys and values, rows, keys, depth, columns: remainders of blocks of rows (6, 14, 32; 112,
#: 120, 128), of panels (16, 32) and of blocks of keys (256).
SIZES = (
    (1, 1, 1, 1, 1, 8, 8),
    (1, 2, 2, 5, 7, 16, 16),
    (2, 4, 2, 33, 64, 32, 24),
    (1, 3, 1, 14, 31, 40, 48),
    (2, 2, 2, 65, 97, 64, 64),
    (1, 2, 2, 129, 513, 72, 33),
    (1, 1, 1, 70, 1030, 96, 130),
    (1, 1, 1, 1031, 70, 33, 31),
    (1, 2, 1, 35, 113, 50, 80),
    (1, 1, 1, 20, 48, 17, 49),
    (1, 3, 3, 300, 600, 20, 20),
    (2, 2, 1, 3, 0, 16, 16),
    (2, 2, 1, 0, 3, 16, 16),
)


#: Of each row of the table, one mask of every run beside none.
ONE_MASK = in_turns(ALL, MASKS[1:])


def in_every_run(row: Row, mask: str) -> bool:
    """Whether every run tries it: masks do the same for each dtype, and are read as for the forward pass."""
    return mask == "none" or (row, mask) in every_run(ONE_MASK) or (row[2] == torch.float32 and mask == "causal")


def with_masks(rows_and_masks: Iterable[tuple[Any, ...]]) -> list[Any]:
    """Parameters (row, mask, ...)."""
    given = list(rows_and_masks)
    always = [case for case in given if in_every_run(*case[:2])]
    return cases(always, [case for case in given if case not in always])


def source(kernel: str, dtype: torch.dtype, mask: str) -> KernelSource:
    """A kernel; its views only name buffers, for sizes and strides are arguments."""
    names = ("grad_out", "q", "k", "v", "out", "log_sums", "mask", "grad_q", "grad_k", "grad_v")
    dtypes = dict.fromkeys(names, dtype) | {"log_sums": torch.float32, "mask": torch.bool if mask == "bool" else dtype}
    buffers = {name: Buffer(name, kind, (), (), "temp") for name, kind in dtypes.items()}
    views = [View(name, (ZERO,) * 4, (ZERO,) * 4, ZERO) for name in names[:7]]
    masked = views[6] if mask in ("bool", "added") else None
    node = AttentionBackward("backward", kernel, *views[:6], masked, SCALE, mask == "causal", *names[7:])
    return generate_attention_backward(node, buffers, Choices())


@functools.cache
def functions(kernel: str, isa: str, every: bool) -> dict[tuple[torch.dtype, str], int]:
    """Addresses of the functions of a kernel for one instruction set, those of every run or the others, compiled
    together; skips where none runs."""
    found = machine(kernel, isa)
    if found is None:
        pytest.skip(f"{kernel} for {isa} does not run on this machine")
    sources = {
        (row[2], mask): source(kernel, row[2], mask)
        for row, mask in product(ALL, MASKS)
        if row[:2] == (kernel, isa) and in_every_run(row, mask) == every
    }
    addresses = addresses_of(sources.values(), found[0], found[1])
    return {key: addresses[made.symbol] for key, made in sources.items()}


def address_of(row: Row, mask: str) -> int:
    """The address of a function; skips where it does not run."""
    return functions(*row[:2], in_every_run(row, mask))[row[2], mask]


def run(address: int, *given: torch.Tensor, mask: torch.Tensor | None) -> tuple[torch.Tensor, ...]:
    """Call a kernel on grad_out, q, k, v, out and log_sums."""
    (batch, heads, rows, depth), (_, kv_heads, keys, columns) = given[1].shape, given[3].shape
    grads = [torch.full_like(x, torch.nan) for x in given[1:4]]
    masks = () if mask is None else (mask.expand(batch, heads, rows, keys),)
    ints = [batch, heads, kv_heads, rows, keys, depth, columns]
    for grad in grads:
        ints += grad.stride()[:3]
    for operand in (*given, *masks):
        ints += [0, *operand.stride()[:3]]
    tensors = (*grads, *given, *masks)
    pointers = (ctypes.c_void_p * len(tensors))(*[t.data_ptr() for t in tensors])
    assert FUNCTION(address)(pointers, (ctypes.c_int64 * len(ints))(*ints)) == 0
    return tuple(grads)


def by_autograd(
    grad_out: torch.Tensor, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor | None, causal: bool
) -> tuple[torch.Tensor, ...]:
    """The gradients in fp64."""
    wide = [x.double().requires_grad_() for x in (q, k, v)]
    groups = q.shape[1] // k.shape[1]
    k, v = (x.repeat_interleave(groups, 1) for x in wide[1:])
    scores = hidden(wide[0] @ k.transpose(2, 3) * SCALE, mask, causal)
    empty = (scores == -math.inf).all(-1, keepdim=True)
    weights = scores.masked_fill(empty, 0.0).softmax(-1).masked_fill(empty, 0.0)
    return torch.autograd.grad(weights @ v, wide, grad_out.double())


def hidden(scores: torch.Tensor, mask: torch.Tensor | None, causal: bool) -> torch.Tensor:
    if causal:
        scores = scores.masked_fill(~torch.ones(scores.shape[-2:], dtype=torch.bool).tril(), -math.inf)
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf) if mask.dtype == torch.bool else scores + mask.double()
    return scores


def by_formula(
    grad_out: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    log_sums: torch.Tensor,
    mask: torch.Tensor | None,
    causal: bool,
) -> tuple[torch.Tensor, ...]:
    """The gradients in fp64 from what the forward pass gave, with its roundings."""
    grad_out, q, k, v, out = (x.double() for x in (grad_out, q, k, v, out))
    kv_heads, groups = k.shape[1], q.shape[1] // k.shape[1]
    k, v = (x.repeat_interleave(groups, 1) for x in (k, v))
    weights = (hidden(q @ k.transpose(2, 3) * SCALE, mask, causal) - log_sums.double().unsqueeze(-1)).exp()
    slopes = weights * (grad_out @ v.transpose(2, 3) - (grad_out * out).sum(-1, keepdim=True)) * SCALE
    slopes[:, :, : slopes.shape[2] if k.shape[2] == 1 else int(causal)] = 0  # rows that see one key
    sums = (slopes.transpose(2, 3) @ q, weights.transpose(2, 3) @ grad_out)
    return slopes @ k, *(x.unflatten(1, (kv_heads, groups)).sum(2) for x in sums)


@pytest.mark.parametrize(("row", "mask"), with_masks(product(ALL, MASKS)), ids=str)
def test_any_sizes_strides_and_threads_are_right(row: Row, mask: str) -> None:
    dtype = row[2]
    address, before = address_of(row, mask), torch.get_num_threads()
    for number, (batch, heads, kv_heads, rows, keys, depth, columns) in enumerate(SIZES):
        order = ((0, 1, 2, 3), (0, 2, 1, 3), (1, 0, 2, 3))[number % 3]
        q, grad_out = (apart((batch, heads, rows, n), dtype, order) for n in (depth, columns))
        k = apart((batch, kv_heads, keys, depth), dtype, (*order[::-1][1:], 3) if number % 2 else order)
        v = apart((batch, kv_heads, keys, columns), dtype, order)
        values = None
        if mask == "added":
            values = torch.randn(*((batch, 1), (1, heads))[number % 2], rows, keys).to(dtype)
        elif mask == "bool":
            values = torch.rand(batch, 1, rows, keys) > 0.4
        out, sums = attend(q, k, v, values, SCALE, mask == "causal", False)
        exact = by_formula(grad_out, q, k, v, out, sums, values, mask == "causal")
        torch.set_num_threads(1 + number % 4)
        try:
            grads = run(address, grad_out, q, k, v, out, sums, mask=values)
        finally:
            torch.set_num_threads(before)
        for grad, its_exact in zip(grads, exact, strict=True):
            assert grad.numel() == 0 or grad.equal(its_exact.to(dtype)) or error(grad, its_exact) <= 2 * BOUND[dtype]


@pytest.mark.parametrize("causal", [False, True])
def test_the_references_agree_with_autograd(causal: bool) -> None:
    q, k, v = torch.randn(2, 4, 9, 8), torch.randn(2, 2, 11, 8), torch.randn(2, 2, 11, 6)
    mask, grad_out = torch.rand(2, 1, 9, 11) > 0.3, torch.randn(2, 4, 9, 6)
    out, sums = attend(q, k, v, mask, SCALE, causal, False)
    grads = attend_backward(grad_out, q, k, v, out, sums, mask, SCALE, causal)[:3]
    for exact in (by_autograd(grad_out, q, k, v, mask, causal), by_formula(grad_out, q, k, v, out, sums, mask, causal)):
        for grad, its_exact in zip(grads, exact, strict=True):
            torch.testing.assert_close(grad.double(), its_exact, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("row", "hides"), with_masks(product(ALL, ("bool",))), ids=str)
def test_rows_without_a_key_and_hidden_keys_have_no_gradient(row: Row, hides: str) -> None:
    dtype = row[2]
    q, k, v, grad_out = (torch.randn(1, 2, 300, 40).to(dtype) for _ in range(4))
    mask = torch.ones(1, 1, 300, 300, dtype=torch.bool)
    mask[:, :, 3] = False
    mask[..., 17] = False
    mask[..., 290] = False
    out, sums = attend(q, k, v, mask, SCALE, False, False)
    grad_q, grad_k, grad_v = run(address_of(row, hides), grad_out, q, k, v, out, sums, mask=mask)
    assert grad_q[:, :, 3].abs().max() == 0
    assert max(grad[:, :, [17, 290]].abs().max() for grad in (grad_k, grad_v)) == 0
    for grad, exact in zip(
        (grad_q, grad_k, grad_v), by_formula(grad_out, q, k, v, out, sums, mask, False), strict=True
    ):
        assert error(grad, exact) <= 2 * BOUND[dtype]


ONLY_KEYS = (("none", 1), ("bool", 1), ("causal", 40))


@pytest.mark.parametrize(
    ("row", "mask", "keys"), with_masks((row, *case) for row, case in product(ALL, ONLY_KEYS)), ids=str
)
def test_the_only_key_of_a_row_has_no_slope(row: Row, mask: str, keys: int) -> None:
    dtype = row[2]
    # The fuzzer's seed 251696: eager has 0 there, not a difference of two roundings.
    q, grad_out = torch.randn(1, 2, 40, 33).to(dtype), torch.randn(1, 2, 40, 33).to(dtype)
    k, v = torch.randn(1, 2, keys, 33).to(dtype), torch.randn(1, 2, keys, 33).to(dtype)
    hides = torch.ones(1, 1, 40, keys, dtype=torch.bool) if mask == "bool" else None
    out, sums = attend(q, k, v, hides, SCALE, mask == "causal", False)
    grad_q, grad_k, _ = run(address_of(row, mask), grad_out, q, k, v, out, sums, mask=hides)
    assert not grad_q[:, :, : 40 if keys == 1 else 1].any()
    assert keys > 1 or not grad_k.any()
    reference = attend_backward(grad_out, q, k, v, out, sums, hides, SCALE, mask == "causal")
    assert not reference[0][:, :, : 40 if keys == 1 else 1].any()
    grad_out[0, 0, 0, 5] = math.nan
    grad_q, _, _ = run(address_of(row, mask), grad_out, q, k, v, out, sums, mask=hides)
    assert grad_q[0, 0, 0].isnan().all()


@pytest.mark.parametrize("row", ALL, ids=str)
def test_weights_far_apart_do_not_overflow(row: Row) -> None:
    """Scores of some hundreds: nearly all weight is one key's."""
    dtype = row[2]
    q, k, v, grad_out = (torch.randn(1, 2, 40, 64).to(dtype) for _ in range(4))
    q *= 50
    out, sums = attend(q, k, v, None, SCALE, False, False)
    grads = run(address_of(row, "none"), grad_out, q, k, v, out, sums, mask=None)
    expected = attend_backward(grad_out, q, k, v, out, sums, None, SCALE, False)[:3]
    for grad, one in zip(grads, expected, strict=True):
        assert error(grad.double(), one.double()) <= (0.05 if dtype != torch.float32 else 1e-3)


@pytest.mark.parametrize(("kernel", "isa"), [(k, i) for k, i, dtype in ALL if dtype == torch.float32])
def test_a_nan_reaches_the_gradients_that_depend_on_it(kernel: str, isa: str) -> None:
    q, k, v, grad_out = (torch.randn(1, 1, 40, 32) for _ in range(4))
    grad_out[0, 0, 7, 3] = math.nan
    out, sums = attend(q, k, v, None, SCALE, True, False)
    grad_q, grad_k, grad_v = run(
        address_of((kernel, isa, torch.float32), "causal"), grad_out, q, k, v, out, sums, mask=None
    )
    assert grad_q[0, 0, 7].isnan().all()
    assert not grad_q[0, 0, [r for r in range(40) if r != 7]].isnan().any()
    assert grad_k[0, 0, :8].isnan().all()
    assert not grad_k[0, 0, 8:].isnan().any()
    assert grad_v[0, 0, :8, 3].isnan().all()
    assert not grad_v[0, 0][:, [c for c in range(32) if c != 3]].isnan().any()
