"""Values under conditions: what becomes of chains of updates, and that random bodies keep their values and reads."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from itertools import product

import pytest
import torch

from inductor_cpu.ir.index import loop_var, of
from inductor_cpu.ir.kernel import Kernel
from inductor_cpu.ir.loop_nest import Const, Index, Instr, Load, LoopNest, Scalar, Store
from inductor_cpu.schedule.guards import simplify_guarded
from tests.ir.build import F32, at
from tests.schedule.harness import only_kernel, scheduled

Tensor = torch.Tensor
BOOL, I64 = torch.bool, torch.int64
ROWS, COLUMNS = 4, 3
I, J = loop_var("i", ROWS), loop_var("j", COLUMNS)


def choices_and_loads(fn: Callable[..., Tensor], *inputs: Tensor) -> tuple[int, int]:
    """How many choices and loads the only kernel of a function has; its numbers are checked."""
    kernel = only_kernel(scheduled(fn, *inputs))
    return count(kernel, "where"), sum(isinstance(i, Load) for i in kernel.body)


def count(kernel: Kernel, op: str) -> int:
    return sum(isinstance(i, Scalar) and i.op == op for i in kernel.body)


# -- updates ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_an_update_of_some_rows_and_columns_is_one_choice_and_one_load_of_each(dtype: torch.dtype) -> None:
    def fn(x: Tensor, y: Tensor) -> Tensor:
        x = x.clone()
        x[1:-1, 2:, 1] = y
        return x

    assert choices_and_loads(fn, torch.randn(6, 7, 3).to(dtype), torch.randn(4, 5).to(dtype)) == (1, 2)


def test_an_update_at_places_of_two_loops_reads_the_old_value_once() -> None:
    def fn(x: Tensor, y: Tensor) -> Tensor:
        x = x.clone()
        x[1:, 2:-2, :, 1, 0] = y
        return x

    assert choices_and_loads(fn, torch.randn(5, 7, 4, 2, 2), torch.randn(4, 3, 4)) == (1, 2)


def test_two_updates_are_two_choices() -> None:
    def fn(x: Tensor, y: Tensor) -> Tensor:
        x = x.clone()
        x[1:, 1:] = y
        x[:-1, :-1] = y * 2
        return x

    assert choices_and_loads(fn, torch.randn(5, 7), torch.randn(4, 6)) == (2, 3)


def test_an_update_in_place_reads_what_it_leaves() -> None:
    def fn(x: Tensor, y: Tensor) -> Tensor:
        x[1:, 2:] += y
        return x * 2

    assert choices_and_loads(fn, torch.randn(5, 7), torch.randn(4, 5))[1] == 2


def test_a_division_that_may_fail_keeps_the_divisor_under_its_mask() -> None:
    """Where the mask is off the divisor is its fill, which is no zero."""
    i = of(I)
    body = (
        Index(i),
        Const(1, I64),
        Scalar("ge", (0, 1), BOOL),
        Load("x", at(i), I64, 2, 1),
        Scalar("floordiv", (1, 3), I64),
        Load("x", at(i), I64),
        Scalar("where", (2, 4, 5), I64),
    )
    flat = LoopNest("nest", (I,), (), body, (Store("y", at(i), 6),))
    assert simplify_guarded(flat) is flat


# -- random bodies ---------------------------------------------------------------------------------------------------
class Maker:
    """A body of conditions on two loops, loads under them, choices among them and sums."""

    def __init__(self, seed: int) -> None:
        self.rng, self.body = random.Random(seed), list[Instr]()
        self.indices = [self.emit(Index(of(loop))) for loop in (I, J)]
        numbers = [self.emit(Const(n, I64)) for n in range(ROWS)]
        tests = [(op, k, n) for op in ("ge", "lt", "eq") for k in self.indices for n in numbers]
        self.masks = [self.emit(Scalar(op, (k, n), BOOL)) for op, k, n in self.rng.sample(tests, 5)]
        for _ in range(4):
            op = self.rng.choice(("logical_and", "logical_and", "logical_or", "logical_not"))
            sides = self.rng.sample(self.masks, 1 if op == "logical_not" else 2)
            self.masks.append(self.emit(Scalar(op, tuple(sides), BOOL)))
        self.values = [self.load() for _ in range(5)]
        for _ in range(7):
            self.values.append(self.step())

    def emit(self, instruction: Instr) -> int:
        self.body.append(instruction)
        return len(self.body) - 1

    def load(self) -> int:
        column = self.rng.choice((of(J), of(J), of(J) * 0, of(J) * 0 + 1))
        mask = self.rng.choice((None, *self.masks))
        return self.emit(Load(self.rng.choice("ab"), (of(I) * COLUMNS + column,), F32, mask, self.rng.choice((0, 1))))

    def step(self) -> int:
        late = self.values[-3:]
        if self.rng.random() < 0.25:
            return self.emit(Scalar("add", (self.rng.choice(late), self.rng.choice(self.values)), F32))
        arms = (self.rng.choice(late), self.rng.choice(self.values))
        return self.emit(Scalar("where", (self.rng.choice(self.masks), *self.rng.sample(arms, 2)), F32))

    def nest(self) -> LoopNest:
        place = (of(I) * COLUMNS + of(J),)
        return LoopNest("nest", (I, J), (), tuple(self.body), (Store("y", place, self.values[-1]),))


OPS: dict[str, Callable[..., float]] = {
    "ge": lambda a, b: a >= b,
    "lt": lambda a, b: a < b,
    "eq": lambda a, b: a == b,
    "logical_and": lambda a, b: a and b,
    "logical_or": lambda a, b: a or b,
    "logical_not": lambda a: not a,
    "where": lambda c, a, b: a if c else b,
    "add": lambda a, b: a + b,
}


def evaluated(body: Sequence[Instr], store: Store, i: int, j: int) -> tuple[float, set[tuple[str, int]]]:
    """The value that is stored at a point, and the elements that are read there."""
    values: list[float] = []
    read: set[tuple[str, int]] = set()
    for instr in body:
        if isinstance(instr, Load):
            element = instr.buffer, instr.index[0].evaluate({I: i, J: j})
            shown = instr.mask is None or values[instr.mask]
            read |= {element} if shown else set()
            values.append(100.0 * (instr.buffer == "b") + element[1] + 2 if shown else instr.fill)
        elif isinstance(instr, Index):
            values.append(instr.expr.evaluate({I: i, J: j}))
        elif isinstance(instr, Const):
            values.append(instr.value)
        else:
            assert isinstance(instr, Scalar)
            values.append(OPS[instr.op](*(values[k] for k in instr.args)))
    return values[store.value], read


def test_random_bodies_keep_their_values_and_read_nothing_more() -> None:
    simpler = 0
    for seed in range(1500):
        before = Maker(seed).nest()
        after = simplify_guarded(before)
        simpler += after is not before
        for i, j in product(range(ROWS), range(COLUMNS)):
            value, read = evaluated(before.body, before.stores[0], i, j)
            now, read_now = evaluated(after.body, after.stores[0], i, j)
            assert now == value, f"seed {seed} at {i}, {j}"
            assert read_now <= read, f"seed {seed} at {i}, {j}"
    assert simpler > 700
