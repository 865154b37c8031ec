"""Operators whose fake results, which the graph is compiled for, differ from what they return."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch._dynamo
import torch.nn.functional as F

import inductor_cpu
from tests.e2e.support import assert_like_eager, assert_same, compile_counted

Tensor = torch.Tensor


@pytest.mark.parametrize("interpret", [False, True])
def test_results_that_no_kernel_reads_may_have_any_size(interpret: bool) -> None:
    """embedding_bag of bf16 leaves its offsets out, and its fake does not."""
    index, offsets = torch.tensor([0, 2, 3, 1, 2]), torch.tensor([0, 2])
    table = torch.randn(5, 4, dtype=torch.bfloat16)
    with torch.no_grad(), inductor_cpu.config.patch({"debug_interpret": interpret}):
        assert_like_eager(lambda w: F.embedding_bag(index, w, offsets, mode="sum") + 1, table)


@pytest.mark.parametrize("interpret", [False, True])
def test_results_of_another_dtype_are_converted(interpret: bool) -> None:
    """Running statistics of bf16 have float32 in their fake."""
    x, weight = torch.randn(3, 2, 4).bfloat16(), torch.rand(2).bfloat16()
    found = []
    for options in (None, {"debug_interpret": interpret}):
        mean, var = torch.tensor([0.5, -1.25]).bfloat16(), torch.tensor([0.75, 2.0]).bfloat16()

        def normed(mean: Tensor, var: Tensor) -> tuple[Tensor, Tensor]:
            return torch._native_batch_norm_legit(x, weight, weight, mean, var, False, 0.1, 1e-5)[0], mean * 2

        call = normed if options is None else torch.compile(normed, backend="icpu", options=options)
        found.append((*call(mean, var), mean, var))
    assert_same(found[1], found[0])


def test_unique_rows_along_a_negative_dimension() -> None:
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        compiled, _ = compile_counted(lambda x: torch.unique_consecutive(x, dim=-1), fullgraph=True)
        x = torch.tensor([[1.0, 1.0, 2.0], [1.0, 1.0, 3.0]])
        assert torch.equal(compiled(x), x[:, 1:])


@pytest.mark.parametrize("unique", [torch.unique, torch.unique_consecutive])
@pytest.mark.parametrize("dim", [0, 1, 2, None])
def test_unique_slices_lie_in_memory_as_eagers_do(unique: Callable[..., Tensor], dim: int | None) -> None:
    x = torch.randint(0, 2, (5, 4, 3)).float()
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        compiled, _ = compile_counted(lambda x: (unique(x, dim=dim), unique(x, dim=dim) + 1), fullgraph=True)
        assert_same(compiled(x), (unique(x, dim=dim), unique(x, dim=dim) + 1))


@pytest.mark.parametrize("keepdim", [False, True])
@pytest.mark.parametrize("reduce", [torch.nansum, torch.nanmean])
def test_an_empty_list_of_dimensions_means_all(reduce: Callable[..., Tensor], keepdim: bool) -> None:
    """Their fakes take it for none."""
    x = torch.tensor([[1.0, float("nan"), 2.0], [-3.0, 4.0, 0.5]], requires_grad=True)
    expected = reduce(x, dim=[], keepdim=keepdim)
    actual = compile_counted(lambda x: reduce(x, dim=[], keepdim=keepdim), fullgraph=True)[0](x)
    assert_same(actual, expected)
    assert_same(*(torch.autograd.grad(result.sum(), x)[0] for result in (actual, expected)))
