"""Lower a function and compare the interpreted program with eager.

`check(fn, *inputs)` traces fn as AOTAutograd would (functional ATen ops, our decompositions), lowers the graph, runs
the program in the reference interpreter and compares values, dtypes, shapes and strides. By default every op must have
had a rule: an extern call that the test does not name is a failure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils import _pytree as pytree

from inductor_cpu.graph.decompositions import decompositions
from inductor_cpu.graph.fake_strides import strides_of_eager
from inductor_cpu.ir.interpret import run
from inductor_cpu.ir.nodes import Extern, Program
from inductor_cpu.lower.graph import lower_graph
from inductor_cpu.lower.rules import RULES

DECOMPOSITIONS = decompositions(RULES)

#: Relative and absolute tolerance by dtype for results that need not be bit-equal: about one unit in the last place.
TOLERANCE: dict[torch.dtype, tuple[float, float]] = {
    torch.float32: (2e-6, 1e-6),
    torch.float64: (1e-12, 1e-12),
    torch.bfloat16: (8e-3, 1e-5),
    torch.float16: (1e-3, 1e-5),
}


def trace(fn: Callable[..., Any], *inputs: Any, dynamic: bool = False) -> torch.fx.GraphModule:
    """The functional ATen graph of fn."""
    functional = torch.func.functionalize(lambda *args: fn(*args), remove="mutations")
    mode = "symbolic" if dynamic else "fake"
    with strides_of_eager():
        graph = make_fx(functional, decomposition_table=DECOMPOSITIONS, tracing_mode=mode)(*inputs)
    graph.graph.eliminate_dead_code()
    return graph


def lower(fn: Callable[..., Any], *inputs: Any, dynamic: bool = False) -> Program:
    """The program of fn."""
    return lower_graph(trace(fn, *inputs, dynamic=dynamic), "test")


def externs(program: Program) -> list[str]:
    """The operators that the program calls, without their namespaces."""
    return [str(node.target).split(".", 1)[1] for node in program.nodes if isinstance(node, Extern)]


def fresh(inputs: Sequence[Any]) -> list[Any]:
    """Copies of the inputs with the same strides."""
    return [_copy(x) if isinstance(x, torch.Tensor) else x for x in inputs]


def _copy(x: torch.Tensor) -> torch.Tensor:
    whole = torch.empty(x.untyped_storage().nbytes() // x.element_size(), dtype=x.dtype)
    whole.copy_(torch.as_strided(x, whole.shape, (1,), 0))
    return torch.as_strided(whole, x.shape, x.stride(), x.storage_offset())


def check(
    fn: Callable[..., Any],
    *inputs: Any,
    dynamic: bool = False,
    exact: bool = True,
    calls: Sequence[str] = (),
    seed: int | None = None,
) -> Program:
    """Compare fn with its program. exact: bit-equal (NaN equals NaN); calls: the extern calls it makes, in order."""
    program = lower(fn, *fresh(inputs), dynamic=dynamic)
    assert externs(program) == list(calls), [(n.target, n.reason) for n in program.nodes if isinstance(n, Extern)]
    eager_inputs, own_inputs = fresh(inputs), fresh(inputs)
    if seed is not None:
        torch.manual_seed(seed)
    expected = fn(*eager_inputs)
    if seed is not None:
        torch.manual_seed(seed)
    actual = run(program, own_inputs)
    leaves = pytree.tree_leaves(expected)
    assert len(actual) == len(leaves)
    for number, (have, want) in enumerate(zip(actual, leaves, strict=True)):
        same(have, want, exact, f"result {number}")
    for number, (have, want) in enumerate(zip(own_inputs, eager_inputs, strict=True)):
        same(have, want, exact, f"input {number} after the call")
    return program


def same(actual: Any, expected: Any, exact: bool, what: str) -> None:
    """Assert that two results are equal, in all that a caller can see."""
    if not isinstance(expected, torch.Tensor):
        assert actual == expected, what
        return
    assert actual.dtype == expected.dtype, f"{what}: {actual.dtype}, eager {expected.dtype}"
    assert actual.shape == expected.shape, f"{what}: {actual.shape}, eager {expected.shape}"
    for size, have, want in zip(expected.shape, actual.stride(), expected.stride(), strict=True):
        assert size <= 1 or expected.numel() == 0 or have == want, f"{what}: {actual.stride()}, {expected.stride()}"
    rtol, atol = (0.0, 0.0) if exact else TOLERANCE.get(expected.dtype, (0.0, 0.0))
    torch.testing.assert_close(actual, expected, rtol=rtol, atol=atol, equal_nan=True, msg=lambda m: f"{what}: {m}")
