"""Random index expressions as trees that are not simplified, and chains of views as they arise in practice."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Union

from inductor_cpu.ir.index import INT_FUNCTIONS, Expr, Sym, const, function, loop_var, of, size_symbol, value_symbol

#: A symbol, an int, or (op, left, right) with op in + - * floordiv mod min max.
Tree = Union[Sym, int, tuple[str, "Tree", "Tree"]]

SIZES = (size_symbol("s0", 1), size_symbol("s1", 2), size_symbol("s2", 0))
SIGNED = size_symbol("u0", -1)
CHECKED, FREE = value_symbol(7, of(SIZES[0]) * 3), value_symbol(8, None)


@dataclass(frozen=True)
class World:
    """The symbols of one case. loops: symbol -> its size as a tree of constants and size symbols."""

    loops: tuple[tuple[Sym, Tree], ...]

    @property
    def symbols(self) -> tuple[Sym, ...]:
        """Everything that an expression may name."""
        return (*SIZES, SIGNED, CHECKED, FREE, *(symbol for symbol, _ in self.loops))


def world_of(random: Random) -> World:
    """A few loops, some of symbolic size."""
    loops = []
    for k in range(random.randint(1, 4)):
        size: Tree = random.choice([1, 2, 3, 4, 6, 8, 16, 17, 24, 33])
        if random.random() < 0.35:
            size = random.choice([SIZES[0], SIZES[1], ("*", SIZES[0], random.choice([2, 3, 4])), ("*", *SIZES[:2])])
        loops.append((loop_var(f"d{k}", build(size)), size))
    return World(tuple(loops))


def random_tree(random: Random, world: World, depth: int) -> Tree:
    """A tree; divisors are positive sizes, products of them, or constants of either sign."""
    if depth == 0 or random.random() < 0.12:
        return random.choice(world.symbols) if random.random() < 0.7 else random.randint(-40, 40)
    op = random.choice(["+", "+", "+", "-", "-", "*", "*", "floordiv", "floordiv", "mod", "mod", "min", "max"])
    left = random_tree(random, world, depth - 1)
    if op in ("floordiv", "mod"):
        return (op, left, _divisor(random))
    if op == "*" and random.random() < 0.8:
        return (op, left, random.choice([-4, -2, -1, 2, 3, 4, 6, 8, 12, 24, *SIZES]))
    return (op, left, random_tree(random, world, depth - 1))


def _divisor(random: Random) -> Tree:
    s0, s1, s2 = SIZES
    choices: list[Tree] = [1, 2, 3, 4, 6, 8, 12, 16, 24, 48, -1, -2, -3, s0, s1, s2]
    choices += [("*", s0, 2), ("*", s0, s1), ("*", ("*", s0, s1), 3), ("+", s0, 1), ("+", s0, s1), ("*", s0, s0)]
    return random.choice(choices)


def build(tree: Tree) -> Expr:
    """The simplified expression."""
    if isinstance(tree, Sym):
        return of(tree)
    if isinstance(tree, int):
        return const(tree)
    op, left, right = tree
    a, b = build(left), build(right)
    if op == "+":
        return a + b
    if op == "-":
        return a - b
    return a * b if op == "*" else function(op, a, b)


def value(tree: Tree, values: dict[Sym, int]) -> int:
    """The value in Python integers."""
    if isinstance(tree, Sym):
        return values[tree]
    if isinstance(tree, int):
        return tree
    op, left, right = tree
    a, b = value(left, values), value(right, values)
    if op == "+":
        return a + b
    if op == "-":
        return a - b
    return a * b if op == "*" else INT_FUNCTIONS[op](a, b)


def point(random: Random, world: World) -> dict[Sym, int]:
    """Values in range, the ends more often than chance. A size that divides is at least 1, so all sizes are."""
    values: dict[Sym, int] = {SIZES[0]: random.choice([1, 2, 3, 5, 8]), SIZES[1]: random.choice([2, 3, 4, 7])}
    values[SIZES[2]] = random.choice([1, 2, 6, 17])
    values[SIGNED] = random.choice([-7, -1, 0, 1, 5])
    values[FREE] = random.choice([-100, -9, -1, 0, 2, 11, 97])
    top = 3 * values[SIZES[0]] - 1
    values[CHECKED] = random.choice([0, top, random.randint(0, top)])
    for symbol, size in world.loops:
        top = value(size, values) - 1
        values[symbol] = random.choice([0, top, random.randint(0, top)])
    return values


def view_chain(random: Random, world: World) -> list[Tree]:
    """Index of each dimension of a buffer, after a few views of it: reshapes, steps, flips, rolls, transposes.

    Built from the outside in: the loops are the position in the last view.
    """
    position: list[Tree] = [symbol for symbol, _ in world.loops]
    shape: list[Tree] = [size for _, size in world.loops]
    for _ in range(random.randint(1, 5)):
        kind = random.choice(["reshape", "reshape", "merge", "step", "flip", "roll", "swap"])
        k = random.randrange(len(shape))
        if kind == "swap":
            other = random.randrange(len(shape))
            position[k], position[other] = position[other], position[k]
            shape[k], shape[other] = shape[other], shape[k]
        elif kind == "step":
            step, start = random.choice([2, 3]), random.randint(0, 2)
            position[k] = ("+", ("*", position[k], step), start)
            shape[k] = ("+", ("*", shape[k], step), start)
        elif kind == "flip":
            position[k] = ("-", ("-", shape[k], 1), position[k])
        elif kind == "roll":
            position[k] = ("mod", ("+", position[k], random.choice([1, 2, ("-", shape[k], 1)])), shape[k])
        elif kind == "merge" and len(shape) > 1:
            _merge(position, shape, k % (len(shape) - 1))
        elif kind == "reshape":
            _split(random, position, shape, k)
    return position


def _merge(position: list[Tree], shape: list[Tree], k: int) -> None:
    """Dimensions k and k + 1 are one of the tensor below."""
    position[k : k + 2] = [("+", ("*", position[k], shape[k + 1]), position[k + 1])]
    shape[k : k + 2] = [("*", shape[k], shape[k + 1])]


def _split(random: Random, position: list[Tree], shape: list[Tree], k: int) -> None:
    """Dimension k is two of the tensor below, when a factor is known."""
    size = shape[k]
    if isinstance(size, int):
        factors = [f for f in range(1, size + 1) if size % f == 0]
        inner: Tree = random.choice(factors)
        outer: Tree = size // inner  # type: ignore[operator]
    elif isinstance(size, tuple) and size[0] == "*":
        _, outer, inner = size
    else:
        return
    position[k : k + 1] = [("floordiv", position[k], inner), ("mod", position[k], inner)]
    shape[k : k + 1] = [outer, inner]


def smaller(tree: Tree) -> Iterator[Tree]:
    """Simpler trees: a part of it, or it with a simpler part."""
    if isinstance(tree, int):
        if tree:
            yield from {0, 1, tree // 2, -tree if tree < 0 else tree - 1} - {tree}
        return
    if isinstance(tree, Sym):
        yield from (0, 1)
        return
    op, left, right = tree
    yield left
    yield right
    for part in smaller(left):
        yield (op, part, right)
    for part in smaller(right):
        if op not in ("floordiv", "mod") or part != 0:
            yield (op, left, part)
