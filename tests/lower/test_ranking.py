"""topk and sort of short rows: eager's elements, and its positions wherever those are defined; topk also has eager's
positions where elements are equal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import inductor_cpu.config as config
from inductor_cpu.ir.nodes import Ranking
from tests.codegen.harness import BITS, available

from .harness import check, externs, lower

NAN, INF = float("nan"), float("inf")
DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.int32, torch.int16, torch.int8, torch.uint8)
SHAPES = ((8, 2), (16, 1), (33, 4), (64, 8), (100, 32), (256, 3), (256, 6))


def rows(columns: int, dtype: torch.dtype, ties: bool) -> torch.Tensor:
    """Rows without equal elements, or with many, and with all that floats have besides numbers."""
    if not ties:
        return torch.stack([torch.randperm(columns) - columns // 2 for _ in range(9)]).to(dtype)
    x = torch.randint(-3, 4, (40, columns)).to(torch.float32)
    if dtype.is_floating_point:
        x[0, ::3], x[1, 1::2], x[2, ::5], x[3] = NAN, -0.0, -INF, NAN
    return x.abs().to(dtype) if dtype == torch.uint8 else x.to(dtype)


def compiled(function: Callable[..., Any], isa: str, *inputs: Any) -> Any:
    with config.patch({"cpp.simdlen": BITS[isa]}):
        torch._dynamo.reset()
        return torch.compile(function, backend="icpu")(*inputs)


def assert_same(got: Any, expected: Any) -> None:
    torch.testing.assert_close(got[0], expected[0], rtol=0, atol=0, equal_nan=True)
    assert torch.equal(got[1], expected[1])


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("isa", available())
def test_topk_gives_the_elements_and_the_positions_of_eager_also_of_equal_ones(isa: str, largest: bool) -> None:
    inputs = [rows(n, d, ties) for n, _ in SHAPES for d in DTYPES for ties in (True, False)]
    counts = [k for _, k in SHAPES for _ in range(2 * len(DTYPES))]

    def function(*xs: torch.Tensor) -> list[Any]:
        return [torch.topk(x, k, largest=largest) for x, k in zip(xs, counts, strict=True)]

    for x, k, got in zip(inputs, counts, compiled(function, isa, *inputs), strict=True):
        assert_same(got, torch.topk(x, k, largest=largest))


@pytest.mark.parametrize("descending", [True, False])
@pytest.mark.parametrize("isa", available())
def test_sort_gives_the_elements_and_the_positions_of_a_stable_sort(isa: str, descending: bool) -> None:
    inputs = [rows(n, d, ties) for n, _ in SHAPES for d in DTYPES for ties in (True, False)]

    def function(*xs: torch.Tensor) -> list[Any]:
        return [torch.sort(x, descending=descending) for x in xs]

    for x, got in zip(inputs, compiled(function, isa, *inputs), strict=True):
        assert_same(got, torch.sort(x, stable=True, descending=descending))


CASES: dict[str, Callable[[torch.Tensor], Any]] = {
    "another dimension": lambda x: torch.topk(x, 3, dim=0),
    "a middle dimension": lambda x: torch.sort(x.view(5, 4, 7), dim=1, stable=True),
    "a transposed operand": lambda x: torch.topk(x.t(), 2),
    "a part of rows": lambda x: torch.topk(x[:, 3:20], 2),
    "a part of the rows": lambda x: torch.topk(x[2:4], 2),
    "a computed operand": lambda x: torch.topk(x * -2 + 1, 2),
    "argsort": lambda x: torch.argsort(x, stable=True),
    "elements alone": lambda x: torch.topk(x, 2).values,
    "smallest": lambda x: torch.topk(x, 2, largest=False),
    "no rows": lambda x: torch.topk(x[:0], 2),
}


@pytest.mark.parametrize("name", CASES)
def test_rows_of_any_tensor(name: str) -> None:
    x = torch.stack([torch.randperm(28) for _ in range(5)]).float()
    program = check(CASES[name], x)
    assert any(isinstance(node, Ranking) for node in program.nodes)
    got, expected = compiled(CASES[name], available()[-1], x), CASES[name](x)
    for ours, theirs in zip(*((v if isinstance(v, tuple) else (v,)) for v in (got, expected)), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=0)
        assert ours.stride() == theirs.stride()


def test_experts_of_any_number_of_tokens() -> None:
    def route(logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        weights, experts = torch.topk(torch.softmax(logits.float(), -1), 4)
        return weights / weights.sum(-1, keepdim=True), experts

    run = torch.compile(route, backend="icpu", dynamic=True)
    for tokens in (1, 37, 300):
        logits = torch.randn(tokens, 64).bfloat16()
        weights, experts = route(logits)
        got = run(logits)
        torch.testing.assert_close(got[0], weights)
        torch.testing.assert_close(logits.gather(1, got[1]), logits.gather(1, experts))


def test_gradients_go_to_the_chosen_elements() -> None:
    x = torch.randn(6, 20, requires_grad=True)
    torch.compile(lambda x: (torch.topk(x, 3)[0] ** 2).sum(), backend="icpu")(x).backward()
    ours, x.grad = x.grad, None
    (torch.topk(x, 3)[0] ** 2).sum().backward()
    torch.testing.assert_close(ours, x.grad)


@pytest.mark.parametrize(
    ("function", "word"),
    [
        (lambda x: torch.topk(x, 2, sorted=False), "order"),
        (lambda x: torch.topk(x, 33), "more than 32"),
        (lambda x: torch.topk(x.double(), 2), "float64"),
        (lambda x: torch.sort(x.repeat(1, 8)), "longer than 256"),
    ],
)
def test_what_a_library_does_better_is_a_call_that_says_why(function: Callable[..., Any], word: str) -> None:
    program = lower(function, torch.randn(3, 40))
    assert len(externs(program)) == 1
    assert any(word in getattr(node, "reason", "") for node in program.nodes)
