"""Reductions: normalizations, softmax, losses, statistics, extremes and scans."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from bench_suites.kernels.row import BF16, F32, Inputs, KernelRow, Pick

BOTH = (F32, BF16)
randn = torch.randn


def _rows(pick: Pick) -> Inputs:
    return (randn(pick(4096, 8, 32), pick(768, 40)),)


def _rows_and_weights(pick: Pick) -> Inputs:
    return *_rows(pick), randn(pick(768, 40)), randn(pick(768, 40))


def _logits(pick: Pick) -> Inputs:
    rows, classes = pick(128, 5, 2), pick(32000, 77)
    return randn(rows, classes), torch.randint(0, classes, (rows,))


def _scores(pick: Pick) -> Inputs:
    length = pick(384, 19, 192)
    return randn(pick(4, 2, 1), pick(12, 3, 1), length, length), randn(pick(4, 2, 1), 1, 1, length)


def _image(pick: Pick) -> torch.Tensor:
    side = pick(56, 6, 28)
    return randn(pick(16, 2, 1), pick(96, 24), side, side)


def _nhwc(pick: Pick) -> torch.Tensor:
    return _image(pick).to(memory_format=torch.channels_last)


def _statistics(pick: Pick) -> Inputs:
    channels = pick(96, 24)
    return randn(channels), torch.rand(channels) + 0.5, randn(channels), randn(channels)


def _llama_norm(x: torch.Tensor, weight: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
    wide = x.float()
    wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)
    return weight * wide.to(x.dtype)


def _batch_norm(x: torch.Tensor, *statistics: torch.Tensor) -> torch.Tensor:
    mean, variance, weight, bias = statistics
    return F.relu(F.batch_norm(x, mean, variance, weight, bias))


def _batch_norm_training(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return F.relu(F.batch_norm(x, None, None, weight, bias, training=True))


def _response_norm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """ConvNeXt V2's: rows of channels by their norm over the picture."""
    norm = x.norm(2, (1, 2), keepdim=True)
    return x + bias + weight * x * (norm / (norm.mean(-1, keepdim=True) + 1e-6))


def _route(logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    weights, experts = torch.topk(torch.softmax(logits, -1, dtype=torch.float32), 8)
    return weights / weights.sum(-1, keepdim=True), experts


REDUCTIONS = (
    KernelRow("layer_norm", lambda x, w, b: F.layer_norm(x, w.shape, w, b), _rows_and_weights, BOTH, streaming=True),
    KernelRow(
        "residual_layer_norm",
        lambda x, y, w, b: F.layer_norm(x + y, w.shape, w, b),
        lambda p: (*_rows(p), *_rows_and_weights(p)),
        BOTH,
        streaming=True,
    ),
    KernelRow("rms_norm", lambda x, w, _: F.rms_norm(x, w.shape, w), _rows_and_weights, BOTH, streaming=True),
    KernelRow("rms_norm_spelled", _llama_norm, _rows_and_weights, BOTH, streaming=True),
    KernelRow("group_norm", lambda x, w, b: F.group_norm(x, 8, w, b), lambda p: (_image(p), *_statistics(p)[:2]), BOTH),
    KernelRow("batch_norm_relu_nhwc", _batch_norm, lambda p: (_nhwc(p), *_statistics(p)), BOTH, streaming=True),
    KernelRow("batch_norm_relu_nchw", _batch_norm, lambda p: (_image(p), *_statistics(p)), BOTH, streaming=True),
    KernelRow("batch_norm_training_nhwc", _batch_norm_training, lambda p: (_nhwc(p), *_statistics(p)[:2]), BOTH),
    KernelRow("batch_norm_training_nchw", _batch_norm_training, lambda p: (_image(p), *_statistics(p)[:2])),
    KernelRow(
        "layer_norm_nchw",
        lambda x, w, b: F.layer_norm(x.permute(0, 2, 3, 1), w.shape, w, b),
        lambda p: (_image(p), *_statistics(p)[:2]),
    ),
    KernelRow("response_norm", _response_norm, lambda p: (_nhwc(p).permute(0, 2, 3, 1), *_statistics(p)[:2])),
    KernelRow("softmax", lambda x: torch.softmax(x, -1), _rows, BOTH, streaming=True),
    KernelRow("softmax_with_mask", lambda x, m: torch.softmax(x * 0.125 + m, -1), _scores, BOTH, streaming=True),
    KernelRow("softmax_columns", lambda x: torch.softmax(x, 0), lambda p: (randn(p(512, 8), p(1024, 40)),)),
    KernelRow("log_softmax", lambda x, _: torch.log_softmax(x, -1), _logits, BOTH, streaming=True),
    KernelRow("log_sum_exp", lambda x, _: torch.logsumexp(x, -1), _logits, BOTH, streaming=True),
    KernelRow("cross_entropy", F.cross_entropy, _logits, BOTH, streaming=True),
    KernelRow("argmax_of_logits", lambda x, _: x.argmax(-1), _logits, BOTH, streaming=True),
    KernelRow("top_k_of_logits", lambda x, _: torch.topk(x, 50), _logits),
    KernelRow(
        "sort_logits",
        lambda x: torch.sort(x, stable=True, descending=True),
        lambda p: (randn(p(4, 2), p(32000, 400)),),
        BOTH,
    ),
    KernelRow("route_to_experts", _route, lambda p: (randn(p(8192, 9), p(64, 16)),), BOTH),
    KernelRow("sort_rows", lambda x: torch.sort(x, -1), lambda p: (randn(p(8192, 9), p(64, 16)),)),
    KernelRow("probability_of_top", lambda x, _: torch.softmax(x, -1).amax(-1), _logits, streaming=True),
    KernelRow("sum_rows", lambda x: x.sum(-1), _rows, BOTH, streaming=True),
    KernelRow("sum_columns", lambda x: x.sum(0), _rows, BOTH, streaming=True),
    KernelRow("variance", lambda x: torch.var(x, -1), _rows, streaming=True),
    KernelRow("maximum_of_rows", lambda x: torch.amax(x, -1), _rows, BOTH, streaming=True),
    KernelRow("maximum_of_columns", lambda x: torch.amax(x, 0), _rows, streaming=True),
    KernelRow("l2_normalize", lambda x: F.normalize(x, dim=-1), _rows, BOTH, streaming=True),
    KernelRow(
        "cosine_similarity",
        lambda x, y: F.cosine_similarity(x, y, -1),
        lambda p: (*_rows(p), *_rows(p)),
        streaming=True,
    ),
    KernelRow("mean_square_error", F.mse_loss, lambda p: (*_rows(p), *_rows(p)), streaming=True),
    KernelRow("global_pool_nchw", lambda x: x.mean((2, 3)), lambda p: (_image(p),), BOTH, streaming=True),
    KernelRow("global_pool_nhwc", lambda x: x.mean((2, 3)), lambda p: (_nhwc(p),), BOTH, streaming=True),
    KernelRow("cumulative_sum", lambda x: torch.cumsum(x, -1), _rows),
    KernelRow("any_nan", lambda x: x.isnan().any(), _rows, streaming=True),
)
