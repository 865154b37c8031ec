"""Kernels of a graph that differ in nothing but whole numbers are one function, which takes these numbers as ints.

The layers of a model are of a few kinds: without their numbers, the 117 products of densenet121 have 11 texts, and a
compiler takes as long for each as for the first. Joined are products, of which a template's function, which takes sizes
in any case, does the multiplying, and loops over one dimension, whose bounds are those of a thread's part: numbers in
their texts say where operands and results are. Nested loops would lose bounds that the compiler makes use of.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeGuard

from inductor_cpu.codegen.source import HEAD, named, unnamed
from inductor_cpu.ir.index import INT32
from inductor_cpu.ir.kernel import Kernel
from inductor_cpu.ir.plan import KernelSource

_NUMBER = re.compile(r"(?<![\w.])\d+(?![\w.])")

#: Where C++ wants constants, template arguments aside: preprocessor lines, sizes of arrays, alignments; and lines that
#: divide, which takes several times as long by numbers that the compiler does not know.
_DIVIDES = r"^.*(?: [/%] |floordiv|truncdiv|fmod|remainder|quotient).*$"
_CONSTANT = re.compile(rf"^#.*$|\[[^\]]*\]|\balignas\([^)]*\)|{_DIVIDES}", re.MULTILINE)

#: The start of template arguments. Comparisons have a space before the sign.
_OPENS_ARGUMENTS = re.compile(r"(?<=\w)<")


@dataclass(frozen=True)
class Function:
    """A kernel's function, and the ints that it takes after the kernel's sizes."""

    symbol: str
    ints: tuple[int, ...] = ()


@dataclass(frozen=True)
class _Text:
    """A text cut at the numbers that may be ints: there is one between every two pieces."""

    pieces: tuple[str, ...]
    numbers: tuple[int, ...]


def takes_ints(step: object) -> TypeGuard[Kernel]:
    """Whether a step is a kernel whose numbers may be ints."""
    if not isinstance(step, Kernel):
        return False
    return step.product is not None or (len(step.outer) == 1 and not step.inner)


def join_alike(sources: Mapping[KernelSource, int]) -> dict[KernelSource, tuple[KernelSource, Function]]:
    """For each source that has others like it, the one that stands for all of them, and how it is called. sources: of
    steps that take ints, with how many sizes each has."""
    groups: defaultdict[object, dict[KernelSource, _Text]] = defaultdict(dict)
    for source, sizes in sources.items():
        text = _cut(unnamed(source))
        types = tuple(map(_type_of, text.numbers))
        groups[text.pieces, types, source.instances, sizes][source] = text
    found: dict[KernelSource, tuple[KernelSource, Function]] = {}
    for members in groups.values():
        if len(members) > 1:
            first = next(iter(members))
            found.update(_joined(first, sources[first], members))
    return found


def _joined(
    first: KernelSource, sizes: int, members: Mapping[KernelSource, _Text]
) -> dict[KernelSource, tuple[KernelSource, Function]]:
    """One function for all members: a number that differs among them is an int, the same one where all have it."""
    columns = list(zip(*(text.numbers for text in members.values()), strict=True))
    ints = list(dict.fromkeys(column for column in columns if len(set(column)) > 1))
    names = {column: f"n{sizes + number}" for number, column in enumerate(ints)}
    pieces = next(iter(members.values())).pieces
    written = (piece + names.get(column, str(column[0])) for piece, column in zip(pieces, columns, strict=False))
    text = "".join((*written, pieces[-1]))
    head = f"{HEAD} {{\n"
    lines = "".join(f"  const {_type_of(c[0])} {name} = sizes[{name[1:]}];\n" for c, name in names.items())
    one = named(text.replace(head, head + lines), first.label, first.instances)
    own = (tuple(column[member] for column in ints) for member in range(len(members)))
    return {source: (one, Function(one.symbol, numbers)) for source, numbers in zip(members, own, strict=True)}


def _type_of(number: int) -> str:
    """What a number in a text is to C++: vectors of it, and what is found by its type, must stay the same."""
    return "int" if number <= INT32[1] else "int64_t"


def _cut(text: str) -> _Text:
    constant = [*(match.span() for match in _CONSTANT.finditer(text)), *_template_arguments(text)]
    pieces: list[str] = []
    numbers: list[int] = []
    start = 0
    for match in _NUMBER.finditer(text):
        if any(begin <= match.start() < end for begin, end in constant):
            continue
        pieces.append(text[start : match.start()])
        numbers.append(int(match.group()))
        start = match.end()
    return _Text((*pieces, text[start:]), tuple(numbers))


def _template_arguments(text: str) -> list[tuple[int, int]]:
    """Where template arguments begin and end, with those inside of others."""
    spans: list[tuple[int, int]] = []
    for match in _OPENS_ARGUMENTS.finditer(text):
        depth, end = 1, match.end()
        while depth and end < len(text):
            depth += {"<": 1, ">": -1}.get(text[end], 0)
            end += 1
        spans.append((match.start(), end))
    return spans
