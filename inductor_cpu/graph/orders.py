"""The order in which ATen's kernels lay out the dimensions of their results, for operators whose fake tensors have
another: torch computes those in Python, by other rules than its kernels follow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._dispatch.python import no_python_dispatcher
from torch._prims_common import suggest_memory_format
from torch.utils._python_dispatch import _disable_current_modes

from inductor_cpu.graph.edit import MASKS, aten, hint_of
from inductor_cpu.ir.ops import LOW_PRECISION

Tensor = torch.Tensor

#: Which dimension is the outermost, the next, ... in memory.
Order = Sequence[int]


def hints_of(numbers: Sequence[Any]) -> list[int]:
    """Sizes or strides at this compile, 0 for those that depend on data."""
    return [hint_of(n) or 0 for n in numbers]


def meta_of(x: Tensor) -> Tensor:
    """A float on the meta device that lies in memory as `x` does at this compile."""
    return torch.empty_strided(hints_of(x.shape), hints_of(x.stride()), device="meta")


def order_of(made: Tensor) -> Order:
    """The order of a dense tensor."""
    strides = made.stride()
    return sorted(range(len(strides)), key=lambda d: (-strides[d], d))


def order_of_result(operator: Any, args: Sequence[Any], result: Tensor) -> Order | None:
    """The order of the (first) result of an operator called with fake tensors; None if nothing else is known than what
    its fake tensor has."""
    rule = ORDERS.get(operator)
    if rule in (_unique_rows, _unique_runs):  # their number depends on data
        return rule(result, *args)
    tensors = [result, *(x for x in _flat(args) if isinstance(x, Tensor))]
    known = not any(hint_of(n) is None for t in tensors for n in (*t.shape, *t.stride()))
    if rule is None or not known or not result.dim() or 0 in hints_of(result.shape):
        return None
    with no_python_dispatcher(), _disable_current_modes():
        return rule(result, *args)


def as_iterated(result: Tensor, *operands: Tensor) -> Tensor:
    """The result of an elementwise decomposition, copied if torch's iterator gives that of a kernel another order."""
    with no_python_dispatcher(), _disable_current_modes():
        order = _iterated(*map(meta_of, operands))
    assert order is not None
    return _laid_out(result, order)


def in_format_of(result: Tensor, x: Tensor) -> Tensor:
    """The result of a decomposition, copied if it is not in the memory format of `x`: channels-last or contiguous."""
    with no_python_dispatcher(), _disable_current_modes():
        order = _of_format(result, x)
    return _laid_out(result, order)


def _laid_out(result: Tensor, order: Order) -> Tensor:
    order = list(order)
    back = [order.index(d) for d in range(result.dim())]
    return result.permute(order).contiguous().permute(back)


def _flat(args: Sequence[Any]) -> list[Any]:
    return [x for a in args for x in (a if isinstance(a, list | tuple) else (a,))]


# -- rules: of the result's fake tensor and the arguments --------------------------------------------------------------
def _contiguous(result: Tensor, *_args: Any) -> Order:
    return range(result.dim())


def _of_format(_result: Tensor, x: Tensor, *_args: Any) -> Order:
    """Channels-last if the first argument lies in that order, perhaps with gaps; else contiguous."""
    if suggest_memory_format(meta_of(x)) is torch.contiguous_format:
        return range(x.dim())
    return (0, *range(2, x.dim()), 1)


def _of_batch_norm(result: Tensor, x: Tensor, *_args: Any) -> Order:
    """As `_of_format`; where only strides of single elements tell formats apart, that in which `x` is contiguous."""
    x = meta_of(x)
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    if x.is_contiguous():
        return range(x.dim())
    if x.dim() in formats and x.is_contiguous(memory_format=formats[x.dim()]):
        return (0, *range(2, x.dim()), 1)
    return _of_format(result, x)


def _of_format_of_second(result: Tensor, _given: Tensor, x: Tensor, *_args: Any) -> Order:
    return _of_format(result, x)


def _iterated(*operands: Tensor) -> Order | None:
    """The order that torch's iterator gives the result of an elementwise kernel. Operands are on the meta device."""
    if len({x.shape for x in operands}) > 1:
        return broadcast_order(operands)
    kernels: dict[int, Callable[..., Tensor]] = {1: torch.neg, 2: torch.add, 3: torch.addcmul}
    if len(operands) not in kernels:
        return None
    return order_of(kernels[len(operands)](*operands))


def broadcast_order(operands: Sequence[Tensor]) -> Order:
    """The same for operands of different shapes. Kernels of the meta device leave dimensions of one element where they
    are; ATen's iterator for CPUs sorts them as all others, by strides that say nothing.

    Source: ATen/native/TensorIterator.cpp, `reorder_dimensions`: an insertion sort, from the innermost dimension on, in
    which operands that repeat their elements along one of two dimensions do not count."""
    shape = torch.broadcast_shapes(*(x.shape for x in operands))
    rank = len(shape)
    strides = [
        (0,) * (rank - x.dim())
        + tuple(0 if n == 1 != shape[rank - x.dim() + d] else x.stride(d) for d, n in enumerate(x.shape))
        for x in operands
    ]

    def compared(inner: int, outer: int) -> int:
        for stride in strides:
            if 0 in (stride[inner], stride[outer]):
                continue
            if stride[inner] != stride[outer]:
                return -1 if stride[inner] < stride[outer] else 1
            if shape[inner] > shape[outer]:
                return 1
        return 0

    order = list(reversed(range(rank)))
    for start in range(1, rank):
        moved = start
        for place in reversed(range(start)):
            found = compared(order[place], order[moved])
            if found < 0:
                break
            if found > 0:
                order[place], order[moved], moved = order[moved], order[place], place
    return order[::-1]


def _angle(result: Tensor, x: Tensor) -> Order | None:
    return range(x.dim()) if x.is_complex() else _iterated(meta_of(x))


def _rolled(_result: Tensor, x: Tensor, shifts: Sequence[Any], dims: Sequence[int] = ()) -> Order:
    """A roll joins two parts of its argument, dimension by dimension; a join has the format that its parts share."""
    if not dims or any(not isinstance(n, int) for n in shifts):
        return range(x.dim())
    x = meta_of(x)
    for shift, dim in zip(shifts, dims, strict=True):
        start = -shift % x.shape[dim]
        x = torch.cat([x.narrow(dim, start, x.shape[dim] - start), x.narrow(dim, 0, start)], dim)
    return order_of(x)


def _elementwise(_result: Tensor, *args: Any) -> Order | None:
    return _iterated(*(meta_of(v) for v in args if isinstance(v, Tensor)))


def _of_broadcast(_result: Tensor, *args: Any) -> Order | None:
    """Kernels of the meta device differ from those of the CPU in dimensions of one element alone."""
    values = [v for v in args if isinstance(v, Tensor)]
    return _iterated(*map(meta_of, values)) if _has_singles(values) else None


def _of_gradient(_result: Tensor, gradient: Tensor, x: Tensor, *_args: Any) -> Order | None:
    """Of a kernel that reads the layer's argument first."""
    return _iterated(meta_of(x), meta_of(gradient))


def _dropout_backward(_result: Tensor, gradient: Tensor, mask: Tensor, *_args: Any) -> Order | None:
    """The mask becomes a dense tensor of floats first."""
    return _iterated(meta_of(gradient), torch.empty_like(meta_of(mask)))


def _like_first(_result: Tensor, x: Tensor, target: Tensor, *_args: Any) -> Order | None:
    """Of a kernel whose result is made like its first argument; if that is too small, anew."""
    return order_of(torch.empty_like(meta_of(x))) if x.shape == target.shape else _iterated(meta_of(x), meta_of(target))


def _ldexp(result: Tensor, x: Tensor, exponent: Tensor) -> Order | None:
    """A product with a power, which torch makes contiguous, but not for integers, which floats are scaled by, nor where
    it converts operands that it repeats."""
    floats = x.is_floating_point() or x.is_complex()
    repeated = x.dtype in LOW_PRECISION and (x.shape != result.shape or _repeats(x))
    if repeated or (floats and not exponent.is_floating_point()):
        return _elementwise(result, x, exponent)
    return _iterated(meta_of(x), meta_of(exponent).contiguous())


def _of_expanded(_result: Tensor, *args: Any) -> Order | None:
    """Python converts operands of low precision first, and makes a contiguous tensor of one that repeats its elements;
    so does eager mode, but only where operands have different dtypes."""
    values = [v for v in args if isinstance(v, Tensor)]
    dtypes = {v.dtype for v in values}
    if len(dtypes) > 1:
        return None
    converted = not dtypes.isdisjoint(LOW_PRECISION) and any(map(_repeats, values))
    if not converted and not _has_singles(values):
        return None
    return _iterated(*map(meta_of, values))


def _scaled(_result: Tensor, *args: Any) -> Order | None:
    """Python scales the second operand of a sum first, in the same way, whatever the dtype."""
    values = [v for v in args if isinstance(v, Tensor)]
    if len({v.dtype for v in values}) > 1 or not (any(map(_repeats, values)) or _has_singles(values)):
        return None
    return _iterated(*map(meta_of, values))


def _scaled_in_turn(result: Tensor, x: Tensor, other: Tensor, *_args: Any) -> Order | None:
    """Of a difference whose operands change places."""
    return _scaled(result, other, x)


def _has_singles(operands: Sequence[Tensor]) -> bool:
    """Whether operands of different shapes have a result with a dimension of one element."""
    shapes = [tuple(hints_of(x.shape)) for x in operands]
    return len(set(shapes)) > 1 and 1 in torch.broadcast_shapes(*shapes)


def _repeats(value: Tensor) -> bool:
    return any(s == 0 and n != 1 for n, s in zip(hints_of(value.shape), hints_of(value.stride()), strict=True))


def _as_copy(_result: Tensor, x: Tensor, *_args: Any) -> Order | None:
    """The order of the first argument's copy, which is changed then."""
    return _iterated(meta_of(x))


def _indexed(_result: Tensor, x: Tensor, indices: Sequence[Tensor | None]) -> Order | None:
    """Advanced indexing walks the tensor, where the indices do not tell, and the indices together."""
    given = [k for k, index in enumerate(indices) if index is not None]
    used = [index for index in indices if index is not None]
    if any(index.dtype in MASKS for index in used):
        return None
    front = given[0] if given[-1] - given[0] + 1 == len(given) else 0
    kept = [d for d in range(x.dim()) if d not in given]
    before, after = kept[:front], kept[front:]
    x, expanded = meta_of(x), torch.broadcast_tensors(*map(meta_of, used))
    shape = expanded[0].shape
    sizes = [*(x.shape[d] for d in before), *shape, *(x.shape[d] for d in after)]
    strides = [*(x.stride(d) for d in before), *(0 for _ in shape), *(x.stride(d) for d in after)]
    walked = [torch.empty_strided(sizes, strides, device="meta")]
    # Torch reshapes the indices, so that dimensions of one element get strides, which count too.
    walked += [index.reshape([*(1 for _ in before), *shape, *(1 for _ in after)]) for index in expanded]
    return _iterated(*walked)


def _unique_rows(result: Tensor, _x: Tensor, dim: int, *_args: Any) -> Order:
    """Of slices along a dimension, each contiguous."""
    dim %= result.dim()
    return (dim, *(d for d in range(result.dim()) if d != dim))


def _unique_runs(
    result: Tensor, x: Tensor, inverse: bool = False, counts: bool = False, dim: int | None = None
) -> Order:
    return (0,) if dim is None else _unique_rows(result, x, dim)


_BATCH_NORMS = (
    aten._native_batch_norm_legit_no_training.default,
    aten.native_batch_norm.default,
    aten._native_batch_norm_legit.default,
    aten._native_batch_norm_legit.no_stats,
    aten._native_batch_norm_legit_functional.default,
    aten._batch_norm_with_update_functional.default,
)
_FORMATTED = (
    aten.native_group_norm.default,
    aten.reflection_pad3d.default,
    aten.replication_pad3d.default,
    aten.upsample_bilinear2d_backward.default,
    aten.upsample_trilinear3d_backward.default,
)
_GRADIENTS = (
    aten.replication_pad2d_backward.default,
    aten.replication_pad3d_backward.default,
)
_BY_PYTHON = (
    aten.clamp.Tensor,
    aten.complex.default,
    aten.copysign.Tensor,
    aten.div.Tensor_mode,
    aten.floor_divide.default,
    aten.gelu_backward.default,
    aten.hardtanh_backward.default,
    aten.heaviside.default,
    aten.lcm.default,
    aten.logaddexp.default,
    aten.logaddexp2.default,
    aten.logical_and.default,
    aten.logical_or.default,
    aten.logical_xor.default,
    aten.polar.default,
    aten.sigmoid_backward.default,
    aten.silu_backward.default,
    aten.softplus_backward.default,
    aten.special_xlog1py.default,
    aten.tanh_backward.default,
    aten.xlogy.Tensor,
)
_OF_LOW_PRECISION = (
    aten.atan2.default,
    aten.clamp_max.Tensor,
    aten.clamp_min.Tensor,
    aten.div.Tensor,
    aten.eq.Tensor,
    aten.fmax.default,
    aten.fmin.default,
    aten.fmod.Tensor,
    aten.ge.Tensor,
    aten.gt.Tensor,
    aten.hypot.default,
    aten.igamma.default,
    aten.igammac.default,
    aten.le.Tensor,
    aten.lt.Tensor,
    aten.maximum.default,
    aten.minimum.default,
    aten.mse_loss.default,
    aten.mul.Tensor,
    aten.ne.Tensor,
    aten.pow.Tensor_Tensor,
    aten.remainder.Tensor,
    aten.smooth_l1_loss.default,
)
_BROADCAST = (
    aten.addcdiv.default,
    aten.addcmul.default,
    aten.bitwise_and.Tensor,
    aten.bitwise_left_shift.Tensor,
    aten.bitwise_or.Tensor,
    aten.bitwise_right_shift.Tensor,
    aten.bitwise_xor.Tensor,
    aten.gcd.default,
    aten.lerp.Scalar,
    aten.lerp.Tensor,
    aten.nextafter.default,
    aten.where.self,
)
_SCALED = (aten.add.Tensor, aten.sub.Tensor)
#: Operator -> rule.
ORDERS: dict[Any, Callable[..., Order | None]] = {
    aten.angle.default: _angle,
    aten.ldexp.Tensor: _ldexp,
    aten.pow.Scalar: _contiguous,
    aten.rrelu_with_noise_functional.default: _contiguous,
    aten._softmax_backward_data.default: _contiguous,
    aten._log_softmax_backward_data.default: _contiguous,
    aten.huber_loss.default: _like_first,
    aten.index.Tensor: _indexed,
    aten.index_fill.int_Scalar: _as_copy,
    aten.index_fill.int_Tensor: _as_copy,
    aten.leaky_relu_backward.default: _of_gradient,
    aten.native_dropout_backward.default: _dropout_backward,
    aten.normal.Tensor_Tensor: _contiguous,
    aten.roll.default: _rolled,
    aten.rsub.Tensor: _scaled_in_turn,
    aten.threshold_backward.default: _of_gradient,
    aten.unique_consecutive.default: _unique_runs,
    aten.unique_dim.default: _unique_rows,
    **dict.fromkeys(_BATCH_NORMS, _of_batch_norm),
    **dict.fromkeys(_FORMATTED, _of_format),
    **dict.fromkeys(_GRADIENTS, _of_format_of_second),
    **dict.fromkeys(_BROADCAST, _of_broadcast),
    **dict.fromkeys(_BY_PYTHON, _elementwise),
    **dict.fromkeys(_OF_LOW_PRECISION, _of_expanded),
    **dict.fromkeys(_SCALED, _scaled),
}
