"""Which operators AOTAutograd takes apart before the compiler sees them.

The table is torch's own: core ATen decompositions plus those of `_EXTRA`. Taken out again are

- operators with a lowering rule: one rule is faster to compile than a dozen small nodes, and keeps eager's rounding;
- random operators: a decomposition would draw other numbers than eager does;
- `_WHOLE`: operators whose ATen kernel (or template) is better than anything their parts could become.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch._decomp import core_aten_decompositions, decomposition_table

from inductor_cpu.graph.strides import as_iterated

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
    "ldexp",
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


def decompositions(lowered: Iterable[Any] = ()) -> dict[Any, Callable[..., Any]]:
    """Operator overload -> decomposition, without the operators in `lowered` (those that have a lowering rule)."""
    table = dict(core_aten_decompositions().items())
    for name in _EXTRA:
        table.update({op: decomposition_table[op] for op in _overloads(name) if op in decomposition_table})
    fma = getattr(torch.ops.prims, "fma", None)  # there once Dynamo has taken an in-place addcmul or addcdiv apart
    if fma is not None:
        table[fma.default] = _fma
    for loss, operands in _LOSSES.items():
        table[loss] = functools.partial(_elements_as_eager, decomposition_table[loss], operands)
    log_sigmoid = aten.log_sigmoid_forward.default
    table[log_sigmoid] = functools.partial(_first_contiguous, decomposition_table[log_sigmoid])
    excluded = {op for name in _WHOLE for op in _overloads(name)} | set(lowered)
    return {op: function for op, function in table.items() if op not in excluded and not _is_random(op)}


def _first_contiguous(function: Callable[..., Any], x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """The results of a decomposition, the first of them contiguous as that of ATen's kernel. A copy even if it is
    already: the strides of `x` may be corrected later."""
    first, *others = function(x)
    return first.clone(memory_format=torch.contiguous_format), *others


def _elements_as_eager(function: Callable[..., torch.Tensor], operands: int, *args: Any, **kwargs: Any) -> torch.Tensor:
    """The result of a loss's decomposition, with the strides of ATen's kernel if it is not reduced."""
    result = function(*args, **kwargs)
    return as_iterated(result, *args[:operands]) if result.dim() else result


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
