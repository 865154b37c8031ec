"""What the tests of semantics share: everything a caller can see of one call, in eager mode and compiled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree

from inductor_cpu.trace import CompileReport
from tests.e2e.support import compile_counted

Tensor = torch.Tensor
Function = Callable[..., Any]

SEED = 11


@dataclass
class Outcome:
    """One call: its arguments after it, its results, the gradients of leaf arguments, the next random numbers."""

    arguments: Any
    results: Any
    error: Exception | None
    gradients: list[Tensor | None]
    random_state: Tensor


def observe(function: Function, make: Callable[[], Sequence[Any]], backward: bool, calls: int) -> Outcome:
    """Call `function` `calls` times with the arguments of one `make()`, from a fixed seed; the last results count."""
    torch.manual_seed(SEED)
    arguments = tuple(make())
    results, error = None, None
    try:
        for _ in range(calls):
            results = function(*arguments)
        if backward:
            differentiate(results)
    except Exception as raised:
        error = raised
    leaves = tensors(arguments)
    gradients = [x.grad if x.is_leaf else None for x in leaves]
    return Outcome(arguments, results, error, gradients, torch.get_rng_state())


def differentiate(results: Any) -> None:
    """Backward from a loss that weighs every element of every differentiable result differently."""
    outputs = [x for x in tensors(results) if x.requires_grad]
    losses = [(x * torch.linspace(0.5, 1.5, x.numel()).reshape(x.shape)).sum() for x in outputs]
    torch.stack([loss.to(torch.float64) for loss in losses]).sum().backward()  # type: ignore[no-untyped-call]


def tensors(tree: Any) -> list[Tensor]:
    """The tensors of a nested container, in order."""
    return [x for x in pytree.tree_leaves(tree) if isinstance(x, torch.Tensor)]


def check(
    function: Function,
    make: Callable[[], Sequence[Any]],
    *,
    backward: bool = False,
    calls: int = 1,
    compiled: bool = True,
    tolerance: float = 2e-6,
    **options: Any,
) -> list[CompileReport]:
    """Compare a compiled call with eager's in all that a caller can see.

    make: new arguments, drawn from a fixed seed. backward: also the gradients. compiled: some graph must have been
    compiled, and none may run in eager mode. options: of torch.compile. Returns the reports of the graphs.
    """
    expected = observe(function, make, backward, calls)
    torch._dynamo.reset()
    run, reports = compile_counted(function, **options)
    actual = observe(run, make, backward, calls)
    same_outcome(actual, expected, tolerance)
    if compiled:
        assert reports, "nothing was compiled"
        whole = [note for report in reports for note in report.notes if "eager mode" in note]
        assert not whole, whole
    return reports


def same_outcome(actual: Outcome, expected: Outcome, tolerance: float = 2e-6) -> None:
    """Assert that two calls look the same to the caller."""
    if expected.error is not None or actual.error is not None:
        if expected.error is None:
            raise AssertionError("eager mode has no error") from actual.error
        assert actual.error is not None, f"no error; eager mode raises {expected.error!r}"
        assert isinstance(actual.error, type(expected.error)), f"{actual.error!r}, eager mode raises {expected.error!r}"
    else:
        same_tree(actual.results, expected.results, tolerance, "result")
    same_tree(actual.arguments, expected.arguments, tolerance, "argument")
    for number, (have, want) in enumerate(zip(actual.gradients, expected.gradients, strict=True)):
        assert (have is None) == (want is None), f"gradient {number}: {have}, eager {want}"
        if have is not None and want is not None:
            same_tensor(have, want, tolerance, f"gradient {number}")
    assert aliases(actual) == aliases(expected), f"aliases {aliases(actual)}, eager {aliases(expected)}"
    assert torch.equal(actual.random_state, expected.random_state), "the generator is elsewhere"


def same_tree(actual: Any, expected: Any, tolerance: float, what: str) -> None:
    """Assert equal structure, types and leaves."""
    have, have_spec = pytree.tree_flatten(actual)
    want, want_spec = pytree.tree_flatten(expected)
    assert have_spec == want_spec, f"{what}: {have_spec}, eager {want_spec}"
    for number, (a, e) in enumerate(zip(have, want, strict=True)):
        if isinstance(e, torch.Tensor):
            same_tensor(a, e, tolerance, f"{what} {number}")
        else:
            assert type(a) is type(e), f"{what} {number}: {type(a)}, eager {type(e)}"
            assert a is e or a == e or (a != a and e != e), f"{what} {number}: {a!r}, eager {e!r}"


def same_tensor(actual: Tensor, expected: Tensor, tolerance: float, what: str) -> None:
    """Assert that two tensors agree in values and in every property that programs ask for."""
    for name in ("dtype", "shape", "requires_grad", "is_leaf", "layout", "device"):
        have, want = getattr(actual, name), getattr(expected, name)
        assert have == want, f"{what}: {name} {have}, eager {want}"
    assert type(actual) is type(expected), f"{what}: {type(actual)}, eager {type(expected)}"
    have, want = strides(actual), strides(expected)
    assert have == want, f"{what}: strides {actual.stride()}, eager {expected.stride()}"
    for name in ("is_conj", "is_neg", "is_inference"):
        have, want = getattr(actual, name)(), getattr(expected, name)()
        assert have == want, f"{what}: {name} {have}, eager {want}"
    loose = {torch.bfloat16: 2e-2, torch.float16: 4e-3}.get(expected.dtype, 0.0)
    limit = max(tolerance, loose) if expected.dtype.is_floating_point or expected.dtype.is_complex else 0.0
    with torch.no_grad():
        torch.testing.assert_close(
            actual, expected, rtol=limit, atol=limit, equal_nan=True, msg=lambda text: f"{what}: {text}"
        )


def strides(x: Tensor) -> list[int]:
    """The strides that mean something: of dimensions with more than one element. Fake tensors get the others wrong."""
    return [stride for size, stride in zip(x.shape, x.stride(), strict=True) if size > 1 and x.numel()]


def aliases(outcome: Outcome) -> list[tuple[int, int, int, bool]]:
    """The pairs of tensors, among arguments and results, in one storage: their distance, and if they are one object."""
    found = tensors(outcome.arguments) + tensors(outcome.results)
    found = [x for x in found if x.layout is torch.strided]
    return [
        (i, j, b.storage_offset() - a.storage_offset() if a.numel() and b.numel() else 0, a is b)
        for i, a in enumerate(found)
        for j, b in enumerate(found[i + 1 :], i + 1)
        if torch._C._is_alias_of(a, b)
    ]
