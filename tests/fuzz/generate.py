"""A graph from a seed. Steps are chosen from the op table, tried in eager mode, and kept if they are valid."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random

import torch

from tests.fuzz.calls import call, model_of
from tests.fuzz.graph import Graph, Input, Step
from tests.fuzz.replay import Invalid, Replay
from tests.fuzz.rows import FAMILIES, ROWS
from tests.fuzz.rows.row import Accept, Choice, Row, Value
from tests.fuzz.script import LAYOUTS

SIZES = (2, 3, 4, 5, 6, 7, 8, 9, 12, 15, 16, 17, 31, 32, 33, 63, 64, 65)
SMALL_DTYPES = ("int64", "int32", "uint8", "int8", "int16", "bool")
FLOATS = ("float32", "float64", "bfloat16", "float16")
MAX_INPUT = 6000
TRIES = 40

#: Usual shares of the families; each graph scales them at random.
SHARES = {
    "pointwise": 6.0,
    "reductions": 2.5,
    "views": 3.5,
    "joins": 1.2,
    "indexing": 2.0,
    "layers": 1.5,
    "spatial": 0.7,
    "mutation": 0.8,
    "creation": 0.4,
    "blocks": 1.2,
}


@dataclass(frozen=True)
class Style:
    """What the values of one graph have in common."""

    sizes: tuple[tuple[int, int], ...]
    dtype: str
    grad: bool
    dynamic: str
    shares: tuple[float, ...]
    steps: int


def style_of(random: Random) -> Style:
    """A style: few sizes, so that shapes meet; one main dtype; some families more than others."""
    dynamic = random.choices(("static", "mark", "all", "auto"), (6, 2, 1, 1))[0]
    chosen = random.sample(SIZES, random.randint(2, 4))
    if random.random() < 0.35:
        chosen.append(1)
    if random.random() < 0.08:
        chosen.append(0)
    moves = dynamic != "static"
    sizes = tuple((n, random.choice(SIZES) if moves and n > 1 and random.random() < 0.6 else n) for n in chosen)
    shares = tuple(share * random.choice((0.2, 1.0, 1.0, 3.0)) for share in SHARES.values())
    steps = random.randint(*random.choices(((5, 12), (12, 25), (25, 60)), (7, 3, 1))[0])
    dtype = random.choices(FLOATS, (12, 2, 3, 2))[0]
    return Style(sizes, dtype, random.random() < 0.4, dynamic, shares, steps)


class Builder:
    """Grows one graph; the `Chooser` of the rows."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.seed = seed
        self.style = style_of(self.random)
        self.inputs: list[Input] = []
        self.steps: list[Step] = []
        self.replay = Replay()
        self.only_exact = False

    # -- what rows choose with ---------------------------------------------------------------------------------------
    def value(self, accept: Accept) -> Value | None:
        """One of the values that fit, late and unused ones more often."""
        used = {name for step in self.steps for name in step.args}
        fitting: list[Value] = []
        weights: list[float] = []
        for position, name in enumerate(self.replay.order):
            v = self.replay.value(name)
            if (v.exact or not self.only_exact) and accept(v):
                fitting.append(v)
                weights.append((1.0 + 3.0 * position / len(self.replay.order)) * (1.0 if name in used else 3.0))
        return self.random.choices(fitting, weights)[0] if fitting else None

    def size(self, most: int) -> tuple[int, int]:
        """A size, and the one at the second call."""
        first = self.random.randint(1, most)
        moves = self.style.dynamic != "static" and first > 1 and self.random.random() < 0.6
        return first, self.random.randint(2, most) if moves and most > 1 else first

    def make(
        self,
        shape: Sequence[int],
        second: Sequence[int],
        dtype: str,
        fill: str = "normal",
        limit: int = 4,
        weight: bool = False,
    ) -> str:
        """A new input; its name."""
        random = self.random
        if fill == "normal" and (dtype not in FLOATS or self.only_exact):
            fill = "integers"
        sizes = tuple(shape)
        fits = [
            k
            for k, (least, _, _) in LAYOUTS.items()
            if len(sizes) >= least and (k != "channels_last" or len(sizes) == 4)
        ]
        layout = "contiguous" if weight or random.random() < 0.55 else random.choice(fits)
        if layout == "expanded" and tuple(second) != sizes:
            layout = "contiguous"
        chosen = weight and random.random() < 0.85
        parameter = chosen and tuple(second) == sizes  # a module's weights keep their shapes
        grad = self.style.grad and dtype in FLOATS and random.random() < 0.6
        spec = Input(
            f"{'w' if parameter else 'x'}{len(self.inputs)}",
            sizes,
            tuple(second),
            dtype,
            layout,
            fill,
            limit,
            random.randrange(1 << 20),
            grad,
            parameter,
        )
        self.inputs.append(spec)
        self.replay.add_input(spec)
        return spec.name

    # -- building ----------------------------------------------------------------------------------------------------
    def build(self) -> Graph:
        """The graph of the seed."""
        for _ in range(self.random.randint(1, 3)):
            self.first_input()
        names, tries = list(SHARES), 0
        while len(self.steps) < self.style.steps and tries < self.style.steps * TRIES:
            tries += 1
            family = self.random.choices(names, self.style.shares)[0]
            rows = FAMILIES[family]
            self.attempt(self.random.choices(rows, [row.weight for row in rows])[0])
        return self.finished()

    def first_input(self) -> None:
        """An input of the style."""
        random = self.random
        rank = random.choices((1, 2, 3, 4, 0), (2, 5, 4, 3, 0.3))[0]
        pairs = [random.choice(self.style.sizes) for _ in range(rank)]
        while (
            torch.Size([a for a, _ in pairs]).numel() > MAX_INPUT
            or torch.Size([b for _, b in pairs]).numel() > MAX_INPUT
        ):
            pairs.pop()
        dtype = random.choices((self.style.dtype, random.choice(FLOATS), random.choice(SMALL_DTYPES)), (13, 2, 4))[0]
        fill = "normal" if dtype in FLOATS and random.random() < 0.6 else "integers"
        self.make([a for a, _ in pairs], [b for _, b in pairs], dtype, fill)

    def attempt(self, row: Row) -> bool:
        """Try a step of this row; whether it was added. A failed one leaves nothing."""
        inputs, replayed = len(self.inputs), len(self.replay.order)
        self.only_exact = row.needs_exact
        choice = row.choose(self, row.accepts)
        self.only_exact = False
        if choice is not None:
            step = self.step(row, choice)
            try:
                self.replay.push(step, self.style.grad)
            except Invalid:
                pass
            else:
                self.steps.append(step)
                return True
        if len(self.replay.order) != replayed or row.kind == "inplace":
            del self.inputs[inputs:]
            self.again()
        return False

    def step(self, row: Row, choice: Choice) -> Step:
        """The chosen arguments and random attributes."""
        attrs = {**{k: self.random.choice(values) for k, values in row.attrs.items()}, **choice.attrs}
        return Step(f"v{len(self.steps)}", row.name, choice.args, tuple(sorted(attrs.items())))

    def again(self) -> None:
        """Replay what was kept: a failed step may have changed a value."""
        self.replay = Replay()
        for spec in self.inputs:
            self.replay.add_input(spec)
        for step in self.steps:
            self.replay.push(step, self.style.grad)

    def finished(self) -> Graph:
        """Everything that nobody reads is a result, and sometimes more."""
        random = self.random
        used = {
            name for step in self.steps for name in step.args if ROWS[step.op].kind != "inplace" or step.args[0] != name
        }
        ends = [s.name for s in self.steps if s.name not in used]
        if not self.steps:
            ends = [self.inputs[0].name]
        if len(ends) > 8:
            ends = random.sample(ends[:-1], 7) + ends[-1:]
        if random.random() < 0.25 and self.steps:
            ends.append(random.choice([s.name for s in self.steps]))
        if random.random() < 0.08:
            ends.append(random.choice(self.inputs).name)
        outputs = tuple(name for name in ends if name[0] != "w")
        graph = Graph(self.seed, tuple(self.inputs), tuple(self.steps), outputs, self.style.dynamic)
        return graph if not graph.backward or backward_works(graph) else without_grad(graph)


def without_grad(graph: Graph) -> Graph:
    """The graph without gradients."""
    return replace(graph, inputs=tuple(replace(x, grad=False) for x in graph.inputs))


def backward_works(graph: Graph) -> bool:
    """Whether eager mode has the gradients: something needs them, and nothing that they need was overwritten."""
    try:
        results = [call(graph, model_of(graph), second) for second in (False, True)]
    except RuntimeError:
        return False
    return any(t is not None for r in results for t in r.grads)


def generate(seed: int) -> Graph:
    """The graph of a seed: always the same one."""
    return Builder(seed).build()
