"""Pointwise chains: activations, gates, residuals, masks, rotary embeddings, quantization."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from bench_suites.kernels.row import BF16, F32, Inputs, KernelRow, Pick

BOTH = (F32, BF16)
randn = torch.randn


def _one(pick: Pick) -> Inputs:
    return (randn(pick(4096, 8, 32), pick(1024, 40)),)


def _two(pick: Pick) -> Inputs:
    return (*_one(pick), *_one(pick))


def _three(pick: Pick) -> Inputs:
    return (*_two(pick), *_one(pick))


def _tokens(pick: Pick) -> Inputs:
    return (torch.randint(0, 50, (pick(64, 2), pick(512, 19))),)


def _image(pick: Pick) -> torch.Tensor:
    side = pick(56, 6, 14)
    return randn(pick(16, 2, 1), pick(96, 20), side, side).to(memory_format=torch.channels_last)


def _heads(pick: Pick) -> Inputs:
    """Query or key by heads, and the cosines and sines of positions."""
    length, head = pick(1024, 9, 64), pick(128, 32)
    return randn(1, pick(32, 2, 2), length, head), randn(length, head), randn(length, head)


def _rotary(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    first, second = x.chunk(2, -1)
    return x * cos + torch.cat((-second, first), -1) * sin


def _rotary_pairs(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    turned = torch.stack((-x[..., 1::2], x[..., ::2]), -1).reshape(x.shape)
    return x * cos + turned * sin


def _geglu(x: torch.Tensor) -> torch.Tensor:
    value, gate = x.chunk(2, -1)
    return value * F.gelu(gate)


def _swiglu(x: torch.Tensor) -> torch.Tensor:
    gate, value = x.chunk(2, -1)
    return F.silu(gate) * value


def _padding_mask(tokens: torch.Tensor) -> torch.Tensor:
    return (1.0 - (tokens != 0)[:, None, None, :].to(F32)) * torch.finfo(F32).min


def _causal_mask(tokens: torch.Tensor) -> torch.Tensor:
    position = torch.arange(tokens.shape[1])
    seen = (position[:, None] >= position) & (tokens != 0)[:, None, :]
    return torch.where(seen, 0.0, -1e9)


def _positions(tokens: torch.Tensor) -> torch.Tensor:
    mask = tokens.ne(1).int()
    return (torch.cumsum(mask, 1).type_as(mask) * mask).long() + 1


def _bucket(tokens: torch.Tensor) -> torch.Tensor:
    """T5's buckets of relative positions."""
    place = torch.arange(tokens.shape[1])
    distance = place[None, :] - place[:, None]
    offset = (distance > 0).to(torch.long) * 16
    distance = distance.abs()
    far = 8 + (torch.log(distance.float() / 8) / 2.772588722239781 * 8).to(torch.long)
    return offset + torch.where(distance < 8, distance, torch.min(far, torch.full_like(far, 15)))


def _photo(pick: Pick) -> Inputs:
    mean, deviation = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
    side = pick(224, 9)
    return torch.randint(0, 256, (pick(16, 2), side, side, 3), dtype=torch.uint8), mean, deviation


def _normalize(photo: torch.Tensor, mean: torch.Tensor, deviation: torch.Tensor) -> torch.Tensor:
    image = photo.permute(0, 3, 1, 2).to(mean.dtype) / 255
    return (image - mean[:, None, None]) / deviation[:, None, None]


def _quantize(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    scale = x.abs().amax(-1, keepdim=True).float() / 127
    return (x / scale).round().clamp(-128, 127).to(torch.int8), scale


def _dequantize(x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    return x.to(scale.dtype) * scale


def _quantize_float8(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    scale = x.abs().amax(-1, keepdim=True).float().clamp(min=1e-12) / 448
    return (x / scale).clamp(-448, 448).to(torch.float8_e4m3fn), scale


def _bf16_chain(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
    return (x + y) * 0.5 + (z - x) * y


POINTWISE = (
    KernelRow("add_relu", lambda x, y: F.relu(x + y), _two, BOTH, streaming=True),
    KernelRow("residual_chain", _bf16_chain, _three, BOTH, streaming=True),
    KernelRow("gelu", F.gelu, _one, BOTH, streaming=True),
    KernelRow("gelu_tanh", lambda x: F.gelu(x, approximate="tanh"), _one, BOTH, streaming=True),
    KernelRow("quick_gelu", lambda x: x * torch.sigmoid(1.702 * x), _one, BOTH, streaming=True),
    KernelRow("silu_and_multiply", lambda x, y: F.silu(x) * y, _two, BOTH, streaming=True),
    KernelRow("swiglu", _swiglu, _one, BOTH, streaming=True),
    KernelRow("geglu", _geglu, _one, BOTH, streaming=True),
    KernelRow("tanh_chain", lambda x: torch.tanh(x * 0.5) * 0.5 + 0.5, _one, BOTH, streaming=True),
    KernelRow("hardswish", F.hardswish, _one, BOTH, streaming=True),
    KernelRow("mish", F.mish, _one),
    KernelRow("elu", F.elu, _one),
    KernelRow("exp_log", lambda x: torch.log1p(torch.exp(-x.abs())), _one),
    KernelRow("soft_cap", lambda x: 30 * torch.tanh(x / 30), _one, BOTH, streaming=True),
    KernelRow("cast_to_bf16", lambda x: x.to(BF16), _one, streaming=True),
    KernelRow("cast_from_bf16", lambda x: x.to(F32), lambda p: (_one(p)[0].to(BF16),), streaming=True),
    KernelRow(
        "layer_scale_residual",
        lambda x, y, g: x + y * g[:, None, None],
        lambda p: (_image(p), _image(p), randn(p(96, 20))),
        BOTH,
        streaming=True,
    ),
    KernelRow(
        "squeeze_and_excite_gate",
        lambda x, s: x * torch.sigmoid(s),
        lambda p: (_image(p), randn(p(16, 2, 1), p(96, 20), 1, 1)),
        BOTH,
        streaming=True,
    ),
    KernelRow("rotary_embedding", _rotary, _heads, BOTH, streaming=True),
    KernelRow("rotary_embedding_of_pairs", _rotary_pairs, _heads, BOTH, streaming=True),
    KernelRow("padding_mask", _padding_mask, _tokens),
    KernelRow("causal_mask", _causal_mask, lambda p: (torch.randint(0, 50, (p(8, 2), p(512, 19))),)),
    KernelRow("positions_from_tokens", _positions, _tokens),
    KernelRow("relative_position_buckets", _bucket, lambda p: (torch.zeros(1, p(1024, 30)),)),
    KernelRow(
        "masked_fill",
        lambda x, m: x.masked_fill(m, -1e4),
        lambda p: (randn(p(64, 2, 1), p(256, 9), p(256, 21)), torch.rand(p(64, 2, 1), 1, p(256, 21)) < 0.2),
        BOTH,
        streaming=True,
    ),
    KernelRow("normalize_photo", _normalize, _photo, BOTH),
    KernelRow("quantize_rows", _quantize, _one, BOTH, streaming=True),
    KernelRow(
        "dequantize_rows",
        _dequantize,
        lambda p: (torch.randint(-128, 128, (p(4096, 8, 32), p(1024, 40)), dtype=torch.int8), randn(p(4096, 8, 32), 1)),
        BOTH,
        streaming=True,
    ),
    KernelRow("quantize_rows_float8", _quantize_float8, _one, BOTH, streaming=True),
    KernelRow(
        "dequantize_rows_float8",
        _dequantize,
        lambda p: (randn(p(4096, 8, 32), p(1024, 40)).to(torch.float8_e4m3fn), randn(p(4096, 8, 32), 1)),
        BOTH,
        streaming=True,
    ),
)
