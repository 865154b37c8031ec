"""Schedule -> ExecutionPlan: slots, registers and instructions for the executor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from inductor_cpu.codegen.alike import Function
from inductor_cpu.codegen.attention import pointers_of, score_pointers, score_sizes, sizes_of
from inductor_cpu.codegen.ranking import ranking_pointers, ranking_sizes
from inductor_cpu.codegen.starts import starts
from inductor_cpu.codegen.winograd import tile_pointers, tile_sizes
from inductor_cpu.errors import InternalError
from inductor_cpu.ir import plan as ep
from inductor_cpu.ir.index import Expr, Sym, product
from inductor_cpu.ir.kernel import CALLS, Kernel, Schedule, Scored, Step, Strips
from inductor_cpu.ir.loop_nest import Buffer, View
from inductor_cpu.ir.nodes import (
    Attention,
    AttentionBackward,
    Extern,
    Ranking,
    SizeBinding,
    Templated,
    TilePacking,
    WeightGradient,
)


def build_plan(schedule: Schedule, functions: Mapping[int, Function], redzone: int = 0) -> ep.ExecutionPlan:
    """The plan of a schedule. functions: of each step that is a kernel, by position. redzone: the bytes that the
    schedule keeps free around each buffer, which are then guarded."""
    return _PlanBuilder(schedule, functions, redzone).run()


class _PlanBuilder:
    def __init__(self, schedule: Schedule, functions: Mapping[int, Function], redzone: int) -> None:
        self.schedule, self.functions, self.redzone = schedule, functions, redzone
        self.program = schedule.program
        self.buffers: dict[str, Buffer] = self.program.buffer_table
        self.places = dict(schedule.places)
        self.instructions: list[ep.Instruction] = []
        self.register_count = 0
        self.registers: dict[Any, ep.Reg] = {}  # symbols, and (op, left, right) computed before
        self.slots: dict[Any, ep.Slot] = {}
        self.slot_count = 0

    def run(self) -> ep.ExecutionPlan:
        constants = tuple((self.new_slot(name), tensor) for name, tensor in self.program.constants.items())
        self.inputs()
        arena_bytes = self.integer(self.schedule.arena_bytes)
        arena_at = len(self.instructions)
        last_use = self.last_uses()
        guarded = guards(self.schedule) if self.redzone else {}
        for number, step in enumerate(self.schedule.steps):
            self.guard(guarded.get(number, ((), ()))[0])
            self.step(number, step)
            self.unguard(guarded.get(number, ((), ()))[1])
            dead = tuple(self.slots[name] for name in last_use.get(number, ()) if name in self.slots)
            if dead:
                self.instructions.append(ep.Free(dead))
        results = tuple(self.result(value) for value in self.program.results)
        return ep.ExecutionPlan(
            slots=self.slot_count,
            registers=self.register_count,
            arena_bytes=arena_bytes,
            arena_at=arena_at,
            constants=constants,
            instructions=tuple(self.instructions),
            results=results,
            redzone=self.redzone,
        )

    # -- stores ------------------------------------------------------------------------------------------------------
    def new_slot(self, name: str | None = None) -> ep.Slot:
        slot = ep.Slot(self.slot_count)
        self.slot_count += 1
        if name is not None:
            self.slots[name] = slot
        return slot

    def new_register(self, key: Any) -> ep.Reg:
        register = ep.Reg(self.register_count)
        self.register_count += 1
        self.registers[key] = register
        return register

    # -- inputs ------------------------------------------------------------------------------------------------------
    def inputs(self) -> None:
        for spec in self.program.inputs:
            if spec.buffer is not None:
                self.instructions.append(ep.LoadInput(self.new_slot(spec.buffer), spec.position))
            elif spec.symbol is not None and spec.symbol not in self.registers:  # a size may be passed twice
                self.instructions.append(ep.LoadInt(self.new_register(spec.symbol), spec.position))
        for binding in self.program.bindings:
            if self.buffers[binding.buffer].kind == "input":
                self.bind(binding)

    def bind(self, binding: SizeBinding) -> None:
        if binding.symbol in self.registers:
            return
        register = self.new_register(binding.symbol)
        kind = ep.SizeOf if binding.what == "size" else ep.StrideOf
        self.instructions.append(kind(register, self.slots[binding.buffer], binding.dim))

    # -- integers ----------------------------------------------------------------------------------------------------
    def integer(self, expr: Expr | int) -> ep.IntLike:
        """The value of a size expression: a constant, or a register with the instructions that compute it."""
        if isinstance(expr, int):
            return expr
        value = expr.as_int
        if value is not None:
            return value
        total: ep.IntLike = 0
        for monomial, coefficient in expr.terms:
            term: ep.IntLike = coefficient
            for atom in monomial:
                if isinstance(atom, Sym):
                    factor: ep.IntLike = self.symbol(atom)
                else:
                    factor = self.compute(atom.name, *(self.integer(arg) for arg in atom.args))
                term = self.compute("mul", term, factor)
            total = self.compute("add", total, term)
        return total

    def symbol(self, symbol: Sym) -> ep.Reg:
        if symbol not in self.registers:
            raise InternalError("codegen", f"the size {symbol} is not known where it is used in {self.program.name}")
        return self.registers[symbol]

    def compute(self, op: str, left: ep.IntLike, right: ep.IntLike) -> ep.IntLike:
        if (op == "mul" and left == 1) or (op == "add" and left == 0):
            return right
        if (op == "mul" and right == 1) or (op == "add" and right == 0):
            return left
        key = (op, left, right)
        if key not in self.registers:
            self.instructions.append(ep.Compute(self.new_register(key), op, left, right))
        return self.registers[key]

    def integers(self, exprs: tuple[Expr, ...]) -> tuple[ep.IntLike, ...]:
        return tuple(self.integer(expr) for expr in exprs)

    # -- steps -------------------------------------------------------------------------------------------------------
    def step(self, number: int, step: Step) -> None:
        if isinstance(step, (Kernel, Strips)):
            self.kernel(self.functions[number], step)
        elif isinstance(step, Scored):
            own = tuple(self.symbol(size) for size in score_sizes(step))
            ints = (*self.integers(sizes_of(step.attention, self.buffers)), *own)
            self.template(
                self.functions[number].symbol, step, (*pointers_of(step.attention), *score_pointers(step)), ints
            )
        elif isinstance(step, (Attention, AttentionBackward)):
            ints = self.integers(sizes_of(step, self.buffers))
            self.template(self.functions[number].symbol, step, pointers_of(step), ints)
        elif isinstance(step, Ranking):
            ints = self.integers(ranking_sizes(step))
            self.template(self.functions[number].symbol, step, ranking_pointers(step), ints)
        elif isinstance(step, (TilePacking, WeightGradient)):
            ints = self.integers(tile_sizes(step))
            self.template(self.functions[number].symbol, step, tile_pointers(step), ints)
        else:
            self.extern(step)

    def kernel(self, function: Function, kernel: Kernel | Strips) -> None:
        for arg in kernel.args:
            if arg.writes:
                self.allocate(self.buffers[arg.buffer])
        begins = zip(kernel.args, starts(kernel), strict=True)
        pointers = tuple(self.pointer(arg.buffer, start * arg.dtype.itemsize) for arg, start in begins)
        ints: list[ep.IntLike] = [self.symbol(size) for size in kernel.sizes]
        self.instructions.append(ep.KernelCall(function.symbol, kernel.label, pointers, (*ints, *function.ints)))

    def template(
        self, symbol: str, node: Templated | Scored, names: Sequence[str], ints: tuple[ep.IntLike, ...]
    ) -> None:
        for name in node.outputs:
            self.allocate(self.buffers[name])
        pointers = tuple(self.pointer(name) for name in names)
        self.instructions.append(ep.KernelCall(symbol, f"icpu_{node.name}", pointers, ints))

    def allocate(self, buffer: Buffer) -> None:
        """Outputs, and temps without a place, get memory of their own when they are first written."""
        if buffer.name in self.places or buffer.name in self.slots:
            return
        sizes, strides = self.integers(buffer.sizes), self.integers(buffer.strides)
        self.instructions.append(ep.Alloc(self.new_slot(buffer.name), buffer.dtype, sizes, strides, buffer.name))

    def guard(self, names: Sequence[str]) -> None:
        for name in names:
            buffer = self.buffers[name]
            size = self.integer(product(buffer.sizes) * buffer.dtype.itemsize)
            self.instructions.append(ep.Guard(name, self.integer(self.places[name].offset), size))

    def unguard(self, names: Sequence[str]) -> None:
        for name in names:
            self.instructions.append(ep.Unguard(self.integer(self.places[name].offset)))

    def pointer(self, name: str, offset: int = 0) -> ep.Slot | ep.SlotRef | ep.ArenaRef:
        """What points so many bytes behind the start of a buffer."""
        if name in self.places:
            return ep.ArenaRef(self.integer(self.places[name].offset + offset))
        return ep.SlotRef(self.slots[name], offset) if offset else self.slots[name]

    def extern(self, extern: Extern) -> None:
        args = self.argument(extern.args)
        kwargs = tuple((key, self.argument(value)) for key, value in extern.kwargs)
        ints = dict(extern.int_outputs)
        outputs: list[ep.Slot | ep.Reg | None] = []
        for position, name in enumerate(extern.outputs):
            if name is not None:
                outputs.append(self.new_slot(name))
            else:
                outputs.append(self.new_register(ints[position]) if position in ints else None)
        label = str(extern.target)
        self.instructions.append(ep.ExternCall(extern.target, args, kwargs, tuple(outputs), label, extern.reason))
        for name in extern.outputs:
            if name is not None:
                self.after_extern(self.buffers[name])

    def after_extern(self, buffer: Buffer) -> None:
        for binding in self.program.bindings:
            if binding.buffer == buffer.name:
                self.bind(binding)
        sizes, strides = self.integers(buffer.sizes), self.integers(buffer.strides)
        dtype = buffer.dtype if buffer.name in self.interpreted else None
        self.instructions.append(ep.Restride(self.slots[buffer.name], sizes, strides, dtype))

    @cached_property
    def interpreted(self) -> frozenset[str]:
        """Buffers that kernels or views read, who trust sizes, strides and dtype. Operators look for themselves."""
        found: set[str] = set()
        views = [value for value in self.program.results if isinstance(value, View)]
        for step in self.schedule.steps:
            if isinstance(step, (Kernel, Strips, *CALLS)):
                found |= buffers_of(step)
            else:
                views += views_of(step)
        return frozenset(found | {view.buffer for view in views if not view.is_whole(self.buffers[view.buffer])})

    def argument(self, value: Any) -> Any:
        """An extern argument with tensors as slots and sizes as ints or registers."""
        if isinstance(value, View):
            return self.tensor(value)
        if isinstance(value, Expr):
            return self.integer(value)
        if isinstance(value, tuple):
            return tuple(self.argument(item) for item in value)
        return value

    def tensor(self, view: View) -> ep.Slot:
        """A slot with the tensor that a view describes."""
        buffer = self.buffers[view.buffer]
        sizes, strides = self.integers(view.sizes), self.integers(view.strides)
        if view.buffer in self.places:
            key = ("arena view", view)
            if key not in self.slots:
                itemsize = buffer.dtype.itemsize
                offset = self.integer(self.places[view.buffer].offset + view.offset * itemsize)
                self.slots[key] = self.new_slot()
                self.instructions.append(ep.ArenaView(self.slots[key], offset, buffer.dtype, sizes, strides))
            return self.slots[key]
        base = self.slots[view.buffer]
        if view.is_whole(buffer):
            return base
        slot = self.new_slot()
        self.instructions.append(ep.StridedView(slot, base, sizes, strides, self.integer(view.offset)))
        return slot

    # -- the end -----------------------------------------------------------------------------------------------------
    def result(self, value: Any) -> Any:
        if isinstance(value, View):
            if self.buffers[value.buffer].kind == "output":
                self.allocate(self.buffers[value.buffer])
            return self.tensor(value)
        if isinstance(value, Expr):
            return self.integer(value)
        return value

    def last_uses(self) -> dict[int, list[str]]:
        """step -> buffers with a slot that no later step and no result needs."""
        kept = {value.buffer for value in self.program.results if isinstance(value, View)}
        kept |= set(self.program.constants)
        last: dict[str, int] = {}
        for number, step in enumerate(self.schedule.steps):
            for name in sorted(buffers_of(step)):
                last[name] = number
        table: dict[int, list[str]] = {}
        for name, number in last.items():
            if name not in kept and name not in self.places:
                table.setdefault(number, []).append(name)
        return table


def guards(schedule: Schedule) -> dict[int, tuple[list[str], list[str]]]:
    """step -> the buffers of the arena that live from this step, and those that die in it. One that takes the place of
    another in the same step only comes."""
    places = dict(schedule.places)
    lives: dict[str, list[int]] = {}
    for number, step in enumerate(schedule.steps):
        for name in sorted(buffers_of(step) & places.keys()):
            lives.setdefault(name, [number]).append(number)
    table: dict[int, tuple[list[str], list[str]]] = {}
    starts = {(places[name].offset, steps[0]) for name, steps in lives.items()}
    for name, steps in lives.items():
        table.setdefault(steps[0], ([], []))[0].append(name)
        end = steps[-1]
        if steps[0] == end or (places[name].offset, end) not in starts:
            table.setdefault(end, ([], []))[1].append(name)
    return table


def buffers_of(step: Step) -> set[str]:
    """Every buffer that a step touches."""
    if isinstance(step, (Kernel, Strips)):
        return {arg.buffer for arg in step.args}
    if isinstance(step, CALLS):
        return {*step.outputs, *step.reads}
    return {name for name in step.outputs if name is not None} | {view.buffer for view in views_of(step)}


def views_of(step: Extern) -> list[View]:
    """Every tensor among the arguments."""
    found: list[View] = []
    stack: list[Any] = [step.args, tuple(value for _, value in step.kwargs)]
    while stack:
        value = stack.pop()
        if isinstance(value, View):
            found.append(value)
        elif isinstance(value, tuple):
            stack.extend(value)
    return found
