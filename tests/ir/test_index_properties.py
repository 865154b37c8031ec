"""Index expressions against Python integers: simplification never changes a value, and what is proved is true."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from random import Random

import pytest

from inductor_cpu.ir.index import (
    INT_FUNCTIONS,
    Expr,
    Sym,
    as_expr,
    const,
    divide_exact,
    function,
    is_nonnegative,
    is_positive,
    loop_var,
    lower_bound,
    of,
    recombine,
    render,
    size_symbol,
    upper_bound,
    value_symbol,
    within,
)

S0, S1 = size_symbol("s0", 2), size_symbol("s1", 1)
D0, D1, D2 = loop_var("d0", 6), loop_var("d1", 4), loop_var("d2", of(S0))
CHECKED, FREE = value_symbol(7, of(S1) * 2), value_symbol(8, None)
SYMBOLS = (S0, S1, D0, D1, D2, CHECKED, FREE)

#: The place of a pixel among windows of 7 x 7 that were rolled.
ROLLED = (of(FREE) + 53) % 56 // 7 * 7 + (of(CHECKED) + 4) % 7

#: An expression as a tree that is not simplified: (op, left, right), a symbol or an int.
Tree = object


def random_tree(random: Random, depth: int) -> Tree:
    if depth == 0 or random.random() < 0.15:
        return random.choice(SYMBOLS) if random.random() < 0.7 else random.randint(-5, 24)
    op = random.choice(["+", "+", "+", "-", "*", "*", "floordiv", "floordiv", "mod", "mod", "min", "max"])
    left = random_tree(random, depth - 1)
    if op in ("floordiv", "mod"):
        right: Tree = random.choice([1, 2, 3, 4, 6, 8, 12, 24, -3, S0, S1, ("*", S0, 2), ("*", S0, S1)])
    elif op == "*" and random.random() < 0.7:
        right = random.choice([2, 3, 4, 6, 12, 24, -1, S0, S1])
    else:
        right = random_tree(random, depth - 1)
    return (op, left, right)


def build(tree: Tree) -> Expr:
    if isinstance(tree, Sym):
        return of(tree)
    if isinstance(tree, int):
        return const(tree)
    op, left, right = tree
    a, b = build(left), build(right)
    return {"+": Expr.__add__, "-": Expr.__sub__, "*": Expr.__mul__}[op](a, b) if op in "+-*" else function(op, a, b)


def value(tree: Tree, values: dict[Sym, int]) -> int:
    if isinstance(tree, Sym):
        return values[tree]
    if isinstance(tree, int):
        return tree
    op, left, right = tree
    a, b = value(left, values), value(right, values)
    return {"+": a + b, "-": a - b, "*": a * b}[op] if op in "+-*" else INT_FUNCTIONS[op](a, b)


def points(random: Random, count: int = 24) -> Iterator[dict[Sym, int]]:
    """Values in range, with the ends of the ranges more often than chance."""
    for _ in range(count):
        s0, s1 = random.choice([2, 3, 4, 7]), random.choice([1, 2, 5])
        ends = {D0: 5, D1: 3, D2: s0 - 1, CHECKED: 2 * s1 - 1}
        point = {s: random.choice([0, top, random.randint(0, top)]) for s, top in ends.items()}
        yield {S0: s0, S1: s1, FREE: random.choice([-9, -1, 0, 2, 11]), **point}


def trees(seed: int, count: int, depth: int = 4) -> Iterator[tuple[Random, Tree]]:
    random = Random(seed)
    for _ in range(count):
        yield random, random_tree(random, depth)


@pytest.mark.parametrize("seed", range(8))
def test_simplified_expressions_have_the_value_of_the_tree(seed: int) -> None:
    for random, tree in trees(seed, 150):
        expr = build(tree)
        for at in points(random):
            assert expr.evaluate(at) == value(tree, at), (tree, expr, at)


@pytest.mark.parametrize("seed", range(8))
def test_recombine_keeps_the_value(seed: int) -> None:
    for random, tree in trees(100 + seed, 100):
        expr = build(("+", tree, random_tree(random, 3)))
        rewritten = recombine(expr)
        for at in points(random, 8):
            assert rewritten.evaluate(at) == expr.evaluate(at), (expr, rewritten, at)


@pytest.mark.parametrize("seed", range(8))
def test_what_is_proved_about_the_range_is_true(seed: int) -> None:
    for random, tree in trees(200 + seed, 200, 3):
        expr = build(tree)
        top, bottom = upper_bound(expr), lower_bound(expr)
        parts = [expr, *(arg for function in expr.functions for arg in function.args)]
        small = within(expr, -40, 90)
        for at in points(random):
            got = expr.evaluate(at)
            assert got >= 0 or not is_nonnegative(expr), (expr, at)
            assert got >= 1 or not is_positive(expr), (expr, at)
            assert top is None or got <= top, (expr, top, at)
            assert bottom is None or got >= bottom, (expr, bottom, at)
            assert not small or all(-40 <= part.evaluate(at) <= 90 for part in parts), (expr, at)


@pytest.mark.parametrize("seed", range(4))
def test_substitution_is_evaluation_of_the_replacement(seed: int) -> None:
    for random, tree in trees(300 + seed, 100, 3):
        expr = build(tree)
        replacement = {D0: build(("mod", random_tree(random, 2), 6)), D1: build(("mod", random_tree(random, 2), 4))}
        result = expr.substitute(replacement)
        for at in points(random, 8):
            inner = {**at, **{s: e.evaluate(at) for s, e in replacement.items()}}
            assert result.evaluate(at) == expr.evaluate(inner), (expr, replacement, at)


@pytest.mark.parametrize("seed", range(4))
def test_a_coefficient_splits_the_expression(seed: int) -> None:
    for random, tree in trees(400 + seed, 150, 3):
        expr = build(tree)
        for symbol in SYMBOLS:
            coefficient = expr.coefficient(symbol)
            if coefficient is None:
                continue
            rest = expr - coefficient * of(symbol)
            assert symbol not in coefficient.symbols | rest.symbols
            assert coefficient == (coefficient + 1) - 1, "terms are in the order of every expression"
            for at in points(random, 4):
                assert coefficient.evaluate(at) * at[symbol] + rest.evaluate(at) == expr.evaluate(at)


@pytest.mark.parametrize("seed", range(4))
def test_exact_division_multiplies_back(seed: int) -> None:
    for random, tree in trees(500 + seed, 100, 3):
        expr = build(tree)
        for divisor in (const(4), of(S0), of(S0) * 2, of(S0) + 1):
            quotient = divide_exact(expr * divisor if random.random() < 0.5 else expr, divisor)
            if quotient is not None:
                product = quotient * divisor
                assert product in (expr * divisor, expr)


def test_equal_polynomials_are_equal_values_in_any_order() -> None:
    terms = [of(D0) * 4, of(D1), of(S0) * of(D2), const(3)]
    sums = {sum(order, const(0)) for order in itertools.permutations(terms)}
    assert len(sums) == 1
    assert len({hash(s) for s in sums}) == 1


@pytest.mark.parametrize(
    ("expr", "simple"),
    [
        ((of(D0) * 4 + of(D1)) // 4, of(D0)),
        ((of(D0) * 4 + of(D1)) % 4, of(D1)),
        ((of(D0) * of(S0) + of(D2)) // of(S0), of(D0)),
        ((of(D0) * of(S0) + of(D2)) % of(S0), of(D2)),
        (of(D0) // 2 // 3, as_expr(0)),
        (of(S0) * of(S1) // of(S1), of(S0)),
        ((of(D0) * 8 + of(D1) * 2 + 1) // 8, of(D0)),
        ((of(D0) * 8 + of(D1) * 2 + 1) % 2, as_expr(1)),
        (of(D1) % 8, of(D1)),
        (of(FREE) % 12 % 4, of(FREE) % 4),
        (recombine(of(FREE) // 4 * 4 + of(FREE) % 4), of(FREE)),
        (recombine(of(FREE) // 4 * 12 + of(FREE) % 4 * 3), of(FREE) * 3),
        (recombine(of(FREE) // 14 * 14 + of(FREE) % 14 // 2 * 2 + of(FREE) % 2), of(FREE)),
        (recombine(ROLLED // 8 * 56 + ROLLED % 8 * 7), ROLLED * 7),
    ],
)
def test_reshapes_and_views_cancel(expr: Expr, simple: Expr) -> None:
    assert expr == simple


def test_division_by_zero_is_an_error() -> None:
    with pytest.raises(ZeroDivisionError):
        of(D0) // 0
    with pytest.raises(ZeroDivisionError):
        of(D0) % 0


def test_render_names_symbols_and_calls() -> None:
    text = render(
        of(FREE) // 4 * 2 + of(D0) + 1, lambda s: s.name.strip("%") + "_", lambda f, a: f"{f}({', '.join(a)})"
    )
    assert sorted(text.split(" + ")) == ["1", "2*floordiv(8_, 4)", "d0_"]
