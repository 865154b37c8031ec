"""Random kernels that compute with positions: integers near the ends of 32 bits, what they are compared with and
converted to."""

from __future__ import annotations

import random
from dataclasses import replace

import torch

from inductor_cpu.ir.index import Expr, loop_var, of
from inductor_cpu.ir.interpret_loops import run_kernel
from inductor_cpu.ir.kernel import Kernel
from inductor_cpu.ir.loop_nest import LoopNest
from inductor_cpu.ir.verify import verify_kernel
from inductor_cpu.schedule.narrow import narrow_positions
from tests.codegen.build import BF16, BOOL, F32, F64, I16, I32, I64, U8, Build

ROWS, COLUMNS = 3, 37
I, J = loop_var("i", ROWS), loop_var("j", COLUMNS)
PLACE = of(I) * COLUMNS + of(J)

#: Numbers around which 32 bits end, or begin to.
EDGES = (2**31 - 1, 2**31, -(2**31), -(2**31) - 1, 2**31 - COLUMNS, COLUMNS - 2**31, 2**30, -(2**30), 2**33)
SMALL = (0, 1, -1, 2, 7, -100, 1000)
DIVISORS = (1, 2, 3, 7, 16, 64, 1000, 2**31 - 1, 2**31, -3)
OPS = ("add", "sub", "sub", "mul", "maximum", "minimum", "bitwise_and", "neg", "abs", "sign", "relu", "where")
DIVISIONS = ("remainder", "fmod", "floordiv", "truncdiv")
COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
LOADED = (I32, I16, U8, BOOL, I64)


class Maker:
    """One kernel from a seed. Its sources are index expressions, numbers and loaded integers."""

    def __init__(self, seed: int) -> None:
        self.rng, self.b = random.Random(seed), Build()
        self.ints: list[int] = []
        self.bools: list[int] = []

    def number(self) -> int:
        return self.rng.choice(EDGES if self.rng.random() < 0.4 else SMALL)

    def expr(self) -> Expr:
        """Linear, folded by a quotient or a remainder, or bounded."""
        low = self.rng.choice((-1, 1)) * self.rng.choice((1, 1, 2, 2**20, 2**29))
        total = of(J) * low + of(I) * self.rng.choice((0, 1, -1, COLUMNS)) + self.number()
        kind = self.rng.choice(("linear", "linear", "linear", "//", "%"))
        if kind == "linear":
            return total
        inside = PLACE * self.rng.choice((1, 3)) + abs(self.number())
        by = self.rng.choice((2, 5, 16, 40, 1000))
        return (inside // by if kind == "//" else inside % by) * self.rng.choice((1, -1)) + self.rng.choice(SMALL)

    def source(self) -> int:
        kind = self.rng.choice(("index", "index", "index", "const", "load"))
        if kind == "index":
            return self.b.index(self.expr())
        if kind == "const":
            return self.b.const(self.number(), I64)
        dtype = self.rng.choice(LOADED)
        place = self.rng.choice((PLACE, of(J), of(I)))
        access = "uniform" if place == of(I) else "contiguous"
        loaded = self.b.load(f"x_{dtype}".replace("torch.", ""), place, dtype, access)
        return loaded if dtype == I64 else self.b.cast(loaded, I64)

    def op(self) -> int:
        name = self.rng.choice((*OPS, *DIVISIONS))
        if name in DIVISIONS:
            return self.b.op(name, self.rng.choice(self.ints), self.b.const(self.rng.choice(DIVISORS), I64))
        count = 1 if name in ("neg", "abs", "sign", "relu") else 2
        args = [self.rng.choice(self.ints) for _ in range(count)]
        return self.b.op(name, self.rng.choice(self.bools), *args) if name == "where" else self.b.op(name, *args)

    def make(self, isa: str = "avx512") -> Kernel:
        """Every comparison and conversion is stored, now and then an integer itself."""
        self.ints = [self.source() for _ in range(self.rng.randint(2, 4))]
        self.bools = [self._compared()]
        for _ in range(self.rng.randint(0, 4)):
            self.ints.append(self.op())
            if self.rng.random() < 0.4:
                self.bools.append(self._compared())
        for _ in range(self.rng.randint(1, 3)):
            value = self._compared() if self.rng.random() < 0.5 else self._converted()
            self.b.store(f"y{len(self.b.stores)}", PLACE, value)
        if self.rng.random() < 0.15:
            self.b.store("wide", PLACE, self.rng.choice(self.ints))
        return self.b.kernel(isa, (I, J), vector=J)

    def _compared(self) -> int:
        return self.b.op(self.rng.choice(COMPARISONS), self.rng.choice(self.ints), self.rng.choice(self.ints))

    def _converted(self) -> int:
        return self.b.cast(self.rng.choice(self.ints), self.rng.choice((F32, F32, F64, BF16, I32, I16, U8, BOOL)))


def narrowed(kernel: Kernel) -> Kernel:
    """The kernel with its positions in 32 bits, verified."""
    nest = LoopNest("nest", kernel.outer, kernel.inner, kernel.body, kernel.stores)
    nest, vector = narrow_positions(nest, kernel.vector)
    found = replace(kernel, body=nest.body, stores=nest.stores, vector=vector)
    verify_kernel(found)
    return found


def is_narrowed(kernel: Kernel) -> bool:
    """Whether narrowing changes a kernel."""
    return narrowed(kernel).body != kernel.body


def inputs_of(kernel: Kernel, seed: int) -> dict[str, torch.Tensor]:
    """Contents of the buffers: integers of all sizes, the ends of each dtype among them."""
    generator = torch.Generator().manual_seed(seed)
    found: dict[str, torch.Tensor] = {}
    for arg in kernel.args:
        x = torch.zeros(ROWS * COLUMNS, dtype=arg.dtype)
        if arg.reads and arg.dtype == BOOL:
            x = torch.rand(x.shape, generator=generator) < 0.5
        elif arg.reads:
            info = torch.iinfo(arg.dtype)
            edges = [n for n in EDGES if info.min <= n <= info.max]
            few = torch.tensor([info.min, info.min + 1, -1 if info.min else 3, 0, 1, 5, info.max - 1, info.max, *edges])
            x = few[torch.randint(len(few), x.shape, generator=generator)].to(arg.dtype)
        found[arg.buffer] = x
    return found


def results(kernel: Kernel, inputs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """What the interpreter writes."""
    buffers = {name: x.clone() for name, x in inputs.items()}
    run_kernel(kernel, buffers, {})
    return {arg.buffer: buffers[arg.buffer] for arg in kernel.args if arg.writes}
