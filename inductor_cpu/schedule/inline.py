"""Vertical fusion of pointwise nests: a producer's body takes the place of the loads of its result.

Legality and profit are separate: `illegal` gives the reason why a producer cannot be inlined anywhere, `unprofitable`
why it should not be.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from inductor_cpu.ir.index import ZERO, Expr, Sym, of
from inductor_cpu.ir.loop_nest import Cast, Const, Instr, Load, LoopNest, Scalar
from inductor_cpu.ir.nodes import Extern, Node, Program
from inductor_cpu.ir.rewrite import Copier, Editor, loops_read, may_fail, prune
from inductor_cpu.schedule.cost import arithmetic_cost, loads_of, lookup_cost, points
from inductor_cpu.schedule.flat import stride_hint
from inductor_cpu.schedule.lifetimes import Lifetimes
from inductor_cpu.schedule.uses import readers, reads_of, result_buffers, writers

#: A body never grows beyond this by inlining: the compiler and the register file have limits.
MAX_BODY = 160
#: Arithmetic per point that may be done again instead of stored and loaded.
CHEAP = 3
#: Extra arithmetic per element of the producer that a consumer which reads it several times may cost.
REPEAT_BUDGET = 8
#: The same with its loads, where it may be cheap: a kernel more for a short operand has to pay.
LOADS_BUDGET = 4096


@dataclass(frozen=True)
class Inlined:
    """The nodes that are left, and a line for each producer that was kept apart, with the reason."""

    nodes: tuple[Node, ...]
    notes: tuple[str, ...]


def inline_producers(program: Program, nodes: Sequence[Node]) -> Inlined:
    """Inline every pointwise producer for which it is legal and pays."""
    return _Inliner(program, nodes).run()


class _Inliner:
    def __init__(self, program: Program, nodes: Sequence[Node]) -> None:
        self.program, self.nodes = program, nodes
        self.results = result_buffers(program)
        self.readers, self.writers = readers(nodes), writers(nodes)
        self.order = {id(node): k for k, node in enumerate(nodes)}
        self.mutations = self._mutations()
        self.lifetimes = Lifetimes(program, nodes)
        self.producers: dict[str, LoopNest] = {}  # buffer -> the rewritten nest that computes it
        self.notes: list[str] = []

    def _mutations(self) -> dict[str, list[int]]:
        """buffer -> positions of its writes, for buffers written more than once or written after being inputs."""
        found: dict[str, list[int]] = {}
        for name, nodes in self.writers.items():
            if len(nodes) > 1 or self.program.buffer(name).kind in ("input", "constant"):
                found[name] = [self.order[id(node)] for node in nodes]
        return found

    def run(self) -> Inlined:
        kept: list[Node] = []
        for node in self.nodes:
            if not isinstance(node, LoopNest):
                kept.append(node)
                continue
            nest = self._rewrite(node)
            if self._inlinable(node, nest):
                self.producers[nest.stores[0].buffer] = nest
            else:
                kept.append(nest)
        return Inlined(tuple(kept), tuple(self.notes))

    def _inlinable(self, original: LoopNest, nest: LoopNest) -> bool:
        reason = self._illegal(original, nest) or self._unprofitable(original, nest)
        if reason:
            self.notes.append(f"{nest.name} ({', '.join(nest.origins)}) is not inlined: {reason}")
        return reason is None

    # -- legality ----------------------------------------------------------------------------------------------------
    def _illegal(self, original: LoopNest, nest: LoopNest) -> str | None:
        if nest.reduce_dims:
            return "it is a reduction"
        if not is_whole_store(nest):
            return "it does not store one whole buffer in place order"
        name = nest.stores[0].buffer
        buffer = self.program.buffer(name)
        if buffer.kind != "temp" or name in self.results:
            return f"{name} is needed in memory ({buffer.kind})"
        if len(self.writers[name]) > 1:
            return f"{name} has several writers"
        if any(self.program.buffer(read).kind == "accumulator" for read in reads_of(nest)):
            return "it is the epilogue of a matrix product"
        for reader in self.readers[name]:
            if not isinstance(reader, LoopNest):
                return f"{name} is an argument of {reader.target if isinstance(reader, Extern) else reader.name}"
            if name in {store.buffer for store in reader.stores}:
                return f"{reader.name} updates {name} in place"
            masked = any(isinstance(i, Load) and i.buffer == name and i.mask is not None for i in reader.body)
            if masked and any(may_fail(nest.body, i) for i in nest.body):
                return f"{reader.name} reads it under a mask, where its checks must not run"
        return self._hazard(original, nest)

    def _hazard(self, original: LoopNest, nest: LoopNest) -> str | None:
        """A buffer that the body reads must not change between the producer and its last reader."""
        last = max((self.order[id(r)] for r in self.readers[nest.stores[0].buffer]), default=-1)
        for name in reads_of(nest):
            if any(self.order[id(original)] < position <= last for position in self.mutations.get(name, ())):
                return f"{name} changes before the last use"
        return None

    # -- profit ------------------------------------------------------------------------------------------------------
    def _unprofitable(self, original: LoopNest, nest: LoopNest) -> str | None:
        name = nest.stores[0].buffer
        users = [node for node in self.readers[name] if isinstance(node, LoopNest)]
        if len(nest.body) > MAX_BODY:
            return f"its body has {len(nest.body)} instructions"
        arithmetic, loads = arithmetic_cost(nest.body) + lookup_cost(nest.body), loads_of(nest.body)
        if loads == 0 and arithmetic <= CHEAP:
            return None
        size = max(points(nest.dims), 1)
        if arithmetic > CHEAP or loads > 1:
            repeats = max((self._evaluations(user, name) / size for user in users), default=1.0)
            again = arithmetic * (repeats - 1) if arithmetic > CHEAP else 0
            if again > REPEAT_BUDGET or (arithmetic + loads - 1) * (repeats - 1) > LOADS_BUDGET:
                return f"{repeats:.1f} evaluations an element cost more than a store and loads"
        if len(users) > 1 and (loads > 1 or arithmetic > CHEAP):
            return f"{len(users)} nests read it"
        if any(_adds(user) and len(users) > 1 for user in users):
            return "a scatter reads it"
        first, last = self.order[id(original)], max((self.order[id(user)] for user in users), default=-1)
        waits = last > first and self.lifetimes.passes_call(first, last)
        if waits and self.lifetimes.too_many_wait(reads_of(nest), nest.dims, last):
            return "its operands would stay in memory until then"
        return None

    def _evaluations(self, user: LoopNest, name: str) -> float:
        """How often a consumer would evaluate the producer: points of the loops down to the last one that its loads
        depend on, in memory order, because loops can only be left out from the inside."""
        store = user.stores[0]
        strides = self.program.buffer(store.buffer).strides
        address = sum((i * s for i, s in zip(store.index, strides, strict=True)), ZERO)
        loops = (*sorted(user.dims, key=lambda d: -stride_hint(address, d)), *user.reduce_dims)
        total, dependent = 0.0, loops_read(user.body, ())
        for position, instruction in enumerate(user.body):
            if isinstance(instruction, Load) and instruction.buffer == name:
                depth = max((k for k, loop in enumerate(loops) if loop in dependent[position]), default=-1)
                total += points(loops[: depth + 1])
        return total

    # -- rewriting ---------------------------------------------------------------------------------------------------
    def _rewrite(self, nest: LoopNest) -> LoopNest:
        """The nest with the loads of inlined producers replaced by their bodies."""
        if not any(isinstance(i, Load) and i.buffer in self.producers for i in nest.body):
            return nest
        editor = Editor()
        copier = Copier(editor, nest.body, {})
        for position, instruction in enumerate(nest.body):
            if isinstance(instruction, Load) and instruction.buffer in self.producers:
                copier.values[position] = self._expand(editor, copier, instruction)
            else:
                copier.run((position,))
        stores = tuple(copier.store(store) for store in nest.stores)
        body, stores = prune(editor.instructions, stores)
        origins = dict.fromkeys(nest.origins)
        for instruction in nest.body:
            if isinstance(instruction, Load) and instruction.buffer in self.producers:
                origins.update(dict.fromkeys(self.producers[instruction.buffer].origins))
        return replace(nest, body=body, stores=stores, origins=tuple(origins))

    def _expand(self, editor: Editor, outer: Copier, load: Load) -> int:
        producer = self.producers[load.buffer]
        at = tuple(map(outer.index, load.index))
        dims: dict[Sym, Expr] = dict(zip(producer.dims, at, strict=True))
        mask = None if load.mask is None else outer.values[load.mask]
        copier = Copier(editor, producer.body, dims, mask)
        root = producer.stores[0].value
        copier.run((root,))
        value = copier.values[root]
        if mask is None or _is_filled(editor.instructions, value, mask, load.fill):
            return value
        dtype = editor.instructions[value].dtype
        fill = editor.emit(Const(load.fill, dtype))
        return editor.emit(Scalar("where", (mask, value, fill), dtype))


def _is_filled(body: Sequence[Instr], value: int, mask: int, fill: float) -> bool:
    """Whether a value is a load, or a conversion of one, that gives this number where the mask is off."""
    instruction = body[value]
    while isinstance(instruction, Cast):
        instruction = body[instruction.arg]
    if not isinstance(instruction, Load) or instruction.mask != mask:
        return False
    return instruction.fill == fill and math.copysign(1, instruction.fill) == math.copysign(1, fill)


def is_whole_store(nest: LoopNest) -> bool:
    """One plain store whose index is exactly the nest's dims, so that each element is written once."""
    if len(nest.stores) != 1 or nest.stores[0].mode != "set" or nest.stores[0].mask is not None:
        return False
    return all(
        expr == (ZERO if dim.size == 1 else of(dim)) for expr, dim in zip(nest.stores[0].index, nest.dims, strict=False)
    ) and len(nest.stores[0].index) == len(nest.dims)


def _adds(nest: LoopNest) -> bool:
    """Whether a nest adds to what is in a buffer."""
    return any(store.mode == "add" for store in nest.stores)
