"""Ints and sizes that depend on data, through torch.compile, in one graph that has kernels."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch._dynamo.config

from inductor_cpu.trace import CompileReport
from tests.e2e.support import compile_counted


@pytest.fixture(autouse=True)
def captured() -> Iterator[None]:
    torch._dynamo.reset()
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True, capture_scalar_outputs=True):
        yield


def compiled(fn: Callable[..., Any]) -> tuple[Callable[..., Any], list[CompileReport]]:
    return compile_counted(fn, fullgraph=True)


def item(n: torch.Tensor) -> int:
    """The number in a tensor that the graph computes; Dynamo would guard on the number in an input."""
    return (n + 0).item()  # type: ignore[return-value]


def checked(x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
    length = item(n)
    torch._check(length >= 0)
    torch._check(length <= x.shape[0])
    torch._check(length != 7)
    return torch.cat([x.narrow(0, 0, length) * 2, x])


X = torch.tensor([1.0, -1.0, 2.0, 0.0, 3.0, -2.0, 0.0, 5.0])

PROGRAMS: dict[str, tuple[Callable[..., Any], list[tuple[torch.Tensor, ...]]]] = {
    "nonzero": (lambda x: x.nonzero() * 2, [(X,), (-X,), (X * 0,)]),
    "selection_by_a_mask": (lambda x: x[x > 0] * 2 + 1, [(X,), (-X,), (X * 0,)]),
    "selection_summed": (lambda x: x[x > 0].sum() + 1, [(X,), (-X,)]),
    "selection_as_rows": (lambda x: x.view(4, 2)[x[:4] > 0].softmax(1), [(X,), (-X,)]),
    "unique": (lambda x: x.unique() + 1, [(X,), (X * 0,)]),
    "size_from_an_item": (lambda n: torch.ones(item(n)) * 3, [(torch.tensor(4),), (torch.tensor(2),)]),
    "arithmetic_with_an_item": (lambda x, n: x * item(n) + item(n) // 2, [(X, torch.tensor(k)) for k in (4, -3)]),
    "maximum_with_an_item": (lambda x, n: x + torch.sym_max(item(n), 0), [(X, torch.tensor(k)) for k in (4, -3)]),
    "slice_to_an_item": (lambda x, n: x[: item(n)] + 1, [(X, torch.tensor(k)) for k in (4, 0, -3, 99)]),
    "slice_from_an_item": (lambda x, n: x[item(n) :] + 1, [(X, torch.tensor(k)) for k in (4, 0, -3, 99)]),
    "checked_narrow": (checked, [(X, torch.tensor(k)) for k in (4, 8, 0)]),
    "a_bool_item": (lambda x, n: x + item(n), [(X, torch.tensor(True)), (X, torch.tensor(False))]),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_one_graph_serves_all_data(name: str) -> None:
    fn, calls = PROGRAMS[name]
    run, reports = compiled(fn)
    for inputs in calls:
        torch.testing.assert_close(run(*inputs), fn(*inputs), rtol=1e-6, atol=0)
    assert len(reports) == 1
    assert reports[0].kernels, reports[0].notes


@pytest.mark.parametrize("length", [-1, 9, 7])
def test_a_check_that_fails_raises_as_in_eager_mode(length: int) -> None:
    run, reports = compiled(checked)
    run(X, torch.tensor(4))
    assert reports[0].kernels
    with pytest.raises(RuntimeError):
        checked(X, torch.tensor(length))
    with pytest.raises(RuntimeError, match="Runtime assertion failed"):
        run(X, torch.tensor(length))


def test_the_check_is_the_only_call_besides_the_item() -> None:
    run, reports = compiled(checked)
    run(X, torch.tensor(4))
    assert {call.op for call in reports[0].externs} == {
        "aten._local_scalar_dense.default",
        "aten._assert_scalar.default",
        "aten.slice.Tensor",
    }


def test_a_negative_int_argument_keeps_its_sign() -> None:
    fn = lambda x, n: x + torch.sym_max(n, 0) + n // 3  # noqa: E731
    run, _ = compile_counted(fn, dynamic=True)
    for n in (5, -4, -7):
        torch.testing.assert_close(run(X, n), fn(X, n), rtol=0, atol=0)
