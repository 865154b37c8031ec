"""Operations that put elements elsewhere: concatenation, stacking, padding."""

from __future__ import annotations

from tests.fuzz.rows.row import Accept, Choice, Chooser, Row, Value, anything, both, dtype_name, floats, numbers, rank


def _like(a: Value, except_dim: int | None) -> Accept:
    """Values with the shape of `a` at both calls, but for one dimension."""

    def trimmed(shape: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(s for d, s in enumerate(shape) if d != except_dim)

    def accept(b: Value) -> bool:
        return (
            b.rank == a.rank
            and trimmed(tuple(b.tensor.shape)) == trimmed(tuple(a.tensor.shape))
            and trimmed(b.second) == trimmed(a.second)
        )

    return accept


def _others(c: Chooser, a: Value, accept: Accept, dim: int | None, count: int) -> list[str]:
    names = []
    for _ in range(count):
        b = c.value(both(accept, _like(a, dim)))
        if b is not None and (b.name != a.name or c.random.random() < 0.4):
            names.append(b.name)
        else:
            fill = "normal" if a.tensor.is_floating_point() and not a.exact else "integers"
            names.append(c.make(a.tensor.shape, a.second, dtype_name(a), fill))
    return names


def _cat(count: int):  # type: ignore[no-untyped-def]
    def choose(c: Chooser, accept: Accept) -> Choice | None:
        a = c.value(both(accept, rank(1)))
        if a is None:
            return None
        d = c.random.randrange(a.rank)
        names = [a.name, *_others(c, a, accept, d, count - 1)]
        c.random.shuffle(names)
        return Choice(tuple(names), {"d": d})

    return choose


def _stack(c: Chooser, accept: Accept) -> Choice | None:
    a = c.value(both(accept, rank(0, 4)))
    if a is None:
        return None
    names = [a.name, *_others(c, a, accept, None, 1)]
    return Choice(tuple(names), {"d": c.random.randint(0, a.rank)})


def _pad(c: Chooser, accept: Accept) -> Choice | None:
    """Pairs for the last dimensions; a negative one crops."""
    a = c.value(both(accept, rank(1)))
    if a is None:
        return None
    pairs: list[int] = []
    for k in range(c.random.randint(1, a.rank)):
        least = a.least(a.rank - 1 - k)
        pairs += [c.random.choice([0, 1, 2, 3, -1 if least > 3 else 0]) for _ in range(2)]
    return Choice((a.name,), {"pads": tuple(pairs), "fill": c.random.choice([0, 1])})


def _border(c: Chooser, accept: Accept) -> Choice | None:
    a = c.value(both(accept, rank(2, 3)))
    if a is None or a.least(-1) < 3:
        return None
    return Choice((a.name,), {"pads": (c.random.randint(0, 2), c.random.randint(0, 2))})


ROWS: tuple[Row, ...] = (
    Row("cat2", "torch.cat([{0}, {1}], {d})", _cat(2), anything, keeps=True, weight=4),
    Row("cat3", "torch.cat([{0}, {1}, {2}], {d})", _cat(3), anything, keeps=True, weight=2),
    Row("stack", "torch.stack([{0}, {1}], {d})", _stack, anything, keeps=True, weight=3),
    Row("pad", "F.pad({0}, {pads}, value={fill})", _pad, anything, keeps=True, weight=4),
    Row("pad_reflect", "F.pad({0}, {pads}, mode='reflect')", _border, floats, keeps=True),
    Row("pad_replicate", "F.pad({0}, {pads}, mode='replicate')", _border, floats, keeps=True),
    Row("pad_circular", "F.pad({0}, {pads}, mode='circular')", _border, numbers, keeps=True),
    Row("hstack", "torch.hstack([{0}, {1}])", _stack, anything, keeps=True, weight=0.5),
)
