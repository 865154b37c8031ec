"""Reads and writes at positions that are data."""

from __future__ import annotations

from math import prod

from tests.fuzz.rows.row import (
    Accept,
    Choice,
    Choose,
    Chooser,
    Row,
    Value,
    along,
    anything,
    bools,
    both,
    dtype_name,
    floats,
    numbers,
    one,
    rank,
)


def _count(c: Chooser) -> int:
    return c.random.choice([1, 2, 3, 5, 8, 16, 17])


def _index(c: Chooser, a: Value, dim: int, *, dtype: str = "int64") -> str:
    n = _count(c)
    return c.make((n,), (n,), dtype, "index", a.least(dim))


def _rows(c: Chooser, accept: Accept) -> Choice | None:
    """A value and a 1-d index along `d`."""
    a = c.value(both(accept, rank(1)))
    if a is None:
        return None
    d = c.random.randrange(a.rank)
    if a.least(d) == 0:
        return None
    return Choice(
        (a.name, _index(c, a, d, dtype=c.random.choice(["int64", "int64", "int32"]))), {"d": d, "n": a.least(d)}
    )


def _grid(c: Chooser, accept: Accept) -> Choice | None:
    """A value and a 2-d index along dimension 0."""
    a = c.value(both(accept, rank(1, 4)))
    if a is None or a.least(0) == 0:
        return None
    shape = (c.random.choice([1, 2, 3]), c.random.choice([2, 7, 16]))
    return Choice((a.name, c.make(shape, shape, "int64", "index", a.least(0))))


def _pairs(c: Chooser, accept: Accept) -> Choice | None:
    """A value and an index each for its first two dimensions."""
    a = c.value(both(accept, rank(2)))
    if a is None or a.least(0) == 0 or a.least(1) == 0:
        return None
    n = _count(c)
    m = n if c.random.random() < 0.7 else 1
    return Choice(
        (a.name, c.make((n,), (n,), "int64", "index", a.least(0)), c.make((m,), (m,), "int64", "index", a.least(1)))
    )


def _elementwise(c: Chooser, accept: Accept) -> Choice | None:
    """A value, an index of its shape but along `d`."""
    a = c.value(both(accept, rank(1)))
    if a is None:
        return None
    d = c.random.randrange(a.rank)
    if a.least(d) == 0:
        return None
    n = _count(c)
    shape = tuple(n if k == d else s for k, s in enumerate(a.tensor.shape))
    second = tuple(n if k == d else s for k, s in enumerate(a.second))
    return Choice((a.name, c.make(shape, second, "int64", "index", a.least(d))), {"d": d})


def _scattered(c: Chooser, accept: Accept) -> Choice | None:
    """A value, an index and a source of one shape, that of the value but along `d`."""
    a = c.value(both(accept, rank(1, 3)))
    if a is None:
        return None
    d = c.random.randrange(a.rank)
    if a.least(d) == 0:
        return None
    n = _count(c)
    shape = tuple(n if k == d else s for k, s in enumerate(a.tensor.shape))
    second = tuple(n if k == d else s for k, s in enumerate(a.second))
    index = c.make(shape, second, "int64", "index", a.least(d))
    exact = a.exact or not a.tensor.is_floating_point()
    return Choice((a.name, index, c.make(shape, second, dtype_name(a), "integers" if exact else "normal")), {"d": d})


def _segments(c: Chooser, accept: Accept) -> Choice | None:
    """A value, and for each position of its first dimension one of `n` rows: few, so that many meet, or many."""
    a = c.value(both(accept, rank(1, 4)))
    if a is None:
        return None
    n = c.random.choice([1, 2, 5, 17, 100])
    return Choice((a.name, c.make(a.tensor.shape[:1], a.second[:1], "int64", "index", n)), {"n": n})


def _searched(by_row: bool) -> Choose:
    """Exact values, and where they are looked for: one sequence, or one for each row."""

    def choose(c: Chooser, accept: Accept) -> Choice | None:
        a = c.value(both(accept, rank(1, 4)))
        if a is None:
            return None
        n = c.random.choice([1, 2, 3, 7, 8, 16, 33, 100])
        lead, second = (a.tensor.shape[:-1], a.second[:-1]) if by_row else ((), ())
        return Choice((a.name, c.make((*lead, n), (*second, n), dtype_name(a), "integers", 20)))

    return choose


def _computed(c: Chooser, accept: Accept) -> Choice | None:
    """A value and an exact value that becomes its index along `d`."""
    a = c.value(both(accept, rank(1)))
    b = c.value(both(numbers, lambda v: v.exact and v.tensor.numel() <= 64))
    if a is None or b is None:
        return None
    d = c.random.randrange(a.rank)
    return None if a.least(d) == 0 else Choice((a.name, b.name), {"d": d, "n": a.least(d)})


def _masked(c: Chooser, accept: Accept) -> Choice | None:
    """A value and a mask of its first dimensions."""
    a = c.value(both(accept, rank(1)))
    if a is None:
        return None
    k = c.random.randint(1, a.rank)
    mask = c.value(both(bools, lambda v: v.exact and v.tensor.shape == a.tensor.shape[:k] and v.second == a.second[:k]))
    name = mask.name if mask else c.make(a.tensor.shape[:k], a.second[:k], "bool", "integers")
    return Choice((a.name, name))


def _masked_all(c: Chooser, accept: Accept) -> Choice | None:
    """A value and a mask of its shape."""
    a = c.value(both(accept, rank(1)))
    return None if a is None else Choice((a.name, c.make(a.tensor.shape, a.second, "bool", "integers")))


def _at_least(elements: int) -> Accept:
    return lambda v: min(v.tensor.numel(), prod(v.second)) >= elements


def _matrix(v: Value) -> bool:
    return v.rank == 2 and numbers(v)


ROWS: tuple[Row, ...] = (
    Row("index_select", "{0}.index_select({d}, {1})", _rows, anything, keeps=True, weight=3),
    Row("index_rows", "{0}[(slice(None),) * {d} + ({1},)]", _rows, anything, keeps=True, weight=2),
    Row("index_negative", "{0}[(slice(None),) * {d} + ({1} - {n},)]", _rows, anything, keeps=True, weight=2),
    Row("index_grid", "{0}[{1}]", _grid, anything, keeps=True, weight=2),
    Row("embedding", "F.embedding({1}, {0})", _grid, both(floats, rank(2, 2)), keeps=True, weight=2),
    Row("index_pairs", "{0}[{1}, {2}]", _pairs, anything, keeps=True, weight=2),
    Row("gather", "{0}.gather({d}, {1})", _elementwise, anything, keeps=True, weight=3),
    Row("take_along", "torch.take_along_dim({0}, {1}, {d})", _elementwise, anything, keeps=True),
    Row("take", "torch.take({0}, {1})", _grid, both(anything, rank(1, 1)), keeps=True),
    Row(
        "index_computed",
        "{0}.index_select({d}, {1}.flatten().long().abs() % {n})",
        _computed,
        anything,
        keeps=True,
        weight=3,
    ),
    Row("scatter_add", "{0}.scatter_add({d}, {1}, {2})", _scattered, numbers, keeps=True, reorders=True, weight=3),
    Row("scatter_value", "{0}.scatter({d}, {1}, 1)", _elementwise, anything, keeps=True, weight=2),
    Row(
        "scatter_amax",
        "{0}.scatter_reduce({d}, {1}, {2}, 'amax')",
        _scattered,
        numbers,
        keeps=True,
    ),
    Row(
        "scatter_reduce",
        "{0}.scatter_reduce({d}, {1}, {2} * 0.5, {how}, include_self={own})",
        _scattered,
        floats,
        {"how": ("sum", "prod", "mean", "amin", "amax"), "own": (True, False)},
        reorders=True,
        weight=2,
    ),
    Row(
        "index_add",
        "{0}.index_add({d}, {1}, {0}.index_select({d}, {1}), alpha={alpha})",
        _rows,
        numbers,
        {"alpha": (1, 1, 2)},
        keeps=True,
        reorders=True,
        weight=2,
    ),
    Row(
        "segment_sum",
        "torch.zeros({n}, *{0}.shape[1:], dtype={0}.dtype).index_add(0, {1}, {0})",
        _segments,
        numbers,
        keeps=True,
        reorders=True,
        weight=2,
    ),
    Row(
        "segment_scatter",
        "torch.zeros({n}, *{0}.shape[1:], dtype={0}.dtype)"
        ".scatter_add(0, {1}.view(-1, *[1] * ({0}.ndim - 1)).expand_as({0}), {0})",
        _segments,
        numbers,
        keeps=True,
        reorders=True,
        weight=2,
    ),
    Row(
        "segment_put",
        "torch.ones({n}, *{0}.shape[1:], dtype={0}.dtype).index_put(({1},), {0}, accumulate=True)",
        _segments,
        numbers,
        keeps=True,
        reorders=True,
    ),
    Row(
        "segment_back",
        "{0} - torch.zeros({n}, *{0}.shape[1:], dtype={0}.dtype).index_add(0, {1}, {0})[{1}]",
        _segments,
        numbers,
        keeps=True,
        reorders=True,
    ),
    Row(
        "searchsorted",
        "torch.searchsorted({1}.sort()[0], {0}, right={right}, out_int32={short})",
        _searched(by_row=False),
        numbers,
        {"right": (False, True), "short": (False, True)},
        keeps=True,
        needs_exact=True,
        weight=2,
    ),
    Row(
        "searchsorted_rows",
        "torch.searchsorted({1}.sort(-1)[0], {0}, right={right})",
        _searched(by_row=True),
        numbers,
        {"right": (False, True)},
        keeps=True,
        needs_exact=True,
    ),
    Row(
        "bucketize",
        "torch.bucketize({0}, {1}.sort()[0], right={right})",
        _searched(by_row=False),
        numbers,
        {"right": (False, True)},
        keeps=True,
        needs_exact=True,
    ),
    Row("index_fill", "{0}.index_fill({d}, {1}.long(), 1)", _rows, anything, keeps=True),
    Row(
        "index_put_add",
        "torch.index_put({0}, ({1}, {2}), {0}[{1}, {2}] * 2, accumulate=True)",
        _pairs,
        numbers,
        keeps=True,
        reorders=True,
        weight=2,
    ),
    Row("index_put_value", "torch.index_put({0}, ({1},), torch.ones_like({0}[{1}]))", _grid, anything, keeps=True),
    Row(
        "index_put_mask", "torch.index_put({0}, ({1},), torch.ones((), dtype={0}.dtype))", _masked, anything, keeps=True
    ),
    Row("one_hot", "F.one_hot({1}, 20)", _grid, anything, keeps=True, weight=0.5),
    Row(
        "select_scatter",
        "torch.select_scatter({0}, {0}.select({dim}, 0) * 2, {dim}, -1)",
        along,
        numbers,
        keeps=True,
        embeds=True,
    ),
    Row(
        "slice_scatter",
        "torch.slice_scatter({0}, {0}.narrow({dim}, 0, 1) + 1, {dim}, 0, 1)",
        along,
        numbers,
        keeps=True,
        embeds=True,
    ),
    Row(
        "index_copy",
        "{0}.index_copy({dim}, torch.arange({0}.shape[{dim}]).flip(0), {0} * 2)",
        along,
        numbers,
        keeps=True,
    ),
    Row("diagonal_scatter", "torch.diagonal_scatter({0}, {0}.diagonal() * 2)", one, _matrix, keeps=True, embeds=True),
    Row(
        "overlapped",
        "{0}.contiguous().flatten().as_strided((3, 2), (1, 2), 1)",
        one,
        _at_least(6),
        kind="view",
        keeps=True,
    ),
    Row("masked_scatter", "{0}.masked_scatter({1}, {0}.flip(0))", _masked_all, anything, keeps=True, weight=0.5),
    Row("masked_select", "torch.masked_select({0}, {1})", _masked_all, anything, keeps=True, weight=0.3),
    Row("nonzero", "{0}.nonzero()", one, anything, keeps=True, needs_exact=True, weight=0.2),
    Row(
        "embedding_bag",
        "F.embedding_bag({1}, {0}, mode={how})",
        _grid,
        both(floats, rank(2, 2)),
        {"how": ("sum", "mean", "max")},
        reorders=True,
    ),
)
