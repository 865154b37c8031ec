"""A run of the index-expression fuzzer: every property of `inductor_cpu/ir/index` on random expressions."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

from inductor_cpu.ir.index import (
    Expr,
    const,
    divide_exact,
    is_nonnegative,
    is_positive,
    of,
    recombine,
    render,
    upper_bound,
)
from tests.fuzz.campaign import Limits
from tests.fuzz.expressions import SIZES, Tree, World, build, point, random_tree, smaller, value, view_chain, world_of

POINTS = 16

#: (world, tree, its seed) -> what is wrong, or None.
Property = Callable[[World, Tree, int], "str | None"]


def _points(world: World, seed: int) -> Iterator[dict[object, int]]:
    random = Random(seed)
    for _ in range(POINTS):
        yield point(random, world)  # type: ignore[misc]


def _same(world: World, seed: int, expr: Expr, tree: Tree, what: str) -> str | None:
    for at in _points(world, seed):
        got, expected = expr.evaluate(at), value(tree, at)  # type: ignore[arg-type]
        if got != expected:
            return f"{what} {expr} is {got} and not {expected} at {at}"
    return None


def simplified(world: World, tree: Tree, seed: int) -> str | None:
    """Construction keeps the value."""
    return _same(world, seed, build(tree), tree, "the expression")


def recombined(world: World, tree: Tree, seed: int) -> str | None:
    """`recombine` keeps the value."""
    return _same(world, seed, recombine(build(tree)), tree, "recombined")


def bounded(world: World, tree: Tree, seed: int) -> str | None:
    """What is proved of the range is true."""
    expr = build(tree)
    top, low, positive = upper_bound(expr), is_nonnegative(expr), is_positive(expr)
    for at in _points(world, seed):
        got = expr.evaluate(at)  # type: ignore[arg-type]
        if (low and got < 0) or (positive and got < 1) or (top is not None and got > top):
            return f"{expr} is {got}, proved nonnegative {low}, positive {positive}, at most {top}, at {at}"
    return None


def substituted(world: World, tree: Tree, seed: int) -> str | None:
    """Substituting loops gives the value with the loops at those positions, also where ranges get smaller."""
    random = Random(seed)
    trees = {
        symbol: ("mod", random_tree(random, world, 2), size) if random.random() < 0.7 else 0
        for symbol, size in world.loops
    }
    expr = build(tree).substitute({symbol: build(t) for symbol, t in trees.items()})  # type: ignore[arg-type]
    for at in _points(world, seed):
        inner = {**at, **{symbol: value(t, at) for symbol, t in trees.items()}}  # type: ignore[arg-type]
        got, expected = expr.evaluate(at), value(tree, inner)  # type: ignore[arg-type]
        if got != expected:
            return f"{expr} is {got} and not {expected} after {trees} at {at}"
    return None


def split_by_coefficients(world: World, tree: Tree, seed: int) -> str | None:
    """expr = coefficient * symbol + rest, and neither has the symbol."""
    expr = build(tree)
    for symbol in world.symbols:
        coefficient = expr.coefficient(symbol)
        if coefficient is None:
            continue
        rest = expr - coefficient * of(symbol)
        if symbol in coefficient.symbols | rest.symbols:
            return f"{symbol} is left in {coefficient} or {rest}"
        wrong = _same(world, seed, coefficient * of(symbol) + rest, tree, "put together")
        if wrong:
            return wrong
    return None


def divided_exactly(world: World, tree: Tree, seed: int) -> str | None:
    """An exact quotient times the divisor is the value."""
    expr = build(tree)
    for divisor in (const(4), of(SIZES[0]), of(SIZES[0]) * 2, of(SIZES[0]) * of(SIZES[1])):
        quotient = divide_exact(expr, divisor)
        if quotient is not None and (wrong := _same(world, seed, quotient * divisor, tree, "multiplied back")):
            return wrong
    return None


_CALLS: dict[str, Callable[[int, int], int]] = {
    "floordiv": lambda a, b: a // b,
    "mod": lambda a, b: a % b,
    "min": min,
    "max": max,
}


def rendered(world: World, tree: Tree, seed: int) -> str | None:
    """The text of an expression evaluates to its value."""
    expr = build(tree)
    text = render(expr, lambda s: f"at[{s.name!r}]", lambda f, a: f"{f}({', '.join(a)})")
    for at in _points(world, seed):
        named = {symbol.name: v for symbol, v in at.items()}  # type: ignore[attr-defined]
        got, expected = eval(text, {**_CALLS, "at": named}), value(tree, at)  # type: ignore[arg-type]
        if got != expected:
            return f"the text {text} is {got} and not {expected} at {at}"
    return None


PROPERTIES: tuple[Property, ...] = (
    simplified,
    recombined,
    bounded,
    substituted,
    split_by_coefficients,
    divided_exactly,
    rendered,
)


def trees_of(seed: int) -> tuple[World, list[Tree]]:
    """The expressions of a seed: random ones, the indices of a chain of views and their flat address."""
    random = Random(seed)
    world = world_of(random)
    trees = [random_tree(random, world, random.choice([2, 3, 4])) for _ in range(2)]
    chain = view_chain(random, world)
    address: Tree = random.randint(0, 3)
    for index in chain:
        address = ("+", ("*", address, random.choice([2, 3, 8, 17, *SIZES])), index)
    return world, [*trees, *chain, address]


def judge(seed: int) -> tuple[int, str | None]:
    """The number of expressions of a seed, and the first fault, shrunk, as text."""
    world, trees = trees_of(seed)
    for tree in trees:
        for check in PROPERTIES:
            if fault(check, world, tree, seed):
                small = shrunk(check, world, tree, seed)
                return len(trees), f"{check.__name__}: {small}\n  {fault(check, world, small, seed)}"
    return len(trees), None


def fault(check: Property, world: World, tree: Tree, seed: int) -> str | None:
    """What `check` finds; an exception is a fault, except division by a part that became 0."""
    try:
        return check(world, tree, seed)
    except ZeroDivisionError:
        return None
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def shrunk(check: Property, world: World, tree: Tree, seed: int) -> Tree:
    """The simplest tree found that has a fault."""
    changed = True
    while changed:
        changed = False
        for part in smaller(tree):
            if fault(check, world, part, seed):
                tree, changed = part, True
                break
    return tree


def run(seeds: Iterator[int], limits: Limits, out: Path) -> dict[str, int]:
    """Judge the expressions of `seeds` until the time is over. Returns counts; faults go to `out` and are printed."""
    end = time.monotonic() + limits.seconds
    cases, expressions, found = 0, 0, []
    for seed in seeds:
        if time.monotonic() > end:
            break
        count, text = judge(seed)
        cases, expressions = cases + 1, expressions + count
        if text is not None:
            found.append(f"seed {seed}: {text}")
            print(found[-1], flush=True)
            if len(found) >= 20:
                break
    if found:
        out.mkdir(parents=True, exist_ok=True)
        (out / "index_findings.txt").write_text("\n".join(found) + "\n")
    return {"graphs": cases, "expressions": expressions, "findings": len(found)}
