"""sort, and topk of short rows and of few elements of long ones: eager's elements, and its positions wherever those are
defined; topk also has eager's positions where elements are equal."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

import inductor_cpu
import inductor_cpu.config as config
from inductor_cpu.errors import InternalError
from inductor_cpu.ir.index import as_expr
from inductor_cpu.ir.nodes import Ranking
from inductor_cpu.ir.verify import verify_program
from tests.cases import in_turns
from tests.codegen.harness import BITS, available

from .harness import check, externs, lower

NAN, INF = float("nan"), float("inf")
FLOATS = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
DTYPES = FLOATS + INTEGERS
SHAPES = ((8, 2), (16, 1), (33, 4), (64, 8), (100, 32), (200, 30), (256, 3), (256, 6))
BITS_OF_SIZE = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def rows(columns: int, dtype: torch.dtype, ties: bool) -> torch.Tensor:
    """Rows without equal elements, or with many; with the ends of integers and all that floats have besides numbers."""
    x = torch.stack([torch.randperm(columns) - columns // 2 for _ in range(9)])
    x = (torch.randint(-3, 4, (40, columns)) if ties else x).to(dtype)
    if dtype == torch.bool:
        return x
    least, largest = (-INF, NAN) if dtype.is_floating_point else (torch.iinfo(dtype).min, torch.iinfo(dtype).max)
    x[0, columns // 2], x[1, -1], x[2, 0], x[2, 1] = largest, least, largest, least
    if ties:
        x[3], x[4], x[5, ::3], x[6, ::5], x[7, 1::2] = largest, least, largest, least, 0
    if ties and dtype.is_floating_point:
        x[7, ::3], x[8, ::4], x[9, 1:] = -0.0, INF, -NAN
    return x


def both(columns: int, dtype: torch.dtype) -> torch.Tensor:
    """Rows of both kinds in one operand: a row is ranked by itself, and each operand is a kernel to compile."""
    return torch.cat([rows(columns, dtype, ties) for ties in (True, False)])


def compiled(function: Callable[..., Any], isa: str, *inputs: Any) -> Any:
    with config.patch({"cpp.simdlen": BITS[isa]}):
        torch._dynamo.reset()
        return torch.compile(function, backend="icpu")(*inputs)


def assert_same(got: Any, expected: Any) -> None:
    bits = BITS_OF_SIZE[expected[0].itemsize]
    assert torch.equal(got[0].view(bits), expected[0].view(bits))
    assert torch.equal(got[1], expected[1])


COLORS = 4

#: Shapes and dtypes as the fields of a chessboard of four colors, by color: a kernel is compiled for a dtype, and is
#: told the shape when it is called. Each dtype has two shapes of a color.
FIELDS = [
    [(shape, dtype) for i, shape in enumerate(SHAPES) for j, dtype in enumerate(DTYPES) if (i + j) % COLORS == color]
    for color in range(COLORS)
]

#: (color, whether the other end comes first than for its neighbours): all pairs, the first of them with other colors.
TURNS = [(color, (color + turn) % 2 == 0) for turn in (0, 1) for color in range(COLORS)]


@pytest.mark.parametrize(("isa", "turn"), in_turns(available(), TURNS), ids=str)
def test_topk_gives_the_elements_and_the_positions_of_eager_also_of_equal_ones(
    isa: str, turn: tuple[int, bool]
) -> None:
    color, largest = turn
    inputs = [both(n, dtype) for (n, _), dtype in FIELDS[color]]
    counts = [k for (_, k), _ in FIELDS[color]]

    def function(*xs: torch.Tensor) -> list[Any]:
        return [torch.topk(x, k, largest=largest) for x, k in zip(xs, counts, strict=True)]

    for x, k, got in zip(inputs, counts, compiled(function, isa, *inputs), strict=True):
        assert_same(got, torch.topk(x, k, largest=largest))


#: Long rows, and how many elements, of which eager mode finds by a partial sort: one, and as many as it may be.
LONG = ((300, 4), (2048, 1), (1000, 15), (4099, 64))


@pytest.mark.parametrize(("isa", "largest"), in_turns(available(), [True, False]))
def test_topk_of_few_elements_of_long_rows_gives_those_of_eager_also_equal_ones(isa: str, largest: bool) -> None:
    shapes = [LONG[(number + largest) % len(LONG)] for number in range(len(DTYPES))]
    inputs = [both(n, dtype) for (n, _), dtype in zip(shapes, DTYPES, strict=True)]

    def function(*xs: torch.Tensor) -> list[Any]:
        return [torch.topk(x, k, largest=largest) for x, (_, k) in zip(xs, shapes, strict=True)]

    for got, expected in zip(compiled(function, isa, *inputs), function(*inputs), strict=True):
        assert_same(got, expected)


@pytest.mark.parametrize("isa", available())
def test_a_long_row_without_numbers_after_its_first_elements_gives_these(isa: str) -> None:
    x = torch.full((3, 640), NAN)
    x[0, :5], x[1, -5:] = torch.arange(5.0), torch.arange(5.0)
    for largest in (True, False):
        assert_same(
            compiled(lambda x, largest=largest: torch.topk(x, 6, largest=largest), isa, x),
            torch.topk(x, 6, largest=largest),
        )


@pytest.mark.parametrize(("isa", "turn"), in_turns(available(), TURNS), ids=str)
def test_sort_gives_the_elements_and_the_positions_of_a_stable_sort(isa: str, turn: tuple[int, bool]) -> None:
    color, descending = turn
    bools = [both(n, torch.bool) for n, _ in SHAPES[color::COLORS]]
    inputs = [*(both(n, dtype) for (n, _), dtype in FIELDS[color]), *bools]

    def function(*xs: torch.Tensor) -> list[Any]:
        return [torch.sort(x, descending=descending) for x in xs]

    for x, got in zip(inputs, compiled(function, isa, *inputs), strict=True):
        assert_same(got, torch.sort(x, stable=True, descending=descending))


@pytest.mark.parametrize(("isa", "descending"), in_turns(available(), [True, False]))
def test_sort_of_long_rows_gives_the_elements_and_the_positions_of_a_stable_sort(isa: str, descending: bool) -> None:
    lengths = [(257, 1000, 4099)[(number + descending) % 3] for number in range(len(DTYPES) + 1)]
    inputs = [both(n, dtype) for n, dtype in zip(lengths, (*DTYPES, torch.bool), strict=True)]

    def function(*xs: torch.Tensor) -> list[Any]:
        return [torch.sort(x, descending=descending) for x in xs]

    for x, got in zip(inputs, compiled(function, isa, *inputs), strict=True):
        assert_same(got, torch.sort(x, stable=True, descending=descending))


def test_rows_of_a_length_that_run_time_knows_are_sorted() -> None:
    run = torch.compile(lambda x: torch.sort(x * 2, dim=-1, stable=True), backend="icpu", dynamic=True)
    for length in (300, 7, 1025):
        x = torch.randint(-50, 50, (3, length)).float()
        got, expected = run(x), torch.sort(x * 2, dim=-1, stable=True)
        assert torch.equal(got[0], expected[0])
        assert torch.equal(got[1], expected[1])
    x = torch.randn(3, 1000)
    torch._dynamo.mark_dynamic(x, 1)
    assert inductor_cpu.explain(lambda x: torch.sort(x), x).extern_calls == 0


CASES: dict[str, Callable[[torch.Tensor], Any]] = {
    "another dimension": lambda x: torch.topk(x, 3, dim=0),
    "a middle dimension": lambda x: torch.sort(x.view(5, 4, 7), dim=1, stable=True),
    "a transposed operand": lambda x: torch.topk(x.t(), 2),
    "a part of rows": lambda x: torch.topk(x[:, 3:20], 2),
    "a part of the rows": lambda x: torch.topk(x[2:4], 2),
    "a computed operand": lambda x: torch.topk(x * -2 + 1, 2),
    "argsort": lambda x: torch.argsort(x, stable=True),
    "argsort, positions of equal elements undefined": lambda x: torch.argsort(x, dim=0, descending=True),
    "msort": lambda x: torch.msort(x),
    "elements alone": lambda x: torch.topk(x, 2).values,
    "smallest": lambda x: torch.topk(x, 2, largest=False),
    "no rows": lambda x: torch.topk(x[:0], 2),
    "sorted long columns": lambda x: torch.sort(x.repeat(70, 1) + torch.arange(350)[:, None], dim=0, stable=True),
    "long rows": lambda x: torch.topk(x.repeat(1, 12) + torch.arange(336), 2),
    "long columns": lambda x: torch.topk(x.repeat(70, 1) + torch.arange(350)[:, None], 5, dim=0),
    "long rows, in any order": lambda x: torch.topk(x[:1].repeat(1, 12) + torch.arange(336), 4, sorted=False),
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


@pytest.mark.parametrize("isa", available())
def test_numbers_that_differ_beyond_32_bits_are_not_equal(isa: str) -> None:
    steps = torch.stack([torch.randperm(40) for _ in range(6)])
    inputs = [1 + steps.double() * 2.0**-50, steps.double() * 5e-324, 2**60 + steps, -(2**62) - steps]

    def function(*xs: torch.Tensor) -> list[Any]:
        return [f for x in xs for f in (torch.topk(x, 5), torch.topk(x, 5, largest=False), torch.sort(x))]

    for got, expected in zip(compiled(function, isa, *inputs), function(*inputs), strict=True):
        assert_same(got, expected)


@pytest.mark.parametrize(
    ("function", "dtype"),
    in_turns([torch.sort, torch.argsort, torch.msort], [torch.float64, torch.int64, torch.bool]),
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_what_sorts_rows_of_64_bits_and_bools_calls_no_library(
    function: Callable[..., Any], dtype: torch.dtype
) -> None:
    assert inductor_cpu.explain(function, rows(12, dtype, ties=False)).extern_calls == 0


def test_topk_of_bools_is_an_error_as_in_eager() -> None:
    with pytest.raises(RuntimeError, match="topk does not support bool"):
        compiled(lambda x: torch.topk(x, 2), available()[-1], torch.ones(3, 4, dtype=torch.bool))


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
        (lambda x: torch.topk(x.repeat(1, 8), 6), "64th"),
        (lambda x: torch.topk(x > 0, 2), "bool"),
    ],
)
def test_what_a_library_does_better_is_a_call_that_says_why(function: Callable[..., Any], word: str) -> None:
    program = lower(function, torch.randn(3, 40))
    assert len(externs(program)) == 1
    assert any(word in getattr(node, "reason", "") for node in program.nodes)


def test_the_verifier_refuses_long_rows_of_which_not_few_elements_are_wanted() -> None:
    program = lower(lambda x: torch.topk(x.repeat(1, 8), 5)[0], torch.randn(3, 40))
    verify_program(program)
    more = as_expr(6)
    changed = tuple(replace(node, count=more) if isinstance(node, Ranking) else node for node in program.nodes)
    with pytest.raises(InternalError, match="are not few of many"):
        verify_program(replace(program, nodes=changed))
