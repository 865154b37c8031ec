"""What a dump's `repro.py` calls: one graph in eager mode, with icpu and with the interpreter, compared."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch.fx.experimental.proxy_tensor import make_fx

from inductor_cpu import config
from inductor_cpu.errors import IcpuError
from inductor_cpu.pipeline import Kind, compile_graph
from inductor_cpu.trace import Trace

SEED = 0


def strided_tensor(sizes: Sequence[int], strides: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """Random numbers in a layout. Vectors are positive, for they may be variances; integers are 0 or 1, for they may be
    indices."""
    length = 1 + sum((n - 1) * s for n, s in zip(sizes, strides, strict=True)) if all(sizes) else 0
    if dtype.is_floating_point or dtype.is_complex:
        data = torch.randn(length) if len(sizes) > 1 else torch.rand(length)
    else:
        data = torch.randint(0, 2, (length,))
    return torch.as_strided(data.to(dtype), tuple(sizes), tuple(strides))


def main(
    graph: torch.nn.Module, inputs: Sequence[Any], *, kind: Kind, static_inputs: Sequence[int], options: dict[str, Any]
) -> int:
    """Print how far the results of icpu, and of its interpreter, are from eager's. Returns 0 if all are close, or 1.
    Random numbers are drawn as in eager mode, whatever the options say."""
    with torch.no_grad():
        expected = _seeded(graph, inputs)
        same = True
        for name, changes in (("icpu", {}), ("debug_interpret", {"debug_interpret": True})):
            print(f"{name}:")
            try:
                actual = _run(
                    graph, inputs, kind, frozenset(static_inputs), {**options, "fallback_random": True, **changes}, name
                )
            except IcpuError as error:
                print(f"  {type(error).__name__}: {error}")
                same = False
                continue
            for number, (have, want) in enumerate(zip(actual, expected, strict=True)):
                text, close = _compare(have, want)
                print(f"  {text} (result {number})")
                same = same and close
    return 0 if same else 1


def _seeded(call: Any, inputs: Sequence[Any]) -> list[Any]:
    torch.manual_seed(SEED)
    return list(call(*copy.deepcopy(list(inputs))))


def _run(
    graph: torch.nn.Module,
    inputs: Sequence[Any],
    kind: Kind,
    static_inputs: frozenset[int],
    options: dict[str, Any],
    name: str,
) -> list[Any]:
    """The results of the graph, compiled under these settings."""
    settings = config.from_options(options)
    mode: Literal["symbolic", "fake"] = "symbolic" if any(type(value) is int for value in inputs) else "fake"
    traced = make_fx(graph, tracing_mode=mode, _allow_non_fake_inputs=True)(*copy.deepcopy(list(inputs)))
    compiled = compile_graph(
        traced, kind=kind, config=settings, trace=Trace(name, settings.dump), static_inputs=static_inputs
    )
    return _seeded(lambda *args: compiled(list(args)), inputs)


def _compare(have: Any, want: Any) -> tuple[str, bool]:
    if not isinstance(want, torch.Tensor):
        return ("equal" if have == want else f"{have!r}, eager gives {want!r}"), have == want
    if have.dtype != want.dtype or have.shape != want.shape:
        return f"{have.dtype} {tuple(have.shape)}, eager gives {want.dtype} {tuple(want.shape)}", False
    close = True
    try:
        torch.testing.assert_close(have, want, equal_nan=True)
    except AssertionError:
        close = False
    wide = torch.complex128 if want.dtype.is_complex else torch.float64
    distance = (have.to(wide) - want.to(wide)).abs().nan_to_num(0.0)
    largest = distance.max().item() if distance.numel() else 0.0
    return f"{'close' if close else 'DIFFERENT'}, at most {largest:.3g} apart", close
