"""Operations that rename elements or only copy them."""

from __future__ import annotations

from tests.fuzz.rows.row import Accept, Choice, Chooser, Row, Value, along, anything, both, numbers, one, pick_dim, rank


def _two_dims(c: Chooser, accept: Accept) -> Choice | None:
    a = c.value(both(accept, rank(2)))
    return None if a is None else Choice((a.name,), {"d": pick_dim(c, a), "e": pick_dim(c, a)})


def _permutation(c: Chooser, accept: Accept) -> Choice | None:
    a = c.value(both(accept, rank(2)))
    return None if a is None else Choice((a.name,), {"dims": tuple(c.random.sample(range(a.rank), a.rank))})


def _slice(c: Chooser, accept: Accept) -> Choice | None:
    """start, stop and step along one dimension, that leave something."""
    a = c.value(both(accept, rank(1)))
    if a is None:
        return None
    d = c.random.randrange(a.rank)
    size = a.least(d)
    if size == 0:
        return None
    start = c.random.choice([0, 0, 1, c.random.randrange(size), -1 - c.random.randrange(size)])
    stop = c.random.choice([9223372036854775807, 9223372036854775807, size, size - 1, -1, c.random.randint(0, size)])
    step = c.random.choice([1, 1, 2, 3])
    return Choice((a.name,), {"before": "(slice(None),) * ", "d": d, "start": start, "stop": stop, "step": step})


def _select(c: Chooser, accept: Accept) -> Choice | None:
    a = c.value(both(accept, rank(1)))
    if a is None:
        return None
    d = pick_dim(c, a)
    size = a.least(d)
    return None if size == 0 else Choice((a.name,), {"d": d, "k": c.random.randrange(-size, size)})


def _insert(c: Chooser, accept: Accept) -> Choice | None:
    a = c.value(both(accept, rank(0, 4)))
    if a is None:
        return None
    return Choice((a.name,), {"d": c.random.randint(0, a.rank), "n": c.random.choice([1, 2, 3, 5])})


def _unfold(c: Chooser, accept: Accept) -> Choice | None:
    a = c.value(both(accept, rank(1, 3)))
    if a is None:
        return None
    d = c.random.randrange(a.rank)
    if a.least(d) < 2:
        return None
    return Choice((a.name,), {"d": d, "size": c.random.randint(1, min(a.least(d), 5)), "step": c.random.randint(1, 3)})


def _divisors(n: int) -> list[int]:
    return [k for k in range(1, n + 1) if n % k == 0]


def _unflatten(c: Chooser, accept: Accept) -> Choice | None:
    """Split a dimension in two, by a factor that divides its size at both calls."""
    a = c.value(both(accept, rank(1, 4)))
    if a is None:
        return None
    d = c.random.randrange(a.rank)
    first, second = a.tensor.shape[d], a.second[d]
    factors = [k for k in _divisors(first) if k and second % k == 0] if first else []
    if not factors:
        return None
    k = c.random.choice(factors)
    return Choice((a.name,), {"d": d, "sizes": c.random.choice([(k, -1), (-1, k)])})


def _reshape(c: Chooser, accept: Accept) -> Choice | None:
    """Another factorization of the number of elements; one factor is computed."""
    a = c.value(both(accept, rank(1)))
    if a is None or a.tensor.numel() == 0:
        return None
    count, second = a.tensor.numel(), 1
    for s in a.second:
        second *= s
    sizes: list[int] = []
    for _ in range(c.random.randint(0, 3)):
        k = c.random.choice(
            [k for k in (1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 31, 33) if count % k == 0 and second % k == 0]
        )
        sizes.append(k)
        count, second = count // k, second // k
    sizes.insert(c.random.randint(0, len(sizes)), -1)
    return Choice((a.name,), {"sizes": tuple(sizes)})


def _broad(v: Value) -> bool:
    return v.rank >= 1 and 1 in [a if a == b else 0 for a, b in zip(v.tensor.shape, v.second, strict=True)]


def _expand(c: Chooser, accept: Accept) -> Choice | None:
    a = c.value(both(accept, _broad))
    if a is None:
        return None
    sizes = tuple(
        c.random.choice([2, 3, 7]) if x == y == 1 else -1 for x, y in zip(a.tensor.shape, a.second, strict=True)
    )
    return Choice((a.name,), {"sizes": sizes})


def _chunk(c: Chooser, accept: Accept) -> Choice | None:
    a = c.value(both(accept, rank(1)))
    if a is None:
        return None
    d = c.random.randrange(a.rank)
    if a.least(d) < 2:
        return None
    most = min(a.least(d) - 1, 70)  # the gradient is a concatenation of all parts
    return Choice((a.name,), {"d": d, "n": c.random.randint(1, most), "k": c.random.choice([0, -1, 1])})


def _short(v: Value) -> bool:
    """Few elements along each dimension: torch makes a fake tensor for each part of an unbind."""
    return max((*v.tensor.shape, *v.second), default=0) <= 70


ROWS: tuple[Row, ...] = (
    Row("transpose", "{0}.transpose({d}, {e})", _two_dims, anything, kind="view", keeps=True, weight=3),
    Row("permute", "{0}.permute({dims})", _permutation, anything, kind="view", keeps=True, weight=3),
    Row(
        "slice",
        "{0}[(slice(None),) * {d} + (slice({start}, {stop}, {step}),)]",
        _slice,
        anything,
        kind="view",
        keeps=True,
        weight=5,
    ),
    Row("select", "{0}.select({d}, {k})", _select, anything, kind="view", keeps=True, weight=2),
    Row("unsqueeze", "{0}.unsqueeze({d})", _insert, anything, kind="view", keeps=True, weight=2),
    Row("squeeze", "{0}.squeeze({dim})", along, anything, kind="view", keeps=True),
    Row(
        "grow",
        "{0}.unsqueeze({d}).expand(*{0}.shape[:{d}], {n}, *{0}.shape[{d}:])",
        _insert,
        anything,
        kind="view",
        keeps=True,
        weight=1.5,
    ),
    Row("expand", "{0}.expand({sizes})", _expand, anything, kind="view", keeps=True, weight=1.5),
    Row("unfold", "{0}.unfold({d}, {size}, {step})", _unfold, anything, kind="view", keeps=True),
    Row("unflatten", "{0}.unflatten({d}, {sizes})", _unflatten, anything, kind="view", keeps=True, weight=2),
    Row("flatten", "{0}.flatten()", one, anything, kind="view", keeps=True),
    Row("flatten_first", "{0}.flatten(0, 1)", one, both(anything, rank(2)), kind="view", keeps=True),
    Row("flatten_last", "{0}.flatten(-2)", one, both(anything, rank(2)), kind="view", keeps=True),
    Row("reshape", "{0}.reshape({sizes})", _reshape, anything, kind="view", keeps=True, weight=4),
    Row("diagonal", "{0}.diagonal(dim1={d}, dim2={e})", _two_dims, anything, kind="view", keeps=True),
    Row("split", "{0}.split({n}, {d})[{k}]", _chunk, anything, kind="view", keeps=True, weight=2),
    Row("chunk", "{0}.chunk({n}, {d})[0]", _chunk, anything, kind="view", keeps=True),
    Row("unbind", "{0}.unbind({dim})[-1]", along, _short, kind="view", keeps=True),
    Row("contiguous", "{0}.contiguous()", one, anything, kind="view", keeps=True),
    Row(
        "channels_last",
        "{0}.contiguous(memory_format=torch.channels_last)",
        one,
        both(anything, rank(4, 4)),
        kind="view",
        keeps=True,
    ),
    Row("positive", "+{0}", one, numbers, kind="view", keeps=True, weight=0.3),
    Row("detach", "{0}.detach()", one, anything, kind="view", keeps=True, weight=0.3),
    Row("clone", "{0}.clone()", one, anything, keeps=True),
    Row("flip", "{0}.flip({dim})", along, anything, keeps=True, weight=2),
    Row("roll", "torch.roll({0}, {by}, {dim})", along, anything, {"by": (1, -1, 2)}, keeps=True, weight=1.5),
    Row("repeat", "{0}.repeat_interleave({by}, {dim})", along, anything, {"by": (2, 3)}, keeps=True),
    Row("tile", "{0}.tile(({by},))", one, both(anything, rank(1)), {"by": (2,)}, keeps=True),
    Row("rot90", "torch.rot90({0})", one, both(anything, rank(2)), keeps=True, weight=0.5),
    Row("tril", "torch.tril({0}, {k})", one, both(anything, rank(2)), {"k": (-1, 0, 1)}, keeps=True),
    Row("triu", "torch.triu({0}, {k})", one, both(anything, rank(2)), {"k": (-1, 0, 2)}, keeps=True),
    Row("diag_embed", "torch.diag_embed({0})", one, both(anything, rank(1, 2)), keeps=True, weight=0.5),
    Row("movedim", "{0}.movedim({d}, {e})", _two_dims, anything, kind="view", keeps=True),
)
