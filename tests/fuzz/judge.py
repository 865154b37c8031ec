"""Whether a compiled result is right: exact where every implementation is, else within a bound that is measured.

The bound of an element comes from runs of the same graph: eager against float64, and eager with every inexact value
multiplied by a number near 1 ("noise"), which is what another order of additions does. Where those runs do not differ,
a few units in the last place are allowed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch

from tests.fuzz.calls import Results, call, labels, model_of
from tests.fuzz.graph import Graph
from tests.fuzz.replay import MAX_ELEMENTS, Replay

Tensor = torch.Tensor

FACTOR = 8.0
ULPS = 4.0
#: For float64, whose reference is as eager computes it: a sum one after another is wrong by up to half a unit for each
#: element, always the same way where elements repeat, and no wider run or noise shows that.
ULPS_OF_DOUBLES = MAX_ELEMENTS / 2
#: Noise in units of the last place, each way.
NOISE_ULPS = 2.0
#: How much larger than all right numbers an error of eager's may be before it is taken for memory that nobody wrote.
ERRATIC = 1e6


def noise_of(seed: int) -> Callable[[Tensor], Tensor]:
    """A function that changes the last digits of floating-point values."""
    generator = torch.Generator().manual_seed(seed)

    def noise(value: Tensor) -> Tensor:
        if not value.is_floating_point():
            return value
        near = torch.rand(value.shape, generator=generator, dtype=torch.float64) * 2 - 1
        factor = 1 + near * (NOISE_ULPS * torch.finfo(value.dtype).eps)
        return (value.double() * factor).to(value.dtype)

    return noise


@dataclass
class Reference:
    """What one call of a graph should give. `tighten` adds noisy runs."""

    graph: Graph
    second: bool
    exact_steps: frozenset[str]
    exact: tuple[bool, ...]
    plain: Results
    wide: Results
    spread: list[Tensor | None]
    trials: int = 0

    def widen(self, trials: int) -> None:
        """Run `trials` more noisy runs and enlarge the spread by what they show."""
        for k in range(self.trials, self.trials + trials):
            noise = noise_of(1000 * k + self.second)
            try:
                model = model_of(self.graph, "noisy", self.exact_steps, noise=noise)
                noisy = call(self.graph, model, self.second, noise=noise)
            except RuntimeError:
                continue  # a view that the noise made impossible
            self._enlarge(noisy)
        self.trials += trials

    def erratic(self) -> frozenset[str]:
        """The subjects in which eager's runs are so far from float64 that no rounding explains it: oneDNN's gradient of
        the weights of a bf16 convolution, for one, reads memory that nobody wrote where all that a weight sees is
        padding."""
        rows = zip(labels(self.graph), self.wide.tensors(), self.spread, strict=True)
        return frozenset(
            label
            for label, wide, spread in rows
            if wide is not None and spread is not None and _largest(spread) > ERRATIC * max(_largest(wide), 1.0)
        )

    def of(self, results: Results) -> Reference:
        """The same call with these results as the right ones."""
        wide = Results(
            tuple(t.double() for t in results.outputs),
            tuple(t.double() for t in results.inputs),
            tuple(None if t is None else t.double() for t in results.grads),
            results.requires_grad,
            results.aliases,
        )
        spread = [
            s if s is None or w is None or s.shape == w.shape else torch.zeros_like(w)
            for s, w in zip(self.spread, wide.tensors(), strict=True)
        ]
        return replace(self, plain=results, wide=wide, spread=spread)

    def _enlarge(self, other: Results) -> None:
        for k, (a, w) in enumerate(zip(other.tensors(), self.wide.tensors(), strict=True)):
            spread = self.spread[k]
            if a is not None and w is not None and spread is not None and a.shape == w.shape:
                self.spread[k] = torch.maximum(spread, (a.double() - w.double()).abs())


def reference(graph: Graph, made: Replay, second: bool, trials: int = 3) -> Reference:
    """Eager, float64 and noisy runs of one call."""
    plain = call(graph, model_of(graph), second)
    old = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        wide = call(graph, model_of(graph, "wide"), second, wide=True)
    finally:
        torch.set_default_dtype(old)
    exact = [made.is_exact(name) for name in graph.outputs]
    exact += [made.is_exact(x.name) for x in graph.inputs if not x.parameter]
    spread: list[Tensor | None] = [None if w is None else torch.zeros_like(w).double() for w in wide.tensors()]
    exact += [False] * (len(spread) - len(exact))
    result = Reference(graph, second, frozenset(made.exact_steps), tuple(exact), plain, wide, spread)
    result._enlarge(plain)
    result.widen(trials)
    return result


def complaints(compiled: Results, ref: Reference) -> dict[str, str]:
    """What is wrong with the compiled results: subject (a result, "aliases", ...) -> one line."""
    graph, found = ref.graph, {}
    rows = zip(labels(graph), compiled.tensors(), ref.plain.tensors(), ref.wide.tensors(), strict=True)
    for k, (label, ours, eager, wide) in enumerate(rows):
        text = _complaint(ours, eager, wide, ref.spread[k], ref.exact[k], k < len(graph.outputs))
        if text is not None:
            found[label] = text
    if compiled.aliases != ref.plain.aliases:
        found["aliases"] = f"{_pairs(compiled.aliases)} instead of {_pairs(ref.plain.aliases)}"
    if compiled.requires_grad != ref.plain.requires_grad:
        found["requires_grad"] = f"{compiled.requires_grad} instead of {ref.plain.requires_grad}"
    return found


def _pairs(aliases: frozenset[tuple[int, int]]) -> list[tuple[int, int]]:
    return sorted(aliases)


def _complaint(
    ours: Tensor | None, eager: Tensor | None, wide: Tensor | None, spread: Tensor | None, exact: bool, output: bool
) -> str | None:
    if ours is None or eager is None:
        # A gradient of zeros and no gradient are the same to AOTAutograd.
        present = ours if ours is not None else eager
        return None if present is None or not present.any() else "there is a gradient on one side only"
    if ours.dtype != eager.dtype or ours.shape != eager.shape:
        return f"{ours.dtype} {tuple(ours.shape)} instead of {eager.dtype} {tuple(eager.shape)}"
    if output and _strides(ours) != _strides(eager):
        return f"strides {ours.stride()} instead of {eager.stride()} of {tuple(eager.shape)}"
    if exact or not eager.is_floating_point():
        wrong = ~((ours == eager) | ((ours != ours) & (eager != eager)))
        return _report(ours, eager, wrong, "exact") if bool(wrong.any()) else None
    assert wide is not None
    assert spread is not None
    return _inexact(ours, eager, wide.double(), spread)


def _inexact(ours: Tensor, eager: Tensor, wide: Tensor, spread: Tensor) -> str | None:
    finfo = torch.finfo(eager.dtype)
    ulps = ULPS_OF_DOUBLES if eager.dtype == torch.float64 else ULPS
    bound = FACTOR * _floored(spread) + ulps * finfo.eps * _floored(wide.abs()) + finfo.tiny
    judged = torch.isfinite(eager) & torch.isfinite(wide) & torch.isfinite(bound)
    near = (ours.double() - wide).abs() <= bound
    wrong = judged & ~near
    return _report(ours, eager, wrong, f"bound {bound[wrong].flatten()[:1].tolist()}") if bool(wrong.any()) else None


def _floored(x: Tensor) -> Tensor:
    """x, but at least its mean: where an operator cancels inside, noise around it shows nothing in that element."""
    finite = x[torch.isfinite(x)]
    return x.clamp(min=float(finite.mean())) if finite.numel() else x


def _largest(x: Tensor) -> float:
    """The largest magnitude of finite numbers."""
    finite = x[torch.isfinite(x)].double().abs()
    return float(finite.max()) if finite.numel() else 0.0


def _strides(x: Tensor) -> Sequence[int]:
    if x.numel() == 0:
        return ()
    return [s for s, n in zip(x.stride(), x.shape, strict=True) if n != 1]


def _report(ours: Tensor, eager: Tensor, wrong: Tensor, how: str) -> str:
    at = tuple(int(i) for i in wrong.nonzero()[0])
    count = f"{int(wrong.sum())} of {wrong.numel()}"
    first = f"first at {at}: {ours[at].item()} not {eager[at].item()} ({how})"
    return f"{count} elements of {tuple(ours.shape)} wrong, {first}"
