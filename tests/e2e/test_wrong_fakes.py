"""Operators whose fake results, which the graph is compiled for, differ from what they return."""

from __future__ import annotations

import torch
import torch._dynamo
import torch.nn.functional as F

from tests.e2e.support import assert_like_eager, compile_counted

Tensor = torch.Tensor


def test_results_that_no_kernel_reads_may_have_any_size() -> None:
    """embedding_bag of bf16 leaves its offsets out, and its fake does not."""
    index, offsets = torch.tensor([0, 2, 3, 1, 2]), torch.tensor([0, 2])
    table = torch.randn(5, 4, dtype=torch.bfloat16)
    with torch.no_grad():
        assert_like_eager(lambda w: F.embedding_bag(index, w, offsets, mode="sum") + 1, table)


def test_unique_rows_along_a_negative_dimension() -> None:
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        compiled, _ = compile_counted(lambda x: torch.unique_consecutive(x, dim=-1), fullgraph=True)
        x = torch.tensor([[1.0, 1.0, 2.0], [1.0, 1.0, 3.0]])
        assert torch.equal(compiled(x), x[:, 1:])
