"""Which cases of a test every run tries, and which `make test-full` alone: all would take longer than anybody waits."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product
from typing import Any

import pytest
from _pytest.mark.structures import ParameterSet


def cases(always: Iterable[Any], more: Iterable[Any]) -> list[Any]:
    """Parameters of a test, `always` those of every run. Those of several arguments are tuples."""
    return [*always, *(_full(item) for item in more)]


def in_turns(firsts: Iterable[Any], *others: Iterable[Any]) -> list[Any]:
    """All combinations as parameters of a test. Every run tries each of `firsts` with one combination of the others,
    the next one with the next."""
    combinations = list(product(*others))
    return [
        (first, *rest) if turn == number % len(combinations) else _full((first, *rest))
        for number, first in enumerate(firsts)
        for turn, rest in enumerate(combinations)
    ]


def full_only(parameters: Iterable[Any]) -> list[tuple[Any, ...]]:
    """Those of the parameters of a test that `make test-full` alone tries."""
    return [case.values for case in parameters if isinstance(case, ParameterSet)]


def every_run(parameters: Iterable[Any]) -> list[Any]:
    """The others."""
    return [case for case in parameters if not isinstance(case, ParameterSet)]


def _full(item: Any) -> Any:
    return pytest.param(*(item if isinstance(item, tuple) else (item,)), marks=pytest.mark.full)
