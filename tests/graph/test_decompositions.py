"""Operators that are taken apart by rules of our own, where torch's decompositions differ from eager mode."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

from inductor_cpu.graph.decompositions import decompositions
from tests.cases import cases, in_turns
from tests.e2e.support import compile_counted

Tensor = torch.Tensor


@pytest.mark.parametrize(
    ("loss", "reduction"),
    in_turns([F.huber_loss, F.soft_margin_loss], ["none", "mean"]),
    ids=lambda value: getattr(value, "__name__", value),
)
def test_a_loss_has_the_dtype_of_its_first_argument(loss: Callable[..., Tensor], reduction: str) -> None:
    x, target = torch.linspace(-2, 2, 12).view(3, 4).bfloat16(), torch.ones(3, 4)
    for first, second in ((x, target), (target, x)):
        expected = loss(first, second, reduction=reduction)
        actual = torch.compile(loss, backend="icpu")(first, second, reduction=reduction)
        assert actual.dtype == expected.dtype
        torch.testing.assert_close(actual.float(), expected.float(), rtol=2e-2, atol=1e-2)


def test_multilabel_margin_loss_ends_its_targets_at_the_first_minus_one() -> None:
    """Torch's decomposition, which aot_eager has, counts what follows as class 0."""
    target = torch.tensor([[0, 2, -1, 1], [3, -1, -1, -1], [-1, 0, 0, 0]])
    x = torch.linspace(-1, 2, 12).sin().view(3, 4).requires_grad_()
    expected = F.multilabel_margin_loss(x, target)
    actual = torch.compile(F.multilabel_margin_loss, backend="icpu")(x, target)
    torch.testing.assert_close(actual, expected)
    torch.testing.assert_close(*(torch.autograd.grad(loss, x)[0] for loss in (actual, expected)))


@pytest.mark.parametrize(
    ("dims", "plane", "wrong"),
    cases(
        [(1, 0, -1), (1, 1, 6), (2, 0, 1000), (2, 1, -1), (3, 0, 6), (3, 1, 1000)],
        [
            *((1, 0, 6), (1, 0, 1000), (1, 1, -1), (1, 1, 1000), (2, 0, -1), (2, 0, 6)),
            *((2, 1, 6), (2, 1, 1000), (3, 0, -1), (3, 0, 1000), (3, 1, -1), (3, 1, 6)),
        ],
    ),
)
def test_unpooling_to_a_position_outside_of_its_plane_is_an_error(dims: int, plane: int, wrong: int) -> None:
    """Also where the position lies in another plane."""
    unpool = (F.max_unpool1d, F.max_unpool2d, F.max_unpool3d)[dims - 1]
    window = (*(1,) * (dims - 1), 3)
    x = torch.ones(2, *(1,) * (dims - 1), 2)
    positions = torch.tensor([0, 5]).expand(x.shape).clone()
    compiled, reports = compile_counted(lambda x, positions: unpool(x, positions, window))
    assert compiled(x, positions).equal(unpool(x, positions, window))
    assert not any(report.externs for report in reports)
    positions[plane, ..., 1] = wrong
    with pytest.raises(RuntimeError):
        unpool(x, positions, window)
    with pytest.raises(RuntimeError):
        compiled(x, positions)


@pytest.mark.parametrize("training", [False, True])
def test_rrelu_is_random_in_training_only(training: bool) -> None:
    x = torch.randn(3, 5).t()
    compiled, reports = compile_counted(lambda x: F.rrelu(x, 0.2, 0.3, training))
    result, expected = compiled(x), F.rrelu(x, 0.2, 0.3, training)
    assert any("rrelu" in extern.op for report in reports for extern in report.externs) is training
    assert training or torch.allclose(result, expected, rtol=1e-6)
    assert result.stride() == expected.stride()


def test_a_caller_may_change_the_table_it_gets() -> None:
    decompositions().clear()
    assert decompositions()


def test_operators_of_the_program_that_are_made_of_others_come_and_go() -> None:
    for factor in (2.0, 3.0):
        with torch.library._scoped_library("icpu_composite", "DEF") as library:
            library.define("scaled(Tensor x) -> Tensor")
            library.impl("scaled", lambda x, factor=factor: x * factor, "CompositeImplicitAutograd")
            compiled, reports = compile_counted(lambda x: torch.ops.icpu_composite.scaled.default(x) + 1)
            x = torch.linspace(-1, 1, 64, requires_grad=True)
            torch.testing.assert_close(compiled(x), x * factor + 1)
            assert reports
            assert not any(report.externs for report in reports)
        torch._dynamo.reset()
        compiled, reports = compile_counted(torch.sin)
        torch.testing.assert_close(compiled(x), torch.sin(x))  # where no such operator is left
