"""Facts about a kernel's values: what they read, where they can be computed, whether they differ between lanes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property

from inductor_cpu.codegen.orders import Lanes, Order, constant_masks, order_of, swaps
from inductor_cpu.codegen.rounding import Rounding
from inductor_cpu.codegen.tiles import Tile, find_tile
from inductor_cpu.errors import InternalError
from inductor_cpu.ir.index import Expr, Sym
from inductor_cpu.ir.kernel import Kernel
from inductor_cpu.ir.lane_order import lane_order
from inductor_cpu.ir.loop_nest import Index, Load, Reduce, Scalar, Scan, Store
from inductor_cpu.ir.ops import OPS
from inductor_cpu.ir.periodic import period
from inductor_cpu.ir.rewrite import loops_read, operands, value_positions

STAGE = "codegen"

#: Loads that repeat after at most so many elements read them from a table of the kernel's own.
LONGEST_PERIOD = 64


def size_of(symbol: Sym) -> Expr:
    """The size of a loop. Raises InternalError for a symbol without one."""
    if symbol.size is None:
        raise InternalError(STAGE, f"loop {symbol} has no size")
    return symbol.size


@dataclass(frozen=True)
class Facts:
    """Facts that follow from a kernel, from whether tiles are wanted, and from which loads may be read from a table of
    one period (repeated; None: all).

    A level is a number of open loops: a value of level d needs the first d loops (outer, then inner). Parallel loops
    but the last are opened together, so they share one level. The loop of a tile opens twice: by tiles at its own
    place, and by points inside all others, where the values belong."""

    kernel: Kernel
    tiling: bool = True
    repeated: frozenset[int] | None = None

    @cached_property
    def access(self) -> dict[int, str]:
        """How each load (by position) and store (by -1 - number) reaches memory."""
        return dict(self.kernel.vector.access)

    @cached_property
    def tile(self) -> Tile | None:
        """The tile that strided accesses go through."""
        return find_tile(self.kernel) if self.tiling else None

    @cached_property
    def depth(self) -> dict[Sym, int]:
        """The level that a loop opens."""
        rows = self.kernel.parallel - 1
        outer = {s: max(d, rows) if d <= rows else d for d, s in enumerate(self.kernel.outer, 1)}
        if self.tile is not None:
            outer[self.tile.loop] = self.outer_level + 1
        return outer | {s: d for d, s in enumerate(self.kernel.inner, self.outer_level + 1)}

    @property
    def outer_level(self) -> int:
        """The level of the body of the outer loops."""
        return len(self.kernel.outer)

    @property
    def inner_level(self) -> int:
        """The level of the innermost body."""
        return self.outer_level + (1 if self.tile is not None else len(self.kernel.inner))

    @cached_property
    def place_level(self) -> int:
        """The level at which the place of a point is known."""
        assert self.kernel.divided is not None
        place = self.kernel.divided.place
        loops = [self.depth[s] for s in place.symbols if s.kind == "loop"]
        return max([*loops, *(self.level[k] for k in value_positions((place,)))], default=0)

    @property
    def lists(self) -> bool:
        """Whether every point, or lane, has a place of its own: those that a thread owns are listed, then stored."""
        return self.kernel.divided is not None and self.place_level == self.outer_level

    @cached_property
    def loops_read(self) -> tuple[frozenset[Sym], ...]:
        """Loop symbols that each value depends on."""
        return loops_read(self.kernel.body, self.kernel.inner)

    @cached_property
    def level(self) -> tuple[int, ...]:
        """The level at which each value is computed."""
        levels: list[int] = []
        for k, instr in enumerate(self.kernel.body):
            own = max((self.depth[s] for s in self.loops_read[k]), default=0)
            own = max(own, *(levels[j] for j in operands(instr)), 0) if not isinstance(instr, Reduce) else own
            levels.append(max(own, self.outer_level) if isinstance(instr, Reduce) else own)
        return tuple(levels)

    @cached_property
    def varying(self) -> tuple[bool, ...]:
        """Whether each value differs between the lanes of a vector."""
        vector = self.kernel.vector.loop
        horizontal = vector in self.kernel.inner
        found: list[bool] = []
        for k, instr in enumerate(self.kernel.body):
            below = any(found[j] for j in operands(instr))
            if isinstance(instr, Load):
                below = (instr.mask is not None and found[instr.mask]) or self.load_access(k) != "uniform"
            elif isinstance(instr, Index):
                below = below or vector in instr.expr.symbols
            elif isinstance(instr, Scan):
                below = below or horizontal
            found.append(below and not (horizontal and isinstance(instr, Reduce)))
        return tuple(found)

    def load_access(self, position: int) -> str:
        """The access of a load, "ordered" if its lanes read neighbours in an order of their own; "uniform" for all
        loads of scalar code."""
        if self.kernel.vector.loop is None:
            return "uniform"
        if position not in self.access:
            raise InternalError(STAGE, f"{self.kernel.label}: the vector plan has no access for load %{position}")
        if position in self.orders:
            return "ordered"
        return self._aligned_access(position) if self.access[position] == "gather" else self.access[position]

    def instruction(self, access: int) -> Load | Store:
        """A load, by position, or the store number -1 - access."""
        instr = self.kernel.body[access] if access >= 0 else self.kernel.stores[-1 - access]
        assert isinstance(instr, (Load, Store))
        return instr

    def address(self, access: int) -> Expr:
        """The address of a load or store."""
        return self.instruction(access).index[0]

    def itemsize(self, access: int) -> int:
        """Bytes of an element that a load or store moves."""
        instr = self.instruction(access)
        return (self.kernel.body[instr.value] if isinstance(instr, Store) else instr).dtype.itemsize

    def _aligned_access(self, position: int) -> str:
        """A gather may be contiguous within vectors, which start at multiples of the lanes: a division by a multiple of
        the lanes is the same for all of them. Or a load may repeat with a short period: "periodic"."""
        loop, lanes = self.kernel.vector.loop, self.kernel.vector.lanes
        if position in self.periods:
            return "periodic"
        order = None if loop is None else lane_order(self.address(position), loop, lanes)
        return "contiguous" if order is not None and order.steps == tuple(range(lanes)) else "gather"

    @cached_property
    def constant_masks(self) -> dict[int, Lanes]:
        """Masks that are the same in every vector, by position."""
        return constant_masks(self.kernel)

    @cached_property
    def orders(self) -> dict[int, Order]:
        """Loads whose lanes read neighbours in an order that is the same in every vector."""
        far = {k: i for k, i in enumerate(self.kernel.body) if self.access.get(k) in ("gather", "strided")}
        found = {k: order_of(self.kernel, i, self.constant_masks) for k, i in far.items() if isinstance(i, Load)}
        return {k: order for k, order in found.items() if order is not None and k not in self.periods}

    @cached_property
    def swaps(self) -> dict[int, int]:
        """Loads among these whose lanes swap, in pairs, what another load reads: that load."""
        return swaps(self.kernel, self.orders, self.constant_masks)

    @cached_property
    def periods(self) -> dict[int, tuple[Expr, int]]:
        """Loads without a mask that repeat along the vectorized loop: (address of the first element, number)."""
        found: dict[int, tuple[Expr, int]] = {}
        loop, stored = self.kernel.vector.loop, {store.buffer for store in self.kernel.stores}
        for k, instr in enumerate(self.kernel.body):
            if loop is None or not isinstance(instr, Load) or self.access.get(k) != "gather":
                continue
            repeats = period(instr.index[0], loop)
            plain = instr.mask is None and instr.buffer not in stored
            wanted = self.repeated is None or k in self.repeated
            if plain and wanted and repeats is not None and repeats[1] <= LONGEST_PERIOD:
                found[k] = repeats
        return found

    def store_access(self, number: int) -> str:
        """The access of a store; "uniform" for all stores of scalar code."""
        return self.load_access(-1 - number)

    def only_moved(self, number: int) -> bool:
        """Whether a store writes neighbours as a load of the same points has read them, in a kernel that writes nothing
        of what it reads: then the store may read them itself. Not behind a store of something else: its buffer may have
        the place of one that dies in this kernel."""
        store, kernel = self.kernel.stores[number], self.kernel
        load = kernel.body[store.value]
        if not isinstance(load, Load) or load.mask is not None or store.mode != "set" or kernel.inner or self.tile:
            return False
        plain = self.load_access(store.value) == "contiguous" and kernel.product is None
        first = all(other.value == store.value for other in kernel.stores[:number])
        return plain and first and all(load.buffer != other.buffer for other in kernel.stores)

    def closure(self, roots: Iterable[int], stop: frozenset[int] = frozenset()) -> frozenset[int]:
        """The roots and every value they are computed from. Values in `stop` are included, their operands are not; nor
        are those of masks that are written as numbers."""
        found: set[int] = set()
        stop = stop.union(self.constant_masks)
        pending = list(roots)
        while pending:
            k = pending.pop()
            if k not in found:
                found.add(k)
                if k not in stop:
                    pending.extend(self._operands(k))
        return frozenset(found)

    def arithmetic(self, values: Iterable[int]) -> int:
        """Rough cost of values, in adds, without loads and reductions."""
        body = self.kernel.body
        return sum(OPS[instr.op].cost for instr in (body[k] for k in values) if isinstance(instr, Scalar))

    def _operands(self, position: int) -> tuple[int, ...]:
        """What is computed for a value: not the mask of a load that is turned over, nor one that is written as a
        number; the load whose lanes another one swaps."""
        instr = self.kernel.body[position]
        if position in self.swaps:
            return (self.swaps[position],)
        if isinstance(instr, Load) and position in self.orders and instr.mask in self.constant_masks:
            return operands(replace(instr, mask=None))
        if isinstance(instr, Scalar) and instr.op == "where" and instr.args[0] in self.constant_masks:
            return instr.args[1:]
        if isinstance(instr, Load) and self.tile is not None and position in self.tile.loads:
            instr = replace(instr, mask=None)
        return operands(instr)

    @cached_property
    def rounding(self) -> Rounding:
        """Where low-precision values are rounded."""
        return Rounding(self.kernel)
