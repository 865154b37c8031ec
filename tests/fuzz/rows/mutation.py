"""Operations that change their first argument."""

from __future__ import annotations

from tests.fuzz.rows.row import (
    Accept,
    Choice,
    Chooser,
    Row,
    Value,
    along,
    anything,
    bools,
    both,
    broadcasts,
    dtype_name,
    floats,
    numbers,
    one,
    rank,
)


def _fits(target: Value) -> Accept:
    """Values that broadcast to the shape of `target`."""

    def accept(b: Value) -> bool:
        n = b.rank
        return n <= target.rank and all(
            x in (1, y)
            for own, other in ((b.tensor.shape, target.tensor.shape), (b.second, target.second))
            for x, y in zip(own, tuple(other)[target.rank - n :], strict=True)
        )

    return both(accept, broadcasts(target))


def _changed(v: Value) -> bool:
    """Whether autograd lets it be changed. It cannot even be asked of a part of a split whose base was changed."""
    try:
        return not v.parameter and not (v.tensor.is_leaf and v.tensor.requires_grad)
    except RuntimeError:
        return False


def _target(c: Chooser, accept: Accept) -> Value | None:
    return c.value(both(accept, _changed))


def _with_source(c: Chooser, accept: Accept) -> Choice | None:
    """A target and what is written, of a dtype that may be cast to the target's."""
    a = _target(c, accept)
    if a is None:
        return None
    b = c.value(both(_fits(a), lambda v: v.tensor.dtype == a.tensor.dtype))
    name = b.name if b is not None else c.make(a.tensor.shape, a.second, dtype_name(a), "integers")
    return Choice((a.name, name))


def _with_any_source(c: Chooser, accept: Accept) -> Choice | None:
    """A target and a source of any dtype whose cast does not depend on rounding."""
    a = _target(c, accept)
    if a is None:
        return None
    b = c.value(both(_fits(a), lambda v: a.tensor.is_floating_point() or v.tensor.dtype == a.tensor.dtype))
    return None if b is None else Choice((a.name, b.name))


def _alone(c: Chooser, accept: Accept) -> Choice | None:
    a = _target(c, accept)
    return None if a is None else Choice((a.name,))


def _alone_along(c: Chooser, accept: Accept) -> Choice | None:
    return along(c, both(accept, _changed))


def _with_mask(c: Chooser, accept: Accept) -> Choice | None:
    a = _target(c, accept)
    if a is None:
        return None
    mask = c.value(both(bools, _fits(a), lambda v: v.exact))
    return Choice((a.name, mask.name if mask else c.make(a.tensor.shape, a.second, "bool", "integers")))


def _part(c: Chooser, accept: Accept) -> Choice | None:
    """A target with a strided part of one dimension, and no source."""
    a = _target(c, both(accept, rank(1)))
    if a is None:
        return None
    d = c.random.randrange(a.rank)
    if a.least(d) < 2:
        return None
    return Choice((a.name,), {"d": d, "start": c.random.randint(0, a.least(d) - 1), "step": c.random.choice([1, 2, 3])})


def _rows(c: Chooser, accept: Accept) -> Choice | None:
    a = _target(c, both(accept, rank(1)))
    if a is None or a.least(0) == 0:
        return None
    n = c.random.choice([1, 3, 8])
    return Choice((a.name, c.make((n,), (n,), "int64", "index", a.least(0))))


_PART = "{0}[(slice(None),) * {d} + (slice({start}, None, {step}),)]"


def _row(name: str, text: str, choose: object, accepts: Accept = numbers, **more: object) -> Row:
    return Row(name, text, choose, accepts, kind="inplace", keeps=True, **more)  # type: ignore[arg-type]


ROWS: tuple[Row, ...] = (
    _row("add_", "{0}.add_({1})", _with_source, weight=3.0),
    _row("sub_", "{0}.sub_({1}, alpha=2)", _with_source),
    _row("mul_", "{0}.mul_({1})", _with_source, weight=2.0),
    _row("copy_", "{0}.copy_({1})", _with_any_source, anything, weight=3.0),
    _row("add_one_", "{0}.add_(1)", _alone, weight=2.0),
    _row("neg_", "{0}.neg_()", _alone),
    _row("relu_", "{0}.relu_()", _alone),
    _row("clamp_", "{0}.clamp_(-1, 2)", _alone),
    _row("fill_", "{0}.fill_(1)", _alone, anything),
    _row("zero_", "{0}.zero_()", _alone, anything),
    _row("masked_fill_", "{0}.masked_fill_({1}, 2)", _with_mask, anything, weight=2.0),
    _row("part_add_", _PART + ".add_(2)", _part, weight=3.0),
    _row("part_mul_", _PART + ".mul_(2)", _part),
    _row("part_fill_", _PART + ".fill_(1)", _part, anything),
    _row("part_copy_", _PART + ".copy_({0}.select({d}, 0).unsqueeze({d}).clone())", _part, anything, weight=2.0),
    _row("row_add_", "{0}.select({dim}, -1).add_(1)", _alone_along),
    _row("transposed_add_", "{0}.mT.add_(1)", _alone, both(numbers, rank(2))),
    _row("flat_add_", "{0}.view(-1).add_(1)", _alone),
    _row("index_add_", "{0}.index_add_(0, {1}, {0}.index_select(0, {1}))", _rows, reorders=True),
    _row("index_put_", "{0}.index_put_(({1},), torch.ones((), dtype={0}.dtype))", _rows, anything),
    _row("index_fill_", "{0}.index_fill_(0, {1}, 1)", _rows, anything),
    Row("tanh_", "{0}.tanh_()", _alone, floats, kind="inplace"),
    Row("sigmoid_", "{0}.sigmoid_()", _alone, floats, kind="inplace"),
    Row("half_", "{0}.mul_(0.3)", _alone, floats, kind="inplace"),
    Row("same", "{0}", one, anything, kind="view", keeps=True, weight=0.3),
)
