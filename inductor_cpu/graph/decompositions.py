"""Which operators AOTAutograd takes apart before the compiler sees them.

The table is torch's own: core ATen decompositions plus those of `_EXTRA`. Taken out again are

- operators with a lowering rule: one rule is faster to compile than a dozen small nodes, and keeps eager's rounding;
- random operators: a decomposition would draw other numbers than eager does;
- `_WHOLE`: operators whose ATen kernel (or template) is better than anything their parts could become.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch._decomp import core_aten_decompositions, decomposition_table
from torch._decomp.decompositions import Reduction, pw_cast_for_opmath
from torch.fx.experimental.symbolic_shapes import statically_known_true

from inductor_cpu.graph.orders import as_iterated, in_format_of
from inductor_cpu.ir.operators import UNIT_INTERVAL

aten = torch.ops.aten

#: Operators to take apart that core ATen keeps.
_EXTRA: tuple[str, ...] = (
    "_adaptive_avg_pool2d",
    "_batch_norm_with_update",
    "_batch_norm_with_update_functional",
    "_batch_norm_no_update",
    "_log_softmax",
    "_native_batch_norm_legit",
    "_native_batch_norm_legit_functional",
    "_native_batch_norm_legit_no_training",
    "_softmax",
    "as_strided_copy",
    "batch_norm_backward",
    "conj_physical",
    "dist",
    "narrow_copy",
    "native_batch_norm",
    "native_group_norm",
    "native_layer_norm",
    "new_empty_strided",
    "permute_copy",
    "rrelu_with_noise_backward",
    "tril_indices",
    "triu_indices",
    "unbind_copy",
    "upsample_bicubic2d",
    "view_copy",
)

#: Operators that stay whole although core ATen takes them apart.
_WHOLE: tuple[str, ...] = (
    "_embedding_bag",
    "_scaled_dot_product_flash_attention_for_cpu",
    "_scaled_dot_product_flash_attention_for_cpu_backward",
    "_scaled_dot_product_fused_attention_overrideable",
    "addmv",
    "baddbmm",
    "bucketize",
    "cumprod",
    "cumsum",
    "dot",
    "multilabel_margin_loss_forward",  # its decomposition counts the -1 at the end of a row as class 0
    "mv",
    "renorm",
    "soft_margin_loss_backward",  # its decomposition takes 1 from a sigmoid near 1
    "take",
    "vdot",
)

#: Losses of elements -> how many of their operands ATen's kernel takes the strides of the result from.
_LOSSES: dict[Any, int] = {
    aten.binary_cross_entropy.default: 1,
    aten.huber_loss.default: 1,
    aten.mse_loss.default: 2,
    aten.smooth_l1_loss.default: 2,
}

#: Losses of classes -> which argument has the scores. Their dimension 1, or the only one, are the classes.
_CLASSES: dict[Any, int] = {
    aten.nll_loss_forward.default: 0,
    aten.nll_loss2d_forward.default: 0,
    aten.nll_loss_backward.default: 1,
    aten.nll_loss2d_backward.default: 1,
}

#: Whose result ATen's kernel makes contiguous, whatever its operands are.
_CONTIGUOUS: tuple[Any, ...] = (
    aten.glu_backward.default,
    aten.huber_loss_backward.default,
    aten.im2col.default,
    aten.isin.Tensor_Scalar,
    aten.isin.Tensor_Tensor,
    aten.mse_loss_backward.default,
)


def decompositions(lowered: Iterable[Any] = ()) -> dict[Any, Callable[..., Any]]:
    """Operator overload -> decomposition, without the operators in `lowered` (those that have a lowering rule)."""
    return dict(_table(frozenset(lowered), getattr(torch.ops.prims, "fma", None)))


@functools.lru_cache(maxsize=4)
def _table(lowered: frozenset[Any], fma: Any) -> Mapping[Any, Callable[..., Any]]:
    """The table, once for all graphs. Torch's comes without operators of the program that are made of others: it would
    look for them at every compile, for a third of the time of a small graph, and tracing takes them apart anyway."""
    table: dict[Any, Callable[..., Any]] = dict(core_aten_decompositions().decomp_table)
    for name in _EXTRA:
        table.update({op: decomposition_table[op] for op in _overloads(name) if op in decomposition_table})
    if fma is not None:  # there once Dynamo has taken an in-place addcmul or addcdiv apart
        table[fma.default] = _fma
    for loss, operands in _LOSSES.items():
        table[loss] = functools.partial(_elements_as_eager, decomposition_table[loss], operands)
    likelihood = aten.binary_cross_entropy.default
    table[likelihood] = functools.partial(_of_probabilities, table[likelihood])
    for loss in (aten.huber_loss.default, aten.soft_margin_loss.default):
        table[loss] = functools.partial(_in_dtype_of_first, table[loss])
    table[aten.ldexp.Tensor] = _ldexp
    table[aten.view_copy.default] = _view_copy
    table[aten.max_unpool2d.default] = table[aten.max_unpool3d.default] = _unpooled
    for op in (aten.channel_shuffle.default, aten.native_channel_shuffle.default, aten.max_unpool2d.default):
        table[op] = functools.partial(_formatted, table[op])
    for op in (aten.reflection_pad2d_backward.default, aten.reflection_pad3d_backward.default):
        table[op] = functools.partial(_formatted_as_second, table[op])
    for op in (aten.log_sigmoid_forward.default, aten.nll_loss2d_forward.default):
        table[op] = functools.partial(_first_contiguous, table.get(op, decomposition_table[op]))
    for op, scores in _CLASSES.items():
        table[op] = functools.partial(_if_there_are_classes, table[op], scores)
    table[aten.smooth_l1_loss_backward.default] = functools.partial(_contiguous, _smooth_l1_gradient)
    gradient = aten.binary_cross_entropy_backward.default
    table[gradient] = functools.partial(_iterated_as_second, decomposition_table[gradient])
    for op in _CONTIGUOUS:
        table[op] = functools.partial(_contiguous, decomposition_table[op])
    excluded = {op for name in _WHOLE for op in _overloads(name)} | lowered
    kept = {op: function for op, function in table.items() if op not in excluded and not _is_random(op)}
    return {**kept, aten.rrelu_with_noise_functional.default: _rrelu}


def _first_contiguous(function: Callable[..., Any], *args: Any, **kwargs: Any) -> tuple[torch.Tensor, ...]:
    """The results of a decomposition, the first of them contiguous as that of ATen's kernel. A copy even if it is
    already: the strides of `x` may be corrected later."""
    first, *others = function(*args, **kwargs)
    return first.clone(memory_format=torch.contiguous_format), *others


def _if_there_are_classes(function: Callable[..., Any], scores: int, *args: Any, **kwargs: Any) -> Any:
    """A loss taken apart; NotImplemented where there may be no classes: its parts read class 0 for an ignored target,
    while ATen's kernel reads none."""
    x = args[scores]
    classes = x.shape[min(1, x.dim() - 1)] if x.dim() else 1
    return function(*args, **kwargs) if statically_known_true(classes > 0) else NotImplemented


def _of_probabilities(
    function: Callable[..., Any], x: torch.Tensor, target: torch.Tensor, *args: Any, **kwargs: Any
) -> Any:
    """A loss taken apart whose operands have to lie between 0 and 1: ATen's kernel looks, its parts do not."""
    return function(UNIT_INTERVAL(x), UNIT_INTERVAL(target), *args, **kwargs)


def _rrelu(
    x: torch.Tensor, noise: torch.Tensor, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False, **_: Any
) -> Any:
    """In inference nothing of it is random, and its result is contiguous."""
    return NotImplemented if training else (aten.leaky_relu(x, (lower + upper) / 2).contiguous(), noise)


def _ldexp(x: torch.Tensor, exponent: torch.Tensor) -> Any:
    """A product with a power, as ATen computes it; NotImplemented for integers, which it adds to the exponent: no power
    overflows then."""
    if not (exponent.is_floating_point() or exponent.is_complex()):
        return NotImplemented
    dtype = x.dtype if x.is_floating_point() or x.is_complex() else torch.float32
    if dtype == torch.float32:
        return aten.mul.Tensor(x, aten.pow.Scalar(2.0, exponent))
    return aten.mul.Tensor(x, aten.pow.Tensor_Tensor(x.new_full((), 2.0, dtype=dtype), exponent))


def _view_copy(x: torch.Tensor, size: Sequence[Any]) -> torch.Tensor:
    """A copy in another shape, also where no view has it: torch's decomposition asks for one."""
    return x.reshape(size).clone(memory_format=torch.contiguous_format)


def _unpooled(x: torch.Tensor, positions: torch.Tensor, size: Sequence[Any], *window: Sequence[int]) -> torch.Tensor:
    """Elements at their positions in planes of zeros. Each position is compared with its plane, as ATen's kernel does:
    torch's decomposition writes wherever the positions say."""
    dims = len(size)
    planes = x.new_zeros((*x.shape[:-dims], math.prod(size)))
    return planes.scatter(-1, positions.flatten(-dims), x.flatten(-dims)).unflatten(-1, size)


def _contiguous(function: Callable[..., torch.Tensor], *args: Any, **kwargs: Any) -> torch.Tensor:
    """The result of a decomposition, contiguous as that of ATen's kernel."""
    return function(*args, **kwargs).clone(memory_format=torch.contiguous_format)


def _in_dtype_of_first(
    function: Callable[..., torch.Tensor], x: torch.Tensor, *args: Any, **kwargs: Any
) -> torch.Tensor:
    """The result of a decomposition in the dtype of its first argument, as ATen's, also where a second one is wider."""
    return function(x, *args, **kwargs).to(x.dtype)


def _formatted(function: Callable[..., torch.Tensor], x: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    """The result of a decomposition in the memory format of its first argument."""
    return in_format_of(function(x, *args, **kwargs), x)


def _formatted_as_second(
    function: Callable[..., torch.Tensor], given: torch.Tensor, x: torch.Tensor, *args: Any
) -> torch.Tensor:
    """The result of a decomposition in the memory format of its second argument, as gradients of ATen's kernels."""
    return in_format_of(function(given, x, *args), x)


def _iterated_as_second(
    function: Callable[..., torch.Tensor], given: torch.Tensor, x: torch.Tensor, *args: Any
) -> torch.Tensor:
    """The result of a decomposition in the order of its second argument."""
    return as_iterated(function(given, x, *args), x)


def _elements_as_eager(function: Callable[..., torch.Tensor], operands: int, *args: Any, **kwargs: Any) -> torch.Tensor:
    """The result of a loss's decomposition, with the strides of ATen's kernel if it is not reduced."""
    result = function(*args, **kwargs)
    return as_iterated(result, *args[:operands]) if result.dim() else result


@pw_cast_for_opmath
def _smooth_l1_gradient(
    given: torch.Tensor, x: torch.Tensor, target: torch.Tensor, reduction: int, beta: float
) -> torch.Tensor:
    """As ATen's: of NaN it is NaN, where torch's decomposition has 0; with beta 0 the slope at 0 is -1."""
    apart = x - target
    outside = torch.where(apart > 0, 1.0, -1.0).to(apart.dtype)
    slope = torch.where(apart.abs() >= beta, outside, apart / beta)
    return (slope / x.numel() if reduction == Reduction.MEAN.value else slope) * given


def _fma(a: torch.Tensor, b: torch.Tensor | float, c: torch.Tensor) -> Any:
    """a * b + c, rounded once in low precision."""
    return aten.addcmul(c, a, b) if isinstance(b, torch.Tensor) else aten.add(c, a, alpha=b)


def _overloads(name: str) -> list[Any]:
    packet = getattr(aten, name)
    return [getattr(packet, overload) for overload in packet.overloads()]


def _is_random(op: Any) -> bool:
    """Whether an operator draws random numbers and has a kernel of its own to do so."""
    return (
        isinstance(op, torch._ops.OpOverload)
        and torch.Tag.nondeterministic_seeded in op.tags
        and not op.has_kernel_for_dispatch_key(torch._C.DispatchKey.CompositeImplicitAutograd)
    )
