"""Seeded random functions of tensors: plans of small steps that are replayed on eager or on traced tensors.

Two kinds. "exact": values stay small integers, so that results do not depend on the order of sums and are compared bit
by bit. "smooth": exp, softmax, layer norm and divisions, compared with a tolerance.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F

Tensor = torch.Tensor
Step = Callable[[list[Tensor]], Tensor]

MAX_ELEMENTS = 3000


@dataclass
class Plan:
    """inputs; steps: each makes one more value of all values so far; returned, mutated: value numbers to return, and
    (input, value) pairs that are copied at the end."""

    inputs: list[Tensor]
    steps: list[Step] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    returned: list[int] = field(default_factory=list)
    mutated: list[tuple[int, int]] = field(default_factory=list)

    def __call__(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        values = list(inputs)
        for step in self.steps:
            values.append(step(values))
        for target, source in self.mutated:
            values[target].copy_(values[source])
        return tuple(values[k] for k in self.returned)


def _clamp(x: Tensor) -> Tensor:
    return x if x.dtype == torch.bool else x.clamp(-8, 8)


def _number(x: Tensor) -> Tensor:
    return x.to(torch.float32) if x.dtype == torch.bool else x


def _floating(x: Tensor) -> Tensor:
    return x if x.dtype.is_floating_point else x.to(torch.float32)


class Generator:
    """Builds a plan step by step while running it on real tensors, which tells the shapes."""

    def __init__(self, seed: int, exact: bool, dynamic: bool) -> None:
        self.rng = random.Random(seed)
        torch.manual_seed(seed)
        self.exact, self.dynamic = exact, dynamic
        self.sizes = self.rng.choice([(2, 3, 4), (3, 5), (4, 8), (2, 4, 6, 1), (1, 3, 0), (2, 17), (6, 1)])
        if dynamic:
            self.sizes = tuple(s for s in self.sizes if s > 1) or (3, 4)
        self.values: list[Tensor] = []
        self.plan = Plan([])

    # -- inputs ------------------------------------------------------------------------------------------------------
    def build(self) -> Plan:
        rng = self.rng
        for _ in range(rng.randint(1, 4)):
            self.plan.inputs.append(self.input())
        self.values = list(self.plan.inputs)
        for _ in range(rng.randint(3, 25)):
            self.step()
        first = len(self.plan.inputs)
        made = range(first, len(self.values))
        self.plan.returned = sorted({len(self.values) - 1, *rng.sample(made, min(len(made), rng.randint(1, 4)))})
        if rng.random() < 0.4:
            self.mutations()
        return self.plan

    def input(self) -> Tensor:
        rng = self.rng
        shape = [rng.choice(self.sizes) for _ in range(rng.randint(1, 4))]
        while torch.Size(shape).numel() > 600:
            shape.pop()
        if len(shape) == 2 and rng.random() < 0.2 and not self.dynamic:
            shape[rng.randrange(2)] = 1
        kinds = [torch.float32] * 5 + [torch.bfloat16, torch.int64, torch.bool, torch.float64, torch.int32]
        dtype = rng.choice(kinds) if self.exact else rng.choice([torch.float32, torch.float32, torch.bfloat16])
        if self.exact or not dtype.is_floating_point:
            x = torch.randint(-4, 5, shape).to(dtype)
        else:
            x = torch.randn(shape).to(dtype)
        layout = rng.random()
        if len(shape) == 4 and layout < 0.5:
            return x.contiguous(memory_format=torch.channels_last)
        if len(shape) >= 2 and layout > 0.8:
            order = rng.sample(range(len(shape)), len(shape))
            inverse = [order.index(d) for d in range(len(shape))]
            return x.permute(order).contiguous().permute(inverse)
        return x

    def mutations(self) -> None:
        rng = self.rng
        for target in rng.sample(range(len(self.plan.inputs)), rng.randint(1, len(self.plan.inputs))):
            own = self.plan.inputs[target]
            fits = [k for k in range(len(self.plan.inputs), len(self.values)) if self.fits(self.values[k], own)]
            if fits:
                self.plan.mutated.append((target, rng.choice(fits)))
            elif own.dtype != torch.bool:
                self.add("increment", lambda v, t=target: v[t] + 1)
                self.plan.mutated.append((target, len(self.values) - 1))

    @staticmethod
    def fits(source: Tensor, target: Tensor) -> bool:
        return source.shape == target.shape

    # -- steps -------------------------------------------------------------------------------------------------------
    def add(self, name: str, step: Step) -> bool:
        """Append a step if it runs and its result is not too large."""
        try:
            value = step(self.values)
        except (RuntimeError, IndexError, ValueError):
            return False
        if value.numel() > MAX_ELEMENTS or value.ndim > 5:
            return False
        self.values.append(value)
        self.plan.steps.append(step)
        self.plan.names.append(f"{name} -> {tuple(value.shape)} {value.dtype}")
        return True

    def pick(self) -> int:
        """A value, late ones more often."""
        last = len(self.values) - 1
        return last if self.rng.random() < 0.4 else self.rng.randint(0, last)

    def partner(self, k: int) -> int:
        """A value that broadcasts with value k."""
        for _ in range(12):
            other = self.rng.randrange(len(self.values))
            try:
                torch.broadcast_shapes(self.values[k].shape, self.values[other].shape)
            except RuntimeError:
                continue
            return other
        return k

    def step(self) -> None:
        families = [self.unary] * 3 + [self.binary] * 6 + [self.view] * 5 + [self.reduce] * 5 + [self.cast]
        families += [self.indexed] if self.exact else [self.pattern] * 4
        for _ in range(10):
            if self.rng.choice(families)():
                return

    def unary(self) -> bool:
        k = self.pick()
        exact: dict[str, Callable[[Tensor], Tensor]] = {
            "neg": lambda x: -_number(x),
            "abs": lambda x: _number(x).abs(),
            "relu": lambda x: torch.relu(_number(x)),
            "shift": lambda x: _clamp(_number(x) + 3),
            "zeros": lambda x: torch.zeros_like(x),
            "clone": lambda x: x.clone(),
        }
        smooth: dict[str, Callable[[Tensor], Tensor]] = {
            "tanh": torch.tanh,
            "sigmoid": torch.sigmoid,
            "exp": lambda x: torch.exp(-x.abs()),
            "gelu": F.gelu,
            "half": lambda x: x * 0.5,
        }
        name, function = self.rng.choice(list((exact if self.exact else {**smooth, "relu": torch.relu}).items()))
        return self.add(f"{name} {k}", lambda v: function(v[k]))

    def binary(self) -> bool:
        k = self.pick()
        other = self.partner(k)
        table: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
            "add": lambda a, b: _clamp(_number(a) + _number(b)),
            "sub": lambda a, b: _clamp(_number(a) - _number(b)),
            "mul": lambda a, b: _clamp(_number(a) * _number(b)),
        }
        if self.exact:
            table["max"] = lambda a, b: torch.maximum(_number(a), _number(b))
            table["lt"] = lambda a, b: a < b
            table["where"] = lambda a, b: torch.where(_number(a) < 1, _number(a), _number(b))
        name, function = self.rng.choice(list(table.items()))
        return self.add(f"{name} {k} {other}", lambda v: function(v[k], v[other]))

    def view(self) -> bool:
        k, rng = self.pick(), self.rng
        x = self.values[k]
        if x.ndim == 0:
            return self.add(f"unsqueeze {k}", lambda v: v[k].unsqueeze(0))
        d, e = rng.randrange(x.ndim), rng.randrange(x.ndim)
        size = x.shape[d]
        start = rng.randint(0, 1)
        table: dict[str, Step] = {
            "transpose": lambda v: v[k].transpose(d, e),
            "unsqueeze": lambda v: v[k].unsqueeze(d),
            "slice": lambda v: v[k].narrow(d, start, v[k].shape[d] - start),
            "step": lambda v: v[k][(slice(None),) * d + (slice(start, None, 2),)],
            "flip": lambda v: v[k].flip(d),
            "cat": lambda v: torch.cat([v[k], v[k] if start else v[k].flip(d)], d),
            "pad": lambda v: F.pad(v[k], (0, 0) * (x.ndim - 1 - d) + (start, 1), value=2.0 if not self.exact else 1),
            "select": lambda v: v[k].select(d, 0),
            "flatten": lambda v: v[k].flatten(min(d, e), max(d, e)),
            "grow": lambda v: v[k].unsqueeze(d).expand(*v[k].shape[:d], 2, *v[k].shape[d:]),
        }
        if not self.dynamic:
            table["split"] = lambda v: v[k].unflatten(d, (2, size // 2))
            table["reshape"] = lambda v: v[k].reshape(-1)
            table["reshape2"] = lambda v: v[k].reshape(2, -1)
            table["roll"] = lambda v: torch.roll(v[k], 1, d)
        name = rng.choice(list(table))
        return self.add(f"{name} {k} d{d} e{e} s{start}", table[name])

    def reduce(self) -> bool:
        k, rng = self.pick(), self.rng
        x = self.values[k]
        if x.ndim == 0:
            return False
        dims = sorted(rng.sample(range(x.ndim), rng.randint(1, x.ndim)))
        keep = rng.random() < 0.6
        d = dims[0]
        table: dict[str, Step] = {
            "sum": lambda v: _clamp(_number(v[k]).sum(dims, keepdim=keep)),
            "amax": lambda v: _number(v[k]).amax(dims, keepdim=keep),
        }
        if self.exact:
            table["argmax"] = lambda v: _number(v[k]).argmax(d, keepdim=keep).clamp(0, 8)
            table["argmin"] = lambda v: _number(v[k]).argmin().clamp(0, 8)
            table["any"] = lambda v: (v[k] != 0).any(d, keepdim=keep)
            table["max"] = lambda v: _clamp(torch.max(_number(v[k]), d, keepdim=keep)[1])
        else:
            table["mean"] = lambda v: v[k].mean(dims, keepdim=keep)
            table["var"] = lambda v: v[k].var(dims, keepdim=keep, correction=0).clamp(-8, 8)
            table["logsumexp"] = lambda v: torch.logsumexp(v[k], dims, keepdim=keep)
        name = rng.choice(list(table))
        return self.add(f"{name} {k} {dims} {keep}", table[name])

    def cast(self) -> bool:
        k = self.pick()
        if self.exact:
            kinds: Sequence[torch.dtype] = (torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.int32)
        else:
            kinds = (torch.float32, torch.bfloat16, torch.float32)
        dtype = self.rng.choice(kinds)
        return self.add(f"to {dtype} {k}", lambda v: v[k].to(dtype))

    def indexed(self) -> bool:
        k, other = self.pick(), self.pick()
        x = self.values[k]
        if x.ndim == 0 or x.numel() == 0:
            return False
        d = self.rng.randrange(x.ndim)
        size = x.shape[d] if not self.dynamic else 2

        def select(v: list[Tensor]) -> Tensor:
            index = v[other].to(torch.int64).flatten() % size
            return v[k].index_select(d, index)

        def gather(v: list[Tensor]) -> Tensor:
            return v[k].gather(d, v[k].to(torch.int64) % size)

        def index_add(v: list[Tensor]) -> Tensor:
            index = v[other].to(torch.int64).flatten() % size
            return _clamp(_number(v[k]).index_add(d, index, _number(v[k]).index_select(d, index)))

        name, step = self.rng.choice([("index_select", select), ("gather", gather), ("index_add", index_add)])
        return self.add(f"{name} {k} {other} d{d}", step)

    def pattern(self) -> bool:
        k, rng = self.pick(), self.rng
        x = self.values[k]
        if x.ndim == 0:
            return False
        d = rng.randrange(x.ndim)
        table: dict[str, Step] = {
            "softmax": lambda v: torch.softmax(v[k], d),
            "log_softmax": lambda v: torch.log_softmax(v[k], d).clamp(-8, 8),
            "center": lambda v: v[k] - v[k].mean(d, keepdim=True),
            "rms": lambda v: v[k] * torch.rsqrt((v[k] * v[k]).mean(d, keepdim=True) + 1),
            "norm": lambda v: F.layer_norm(v[k], v[k].shape[-1:], eps=0.1),
        }
        name = rng.choice(list(table))
        return self.add(f"{name} {k} d{d}", table[name])


def plan_of(seed: int) -> tuple[Plan, bool, bool]:
    """(plan, whether it is exact, whether to trace it with symbolic sizes)."""
    rng = random.Random(seed * 7919 + 1)
    exact, dynamic = rng.random() < 0.6, rng.random() < 0.3
    return Generator(seed, exact, dynamic).build(), exact, dynamic


def describe(plan: Plan) -> str:
    """The plan as text."""
    lines: list[Any] = [f"{k}: input {tuple(x.shape)} {x.dtype} {x.stride()}" for k, x in enumerate(plan.inputs)]
    lines += [f"{k + len(plan.inputs)}: {name}" for k, name in enumerate(plan.names)]
    return "\n".join([*lines, f"returned {plan.returned}, copied {plan.mutated}"])
