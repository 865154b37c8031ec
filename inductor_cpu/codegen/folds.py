"""Reductions and scans: their accumulators, what is added to them, and what becomes of them."""

from __future__ import annotations

from contextlib import ExitStack
from functools import cached_property

import torch

from inductor_cpu.codegen.analysis import STAGE, Facts, size_of
from inductor_cpu.codegen.cxx import NARROW, SCALAR
from inductor_cpu.codegen.text import Writer
from inductor_cpu.codegen.tuning import cascade_needed
from inductor_cpu.codegen.values import Values
from inductor_cpu.errors import InternalError
from inductor_cpu.ir.index import INT32, ONE, Expr, Sym, const, of, within
from inductor_cpu.ir.kernel import Phase
from inductor_cpu.ir.loop_nest import Index, Reduce, Scan

#: The accumulator of each reduction.
ACCUMULATOR: dict[str, str] = {
    "sum": "Sum",
    "prod": "Prod",
    "max": "Max",
    "min": "Min",
    "fmax": "NumberMax",
    "any": "Any",
    "all": "All",
    "argmax": "ArgMax",
    "argmin": "ArgMin",
}

#: The state of each scan.
RUNNING: dict[str, str] = {
    "sum": "RunningSum",
    "prod": "RunningProd",
    "max": "RunningMax",
    "min": "RunningMin",
    "argmax": "RunningMax",
    "argmin": "RunningMin",
    "logaddexp": "RunningLogAddExp",
}

#: Rows of so many elements find an argmax block by block: a block is an eighth of them, or less.
LONG_ROW = 8192


def _gives_position(kind: str) -> bool:
    """Whether a reduction or scan gives a place, not a value."""
    return kind in ("argmax", "argmin")


class Folds:
    """Writes the reductions and scans of one kernel: accumulators `acc<position>`, states `scan<position>_<phase>`."""

    def __init__(self, facts: Facts, values: Values, writer: Writer, alternates: bool) -> None:
        """alternates: whether the loops have blocks of several units (`alternating.py`)."""
        self.facts, self.kernel, self.values, self.writer = facts, facts.kernel, values, writer
        self._alternates = alternates
        self.horizontal = self.kernel.vector.loop in self.kernel.inner

    def reduce(self, position: int) -> Reduce:
        """The reduction at a position of the body."""
        instr = self.kernel.body[position]
        if not isinstance(instr, Reduce):
            raise InternalError(STAGE, f"{self.kernel.label}: %{position} is not a reduction")
        return instr

    # -- reductions --------------------------------------------------------------------------------------------------
    @cached_property
    def _held(self) -> dict[int, int]:
        """Maxima and minima that the argmax or argmin of the same values holds anyway, which runs with them."""
        found: dict[int, int] = {}
        for phase in self.kernel.phases:
            folds = {k: self.reduce(k) for k in phase.reduces}
            places = {(f.arg, f.kind.removeprefix("arg")): k for k, f in folds.items() if _gives_position(f.kind)}
            found |= {k: places[f.arg, f.kind] for k, f in folds.items() if (f.arg, f.kind) in places}
        return found

    def carried(self, phase: Phase) -> tuple[int, ...]:
        """The sums of a phase that go by parts, if its loop, which is over vectors, says where these end."""
        if not self.horizontal or self.kernel.inner[-1] != self.kernel.vector.loop:
            return ()
        return tuple(k for k in phase.reduces if self._cascades(k))

    def open_stretches(
        self, loop: Sym, vectors: int, carried: tuple[int, ...], stack: ExitStack
    ) -> tuple[str, str | None]:
        """Open the stretches of a phase's loop over vectors, after each of which sums carry, if any do. vectors: as
        many as a round has. Returns the bounds that are left for the loop."""
        if loop != self.kernel.vector.loop or not carried:
            return "0", None
        sums = "".join(f", acc{k}" for k in carried)
        head = f"icpu::in_stretches<{vectors}>(0, {self.values.expr(size_of(loop))}, "
        head += "[&](const int64_t from, const int64_t to) ICPU_INLINE"
        stack.enter_context(self.writer.block(head, f"}}{sums});"))
        return "from", "to"

    def declare(self, position: int, unroll: int, *, carried: bool) -> None:
        """The accumulators of a reduction, one for each part of the loop. carried: whether it is a sum by parts that
        the loop ends."""
        if position in self._held:
            return
        name, element = self._accumulator(position)
        name = "icpu::CarriedSum" if carried else name
        copies = f"[{unroll}]" if unroll > 1 else ""
        if not self._lanes_differ(position):
            self.writer.line(f"{name}<{element}> acc{position};")
        elif self.horizontal:
            self.writer.line(f"{name}<icpu::value_t<{element}>> acc{position}{copies};")
        else:
            self.writer.line(f"auto acc{position} = icpu::accumulator<{name}, {element}>(lanes);")

    def add(self, position: int, unroll: int) -> None:
        """Add what the reduction folds at a point or a vector."""
        if position in self._held:
            return
        reduce = self.reduce(position)
        vector = self._lanes_differ(position)
        arguments = [self.values.operand(reduce.arg, vector=vector)]
        if _gives_position(reduce.kind):
            arguments.append(self.values.index(Index(self._flat_position(), self._position_type), vector=vector))
        if self.horizontal:
            arguments.append("lanes")
        if self._alternates and self.horizontal:
            part = ", part" if unroll > 1 else ""
            self.writer.line(f"icpu::add_units(acc{position}{part}, {', '.join(arguments)});")
            return
        part = "[part]" if unroll > 1 else ""
        self.writer.line(f"acc{position}{part}.add({', '.join(arguments)});")

    def decided(self, phase: Phase) -> str | None:
        """When a phase may stop early: when the rest can change none of its results. Errors must still be found."""
        folds = phase.reduces and all(self.reduce(k).kind in ("any", "all") for k in phase.reduces)
        if not folds or not self.horizontal or phase.stores or self.values.needs_status:
            return None
        return " && ".join(f"icpu::decided(acc{k})" for k in phase.reduces)

    def searching(self, phase: Phase, needed: frozenset[int], unroll: int) -> tuple[int, ...]:
        """The reductions of a phase that first finds the block of a long row that has an argmax or argmin, then its
        place; none for others. The values of that block are computed twice, so nothing may depend on how often."""
        folds = [self.reduce(k).kind for k in phase.reduces]
        if unroll == 1 or not self.horizontal or len(self.kernel.inner) > 1 or phase.stores:
            return ()
        if not any(map(_gives_position, folds)) or any(isinstance(self.kernel.body[k], Scan) for k in needed):
            return ()
        size = size_of(self.kernel.inner[0]).as_int
        if size is None or size < LONG_ROW:
            return ()
        return tuple(k for k in phase.reduces if k not in self._held)

    def finish(self, position: int) -> None:
        """Write the reduction's value, after its loops."""
        reduce = self.reduce(position)
        if position in self._held:
            holder = f"acc{self._held[position]}"
            text = f"icpu::extreme({holder})" if self.horizontal else f"{holder}.value"
        else:
            text = f"icpu::total(acc{position})" if self.horizontal else f"acc{position}.result()"
        if reduce.dtype in NARROW:
            kind = SCALAR[reduce.dtype]
            text = f"icpu::wrap<{kind}>({text})" if self.facts.varying[position] else f"{kind}({text})"
        self.values.define(position, text)

    def _accumulator(self, position: int) -> tuple[str, str]:
        """(class, element type) of a reduction's accumulator."""
        reduce = self.reduce(position)
        dtype = self.kernel.body[reduce.arg].dtype
        name = ACCUMULATOR[reduce.kind]
        if self._cascades(position):
            name = "CascadeSum"
        if _gives_position(reduce.kind) and self._position_type == torch.int32:
            name += "32"
        return f"icpu::{name}", SCALAR[dtype]

    def _cascades(self, position: int) -> bool:
        """Whether a reduction is a sum of so many terms that it goes by parts."""
        reduce = self.reduce(position)
        dtype = self.kernel.body[reduce.arg].dtype
        return reduce.kind == "sum" and cascade_needed(self.facts, dtype, self._lanes_differ(position))

    def _lanes_differ(self, position: int) -> bool:
        """Whether the accumulator is a vector."""
        return self.horizontal or self.facts.varying[position]

    @property
    def _position_type(self) -> torch.dtype:
        """What holds the positions of argmax and argmin while they are folded."""
        return torch.int32 if within(self._flat_position(), *INT32) else torch.int64

    def _flat_position(self) -> Expr:
        place, stride = const(0), ONE
        for loop in reversed(self.kernel.inner):
            place, stride = place + of(loop) * stride, stride * size_of(loop)
        return place

    # -- scans -------------------------------------------------------------------------------------------------------
    def declare_scan(self, position: int, phase: int) -> None:
        """The state of a scan, which each phase that needs it runs anew; nothing for other values."""
        scan = self.kernel.body[position]
        if not isinstance(scan, Scan):
            return
        element, name = SCALAR[self.kernel.body[scan.arg].dtype], f"icpu::{RUNNING[scan.kind]}"
        state = f"scan{position}_{phase}"
        if self.horizontal:
            kind = f"icpu::PrefixSum<{element}>" if scan.kind == "sum" else f"icpu::InOrder<{name}<{element}>>"
            self.writer.line(f"{kind} {state};")
        elif self.facts.varying[position]:
            self.writer.line(f"auto {state} = icpu::accumulator<{name}, {element}>(lanes);")
        else:
            self.writer.line(f"{name}<{element}> {state};")

    def scan(self, position: int, phase: int) -> None:
        """Write the value of a scan at a point or a vector."""
        scan = self.kernel.body[position]
        assert isinstance(scan, Scan)
        vector = self.facts.varying[position]
        arguments = [self.values.operand(scan.arg, vector=vector)]
        if _gives_position(scan.kind):
            place = self._flat_position()
            by_lane = vector and not self.horizontal
            arguments.append(self.values.lanes_index(place) if by_lane else self.values.expr(place))
        if self.horizontal:
            arguments.append("lanes")
        self.values.define(position, f"scan{position}_{phase}.next({', '.join(arguments)})")
