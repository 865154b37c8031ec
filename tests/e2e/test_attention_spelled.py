"""Attention that a program spells out and trains: one kernel, its gradients another one, as exact as in eager mode."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch.nn import functional as F

import inductor_cpu
from inductor_cpu.kernels.attention import choose
from inductor_cpu.targets.cpu import detect
from inductor_cpu.trace import CompileReport
from tests.cases import cases, in_turns
from tests.e2e.support import Function, compile_counted
from tests.spelled import (
    added,
    dropped,
    hidden,
    hidden_by_a_number,
    in_three_dimensions,
    operands,
    outcomes,
    plain,
    scores_of,
)

Tensor = torch.Tensor

pytestmark = pytest.mark.skipif(
    choose(torch.float32, detect()).kernel is None, reason="this CPU has no instruction set with an attention kernel"
)


def check(function: Function, inputs: Sequence[Tensor], own: bool = True, times: float = 1.5, **options: Any) -> None:
    """Results and gradients are about as near to fp64 as eager's. own: all products are in kernels of ours."""
    compiled, reports = compile_counted(function, **options)
    wide = [x.detach().double().requires_grad_(x.requires_grad) if x.is_floating_point() else x for x in inputs]
    for mine, eager, exact in zip(
        *(outcomes(f, i) for f, i in ((compiled, inputs), (function, inputs), (function, wide))), strict=True
    ):
        assert (mine.dtype, mine.stride()) == (eager.dtype, eager.stride())
        assert error(mine, exact) <= times * error(eager, exact) + 2e-7
    assert is_own(reports) == own


def error(value: Tensor, exact: Tensor) -> float:
    return ((value.double() - exact).norm() / exact.norm()).item()


def is_own(reports: list[CompileReport]) -> bool:
    """Whether no product of batches is left to a library, in either direction."""
    return not any("bmm" in e.op for report in reports for e in report.externs)


@pytest.mark.parametrize(
    ("function", "dtype"),
    cases(
        [
            (plain, torch.float32),
            (added, torch.bfloat16),
            (dropped, torch.bfloat16),
            (hidden_by_a_number, torch.float16),
            (in_three_dimensions, torch.float32),
        ],
        # The others of float32 have the settings of the next test.
        [
            (dropped, torch.float32),
            (dropped, torch.float16),
            (hidden, torch.float32),
            (hidden, torch.bfloat16),
            (hidden_by_a_number, torch.float32),
        ],
    ),
)
def test_values_and_gradients_are_as_exact_as_eagers(function: Function, dtype: torch.dtype) -> None:
    masks = {added: torch.randn(2, 1, 40, 57).to(dtype), dropped: torch.randn(40, 57).to(dtype)}
    visible = torch.rand(40, 57) < 0.7
    masks |= dict.fromkeys((hidden, hidden_by_a_number), visible)
    check(function, [*operands(dtype), *([masks[function]] if function in masks else [])])


@pytest.mark.parametrize("options", [{"debug_interpret": True}, {"cpp.simdlen": 256}, {"cpp.threads": 2}], ids=str)
def test_the_interpreter_other_vectors_and_threads_agree(options: dict[str, Any]) -> None:
    with inductor_cpu.config.patch(options):
        check(dropped, [*operands(rows=70, keys=90), torch.randn(3, 1, 90, requires_grad=True)])
        torch._dynamo.reset()
        check(hidden, [*operands(rows=70, keys=90), torch.rand(70, 90) < 0.7])


def biased(q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Tensor:
    return (scores_of(q, k) + bias).softmax(-1) @ v


@pytest.mark.parametrize(
    ("function", "dtype"),
    # Torch spells out its own function where what is added has a gradient.
    in_turns([biased, F.scaled_dot_product_attention], [torch.float32, torch.bfloat16]),
    ids=["by hand", "by hand", "by torch", "by torch"],
)
def test_what_is_added_has_a_gradient(function: Function, dtype: torch.dtype) -> None:
    check(function, [*operands(dtype), torch.randn(1, 3, 40, 57).to(dtype).requires_grad_()])


@pytest.mark.parametrize("is_added", [False, True])
def test_rows_without_a_key_are_nan_where_they_are_in_eager_mode(is_added: bool) -> None:
    visible = torch.rand(40, 57) < 0.5
    visible[[3, 17]] = False
    mask = torch.zeros(40, 57).masked_fill(~visible, -math.inf) if is_added else visible
    function, inputs = (added if is_added else hidden), [*operands(), mask]
    compiled, reports = compile_counted(function)
    for mine, eager in zip(outcomes(compiled, inputs), outcomes(function, inputs), strict=True):
        torch.testing.assert_close(mine, eager, equal_nan=True)
    assert is_own(reports)


LEAST = torch.finfo(torch.float32).min


@pytest.mark.parametrize(
    ("dtype", "wide", "fill"),
    cases(
        [
            (torch.float32, False, -1e9),  # scores of float32 are wide as they are
            (torch.float32, False, math.nan),
            (torch.bfloat16, False, LEAST),
            (torch.bfloat16, False, math.inf),
            (torch.bfloat16, True, math.nan),
            (torch.float16, False, -1e9),
            (torch.float16, False, LEAST),
            (torch.float16, True, -1e9),
            (torch.float16, True, math.inf),
        ],
        [
            *((torch.float32, False, fill) for fill in (LEAST, math.inf)),
            *((torch.bfloat16, False, fill) for fill in (-1e9, math.nan)),
            *((torch.bfloat16, True, fill) for fill in (-1e9, LEAST, math.inf)),
            *((torch.float16, False, fill) for fill in (math.inf, math.nan)),
            *((torch.float16, True, fill) for fill in (LEAST, math.nan)),
        ],
    ),
    ids=str,
)
def test_what_hides_scores_is_the_number_that_their_type_holds(dtype: torch.dtype, fill: float, wide: bool) -> None:
    """-1e9 is -infinity in f16, so that a row without any key is NaN; in float such a row weighs all keys alike."""
    visible = torch.rand(40, 57) < 0.5
    visible[[3, 17]] = False

    def weights(q: Tensor, k: Tensor) -> Tensor:
        scores = scores_of(q, k).float() if wide else scores_of(q, k)
        return torch.where(visible, scores, fill).softmax(-1)

    def function(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return weights(q, k).to(v.dtype) @ v

    q, k, v = inputs = [x.detach() for x in operands(dtype)]
    compiled, _ = compile_counted(function)
    # In float: of a row of NaN, a library's product of bf16 with AMX makes two.
    eager = (weights(q, k).to(dtype).float() @ v.float()).to(dtype)
    exact = function(*(x.double() for x in inputs))
    mine, seen = compiled(*inputs), visible.any(-1) & math.isfinite(fill)
    assert torch.equal(mine.isnan(), eager.isnan())
    assert (
        not seen.any()
        or error(mine[:, :, seen], exact[:, :, seen]) <= 1.5 * error(eager[:, :, seen], exact[:, :, seen]) + 2e-7
    )
    torch.testing.assert_close(mine, eager, rtol=0.05, atol=0.05, equal_nan=True)


@pytest.mark.parametrize("fill", [-1e9, -1e4])
def test_a_cast_changes_the_number_that_hides_scores(fill: float) -> None:
    visible = torch.rand(40, 57) < 0.5
    visible[[3, 17]] = False

    def function(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return torch.where(visible, scores_of(q, k).float(), fill).half().softmax(-1) @ v

    inputs = [x.detach() for x in operands(torch.float16)]
    compiled, _ = compile_counted(function)
    torch.testing.assert_close(compiled(*inputs), function(*inputs), rtol=0.01, atol=0.01, equal_nan=True)


def test_the_same_seed_drops_the_same_weights_as_in_eager_mode() -> None:
    def function(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        before = F.dropout(q, 0.5)
        out = F.dropout(scores_of(before, k).softmax(-1), 0.2) @ v
        return out + F.dropout(out, 0.3)

    check(function, operands())


def test_one_compile_serves_any_number_of_rows_and_keys() -> None:
    compiled, reports = compile_counted(added)
    for rows, keys in ((8, 9), (30, 70), (33, 64)):
        inputs = [*operands(rows=rows, keys=keys), torch.randn(2, 1, 1, keys)]
        for tensor, dim in zip(inputs, (2, 2, 2, 3), strict=True):
            torch._dynamo.mark_dynamic(tensor, dim)
        for mine, eager in zip(outcomes(compiled, inputs), outcomes(added, inputs), strict=True):
            torch.testing.assert_close(mine, eager, rtol=1e-4, atol=1e-5)
    assert [report.kind for report in reports] == ["forward", "backward"]
    assert is_own(reports)


def test_gradients_that_the_program_takes_itself() -> None:
    q, k, v = (x.detach() for x in operands())
    function = torch.func.grad(lambda *x: plain(*x).sin().sum(), argnums=(0, 1, 2))
    compiled, reports = compile_counted(function)
    torch.testing.assert_close(compiled(q, k, v), function(q, k, v))
    assert is_own(reports)


def test_writing_into_a_result_leaves_the_gradients_as_they_are() -> None:
    compiled, _ = compile_counted(added)
    inputs, grads = [*operands(), torch.zeros(57)], []
    for function in (compiled, added):
        out = function(*inputs)
        with torch.no_grad():
            out.mul_(0.0)
        grads.append(torch.autograd.grad(out, inputs[:3], torch.ones_like(out)))
    torch.testing.assert_close(*grads)
