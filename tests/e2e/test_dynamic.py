"""Sizes that change from call to call: one compile serves them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn import functional

from bench_suites.models import build
from tests.e2e.support import compile_counted

Tensor = torch.Tensor


@pytest.mark.parametrize(
    "f",
    [
        lambda x: (x * 2).relu() + x.shape[0],
        lambda x: functional.layer_norm(x, (24,)).softmax(0),
        lambda x: torch.cat([x, x + 1]).reshape(-1, 12).sum(1),
        lambda x: x[: x.shape[0] // 2].flip(0).cumsum(0),
        lambda x: (x @ x.t()).tril().amax(),
    ],
    ids=["pointwise", "norm and softmax", "cat and reshape", "slice and scan", "gemm"],
)
def test_dynamic_true_compiles_once_for_every_batch(f: Callable[[Tensor], Tensor]) -> None:
    compiled, reports = compile_counted(f, dynamic=True)
    for rows in (6, 4, 17, 64):  # no slice of one row, which Dynamo specializes
        x = torch.randn(rows, 24)
        torch.testing.assert_close(compiled(x), f(x), atol=1e-4, rtol=1e-4)
    assert len(reports) == 1


def test_a_variance_corrected_by_a_number_of_the_caller() -> None:
    def f(x: Tensor, correction: int) -> tuple[Tensor, ...]:
        return (x.var(0, correction=correction), *torch.std_mean(x, 1, correction=correction))

    compiled, reports = compile_counted(f, dynamic=True)
    x = torch.randn(6, 5)
    for correction in (3, 2, 4):
        torch.testing.assert_close(compiled(x, correction), f(x, correction))
    assert all(report.kind != "eager" for report in reports)


def test_automatic_dynamic_compiles_twice_and_no_more() -> None:
    module = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.LayerNorm(32)).eval()
    compiled, reports = compile_counted(module)
    with torch.no_grad():
        for rows in (4, 7, 12, 33):
            x = torch.randn(rows, 16)
            torch.testing.assert_close(compiled(x), module(x), atol=1e-5, rtol=1e-4)
    assert len(reports) == 2


@torch.no_grad()
def test_transformer_with_varying_sequence_length_compiles_once() -> None:
    model = build("bert-base", tiny=True)
    compiled, reports = compile_counted(model.module, dynamic=True)
    for length in (16, 9, 33):
        tokens = torch.randint(0, 512, (2, length))
        expected = model.module(input_ids=tokens).logits
        torch.testing.assert_close(compiled(input_ids=tokens).logits, expected, atol=1e-4, rtol=1e-4)
    assert len(reports) == 1


def test_training_with_a_varying_batch_compiles_once() -> None:
    module = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 3))
    compiled, reports = compile_counted(module, dynamic=True)
    for rows in (4, 9, 2):
        x, y = torch.randn(rows, 8), torch.randint(0, 3, (rows,))
        gradients = []
        for run in (module, compiled):
            module.zero_grad()
            functional.cross_entropy(run(x), y).backward()
            gradients.append([p.grad.clone() for p in module.parameters() if p.grad is not None])
        torch.testing.assert_close(gradients[1], gradients[0], atol=1e-5, rtol=1e-4)
    assert [r.kind for r in reports] == ["forward", "backward"]


def test_output_size_that_depends_on_data() -> None:
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        compiled, _ = compile_counted(lambda x: (x.nonzero() * 2).sum(0) + x[x > 0].exp().sum().long())
        for x in (torch.tensor([1.0, 0.0, 2.0]), torch.tensor([0.0, 0.0, 0.5])):
            torch.testing.assert_close(compiled(x), (x.nonzero() * 2).sum(0) + x[x > 0].exp().sum().long())


def test_symbolic_int_as_input_and_output() -> None:
    compiled, reports = compile_counted(lambda x, n: (x * n, n + x.shape[0]), dynamic=True)
    for n in (3, 5, 11):
        y, total = compiled(torch.ones(4), n)
        torch.testing.assert_close(y, torch.full((4,), float(n)))
        assert total == n + 4
    assert len(reports) == 1


def test_a_dynamic_loop_may_be_empty_at_the_size_that_costs_are_estimated_with() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return (x.exp() + 0.25)[:, 40:].repeat_interleave(3, 1).sqrt()

    x = torch.randn(4, 65)
    torch.testing.assert_close(torch.compile(f, backend="icpu", dynamic=True)(x), f(x))


def test_a_size_that_is_divided_by_the_difference_of_two_symbols() -> None:
    """At the size that costs are estimated with the difference is 0."""

    def f(x: Tensor, y: Tensor) -> Tensor:
        return x[:, y.shape[0] :].reshape(-1).sum()

    compiled, _ = compile_counted(f, dynamic=True)
    for rows, columns, less in ((5, 40, 7), (3, 200, 150)):
        x = torch.randn(rows, columns)
        torch.testing.assert_close(compiled(x, torch.ones(less)), f(x, torch.ones(less)))


def test_windows_of_a_dynamic_size_that_are_reshaped_and_repeated() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return torch.rsqrt(torch.tril(x, 1).abs() + 0.25).unfold(0, 2, 3).reshape(-1, 8, 2).repeat_interleave(3, 1)

    x = torch.randn(65, 16)
    torch.testing.assert_close(torch.compile(f, backend="icpu", dynamic=True)(x), f(x))


@torch.no_grad()
def test_a_view_whose_sizes_are_quotients_of_sizes_is_still_a_view() -> None:
    def both(x: Tensor) -> tuple[Tensor, Tensor]:
        y = x.sin()
        return y[:, 1:5], y.view(-1, 17, 2)

    compiled = torch.compile(both, backend="icpu", dynamic=True)
    for size in (6, 14):
        x = torch.randn(17, size)
        part, pairs = compiled(x)
        torch.testing.assert_close((part, pairs), both(x))
        assert part.untyped_storage().data_ptr() == pairs.untyped_storage().data_ptr()


@torch.no_grad()
def test_a_view_of_rows_whose_length_is_a_sum_is_still_a_view() -> None:
    def both(x: Tensor) -> tuple[Tensor, Tensor]:
        y = x[:, 17::2] + 2
        return y[:, 1::2], y

    compiled = torch.compile(both, backend="icpu", dynamic=True)
    x = torch.randn(9, 65)
    every_second, whole = compiled(x)
    torch.testing.assert_close((every_second, whole), both(x))
    assert every_second.untyped_storage().data_ptr() == whole.untyped_storage().data_ptr()


@torch.no_grad()
def test_a_guard_on_a_quotient_may_name_a_size_that_is_no_input_of_the_graph() -> None:
    def scaled(x: Tensor, scale: Tensor) -> Tensor:
        return scale / (x.reshape(-1, 3, 1).abs() + 1)

    compiled = torch.compile(scaled, backend="icpu", dynamic=True)
    for size in (65, 12):
        x, scale = torch.randn(size, 33), torch.randn(1, 3, 1)
        torch.testing.assert_close(compiled(x, scale), scaled(x, scale))
