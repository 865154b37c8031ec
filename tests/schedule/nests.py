"""Random flat loop nests with every kind of address, and what they mean: their points run one after another.

Values are small whole numbers in float32, so that sums do not depend on their order; what is written last does.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import torch

from inductor_cpu.ir.index import Expr, Sym, const, loop_var, of, size_symbol, value_symbol
from inductor_cpu.ir.kernel import Kernel
from inductor_cpu.ir.loop_nest import Buffer, Cast, Const, Instr, Load, LoopNest, Reduce, Scalar, Scan, Store
from inductor_cpu.ir.rewrite import prune, value_position

I64, F32, BOOL = torch.int64, torch.float32, torch.bool
#: Values of the index buffer are below this.
CHOICES = 6
MAX_POINTS = 2500
Point = dict[Sym, int]


@dataclass
class Case:
    """A nest, its buffers with their first contents by name, and the values of its sizes."""

    nest: LoopNest
    tensors: dict[str, torch.Tensor]
    sizes: dict[Sym, int]
    buffers: dict[str, Buffer] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, tensor in self.tensors.items():
            kind = "temp" if name.startswith("y") else "input"
            self.buffers[name] = Buffer(name, tensor.dtype, (const(tensor.numel()),), (const(1),), kind)


class Maker:
    """Makes one nest from a seed."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.sizes: dict[Sym, int] = {}
        self.body: list[Instr] = []
        self.tensors: dict[str, torch.Tensor] = {}
        self.dims = self._loops(self.rng.choice((1, 2, 2, 3)), "d")
        folds = self.rng.random() < 0.25
        self.folded = self._loops(1, "r") if folds else ()

    def _loops(self, count: int, name: str) -> tuple[Sym, ...]:
        found = []
        for k in range(count):
            size = self.rng.choice((1, 2, 3, 5, 8, 16, 17, 24, 32, 40))
            symbol = size_symbol(f"s{name}{k}", 0)
            dynamic = self.rng.random() < 0.2
            if dynamic:
                self.sizes[symbol] = size
            found.append(loop_var(f"{name}{k}", of(symbol) if dynamic else size))
        return tuple(found)

    @property
    def loops(self) -> tuple[Sym, ...]:
        return (*self.dims, *self.folded)

    def size(self, loop: Sym) -> int:
        assert loop.size is not None
        return loop.size.evaluate(self.sizes)

    def points(self) -> Iterator[Point]:
        """All points, in the order of the loops."""
        for values in itertools.product(*(range(self.size(loop)) for loop in self.loops)):
            yield dict(zip(self.loops, values, strict=True))

    # -- addresses ---------------------------------------------------------------------------------------------------
    def dense(self, loops: Sequence[Sym]) -> Expr:
        """Each point an element of its own: the loops as digits, in any order."""
        total, stride = const(0), const(1)
        for loop in self.rng.sample(list(loops), len(loops)):
            assert loop.size is not None
            total, stride = total + of(loop) * stride, stride * loop.size
        return total

    def address(self, loops: Sequence[Sym], chosen: Sequence[int]) -> Expr:
        """Any address: digits, overlaps, quotients and remainders, positions that are data."""
        kind = self.rng.choice(("dense", "dense", "affine", "folded", "chosen", "chosen", "rows"))
        if kind in ("dense", "rows") or (kind == "chosen" and not chosen):
            subset = [loop for loop in loops if kind == "dense" or self.rng.random() < 0.6]
            total = self.dense(subset)
            if kind == "rows" and chosen and subset:
                width = const(1)
                for loop in subset:
                    assert loop.size is not None
                    width = width * loop.size
                return total + of(value_symbol(self.rng.choice(chosen), CHOICES)) * width
            return total
        if kind == "chosen":
            total = of(value_symbol(self.rng.choice(chosen), CHOICES)) * self.rng.choice((1, 1, 4, 16, 40))
            return total + (self.affine(loops) if self.rng.random() < 0.6 else const(0))
        total = self.affine(loops)
        if kind == "folded" and loops:
            loop, by = of(self.rng.choice(loops)), self.rng.choice((2, 3, 8, 16))
            total = total + self.rng.choice((loop // by, loop % by)) * self.rng.choice((1, 2, 5, 16))
        return total

    def affine(self, loops: Sequence[Sym]) -> Expr:
        total = const(self.rng.choice((0, 0, 3)))
        for loop in loops:
            total = total + of(loop) * self.rng.choice((0, 1, 1, 2, 7, 16))
        return total

    def extent(self, address: Expr) -> int:
        """Elements that a buffer needs for an address, any choice of data included."""
        known: dict[Sym, int] = {s: CHOICES - 1 for s in address.symbols if s.kind == "value"}
        return 1 + max(address.evaluate({**self.sizes, **point, **known}) for point in self.points())

    # -- the nest ----------------------------------------------------------------------------------------------------
    def emit(self, instruction: Instr) -> int:
        self.body.append(instruction)
        return len(self.body) - 1

    def load(self, name: str, address: Expr, dtype: torch.dtype, mask: int | None = None) -> int:
        extent = self.extent(address)
        old = self.tensors.get(name)
        if old is None or old.numel() < extent:
            high = CHOICES if dtype == I64 else 2 if dtype == BOOL else 9
            self.tensors[name] = torch.tensor([self.rng.randrange(high) for _ in range(extent)]).to(dtype)
        return self.emit(Load(name, (address,), dtype, mask, 1))

    def make(self) -> Case | None:
        """The case, or None when it has too many points or breaks what nests promise."""
        count = 1
        for loop in self.loops:
            count *= self.size(loop)
        if count > MAX_POINTS:
            return None
        chosen = [self.load(f"k{n}", self.address(self.loops, ()), I64) for n in range(self.rng.choice((0, 1, 2)))]
        mask = self.load("m", self.address(self.loops, ()), BOOL) if self.rng.random() < 0.3 else None
        values = [
            self.load(f"x{n}", self.address(self.loops, chosen), F32, mask if self.rng.random() < 0.3 else None)
            for n in range(self.rng.choice((1, 2)))
        ]
        own = self.emit(Const(2.0, F32))
        for _ in range(self.rng.choice((0, 1, 2))):
            values.append(self.emit(Scalar("add", (self.rng.choice(values), self.rng.choice([*values, own])), F32)))
        store = self._fold(values[-1]) if self.folded else self._write(values, chosen, mask)
        if store is None:
            return None
        extent = self.extent(store.index[0])
        self.tensors["y"] = torch.tensor([float(self.rng.randrange(9)) for _ in range(extent)])
        body, stores = prune(self.body, (store,))
        return Case(LoopNest("nest", self.dims, self.folded, body, stores), self.tensors, self.sizes)

    def _fold(self, value: int) -> Store:
        """A reduction or a scan, stored once a point."""
        kind = self.rng.choice(("sum", "max", "argmax"))
        scans = self.rng.random() < 0.5
        folded = self.emit((Scan if scans else Reduce)(kind, value, I64 if kind == "argmax" else F32))
        folded = self.emit(Cast(folded, F32)) if kind == "argmax" else folded
        self.tensors["y"] = torch.zeros(1)
        return Store("y", (self.dense(self.loops if scans else self.dims),), folded)

    def _write(self, values: list[int], chosen: Sequence[int], mask: int | None) -> Store | None:
        """A store of any kind; perhaps of a buffer that the nest reads."""
        mode = self.rng.choice(("set", "set", "add"))
        address = self.address(self.dims, chosen)
        data = any(symbol.kind == "value" for symbol in address.symbols)
        if mode == "set" and not data and not self._injective(address):
            return None  # such a store writes each element once
        self.tensors["y"] = torch.zeros(self.extent(address))
        if mode == "set" and self.rng.random() < 0.3:
            read = address if self.rng.random() < 0.7 else self.dense(self.dims)
            if self.extent(read) > self.tensors["y"].numel():
                return None
            old = self.emit(Load("y", (read,), F32))
            values.append(self.emit(Scalar("add", (values[-1], old), F32)))
        return Store("y", (address,), values[-1], mode, mask if self.rng.random() < 0.5 else None)

    def _injective(self, address: Expr) -> bool:
        places = [address.evaluate({**self.sizes, **point}) for point in self.points()]
        return len(set(places)) == len(places)


def random_cases(seed: int, count: int) -> list[Case]:
    """Cases of consecutive seeds; the name of a nest's first buffer tells nothing, `seed + k` repeats the k-th try."""
    found: list[Case] = []
    for attempt in itertools.count():
        case = Maker(seed * 1000 + attempt).make()
        if case is not None:
            found.append(case)
        if len(found) == count:
            return found
    raise AssertionError


# -- meaning ---------------------------------------------------------------------------------------------------------
def run_points(case: Case) -> dict[str, list[float]]:
    """The contents of every buffer after all points, one after another."""
    memory = {name: tensor.tolist() for name, tensor in case.tensors.items()}
    dims, folded = case.nest.dims, case.nest.reduce_dims
    for outer in _points(dims, case.sizes):
        states: dict[int, list[float]] = {}
        late = [s for s in case.nest.stores if not _is_scanned(case, s)] if folded else []
        values: dict[int, float] = {}
        for inner in _points(folded, case.sizes):
            point = {**case.sizes, **outer, **inner}
            values = _values(case.nest.body, point, memory, states)
            for store in case.nest.stores:
                if store not in late:
                    _store(store, point, values, memory)
        for store in late:
            _store(store, {**case.sizes, **outer}, values, memory)
    return memory


def _points(loops: Sequence[Sym], sizes: Mapping[Sym, int]) -> Iterator[Point]:
    ranges = [range(loop.size.evaluate(sizes)) for loop in loops if loop.size is not None]
    for values in itertools.product(*ranges):
        yield dict(zip(loops, values, strict=True))


def _is_scanned(case: Case, store: Store) -> bool:
    return bool(store.index[0].symbols & set(case.nest.reduce_dims))


def _values(
    body: Sequence[Instr], point: Point, memory: Mapping[str, list[float]], states: dict[int, list[float]]
) -> dict[int, float]:
    values: dict[int, float] = {}
    for k, instr in enumerate(body):
        if isinstance(instr, Const):
            values[k] = instr.value
        elif isinstance(instr, Load):
            shown = instr.mask is None or values[instr.mask]
            values[k] = memory[instr.buffer][_at(instr.index[0], point, values)] if shown else instr.fill
        elif isinstance(instr, Scalar):
            values[k] = values[instr.args[0]] + values[instr.args[1]]
        elif isinstance(instr, (Reduce, Scan)):
            seen = states.setdefault(k, [])
            seen.append(values[instr.arg])
            last = len(seen) - 1 - seen[::-1].index(max(seen)) if isinstance(instr, Scan) else seen.index(max(seen))
            values[k] = {"sum": sum(seen), "max": max(seen), "argmax": last}[instr.kind]
        elif isinstance(instr, Cast):
            values[k] = values[instr.arg]
    return values


def _at(address: Expr, point: Point, values: Mapping[int, float]) -> int:
    data = {s: int(values[value_position(s)]) for s in address.symbols if s.kind == "value"}
    return address.evaluate({**point, **data})


def _store(store: Store, point: Point, values: Mapping[int, float], memory: dict[str, list[float]]) -> None:
    if store.mask is not None and not values[store.mask]:
        return
    place = _at(store.index[0], point, values)
    old = memory[store.buffer][place] if store.mode == "add" else 0
    memory[store.buffer][place] = old + values[store.value]


#: Threads of the model.
OWNERS = 3


def run_lanes(kernel: Kernel, case: Case) -> dict[str, list[float]]:
    """The same for a kernel without inner loops, as vectors and threads run it: all lanes compute before the first of
    them stores, and what threads share runs backwards: pieces, owners, points of loops."""
    memory = {name: tensor.tolist() for name, tensor in case.tensors.items()}
    steps = _steps(kernel, case.sizes)
    if kernel.across is not None:
        for some in reversed(steps[-1]):
            _run(kernel, case, [*steps[:-1], [some]], memory)
    elif kernel.divided is None:
        _run(kernel, case, steps, memory)
    elif (pieces := kernel.divided.pieces.evaluate(case.sizes)) > 1:
        name, count = kernel.stores[0].buffer, len(steps[0])
        copies = [memory[name], *([0.0] * len(memory[name]) for _ in range(1, pieces))]
        for k in reversed(range(pieces)):
            piece = [steps[0][count * k // pieces : count * (k + 1) // pieces], *steps[1:]]
            _run(kernel, case, piece, {**memory, name: copies[k]})
        memory[name] = [sum(values) for values in zip(*copies, strict=True)]
    else:
        for owner in reversed(range(OWNERS)):
            _run(kernel, case, steps, memory, owner)
    return memory


def _steps(kernel: Kernel, sizes: Mapping[Sym, int]) -> list[list[Point]]:
    """For each loop, the first point of each of its steps."""
    found: list[list[Point]] = []
    for k, loop in enumerate(kernel.outer):
        assert loop.size is not None
        step = kernel.vector.lanes if loop == kernel.vector.loop else 1
        starts = list(range(0, loop.size.evaluate(sizes), step))
        found.append([{loop: start} for start in (starts[::-1] if k < kernel.parallel else starts)])
    return found


def _run(
    kernel: Kernel, case: Case, steps: list[list[Point]], memory: dict[str, list[float]], owner: int | None = None
) -> None:
    """All steps; of the points of a divided kernel those that one of the threads owns."""
    vector = kernel.vector.loop
    for parts in itertools.product(*steps):
        first = {loop: start for part in parts for loop, start in part.items()}
        points = [{**case.sizes, **first}]
        if vector is not None:
            assert vector.size is not None
            count = min(kernel.vector.lanes, vector.size.evaluate(case.sizes) - first[vector])
            points = [{**points[0], vector: first[vector] + lane} for lane in range(count)]
        values = [_values(kernel.body, point, memory, {}) for point in points]
        for store in kernel.stores:
            for point, own in zip(points, values, strict=True):
                if owner is None or _owner(kernel, point, own) == owner:
                    _store(store, point, own, memory)


def _owner(kernel: Kernel, point: Point, values: Mapping[int, float]) -> int:
    assert kernel.divided is not None
    return _at(kernel.divided.place, point, values) % OWNERS
