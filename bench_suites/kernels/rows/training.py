"""What training adds: backward formulas, dropout, optimizers, gradients of lookups."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from bench_suites.kernels.row import BF16, F32, Inputs, KernelRow, Pick

BOTH = (F32, BF16)
aten = torch.ops.aten
randn = torch.randn


def _two(pick: Pick) -> Inputs:
    shape = (pick(4096, 8, 32), pick(768, 40))
    return randn(shape), randn(shape)


def _three(pick: Pick) -> Inputs:
    return *_two(pick), _two(pick)[0]


def _silu_gate(grad: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    gate = torch.sigmoid(x)
    return grad * y * gate * (1 + x * (1 - gate)), grad * x * gate


def _layer_norm(grad: torch.Tensor, x: torch.Tensor, weight: torch.Tensor) -> tuple[torch.Tensor, ...]:
    mean = x.float().mean(-1, keepdim=True).to(x.dtype)
    inverse = torch.rsqrt(x.float().var(-1, correction=0, keepdim=True) + 1e-5).to(x.dtype)
    result = aten.native_layer_norm_backward(grad, x, list(weight.shape), mean, inverse, weight, weight, [True] * 3)
    return tuple(result)


def _batch_norm(grad: torch.Tensor, x: torch.Tensor, weight: torch.Tensor) -> tuple[torch.Tensor, ...]:
    mean = x.mean((0, 2, 3))
    inverse = torch.rsqrt(x.var((0, 2, 3), correction=0) + 1e-5)
    result = aten.native_batch_norm_backward(grad, x, weight, None, None, mean, inverse, True, 1e-5, [True] * 3)
    return tuple(result)


def _logits(pick: Pick) -> Inputs:
    rows, classes = pick(128, 5, 2), pick(32000, 77)
    return randn(rows, classes), torch.randint(0, classes, (rows,))


def _cross_entropy(logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    share = torch.softmax(logits, -1)
    hot = torch.arange(logits.shape[-1]) == target[:, None]
    return (share - hot.to(share.dtype)) / logits.shape[0]


def _adamw(
    weight: torch.Tensor, grad: torch.Tensor, first: torch.Tensor, second: torch.Tensor, step: torch.Tensor
) -> torch.Tensor:
    weight.mul_(1 - 1e-3 * 1e-2)
    first.lerp_(grad, 0.1)
    second.mul_(0.999).addcmul_(grad, grad, value=0.001)
    denominator = (second.sqrt() / (1 - 0.999**step).sqrt()).add_(1e-8)
    weight.sub_(1e-3 / (1 - 0.9**step) * first / denominator)
    return step + 1


def _state(pick: Pick) -> Inputs:
    shape = (pick(2048, 8, 32), pick(768, 40))
    return randn(shape), randn(shape), randn(shape), torch.rand(shape), torch.tensor(3.0)


def _momentum(weight: torch.Tensor, grad: torch.Tensor, buffer: torch.Tensor) -> torch.Tensor:
    buffer.mul_(0.9).add_(grad)
    weight.add_(buffer, alpha=-0.01)
    return weight.sum()


def _image(pick: Pick) -> torch.Tensor:
    side = pick(56, 6, 28)
    return randn(pick(16, 2, 1), pick(64, 24), side, side).to(memory_format=torch.channels_last)


def _pooled(pick: Pick) -> Inputs:
    image = _image(pick)
    pooled, place = F.max_pool2d(image, 2, 2, return_indices=True)
    return torch.randn_like(pooled), image, place


def _lookup(pick: Pick) -> Inputs:
    return randn(pick(4096, 9), pick(768, 40)), torch.randint(0, pick(8000, 20), (pick(4096, 9),))


def _bins(pick: Pick) -> Inputs:
    return (torch.randint(0, pick(1000, 10), (pick(1 << 20, 500),)),)


def _edges(pick: Pick) -> Inputs:
    """Values of the edges of a graph, and the node that each one leads to."""
    edges = pick(1 << 20, 300)
    return randn(edges), torch.randint(0, pick(4 << 20, 50), (edges,))


TRAINING = (
    KernelRow("gelu_backward", aten.gelu_backward, _two, BOTH, streaming=True),
    KernelRow("silu_gate_backward", _silu_gate, _three, BOTH, streaming=True),
    KernelRow("tanh_backward", aten.tanh_backward, _two, streaming=True),
    KernelRow(
        "softmax_backward", lambda g, y: aten._softmax_backward_data(g, y, -1, g.dtype), _two, BOTH, streaming=True
    ),
    KernelRow("layer_norm_backward", _layer_norm, lambda p: (*_two(p), randn(p(768, 40))), BOTH),
    KernelRow("batch_norm_backward", _batch_norm, lambda p: (_image(p), _image(p), randn(p(64, 24)))),
    KernelRow("cross_entropy_backward", _cross_entropy, _logits, BOTH, streaming=True),
    KernelRow("dropout", lambda x: F.dropout(x, 0.1), lambda p: (_two(p)[0],), random=True),
    KernelRow(
        "dropout_backward",
        lambda g, m: g * m * (1 / 0.9),
        lambda p: (_two(p)[0], torch.rand(p(4096, 8, 32), p(768, 40)) > 0.1),
        BOTH,
        streaming=True,
    ),
    KernelRow("adamw_update", _adamw, _state, streaming=True, updated=(0, 2, 3)),
    KernelRow("sgd_update", _momentum, _three, streaming=True, updated=(0, 2)),
    KernelRow("gradient_norm", lambda g: g.float().pow(2).sum().sqrt(), lambda p: (_two(p)[0],), BOTH, streaming=True),
    KernelRow(
        "bias_gradient",
        lambda g: g.sum((0, 1)),
        lambda p: (randn(p(8, 2, 1), p(512, 5, 64), p(768, 40)),),
        BOTH,
        streaming=True,
    ),
    KernelRow("bias_gradient_nhwc", lambda g: g.sum((0, 2, 3)), lambda p: (_image(p),), BOTH, streaming=True),
    KernelRow(
        "max_pool_backward",
        lambda g, x, i: aten.max_pool2d_with_indices_backward(g, x, [2, 2], [2, 2], [0, 0], [1, 1], False, i),
        _pooled,
        unread=(1,),
    ),
    KernelRow("embedding_backward", lambda g, i: aten.embedding_dense_backward(g, i, 8000, -1, False), _lookup, BOTH),
    KernelRow(
        "scatter_add_rows",
        lambda g, i: torch.zeros(8000, g.shape[1], dtype=g.dtype).index_add(0, i, g),
        _lookup,
    ),
    KernelRow("histogram", lambda i: torch.zeros(1000, dtype=torch.int64).scatter_add(0, i, torch.ones_like(i)), _bins),
    KernelRow("sum_at_nodes", lambda v, i: v.new_zeros(4 << 20).scatter_add(0, i, v), _edges),
)
