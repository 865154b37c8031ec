"""When two results are the same: types, shapes, dtypes and, within a tolerance that eager itself justifies, values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils._pytree import tree_flatten

#: Results that are whatever the memory held: only their type, shape and dtype are compared.
UNINITIALIZED = frozenset("empty empty_like empty_permuted empty_strided new_empty new_empty_strided".split())

#: How much further from the fp64 result than eager a low-precision result may be; and one rounding of the result.
ERROR_FACTOR = 2.0
ROUNDINGS = 1.0

_DEFAULTS = {
    torch.float32: (1.3e-6, 1e-5),
    torch.complex64: (1.3e-6, 1e-5),
    torch.float64: (1e-7, 1e-7),
    torch.complex128: (1e-7, 1e-7),
}
_SINGLE = frozenset({torch.float32, torch.complex64})
_LOW = frozenset({torch.float16, torch.bfloat16, torch.complex32})

#: Of a call's fp64 results, in the order of the results; None where there is no such result.
Reference = Callable[[], list[torch.Tensor | None]]


@dataclass(frozen=True)
class Tolerance:
    """How results may differ. `widened`: relative and absolute bounds that the database gives an operator, by dtype.
    `values`: whether values are compared at all; `signs`: whether the signs of zeros are, too; `strides`: whether
    strides are."""

    widened: dict[torch.dtype, tuple[float, float]] = field(default_factory=dict)
    values: bool = True
    signs: bool = False
    strides: bool = False

    def bounds(self, dtype: torch.dtype) -> tuple[float, float]:
        """Relative and absolute bound."""
        default, wider = _DEFAULTS.get(dtype, (0.0, 0.0)), self.widened.get(dtype, (0.0, 0.0))
        return max(default[0], wider[0]), max(default[1], wider[1])


def tolerance_of(entry: Any, name: str, signs: bool, strides: bool) -> Tolerance:
    """The tolerance of an operator: the widest that its entry in the database grants itself on a CPU."""
    widened: dict[torch.dtype, tuple[float, float]] = {}
    for info in entry.decorators:
        if getattr(info, "device_type", None) in (None, "cpu"):
            for decorator in getattr(info, "decorators", ()):
                for dtype, given in getattr(decorator, "d", {}).items():
                    relative, absolute = (0.0, given) if isinstance(given, float) else (given.rtol, given.atol)
                    old = widened.get(dtype, (0.0, 0.0))
                    widened[dtype] = (max(old[0], relative), max(old[1], absolute))
    values = name.removeprefix("_refs.") not in UNINITIALIZED
    return Tolerance(widened, values=values, signs=signs, strides=strides)


def difference(expected: Any, actual: Any, tolerance: Tolerance, reference: Reference) -> str | None:
    """What is wrong with `actual`, in words; None when it is as good as `expected`."""
    leaves, spec = tree_flatten(expected)
    others, other_spec = tree_flatten(actual)
    if len(leaves) != len(others):
        return f"the result is {other_spec}, not {spec}"
    for position, (left, right) in enumerate(zip(leaves, others, strict=True)):
        where = f"result {position}: " if len(leaves) > 1 else ""
        if isinstance(left, torch.Tensor) != isinstance(right, torch.Tensor):
            return f"{where}a {type(right).__name__} in place of a {type(left).__name__}"
        if not isinstance(left, torch.Tensor):
            same = left == right or (left != left and right != right)
            if tolerance.values and not same and not _nearly(left, right):
                return f"{where}{right!r} in place of {left!r}"
            continue
        problem = _tensor_difference(left, right, tolerance, _nth(reference, position, len(leaves)))
        if problem is not None:
            return where + problem
    return None


def _nearly(left: object, right: object) -> bool:
    return isinstance(left, float) and isinstance(right, float) and abs(left - right) <= 1e-6 * abs(left)


def _nth(reference: Reference, position: int, count: int) -> Callable[[], torch.Tensor | None]:
    def get() -> torch.Tensor | None:
        values = reference()
        return values[position] if len(values) == count else None

    return get


def _tensor_difference(
    expected: torch.Tensor,
    actual: torch.Tensor,
    tolerance: Tolerance,
    reference: Callable[[], torch.Tensor | None],
) -> str | None:
    for what in ("dtype", "shape", "layout"):
        left, right = getattr(expected, what), getattr(actual, what)
        if left != right:
            return f"the {what} is {right}, not {left}"
    if tolerance.strides and not _same_strides(expected, actual):
        return f"the strides are {actual.stride()}, not {expected.stride()}, of {tuple(expected.shape)}"
    if not tolerance.values:
        return None
    a, b = _plain(expected), _plain(actual)
    if _bit_equal(a, b, tolerance.signs):
        return None
    dtype = expected.dtype
    if dtype in _LOW:
        exact = reference()
        exact = None if exact is None or exact.shape != expected.shape else _plain(exact)
        return _low_precision_difference(a, b, exact, dtype)
    relative, absolute = tolerance.bounds(dtype)
    close = torch.isclose(b, a, rtol=relative, atol=absolute, equal_nan=True)
    if dtype in _SINGLE and not bool(close.all()) and (exact := reference()) is not None and exact.shape == a.shape:
        close |= torch.isclose(b, _plain(exact).to(dtype), rtol=relative, atol=absolute, equal_nan=True)
    if tolerance.signs and dtype.is_floating_point:
        close &= (a != 0) | (b != 0) | (a.signbit() == b.signbit())
    return None if bool(close.all()) else _describe(a, b, ~close)


def _same_strides(expected: torch.Tensor, actual: torch.Tensor) -> bool:
    """The stride of a dimension of one element means nothing; none does where there are no elements."""
    if expected.layout is not torch.strided or expected.numel() == 0:
        return True
    both = zip(expected.shape, expected.stride(), actual.stride(), strict=True)
    return all(size == 1 or left == right for size, left, right in both)


def _low_precision_difference(
    expected: torch.Tensor, actual: torch.Tensor, exact: torch.Tensor | None, dtype: torch.dtype
) -> str | None:
    """Compare the errors of two results in a dtype of few digits."""
    wide = torch.complex128 if dtype.is_complex else torch.float64
    a, b = expected.to(wide), actual.to(wide)
    exact = a if exact is None else exact.to(wide)
    finite = a.isfinite() & b.isfinite() & exact.isfinite()
    zero = torch.zeros((), dtype=wide)
    error = torch.where(finite, a - exact, zero).abs().max() if a.numel() else torch.zeros((), dtype=torch.float64)
    info = torch.finfo(dtype)
    allowed = ERROR_FACTOR * error + ROUNDINGS * info.eps * exact.abs() + info.smallest_normal * info.eps
    same = (a == b) | (a.isnan() & b.isnan())
    bad = ~same & ~(b.isfinite() & exact.isfinite() & ((b - exact).abs() <= allowed))
    return _describe(a, b, bad) if bool(bad.any()) else None


def _plain(tensor: torch.Tensor) -> torch.Tensor:
    tensor = tensor.detach().resolve_conj().resolve_neg()
    return tensor.to_dense() if tensor.layout is not torch.strided else tensor


def _bit_equal(a: torch.Tensor, b: torch.Tensor, signs: bool) -> bool:
    same = (a == b) | ((a != a) & (b != b))
    if signs and a.dtype.is_floating_point:
        same &= (a != 0) | (a.signbit() == b.signbit())
    return bool(same.all())


def _describe(expected: torch.Tensor, actual: torch.Tensor, bad: torch.Tensor) -> str:
    first = tuple(bad.nonzero()[0].tolist())
    text = f"{actual[first].item()!r} in place of {expected[first].item()!r}"
    return f"{text} at {list(first)}, {int(bad.sum())} of {bad.numel()} elements differ, shape {list(bad.shape)}"
