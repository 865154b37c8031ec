"""Fake tensors with the strides of eager mode while AOTAutograd traces: operators are taken apart, copies left out and
views made by the strides that fake tensors have then. And operators that torch takes apart wrongly stay whole."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from inductor_cpu.graph.edit import aten
from inductor_cpu.graph.orders import ORDERS, Order, order_of_result
from inductor_cpu.graph.resizing import RESIZING, RESIZING_GRADIENTS

_one_at_a_time = threading.RLock()

#: Looked up once: another thread may call an operator that differs at any time, so that what is there may be ours.
_MEMORY_OF_TORCH = FakeTensorMode.cache

#: Operators with Python kernels that give other numbers than ATen's, and come before all decompositions -> the kernel
#: that they have instead; None for ATen's.
_WHOLE: dict[Any, Callable[..., Any] | None] = {
    aten.multilabel_margin_loss_forward.default: None,  # -1 is no class 0
    **RESIZING,
}

#: The dispatch keys of kernels that take an operator apart.
_REPLACED = (torch._C.DispatchKey.Autograd, torch._C.DispatchKey.CompositeImplicitAutograd)

#: Reductions to which an empty list of dimensions means all of them, but none where torch computes the fake result.
_OVER_ALL: frozenset[Any] = frozenset({aten.nansum.default})


@contextmanager
def strides_of_eager() -> Iterator[None]:
    """While it lasts, in all threads, fake results of the operators in `ORDERS` have eager's strides, those in
    `_OVER_ALL` eager's shape, and those in `_WHOLE` are not taken apart by torch."""
    with _one_at_a_time:
        yield from _changed_dispatch()


class _Memory:
    """Of results of operators that differ: what torch remembers of earlier calls, for example of Dynamo's, has other
    strides."""

    def __init__(self) -> None:
        self._of_numbers: dict[Any, Any] = {}
        self._of_symbols: dict[ShapeEnv, dict[Any, Any]] = {}

    @contextmanager
    def in_place_of_torchs(self, mode: FakeTensorMode) -> Iterator[None]:
        symbols = mode.shape_env
        FakeTensorMode.cache = self._of_numbers
        if symbols is not None:
            of_symbols = symbols.fake_tensor_cache
            symbols.fake_tensor_cache = self._of_symbols.setdefault(symbols, {})
        try:
            yield
        finally:
            FakeTensorMode.cache = _MEMORY_OF_TORCH
            if symbols is not None:
                symbols.fake_tensor_cache = of_symbols


def _changed_dispatch() -> Iterator[None]:
    torchs, torchs_cached = FakeTensorMode._dispatch_impl, FakeTensorMode._cached_dispatch_impl
    memory = _Memory()

    def cached(self: FakeTensorMode, operator: Any, types: Any, args: Sequence[Any], kwargs: Any) -> Any:
        if operator not in ORDERS and operator not in _OVER_ALL:
            return torchs_cached(self, operator, types, args, kwargs)
        with memory.in_place_of_torchs(self):
            return torchs_cached(self, operator, types, args, kwargs)

    def dispatch(self: FakeTensorMode, operator: Any, types: Any, args: Sequence[Any], kwargs: Any) -> Any:
        if operator in RESIZING_GRADIENTS:
            made: Any = _gradient(self, *args[:3])
        elif operator is aten._native_batch_norm_legit_no_training.default:
            made = _normalized(self, args[0])
        else:
            made = torchs(self, operator, types, _over_all(args) if operator in _OVER_ALL else args, kwargs)
        return _corrected(self, made, operator, args) if operator in ORDERS else made

    kernels = {operator: dict(operator.py_kernels) for operator in _WHOLE}
    for operator, kernel in _WHOLE.items():
        others = {key: given for key, given in kernels[operator].items() if key not in _REPLACED}
        _set_kernels(operator, others | (dict.fromkeys(_REPLACED, kernel) if kernel is not None else {}))
    FakeTensorMode._dispatch_impl = dispatch  # type: ignore[method-assign, assignment]
    FakeTensorMode._cached_dispatch_impl = cached  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        FakeTensorMode._dispatch_impl = torchs  # type: ignore[method-assign]
        FakeTensorMode._cached_dispatch_impl = torchs_cached  # type: ignore[method-assign]
        for operator in _WHOLE:
            _set_kernels(operator, kernels[operator])


def _gradient(mode: FakeTensorMode, given: torch.Tensor, _resized: Any, sizes: Sequence[Any]) -> torch.Tensor:
    """The gradient of an image of these sizes, which may be symbols."""
    with mode:
        return torch.empty(sizes, dtype=given.dtype)


def _normalized(mode: FakeTensorMode, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """What a batch norm by given statistics gives. Torch computes every step of it, which takes milliseconds."""
    with mode:
        nothing = torch.empty(0, dtype=x.dtype)
        return torch.empty_like(x), nothing, torch.empty_like(nothing)


def _over_all(args: Sequence[Any]) -> Sequence[Any]:
    """The arguments of a reduction, without an empty list of dimensions."""
    x, dims, *others = (*args, None)[: max(len(args), 2)]
    return (x, dims or None, *others)


def _set_kernels(operator: Any, kernels: dict[Any, Any]) -> None:
    operator.py_kernels.clear()
    operator.py_kernels.update(kernels)
    operator._dispatch_cache.clear()


def _corrected(mode: FakeTensorMode, made: Any, operator: Any, args: Sequence[Any]) -> Any:
    result, *others = made if isinstance(made, tuple) else (made,)
    order = order_of_result(operator, args, result)
    if order is None:
        return made
    result = laid_out(mode, result, order)
    return (result, *others) if isinstance(made, tuple) else result


def laid_out(mode: FakeTensorMode, value: torch.Tensor, order: Order) -> torch.Tensor:
    """A dense fake tensor like `value`, with its dimensions in this order in memory."""
    strides: list[Any] = [1] * value.dim()
    for outer, inner in zip(reversed(order[:-1]), reversed(order[1:]), strict=True):
        strides[outer] = strides[inner] * value.shape[inner]
    with mode:
        return torch.empty_strided(value.shape, strides, dtype=value.dtype)
