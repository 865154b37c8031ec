"""icpu's own operators in the FX graph, between the passes and the lowering.

Each has a fake implementation for shapes, and one in plain torch: graphs that run operator by operator use it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from inductor_cpu.errors import UserError
from inductor_cpu.ir.attention import attend, attend_backward, by_rows
from inductor_cpu.ir.micro_kernels import MICRO_KERNELS, pack, unpack, unpack_each
from inductor_cpu.ir.windows import pieces_of, unpack_windows

NAMESPACE = "icpu"


@torch.library.custom_op(f"{NAMESPACE}::packed_linear", mutates_args=())
def packed_linear(
    x: torch.Tensor,
    packed: torch.Tensor,
    scale: torch.Tensor | None,
    bias: torch.Tensor | None,
    columns: int,
    micro_kernel: str,
) -> torch.Tensor:
    """x (rows, depth) times a packed weight of `columns` columns, times a scale (columns,), plus a bias (columns,):
    (rows, columns), accumulated in float32 and rounded once to the type of x. `micro_kernel` names the row of
    `ir/micro_kernels.py` that the weight is packed for."""
    weight = unpack(packed, columns, x.shape[1])
    product = x.float() @ weight.float().t()
    product = product if scale is None else product * scale.float()
    return (product if bias is None else product + bias.float()).to(x.dtype)


@packed_linear.register_fake
def _(
    x: torch.Tensor,
    packed: torch.Tensor,
    scale: torch.Tensor | None,
    bias: torch.Tensor | None,
    columns: int,
    micro_kernel: str,
) -> torch.Tensor:
    return x.new_empty((x.shape[0], columns))


@torch.library.custom_op(f"{NAMESPACE}::packed_bmm", mutates_args=())
def packed_bmm(
    x: torch.Tensor,
    packed: torch.Tensor,
    added: torch.Tensor | None,
    beta: float,
    alpha: float,
    columns: int,
    micro_kernel: str,
) -> torch.Tensor:
    """alpha * (x @ packed) + beta * added: x (batch, rows, depth), as many packed operands of `columns` columns, which
    follow each other, and what broadcasts to the result (batch, rows, columns); in float32, rounded once to the type of
    x."""
    product = alpha * (x.float() @ unpack_each(packed, columns, x.shape[2]).float().mT)
    return (product if added is None else product + beta * added.float()).to(x.dtype)


@packed_bmm.register_fake
def _(
    x: torch.Tensor,
    packed: torch.Tensor,
    added: torch.Tensor | None,
    beta: float,
    alpha: float,
    columns: int,
    micro_kernel: str,
) -> torch.Tensor:
    return x.new_empty((*x.shape[:2], columns))


@torch.library.custom_op(f"{NAMESPACE}::packed_operand", mutates_args=())
def packed_operand(weight: torch.Tensor, micro_kernel: str) -> torch.Tensor:
    """A matrix (columns, depth), or each of a batch of them, packed for a micro kernel. Where sizes are known, ATen's
    operators pack; this one is for those that are symbols."""
    row, (columns, depth) = MICRO_KERNELS[micro_kernel], weight.shape[-2:]
    each = [pack(row, one) for one in weight.reshape(-1, columns, depth)]
    shape = (*weight.shape[:-2], *row.packed_shape(columns, depth))
    return torch.stack(each).reshape(shape) if each else weight.new_empty(shape)


@packed_operand.register_fake
def _(weight: torch.Tensor, micro_kernel: str) -> torch.Tensor:
    columns, depth = weight.shape[-2:]
    return weight.new_empty((*weight.shape[:-2], *MICRO_KERNELS[micro_kernel].packed_shape(columns, depth)))


@torch.library.custom_op(f"{NAMESPACE}::packed_int_mm", mutates_args=())
def packed_int_mm(x: torch.Tensor, packed: torch.Tensor, columns: int, micro_kernel: str) -> torch.Tensor:
    """x (rows, depth) of int8 or uint8 times a packed int8 weight of `columns` columns: (rows, columns) in int32."""
    weight = unpack(packed, columns, x.shape[1])
    return x.int() @ weight.int().t()


@packed_int_mm.register_fake
def _(x: torch.Tensor, packed: torch.Tensor, columns: int, micro_kernel: str) -> torch.Tensor:
    return x.new_empty((x.shape[0], columns), dtype=torch.int32)


def finished_convolution(
    out: torch.Tensor, scale: torch.Tensor | None, bias: torch.Tensor | None, dtype: torch.dtype
) -> torch.Tensor:
    """The end of a convolution in float32: scale and bias of each channel, one rounding, channels-last."""
    out = out if scale is None else out * scale.float()[:, None, None]
    out = out if bias is None else out + bias.float()[:, None, None]
    return out.to(dtype).contiguous(memory_format=torch.channels_last)


def _unpacked(
    x: torch.Tensor,
    packed: torch.Tensor,
    columns: int,
    kernel: Sequence[int],
    stride: Sequence[int],
    dilation: Sequence[int],
    micro_kernel: str,
) -> torch.Tensor:
    """The packed weight of a convolution of x as (columns, channels, *kernel)."""
    channels, row = x.shape[1], MICRO_KERNELS[micro_kernel]
    pieces = pieces_of(row, kernel, stride, dilation, channels, columns)
    weight = unpack_windows(row, packed, columns, pieces)
    return weight.reshape(columns, kernel[0], kernel[1], channels).permute(0, 3, 1, 2)


@torch.library.custom_op(f"{NAMESPACE}::packed_convolution", mutates_args=())
def packed_convolution(
    x: torch.Tensor,
    packed: torch.Tensor,
    scale: torch.Tensor | None,
    bias: torch.Tensor | None,
    columns: int,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    micro_kernel: str,
) -> torch.Tensor:
    """A convolution over two dimensions: x (batch, channels, height, width), a weight (columns, channels, *kernel)
    packed as a matrix (columns, ky * kx * channels) in pieces (`ir/windows.py`), a bias (columns,). The result is
    channels-last, rounded once."""
    weight = _unpacked(x, packed, columns, kernel, stride, dilation, micro_kernel)
    out = torch.nn.functional.conv2d(x.float(), weight.float(), None, list(stride), list(padding), list(dilation))
    return finished_convolution(out, scale, bias, x.dtype)


@packed_convolution.register_fake
def _(
    x: torch.Tensor,
    packed: torch.Tensor,
    scale: torch.Tensor | None,
    bias: torch.Tensor | None,
    columns: int,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    micro_kernel: str,
) -> torch.Tensor:
    sizes = window_counts(x, kernel, stride, padding, dilation)
    return x.new_empty((x.shape[0], columns, *sizes)).contiguous(memory_format=torch.channels_last)


def window_counts(
    x: torch.Tensor, kernel: Sequence[int], stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int]
) -> list[int]:
    """How many windows there are, down and across."""
    return [(x.shape[2 + d] + 2 * padding[d] - dilation[d] * (kernel[d] - 1) - 1) // stride[d] + 1 for d in range(2)]


@torch.library.custom_op(f"{NAMESPACE}::packed_int_convolution", mutates_args=())
def packed_int_convolution(
    x: torch.Tensor,
    packed: torch.Tensor,
    columns: int,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    outside: int,
    micro_kernel: str,
) -> torch.Tensor:
    """A convolution of int8 or uint8 by int8, exact in int32: the operands of `packed_convolution`, and what x is
    beyond its borders. The result is channels-last."""
    weight, (down, across) = _unpacked(x, packed, columns, kernel, stride, dilation, micro_kernel), padding
    around = torch.nn.functional.pad(x.double(), (across, across, down, down), value=outside)
    out = torch.nn.functional.conv2d(around, weight.double(), None, list(stride), 0, list(dilation))
    return out.to(torch.int32).contiguous(memory_format=torch.channels_last)


@packed_int_convolution.register_fake
def _(
    x: torch.Tensor,
    packed: torch.Tensor,
    columns: int,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    outside: int,
    micro_kernel: str,
) -> torch.Tensor:
    sizes = window_counts(x, kernel, stride, padding, dilation)
    out = x.new_empty((x.shape[0], columns, *sizes), dtype=torch.int32)
    return out.contiguous(memory_format=torch.channels_last)


@torch.library.custom_op(f"{NAMESPACE}::symmetric", mutates_args=())
def symmetric(weight: torch.Tensor, zero_points: torch.Tensor) -> torch.Tensor:
    """A quantized weight, from a graph that relies on its zero points being 0. Raises UserError where one is not."""
    if bool(zero_points.any()):
        raise UserError(
            "the zero points of a quantized weight were 0 when it was compiled, and are no longer."
            " Call torch._dynamo.reset(), so that the model is compiled again."
        )
    return weight.clone()


@symmetric.register_fake
def _(weight: torch.Tensor, zero_points: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(weight)


@torch.library.custom_op(f"{NAMESPACE}::scale_shift", mutates_args=())
def scale_shift(x: torch.Tensor, scale: torch.Tensor, shift: torch.Tensor) -> torch.Tensor:
    """x * scale + shift for each channel (dimension 1) of a low-precision x, in float32 and rounded once: what is left
    of a batch norm in inference. scale, shift: float32 (channels,)."""
    shape = [-1] + [1] * (x.dim() - 2)
    return (x.float() * scale.view(shape) + shift.view(shape)).to(x.dtype)


@scale_shift.register_fake
def _(x: torch.Tensor, scale: torch.Tensor, shift: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


@torch.library.custom_op(f"{NAMESPACE}::unit_interval", mutates_args=())
def unit_interval(x: torch.Tensor) -> torch.Tensor:
    """x, whose elements must lie between 0 and 1, as a binary cross entropy wants them."""
    torch._check(bool(((x >= 0) & (x <= 1)).all()), lambda: "all elements should be between 0 and 1")
    return x.clone()


@unit_interval.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


@torch.library.custom_op(f"{NAMESPACE}::attention", mutates_args=())
def attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    mask: torch.Tensor | None,
    scale: float,
    causal: bool,
    nan_rows: bool,
    kernel: str,
    kept: torch.Tensor | None = None,
    keep: float = 1.0,
    fill: float | None = None,
    in_parts: bool = False,
    dense: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    """softmax(q @ k^T * scale + mask) @ v and the logarithms of the softmax's divisors, see `ir.nodes.Attention`;
    in_parts: two numbers for each. `kernel` names the row of `ATTENTION_KERNELS` that computes it. In each row of the
    result the heads are next to each other, as ATen's flash attention has them; dense: it is contiguous, as what ATen
    spells out."""
    return attend(q, k, v, mask, scale, causal, nan_rows, kept, keep, fill, in_parts, dense)


@attention.register_fake
def _(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    mask: torch.Tensor | None,
    scale: float,
    causal: bool,
    nan_rows: bool,
    kernel: str,
    kept: torch.Tensor | None = None,
    keep: float = 1.0,
    fill: float | None = None,
    in_parts: bool = False,
    dense: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    sizes = (*q.shape[:3], v.shape[3])
    out = q.new_empty(sizes) if dense else by_rows(sizes, q)
    return out, q.new_empty((*q.shape[:3], 2) if in_parts else q.shape[:3], dtype=torch.float32)


ATTENTION = torch.ops.icpu.attention.default


@torch.library.custom_op(f"{NAMESPACE}::attention_backward", mutates_args=())
def attention_backward(
    grad_out: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    log_sums: torch.Tensor,
    mask: torch.Tensor | None,
    scale: float,
    causal: bool,
    kernel: str,
    kept: torch.Tensor | None = None,
    keep: float = 1.0,
    fill: float | None = None,
    dense: bool = False,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """The gradients of q, k, v and of an added mask, see `ir.nodes.AttentionBackward`. `kernel` names the row of
    `ATTENTION_KERNELS` that computes them. In each row of the first three the heads are next to each other; dense: they
    are contiguous."""
    return attend_backward(grad_out, q, k, v, out, log_sums, mask, scale, causal, kept, keep, fill, dense)


@attention_backward.register_fake
def _(
    grad_out: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    log_sums: torch.Tensor,
    mask: torch.Tensor | None,
    scale: float,
    causal: bool,
    kernel: str,
    kept: torch.Tensor | None = None,
    keep: float = 1.0,
    fill: float | None = None,
    dense: bool = False,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    slopes = q.new_empty((*q.shape[:3], k.shape[2]))
    if dense:
        return q.new_empty(q.shape), k.new_empty(k.shape), v.new_empty(v.shape), slopes
    return by_rows(q.shape, q), by_rows(k.shape, k), by_rows(v.shape, v), slopes


ATTENTION_BACKWARD = torch.ops.icpu.attention_backward.default


def _remember(ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, torch.Tensor]) -> None:
    q, k, v, mask, scale, causal, _, kernel, kept, keep, fill, _, dense = inputs
    out, log_sums = output
    ctx.mark_non_differentiable(log_sums)
    ctx.save_for_backward(q, k, v, out, log_sums, mask, kept)
    ctx.settings = scale, causal, kernel, keep, fill, dense


def _differentiate(ctx: Any, grad_out: torch.Tensor, _: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
    q, k, v, out, log_sums, mask, kept = ctx.saved_tensors
    scale, causal, kernel, keep, fill, dense = ctx.settings
    settings = scale, causal, kernel, kept, keep, fill, dense
    grads = ATTENTION_BACKWARD(grad_out, q, k, v, out, log_sums, mask, *settings)
    return *grads[:3], *[None] * 10


# For calls that are put into a graph before it is differentiated.
attention.register_autograd(_differentiate, setup_context=_remember)

#: torch's flex_attention; in the meta of a call: the row of `ATTENTION_KERNELS` that computes it.
FLEX_ATTENTION = torch.ops.higher_order.flex_attention
FLEX_KERNEL = "icpu_kernel"

UNIT_INTERVAL = torch.ops.icpu.unit_interval.default
SCALE_SHIFT = torch.ops.icpu.scale_shift.default
PACKED_CONVOLUTION = torch.ops.icpu.packed_convolution.default
PACKED_INT_MM = torch.ops.icpu.packed_int_mm.default
SYMMETRIC = torch.ops.icpu.symmetric.default
PACKED_INT_CONVOLUTION = torch.ops.icpu.packed_int_convolution.default
PACKED_BMM = torch.ops.icpu.packed_bmm.default
PACKED_OPERAND = torch.ops.icpu.packed_operand.default
PACKED_LINEAR = torch.ops.icpu.packed_linear.default

#: In the meta of a random operator: loops compute its numbers.
DRAWN_IN_LOOPS = "icpu_random"
