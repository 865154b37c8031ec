"""Attention by a kernel of our own: numbers against eager with an fp64 reference, for every form that programs have."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

import inductor_cpu
from inductor_cpu.kernels.attention import choose
from inductor_cpu.targets.cpu import detect, target_for
from inductor_cpu.trace import CompileReport
from tests.cases import cases, in_turns
from tests.e2e.support import assert_like_eager, compile_counted

DTYPES = (torch.float32, torch.bfloat16, torch.float16)

pytestmark = pytest.mark.skipif(
    choose(torch.float32, detect()).kernel is None, reason="this CPU has no instruction set with an attention kernel"
)


def error(value: torch.Tensor, exact: torch.Tensor) -> float:
    """RMSE over the RMS of the exact value."""
    return ((value.double() - exact).square().mean().sqrt() / exact.square().mean().sqrt()).item()


def attention(x: torch.Tensor, memory: torch.Tensor, heads: int, **kwargs: Any) -> torch.Tensor:
    """Attention as models write it, of (batch, rows, features) and (batch, keys, 2 features)."""
    depth = x.shape[2] // heads
    q = x.view(x.shape[0], -1, heads, depth).transpose(1, 2)
    k, v = (part.view(x.shape[0], -1, heads, depth).transpose(1, 2) for part in memory.chunk(2, 2))
    out = F.scaled_dot_product_attention(q, k, v, **kwargs)
    return out.transpose(1, 2).reshape(x.shape)


def check(compiled: Any, x: torch.Tensor, memory: torch.Tensor, heads: int, **kwargs: Any) -> None:
    """About as near to fp64 as eager, with its strides."""
    result, eager = compiled(x, memory, heads, **kwargs), attention(x, memory, heads, **kwargs)
    wide = {k: v.double() if isinstance(v, torch.Tensor) and v.is_floating_point() else v for k, v in kwargs.items()}
    exact = attention(x.double(), memory.double(), heads, **wide)
    assert result.dtype == eager.dtype
    assert result.stride() == eager.stride()
    assert error(result, exact) <= 1.5 * error(eager, exact) + 1e-7


def inputs(rows: int, keys: int, features: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(2, rows, features).to(dtype), torch.randn(2, keys, 2 * features).to(dtype)


def masks(rows: int, keys: int, dtype: torch.dtype) -> list[dict[str, Any]]:
    return [
        {},
        {"is_causal": True},
        {"scale": 0.25},
        {"attn_mask": torch.randn(rows, keys).to(dtype)},
        {"attn_mask": torch.rand(2, 1, 1, keys) > 0.3},
        {"attn_mask": torch.randn(1, 4, rows, keys).to(dtype)},
        {"attn_mask": torch.randn(2, 4, rows, 1).to(dtype)},
    ]


@torch.no_grad()
@pytest.mark.parametrize(("number", "dtype"), in_turns(range(7), DTYPES), ids=str)
def test_attention_of_any_kind_is_one_kernel(number: int, dtype: torch.dtype) -> None:
    x, memory = inputs(37, 50, 96, dtype)
    kwargs = masks(37, 50, dtype)[number]
    compiled, reports = compile_counted(attention)
    check(compiled, x, memory, 4, **kwargs)
    assert [report.extern_calls for report in reports] == [0]


@torch.no_grad()
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("against", [-100.0, -1e4, float("-inf")])
def test_a_mask_against_the_first_keys_leaves_the_others_their_weights(against: float, dtype: torch.dtype) -> None:
    x, memory = inputs(20, 70, 96, dtype)
    mask = torch.zeros(20, 70).to(dtype)
    mask[::2, :40] = against  # more than a vector
    mask[1::2, 1::3] = against
    check(torch.compile(attention, backend="icpu"), x, memory, 4, attn_mask=mask)


@torch.no_grad()
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_one_compile_serves_any_length(dtype: torch.dtype) -> None:
    compiled = torch.compile(attention, backend="icpu")
    for rows, keys in ((8, 8), (9, 30), (197, 33)):
        x, memory = inputs(rows, keys, 64, dtype)
        for tensor in (x, memory):
            torch._dynamo.mark_dynamic(tensor, 1)
        check(compiled, x, memory, 2)


@torch.no_grad()
@pytest.mark.parametrize("scale", [float("inf"), float("-inf"), float("nan")])
def test_a_scale_need_not_be_finite(scale: float) -> None:
    """By NaN, ATen's kernel gives zeros with AVX-512, and NaN with AVX2."""
    x, memory = inputs(8, 8, 64, torch.float32)
    result = torch.compile(attention, backend="icpu")(x, memory, 2, scale=scale)
    with sdpa_kernel(SDPBackend.MATH):
        assert attention(x, memory, 2, scale=scale).isnan().all()
    assert result.isnan().all()


@torch.no_grad()
def test_heads_of_one_element_are_rows() -> None:
    """Any stride is right for a dimension of one element."""
    heads = [torch.randn(2, 3, 2, 1) for _ in range(3)]
    with torch.no_grad():
        assert_like_eager(lambda *x: F.scaled_dot_product_attention(*(t.transpose(1, 2) for t in x)).sum(-1), *heads)


def test_narrower_vectors_compute_attention_too() -> None:
    if choose(torch.float32, target_for(256)).kernel is None:
        pytest.skip("this CPU has no AVX2")
    with inductor_cpu.config.patch({"cpp.simdlen": 256}):
        for dtype in DTYPES:
            check(torch.compile(attention, backend="icpu"), *inputs(37, 50, 96, dtype), 4)
            torch._dynamo.reset()


@torch.no_grad()
def test_without_vectors_attention_stays_with_aten() -> None:
    with inductor_cpu.config.patch({"cpp.simdlen": 0}):
        explained = inductor_cpu.explain(attention, *inputs(8, 8, 64, torch.float32), 2)
    assert "attention stays ATen's: no kernel of ours" in str(explained)


@torch.no_grad()
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_rows_that_see_no_key_are_eagers(dtype: torch.dtype) -> None:
    x, memory = inputs(20, 30, 64, dtype)
    mask = torch.rand(20, 30) > 0.5
    mask[3] = False
    for form in (mask, torch.zeros(20, 30, dtype=dtype).masked_fill(~mask, -torch.inf)):
        result = torch.compile(attention, backend="icpu")(x, memory, 2, attn_mask=form)
        eager = attention(x, memory, 2, attn_mask=form)
        torch.testing.assert_close(result[:, 3], eager[:, 3], equal_nan=True)
        torch.testing.assert_close(result, eager, rtol=2e-2, atol=2e-2, equal_nan=True)


@pytest.mark.parametrize(
    ("dtype", "added"),
    cases(
        [(torch.float32, False), (torch.bfloat16, True)],
        [(torch.float32, True), (torch.bfloat16, False), (torch.float16, False), (torch.float16, True)],
    ),
    ids=str,
)
@pytest.mark.parametrize("interpret", [False, True], ids=["kernels", "interpreter"])
def test_gradients_of_rows_that_see_no_key_are_eagers(dtype: torch.dtype, added: bool, interpret: bool) -> None:
    mask = torch.rand(20, 30) > 0.4
    mask[7] = False
    x, memory = inputs(20, 30, 32, dtype)
    weight = torch.ones(2, 20, 32, dtype=dtype)
    form = torch.zeros(20, 30, dtype=dtype).masked_fill(~mask, -torch.inf) if added else mask
    compiled = torch.compile(attention, backend="icpu", options={"debug_interpret": interpret})
    ours, theirs = (gradients(f, x, memory, weight=weight, attn_mask=form) for f in (compiled, attention))
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, atol=1e-5 if dtype == torch.float32 else 0.02, rtol=0.02)


@torch.no_grad()
def test_the_smallest_number_as_a_mask_keeps_a_softmax_over_all_keys() -> None:
    """Programs write finfo.min where a key does not count; a row of nothing else weighs all keys alike."""
    x, memory = inputs(20, 30, 64, torch.float32)
    mask = torch.zeros(20, 30)
    mask[5] = torch.finfo(torch.float32).min
    mask[6, 4:] = torch.finfo(torch.float32).min
    check(torch.compile(attention, backend="icpu"), x, memory, 2, attn_mask=mask)


def gradients(function: Any, *tensors: torch.Tensor, weight: torch.Tensor, **kwargs: Any) -> tuple[torch.Tensor, ...]:
    """Of (batch, rows, features), by queries and memory; 4 heads."""
    leaves = [t.detach().clone().requires_grad_() for t in tensors]
    return torch.autograd.grad(function(*leaves, 4, **kwargs), leaves, weight)


@pytest.mark.parametrize(
    ("number", "dtype"),
    cases(
        [*((n, torch.float32) for n in (0, 1, 2, 5, 6)), (4, torch.bfloat16), (3, torch.float16)],
        [(3, torch.float32), (4, torch.float32), (0, torch.bfloat16)],
    ),
)
def test_gradients_of_any_kind_are_one_kernel(number: int, dtype: torch.dtype) -> None:
    x, memory = inputs(37, 50, 96, dtype)
    kwargs, weight = masks(37, 50, dtype)[number], torch.randn(2, 37, 96).to(dtype)
    wide = {k: v.double() if isinstance(v, torch.Tensor) and v.is_floating_point() else v for k, v in kwargs.items()}
    compiled, reports = compile_counted(attention)
    ours = gradients(compiled, x, memory, weight=weight, **kwargs)
    eagers = gradients(attention, x, memory, weight=weight, **kwargs)
    exact = gradients(attention, x.double(), memory.double(), weight=weight.double(), **wide)
    for one, eager, its_exact in zip(ours, eagers, exact, strict=True):
        assert one.stride() == eager.stride()
        assert error(one, its_exact) <= 1.5 * error(eager, its_exact) + 1e-7
    backward = next(report for report in reports if report.kind == "backward")
    assert not backward.externs
    assert any("attention_backward" in kernel.name for kernel in backward.kernels)


@pytest.mark.parametrize("causal", [False, True])
def test_gradients_of_heads_that_share_keys_are_eagers(causal: bool) -> None:
    tensors = [torch.randn(2, heads, 40, 16, requires_grad=True) for heads in (6, 2, 2)]
    weight = torch.randn(2, 6, 40, 16)

    def grouped(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=True)

    ours = torch.autograd.grad(torch.compile(grouped, backend="icpu")(*tensors), tensors, weight)
    eagers = torch.autograd.grad(grouped(*tensors), tensors, weight)
    for one, eager in zip(ours, eagers, strict=True):
        torch.testing.assert_close(one, eager, rtol=1e-4, atol=1e-5)


def test_one_compile_gives_the_gradients_of_any_length() -> None:
    compiled = torch.compile(attention, backend="icpu")
    for rows, keys in ((8, 8), (9, 30), (197, 33)):
        x, memory = inputs(rows, keys, 64, torch.float32)
        for tensor in (x, memory):
            torch._dynamo.mark_dynamic(tensor, 1)
        leaves = [x.requires_grad_(), memory.requires_grad_()]
        ours = torch.autograd.grad(compiled(x, memory, 2).square().sum(), leaves)
        eagers = torch.autograd.grad(attention(x, memory, 2).square().sum(), leaves)
        for one, eager in zip(ours, eagers, strict=True):
            torch.testing.assert_close(one, eager, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("dtype", "rows"),
    cases(
        [(torch.float32, 1), (torch.float16, 20)],
        [(torch.float32, 20), (torch.float16, 1), (torch.bfloat16, 1), (torch.bfloat16, 20)],
    ),
    ids=str,
)
def test_weights_of_scores_of_any_size_are_the_same_in_both_directions(dtype: torch.dtype, rows: int) -> None:
    """A float of such a size holds no fraction; gradients of queries and keys are differences of equal numbers."""
    compiled = torch.compile(F.scaled_dot_product_attention, backend="icpu", dynamic=False)
    for largest in (1e4, 1e9, 1e30) if dtype != torch.float16 else (1e4, 1e9):
        q, k = (torch.rand(2, 3, n, 16).sub(0.5).mul(2 * largest**0.5) for n in (rows, 70))
        leaves = [x.to(dtype).requires_grad_() for x in (q, k, torch.randn(2, 3, 70, 24))]
        weight, outs, gradients = torch.randn(2, 3, rows, 24).to(dtype), [], []
        for function in (compiled, F.scaled_dot_product_attention):
            outs.append(function(*leaves))
            gradients.append(torch.autograd.grad(outs[-1], leaves, weight))
        torch.testing.assert_close(outs[0], outs[1])
        torch.testing.assert_close(gradients[0][2], gradients[1][2])
        assert all(x.isfinite().all() for x in gradients[0][:2])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_query_with_all_its_weight_on_one_key_has_no_gradient(dtype: torch.dtype) -> None:
    """The fuzzer's seed 352926: its gradient was what two roundings of a value differ by."""
    q = torch.full((1, 2, 40, 16), 3.0, dtype=dtype, requires_grad=True)
    k = torch.full((1, 2, 9, 16), -200.0, dtype=dtype)
    k[:, :, 0] = 3
    v = torch.arange(1.0, 17.0).expand(1, 2, 9, 16).to(dtype)
    out = torch.compile(F.scaled_dot_product_attention, backend="icpu")(q, k, v)
    assert out.equal(v[:, :, :1].expand(out.shape))
    out.backward(torch.randint(-4, 5, out.shape).to(dtype))
    assert q.grad is not None
    assert not q.grad.any()


def test_attention_with_dropout_draws_eagers_numbers() -> None:
    x, memory = inputs(20, 30, 64, torch.float32)
    torch.manual_seed(3)
    eager = attention(x, memory, 2, dropout_p=0.5)
    torch.manual_seed(3)
    result = torch.compile(attention, backend="icpu")(x, memory, 2, dropout_p=0.5)
    torch.testing.assert_close(result, eager)


def spelled(
    x: torch.Tensor,
    memory: torch.Tensor,
    heads: int,
    *,
    attn_mask: torch.Tensor | None = None,
    more: torch.Tensor | None = None,
    wide: bool = False,
) -> torch.Tensor:
    """Attention as models spell it out. more: a mask for windows of the batch, which comes with a dimension of its own.
    wide: the softmax is float32."""
    depth = x.shape[2] // heads
    q = x.view(x.shape[0], -1, heads, depth).transpose(1, 2)
    k, v = (part.view(x.shape[0], -1, heads, depth).transpose(1, 2) for part in memory.chunk(2, 2))
    scores = torch.matmul(q, k.transpose(-2, -1)) / depth**0.5
    if attn_mask is not None:
        scores = scores + attn_mask
    if more is not None:
        shape = scores.shape
        scores = (scores.view(-1, more.shape[0], *shape[1:]) + more[None, :, None]).view(shape)
    dtype = torch.float32 if wide and x.dtype != torch.float64 else None
    weights = F.dropout(scores.softmax(-1, dtype=dtype), 0.1, training=False).to(x.dtype)
    return torch.matmul(weights, v).transpose(1, 2).reshape(x.shape)


def is_attention(reports: list[CompileReport]) -> bool:
    return any("attention" in kernel.name for report in reports for kernel in report.kernels)


def check_spelled(x: torch.Tensor, memory: torch.Tensor, **kwargs: Any) -> None:
    """One kernel for all of it, as near to fp64 as eager."""
    torch._dynamo.reset()  # a mask of other sizes than the one before is none of symbolic sizes
    compiled, reports = compile_counted(spelled)
    result, eager = compiled(x, memory, 4, **kwargs), spelled(x, memory, 4, **kwargs)
    assert not any(report.externs for report in reports)
    assert is_attention(reports)
    wide = {k: v.double() if isinstance(v, torch.Tensor) else v for k, v in kwargs.items()}
    exact = spelled(x.double(), memory.double(), 4, **wide)
    assert result.stride() == eager.stride()
    assert error(result, exact) <= 1.5 * error(eager, exact) + 1e-7


@torch.no_grad()
@pytest.mark.parametrize(
    ("dtype", "wide"),
    cases(
        [(torch.float32, False), (torch.bfloat16, True)],
        [(torch.float32, True), (torch.bfloat16, False), (torch.float16, False), (torch.float16, True)],
    ),
    ids=str,
)
def test_attention_that_is_spelled_out_is_one_kernel(dtype: torch.dtype, wide: bool) -> None:
    x, memory = inputs(37, 50, 96, dtype)
    check_spelled(x, memory, wide=wide)
    check_spelled(x, memory, wide=wide, attn_mask=torch.randn(4, 37, 50).to(dtype))
    check_spelled(x, memory, wide=wide, attn_mask=torch.randn(2, 1, 1, 50).to(dtype))


@torch.no_grad()
def test_a_bias_and_a_mask_of_windows_are_added() -> None:
    x, memory = inputs(16, 16, 64, torch.float32)
    check_spelled(x, memory, attn_mask=torch.randn(1, 4, 16, 16), more=torch.randn(2, 16, 16))


@torch.no_grad()
def test_a_row_of_infinities_is_nan_where_it_is_spelled_out() -> None:
    x, memory = inputs(16, 16, 64, torch.float32)
    mask = torch.zeros(16, 16)
    mask[3] = -torch.inf
    result = torch.compile(spelled, backend="icpu")(x, memory, 4, attn_mask=mask)
    torch.testing.assert_close(result, spelled(x, memory, 4, attn_mask=mask), equal_nan=True)


@torch.no_grad()
def test_a_factor_of_an_operand_counts_once_whatever_shape_it_is_multiplied_in() -> None:
    def scaled(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
        q, k = (x * 0.3).view(2, 3, 10, 16), (y * 0.7).view(2, 3, 16, 10)
        return ((q * 0.5) @ k).softmax(-1) @ z

    args = torch.randn(6, 10, 16), torch.randn(6, 16, 10), torch.randn(2, 3, 10, 16)
    compiled, reports = compile_counted(scaled)
    torch.testing.assert_close(compiled(*args), scaled(*args))
    assert is_attention(reports)


def also_weights(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> tuple[torch.Tensor, ...]:
    weights = torch.bmm(x, y.transpose(1, 2)).softmax(-1)
    return weights, torch.bmm(weights, z)


def scaled_after_the_mask(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
    return torch.bmm(((torch.bmm(x, y.transpose(1, 2)) + 1.5 * x[..., :1]) * 0.3).softmax(-1), z)


def softmax_of_columns(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
    return torch.bmm(torch.bmm(x, y.transpose(1, 2)).softmax(1), z)


def biased_and_small(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
    return torch.bmm(((torch.bmm(x, y.transpose(1, 2)) * 0.3) + x[..., :1]).softmax(-1), z)


def times_a_tensor(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
    return torch.bmm((torch.bmm(x, y.transpose(1, 2)) * x[..., :1]).softmax(-1), z)


def rounded(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
    return torch.bmm((torch.bmm(x, y.transpose(1, 2)) * 30).half().float().softmax(-1), z)


@torch.no_grad()
@pytest.mark.parametrize(
    ("function", "recognized"),
    [
        (also_weights, False),
        (scaled_after_the_mask, False),
        (softmax_of_columns, False),
        (times_a_tensor, False),
        (rounded, False),
        (biased_and_small, True),
    ],
)
def test_look_alikes_stay_what_they_are(function: Any, recognized: bool) -> None:
    args = torch.randn(3, 20, 16), torch.randn(3, 20, 16), torch.randn(3, 20, 24)
    compiled, reports = compile_counted(function)
    torch.testing.assert_close(compiled(*args), function(*args))
    assert is_attention(reports) == recognized


@torch.no_grad()
def test_values_of_another_width_are_taken() -> None:
    """Eager takes this apart: a product, a softmax, a product."""
    q, k, v = torch.randn(2, 4, 10, 16), torch.randn(2, 4, 12, 16), torch.randn(2, 4, 12, 40)
    compiled, reports = compile_counted(F.scaled_dot_product_attention)
    torch.testing.assert_close(compiled(q, k, v), F.scaled_dot_product_attention(q, k, v))
    assert [report.extern_calls for report in reports] == [0]
