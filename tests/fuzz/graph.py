"""A fuzzed function as data: inputs, steps, outputs. Frozen, made from one seed, printable (`script.py`)."""

from __future__ import annotations

from dataclasses import dataclass

Attr = int | float | bool | str | tuple[int, ...] | None


@dataclass(frozen=True)
class Input:
    """One argument.

    shape, second: sizes at the first and at the second call. dtype: of torch, by name. layout: a key of
    `script.LAYOUTS`. fill: "integers" (-limit to limit), "index" (0 to limit - 1) or "normal". seed: of its values.
    grad: gradients are asked for. parameter: belongs to the module, not to the call.
    """

    name: str
    shape: tuple[int, ...]
    second: tuple[int, ...]
    dtype: str = "float32"
    layout: str = "contiguous"
    fill: str = "normal"
    limit: int = 4
    seed: int = 0
    grad: bool = False
    parameter: bool = False


@dataclass(frozen=True)
class Step:
    """One operation: `name` is the result, `op` a row of the op table, `args` are names of inputs or earlier steps."""

    name: str
    op: str
    args: tuple[str, ...]
    attrs: tuple[tuple[str, Attr], ...] = ()


@dataclass(frozen=True)
class Graph:
    """dynamic: "static", "mark" (sizes that differ at the second call are marked), "all" (dynamic=True) or "auto"
    (the second call recompiles). outputs: names, also of inputs, also repeated."""

    seed: int
    inputs: tuple[Input, ...]
    steps: tuple[Step, ...]
    outputs: tuple[str, ...]
    dynamic: str = "static"

    @property
    def backward(self) -> bool:
        """Whether gradients are asked for."""
        return any(x.grad for x in self.inputs)

    @property
    def ops(self) -> tuple[str, ...]:
        """Names of the operations, each once."""
        return tuple(sorted({step.op for step in self.steps}))


def used_names(graph: Graph) -> set[str]:
    """Every name that a step or the result reads."""
    return {name for step in graph.steps for name in step.args} | set(graph.outputs)
