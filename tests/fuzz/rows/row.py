"""What a row of the op table is, and the ways of choosing arguments that rows share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Protocol

import torch

from tests.fuzz.graph import Attr


@dataclass(frozen=True)
class Value:
    """A value that exists so far: its name, its tensor at the first call, its shape at the second, whether any correct
    implementation gives exactly this value, whether it is a parameter."""

    name: str
    tensor: torch.Tensor
    second: tuple[int, ...]
    exact: bool
    parameter: bool = False

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return self.tensor.ndim

    def least(self, dim: int) -> int:
        """The smaller size of a dimension of the two calls."""
        return min(self.tensor.shape[dim], self.second[dim])


Accept = Callable[[Value], bool]


class Chooser(Protocol):
    """What a row chooses with: a random generator, the values so far, and new inputs."""

    random: Random

    def value(self, accept: Accept) -> Value | None:
        """A value that exists, late ones more often."""

    def size(self, most: int) -> tuple[int, int]:
        """A size from 1 to `most`, and the one at the second call."""

    def make(
        self,
        shape: Sequence[int],
        second: Sequence[int],
        dtype: str,
        fill: str = "normal",
        limit: int = 4,
        weight: bool = False,
    ) -> str:
        """A new input; its name. weight: a parameter in inference."""


@dataclass(frozen=True)
class Choice:
    """Arguments and attributes of a step."""

    args: tuple[str, ...]
    attrs: Mapping[str, Attr] = field(default_factory=dict)


Choose = Callable[[Chooser, Accept], "Choice | None"]


@dataclass(frozen=True)
class Row:
    """text: an expression of {0}, {1}, ... and attributes. choose: picks arguments among what `accepts`.

    attrs: attribute -> the values it may have. kind: "plain", "view" (may alias its first argument) or "inplace"
    (changes its first argument, whose storage the result has). keeps: exact arguments give an exact result, when it
    is as in float64. reorders: the result depends on an order of additions. needs_exact: a small difference of an
    argument could make a large one. embeds: writes into a copy of its first argument. weight: how often, in its family.
    """

    name: str
    text: str
    choose: Choose
    accepts: Accept
    attrs: Mapping[str, Sequence[Attr]] = field(default_factory=dict)
    kind: str = "plain"
    keeps: bool = False
    reorders: bool = False
    needs_exact: bool = False
    embeds: bool = False
    weight: float = 1.0


# -- what a row accepts ------------------------------------------------------------------------------------------------
def anything(v: Value) -> bool:
    """Any dtype."""
    return True


def floats(v: Value) -> bool:
    """Floating-point values."""
    return v.tensor.is_floating_point()


def numbers(v: Value) -> bool:
    """Everything but bool."""
    return v.tensor.dtype is not torch.bool


def integers(v: Value) -> bool:
    """Integers, not bool."""
    return not v.tensor.is_floating_point() and v.tensor.dtype is not torch.bool


def whole(v: Value) -> bool:
    """Integers and bool."""
    return not v.tensor.is_floating_point()


def bools(v: Value) -> bool:
    """bool."""
    return v.tensor.dtype is torch.bool


def filled(v: Value) -> bool:
    """Some element at both calls."""
    return v.tensor.numel() > 0 and min(v.second, default=1) > 0


def dtype_name(v: Value) -> str:
    """ "float32" for torch.float32."""
    return str(v.tensor.dtype).removeprefix("torch.")


def both(*accepts: Accept) -> Accept:
    """All of several conditions."""
    return lambda v: all(accept(v) for accept in accepts)


def rank(low: int, high: int = 9) -> Accept:
    """A number of dimensions."""
    return lambda v: low <= v.rank <= high


def broadcasts(a: Value) -> Accept:
    """Values that broadcast with `a` at both calls."""

    def accept(b: Value) -> bool:
        try:
            torch.broadcast_shapes(a.tensor.shape, b.tensor.shape)
            torch.broadcast_shapes(a.second, b.second)
        except RuntimeError:
            return False
        return True

    return accept


# -- ways of choosing --------------------------------------------------------------------------------------------------
def one(c: Chooser, accept: Accept) -> Choice | None:
    """One value."""
    a = c.value(accept)
    return None if a is None else Choice((a.name,))


def partner(c: Chooser, a: Value, accept: Accept) -> str:
    """A value that broadcasts with `a`, or a new input that does."""
    b = c.value(both(accept, broadcasts(a)))
    if b is not None and (b.name != a.name or c.random.random() < 0.2):
        return b.name
    drop = c.random.randint(0, a.rank) if c.random.random() < 0.4 else 0
    ones = {d for d in range(a.rank) if c.random.random() < 0.2}
    shape = [1 if d in ones else s for d, s in enumerate(a.tensor.shape)][drop:]
    second = [1 if d in ones else s for d, s in enumerate(a.second)][drop:]
    fill = "normal" if a.tensor.is_floating_point() and not a.exact else "integers"
    return c.make(shape, second, dtype_name(a), fill)


def two(c: Chooser, accept: Accept) -> Choice | None:
    """Two values that broadcast."""
    a = c.value(accept)
    if a is None:
        return None
    pair = [a.name, partner(c, a, accept)]
    c.random.shuffle(pair)
    return Choice(tuple(pair))


def three(c: Chooser, accept: Accept) -> Choice | None:
    """Three values that broadcast with the first."""
    a = c.value(accept)
    if a is None:
        return None
    return Choice((a.name, partner(c, a, accept), partner(c, a, accept)))


def pick_dim(c: Chooser, a: Value) -> int:
    """A dimension, counted from the front or from the end."""
    d = c.random.randrange(a.rank)
    return d - a.rank if c.random.random() < 0.3 else d


def along(c: Chooser, accept: Accept) -> Choice | None:
    """One value and `dim`, seldom of no elements."""
    a = c.value(both(accept, rank(1)))
    if a is None:
        return None
    d = pick_dim(c, a)
    return None if a.least(d) == 0 and c.random.random() < 0.5 else Choice((a.name,), {"dim": d})


def over(c: Chooser, accept: Accept) -> Choice | None:
    """One value and `dims`, a tuple."""
    a = c.value(both(accept, rank(1)))
    if a is None:
        return None
    dims = c.random.sample(range(a.rank), c.random.randint(1, a.rank) if c.random.random() < 0.4 else 1)
    if min(a.least(d) for d in dims) == 0 and c.random.random() < 0.7:
        return None
    return Choice((a.name,), {"dims": tuple(d - a.rank if c.random.random() < 0.3 else d for d in dims)})
