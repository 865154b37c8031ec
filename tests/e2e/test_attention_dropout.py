"""scaled_dot_product_attention that drops weights: one kernel, its gradients another one, with eager's numbers."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import inductor_cpu
from inductor_cpu.trace import CompileReport
from tests.cases import cases
from tests.e2e.support import Function, compile_counted

Tensor = torch.Tensor
BOUND = {torch.float32: 2e-6, torch.bfloat16: 1e-2, torch.float16: 2e-3}


def operands(dtype: torch.dtype, heads: int = 3, shared: int = 1, rows: int = 40, keys: int = 57) -> list[Tensor]:
    shapes = (2, heads, rows, 32), (2, heads // shared, keys, 32), (2, heads // shared, keys, 24)
    return [torch.randn(shape).to(dtype).requires_grad_() for shape in shapes]


def check(
    function: Function, inputs: list[Tensor], bound: float, own: bool = True, **options: Any
) -> list[CompileReport]:
    """Results and gradients from one seed are eager's; own: the scores are in kernels of ours alone."""
    compiled, reports = compile_counted(function, **options)
    outcomes = []
    for call in (function, compiled):
        torch.manual_seed(4)
        out = call(*inputs)
        marks = torch.randn(out.shape, generator=torch.Generator().manual_seed(1)).to(out.dtype)
        outcomes.append((out, *torch.autograd.grad(out, inputs, marks)))
    for mine, theirs in zip(*outcomes[::-1], strict=True):
        assert mine.dtype == theirs.dtype
        assert (mine.double() - theirs.double()).norm() <= bound * theirs.double().norm()
    assert outcomes[0][0].stride() == outcomes[1][0].stride()
    assert is_own(reports) == own
    return reports


def is_own(reports: list[CompileReport]) -> bool:
    return not any("mm" in e.op for report in reports for e in report.externs)


KINDS = ["plain", "causal", "bool", "added", "grouped", "scaled"]


#: The functions of a dtype and a kind of mask take seconds to compile: kinds that share them have one dtype, and
#: `causal` that of the settings below.
ALWAYS = [
    ("plain", torch.float32),
    ("causal", torch.float32),
    ("bool", torch.float16),
    ("added", torch.float32),
    ("grouped", torch.bfloat16),
    ("scaled", torch.float32),
]
MORE = [(kind, dtype) for kind in KINDS for dtype in BOUND if (kind, dtype) not in ALWAYS]


@pytest.mark.parametrize(("kind", "dtype"), cases(ALWAYS, MORE), ids=str)
def test_values_and_gradients_are_eagers_from_the_same_seed(kind: str, dtype: torch.dtype) -> None:
    more: dict[str, Any] = {
        "plain": {},
        "causal": {"is_causal": True},
        "bool": {"attn_mask": torch.rand(2, 1, 40, 57) < 0.7},
        "added": {"attn_mask": torch.randn(40, 57).to(dtype)},
        "grouped": {"enable_gqa": True},
        "scaled": {"scale": 0.3},
    }[kind]
    inputs = operands(dtype, heads=4, shared=2) if kind == "grouped" else operands(dtype)
    check(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, dropout_p=0.2, **more), inputs, BOUND[dtype])


def test_one_query_and_many_keys() -> None:
    check(lambda *x: F.scaled_dot_product_attention(*x, dropout_p=0.5), operands(torch.float32, rows=1, keys=900), 2e-6)


@pytest.mark.parametrize("options", [{"debug_interpret": True}, {"cpp.simdlen": 256}, {"cpp.threads": 2}], ids=str)
def test_the_interpreter_other_vectors_and_threads_agree(options: dict[str, Any]) -> None:
    with inductor_cpu.config.patch(options):
        inputs = operands(torch.float32, rows=150, keys=270)
        check(lambda *x: F.scaled_dot_product_attention(*x, dropout_p=0.2, is_causal=True), inputs, 2e-6)


def test_one_compile_serves_any_number_of_rows_and_keys() -> None:
    function = lambda *x: F.scaled_dot_product_attention(*x, dropout_p=0.2)  # noqa: E731
    compiled, reports = compile_counted(function)
    for rows, keys in ((8, 9), (30, 70), (33, 64)):
        inputs = operands(torch.float32, rows=rows, keys=keys)
        for tensor, dim in zip(inputs, (2, 2, 2), strict=True):
            torch._dynamo.mark_dynamic(tensor, dim)
        torch.manual_seed(4)
        result = compiled(*inputs)
        torch.manual_seed(4)
        torch.testing.assert_close(result, function(*inputs))
    assert [report.kind for report in reports] == ["forward", "backward"]
    assert is_own(reports)


@pytest.mark.parametrize("inside", [True, False])
def test_autocast_decides_about_the_dtype(inside: bool) -> None:
    def function(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=inside):
            return F.scaled_dot_product_attention(q, k, v, dropout_p=0.2)

    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=not inside):
        check(function, operands(torch.float32), 1e-2)


def test_a_layer_of_multi_head_attention() -> None:
    layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.3, batch_first=True)
    reports = check(layer, [torch.randn(2, 21, 32, requires_grad=True)], 1e-5, own=False)  # its linears are calls
    assert not any("bmm" in e.op for report in reports for e in report.externs)


def test_without_gradients_it_drops_all_the_same() -> None:
    function = lambda *x: F.scaled_dot_product_attention(*x, dropout_p=0.2)  # noqa: E731
    compiled, reports = compile_counted(function)
    inputs = operands(torch.float32)
    with torch.no_grad():
        torch.manual_seed(4)
        result = compiled(*inputs)
        torch.manual_seed(4)
        torch.testing.assert_close(result, function(*inputs))
    assert is_own(reports)


def test_a_mask_that_is_learned_and_three_dimensions_are_spelled_out_and_recognized() -> None:
    bias = torch.randn(3, 40, 57, requires_grad=True)
    call = lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, m, dropout_p=0.2)  # noqa: E731
    check(call, [*operands(torch.float32), bias], 2e-6)
    flat = [torch.randn(3, n, 16, requires_grad=True) for n in (40, 50, 50)]
    check(lambda *x: F.scaled_dot_product_attention(*x, dropout_p=0.2), flat, 2e-6)


def test_double_precision_is_spelled_out() -> None:
    wide = [torch.randn(1, 2, n, 16, requires_grad=True, dtype=torch.float64) for n in (20, 30, 30)]
    check(lambda *x: F.scaled_dot_product_attention(*x, dropout_p=0.2), wide, 1e-12, own=False)


def test_weights_drawn_in_loops_are_dropped_in_both_directions() -> None:
    # Values that are one-hot show the weights, and equal scores make these equal.
    n, keep = 64, 0.75
    q, k = (torch.zeros(2, 2, n, 16, requires_grad=True) for _ in "qk")
    v = torch.eye(n).expand(2, 2, n, n).contiguous().requires_grad_()
    with inductor_cpu.config.patch({"fallback_random": False}):
        compiled, _ = compile_counted(lambda *x: F.scaled_dot_product_attention(*x, dropout_p=1 - keep))
        weights = compiled(q, k, v)
    kept = weights > 0
    assert abs(kept.double().mean().item() - keep) < 0.02
    torch.testing.assert_close(weights, kept / (n * keep))
    (grad,) = torch.autograd.grad(weights, v, torch.eye(n).expand_as(weights))
    torch.testing.assert_close(grad, (kept / (n * keep)).transpose(2, 3))
