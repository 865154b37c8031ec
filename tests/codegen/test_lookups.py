"""Rows of tables at positions that are data: which are asked for ahead, and that the results are the same; also of rows
that jump by remainders (which of these are asked for: `test_streams.py`)."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

import inductor_cpu
from inductor_cpu.codegen.analysis import Facts
from inductor_cpu.codegen.prefetch import Ahead, plan_ahead
from inductor_cpu.codegen.tuning import vertical_units
from tests.cases import in_turns
from tests.codegen.harness import BITS, VECTORS
from tests.lower.harness import lower
from tests.schedule.harness import kernels, schedule_of

WIDTH = 512
LARGE, SMALL = 4096, 64  # rows of a table: 8 MiB, and what stays in a cache
POSITIONS = torch.randint(0, SMALL, (300,))


def lookups(function: Callable[..., object], *inputs: torch.Tensor, dynamic: bool = False) -> list[Ahead]:
    """How a kernel asks for rows at positions that are data."""
    (kernel,) = kernels(schedule_of(lower(function, *inputs, dynamic=dynamic)))
    facts = Facts(kernel)
    return [ahead for ahead in plan_ahead(facts, vertical_units(facts)).values() if ahead.loops]


def table(rows: int = LARGE, width: int = WIDTH) -> torch.Tensor:
    return torch.randn(rows, width)


def test_rows_of_a_large_table_are_asked_for_some_rows_ahead() -> None:
    (found,) = lookups(F.embedding, POSITIONS, table())
    assert (found.distance, found.phase) == (6, None)  # rows of 2 KiB
    (found,) = lookups(F.embedding, POSITIONS, table(32 * LARGE, WIDTH // 8))
    assert found.distance == 48


def test_only_the_first_pass_over_a_row_asks_for_the_next_one() -> None:
    (found,) = lookups(lambda i, t: F.layer_norm(F.embedding(i, t), (WIDTH,)), POSITIONS, table())
    assert found.phase == 0


@pytest.mark.parametrize(
    ("function", "inputs"),
    [
        (F.embedding, (POSITIONS, table(SMALL))),
        (F.embedding, (POSITIONS, table(LARGE * 64, 8))),
        (F.embedding, (POSITIONS[:3], table())),
        (lambda i, t: t[:, i], (POSITIONS, table())),
        (lambda i, t: t.gather(1, i), (torch.randint(0, WIDTH, (LARGE, 300)), table())),
        (lambda i, t: (F.layer_norm(t[i], (WIDTH,)), i.add_(1)), (POSITIONS, table())),
    ],
    ids=["a table in the cache", "short rows", "few rows", "columns", "elements", "positions that change"],
)
def test_other_lookups_ask_for_nothing(function: Callable[..., object], inputs: tuple[torch.Tensor, ...]) -> None:
    assert lookups(function, *inputs) == []


def _windows(t: torch.Tensor) -> torch.Tensor:
    image = torch.roll(t.view(-1, 32, 32, WIDTH // 4), (-3, -5), (1, 2))
    return image.view(-1, 4, 8, 4, 8, WIDTH // 4).permute(0, 1, 3, 2, 4, 5)


FUNCTIONS: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "rows": F.embedding,
    "rows of pairs": lambda i, t: F.embedding(i.view(-1, 4), t) + t[:4],
    "a norm": lambda i, t: F.layer_norm(F.embedding(i, t), (WIDTH,)),
    "halves": lambda i, t: torch.cat([F.embedding(i, t)[:, : WIDTH // 2], t[: len(i), WIDTH // 2 :]], 1),
    "rows of rows": lambda i, t: F.embedding(i[i], t),
    "windows": lambda i, t: _windows(t) + 1,
    "rows that jump beside tiles": lambda i, t: t.view(-1, 1024).t() + torch.roll(t.view(1024, -1), 3, 0),
    "norms of windows": lambda i, t: F.layer_norm(_windows(t), (WIDTH // 4,)),
}

SETTINGS = [*({"cpp.simdlen": BITS[isa]} for isa in VECTORS), {"cpp.threads": 2, "cpp.min_chunk_size": 1}]


@pytest.mark.parametrize(("name", "settings", "dynamic"), in_turns(FUNCTIONS, SETTINGS, [False, True]), ids=str)
def test_the_rows_are_eager_s(name: str, settings: dict[str, int], dynamic: bool) -> None:
    torch.manual_seed(0)
    t, i = table(), torch.randint(0, 300, (300,))
    with inductor_cpu.config.patch(settings):
        have = torch.compile(FUNCTIONS[name], backend="icpu", dynamic=dynamic)(i, t)
    want, exact = FUNCTIONS[name](i, t), FUNCTIONS[name](i, t.double())
    assert (have - exact).abs().max() <= 2 * (want - exact).abs().max()


def test_a_position_beyond_the_table_is_an_error_wherever_it_is() -> None:
    t = table()
    compiled = torch.compile(F.embedding, backend="icpu")
    for place in (0, 1, 150, 299):
        i = torch.randint(0, LARGE, (300,))
        i[place] = LARGE
        with pytest.raises(IndexError):
            compiled(i, t)
