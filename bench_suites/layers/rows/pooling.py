"""Pooling, resizing, padding, and other work on images."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from bench_suites.layers.row import Layer, channels_last, function, layer

_SHAPE = (1, 64, 56, 56)
_SEQUENCE = (4, 64, 512)
_VOLUME = (1, 16, 16, 32, 32)


def _resize(name: str, scale: float, mode: str, **options: bool) -> Layer:
    return function(name, lambda x: F.interpolate(x, scale_factor=scale, mode=mode, **options), _SHAPE)


def _pad(name: str, widths: tuple[int, ...], mode: str, shape: tuple[int, ...] = _SHAPE) -> Layer:
    return function(name, lambda x: F.pad(x, widths, mode=mode), shape)


def _grid() -> torch.Tensor:
    return torch.rand(1, 56, 56, 2) * 2.2 - 1.1


ROWS = (
    layer("max_pool1d", lambda: nn.MaxPool1d(3, 2, 1), _SEQUENCE),
    layer("max_pool2d_2", lambda: nn.MaxPool2d(2), _SHAPE),
    layer("max_pool2d_3_s2", lambda: nn.MaxPool2d(3, 2, 1), _SHAPE),
    layer("max_pool2d_3_s2_channels_last", lambda: nn.MaxPool2d(3, 2, 1), channels_last(*_SHAPE)),
    layer("max_pool2d_5_s1", lambda: nn.MaxPool2d(5, 1, 2), _SHAPE),
    layer("max_pool2d_indices", lambda: nn.MaxPool2d(2, return_indices=True), _SHAPE, trained=False),
    layer("max_pool3d", lambda: nn.MaxPool3d(3, 2, 1), _VOLUME),
    layer("avg_pool1d", lambda: nn.AvgPool1d(4), _SEQUENCE),
    layer("avg_pool2d_2", lambda: nn.AvgPool2d(2), _SHAPE),
    layer("avg_pool2d_3_s1", lambda: nn.AvgPool2d(3, 1, 1), _SHAPE),
    layer("avg_pool2d_3_s1_uncounted", lambda: nn.AvgPool2d(3, 1, 1, count_include_pad=False), _SHAPE),
    layer("avg_pool3d", lambda: nn.AvgPool3d(2), _VOLUME),
    layer("adaptive_avg_pool2d_1", lambda: nn.AdaptiveAvgPool2d(1), (8, 256, 14, 14)),
    layer("adaptive_avg_pool2d_7", lambda: nn.AdaptiveAvgPool2d(7), _SHAPE),
    layer("adaptive_avg_pool2d_5", lambda: nn.AdaptiveAvgPool2d(5), _SHAPE),
    layer("adaptive_max_pool2d_7", lambda: nn.AdaptiveMaxPool2d(7), _SHAPE),
    layer("adaptive_max_pool2d_1", lambda: nn.AdaptiveMaxPool2d(1), (8, 256, 14, 14)),
    layer("adaptive_avg_pool3d", lambda: nn.AdaptiveAvgPool3d((4, 4, 4)), _VOLUME),
    layer("lp_pool2d", lambda: nn.LPPool2d(2, 2), _SHAPE),
    layer(
        "fractional_max_pool2d", lambda: nn.FractionalMaxPool2d(2, output_ratio=0.5), _SHAPE, trained=False, random=True
    ),
    function("max_unpool2d", lambda x: F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), (2, 2)), _SHAPE),
    _resize("nearest_2", 2, "nearest"),
    _resize("nearest_half", 0.5, "nearest"),
    _resize("nearest_1.7", 1.7, "nearest"),
    _resize("bilinear_2", 2, "bilinear"),
    _resize("bilinear_2_corners", 2, "bilinear", align_corners=True),
    _resize("bilinear_half", 0.5, "bilinear"),
    _resize("bilinear_0.3_antialias", 0.3, "bilinear", antialias=True),
    _resize("bicubic_2", 2, "bicubic"),
    _resize("area_half", 0.5, "area"),
    function("linear_2", lambda x: F.interpolate(x, scale_factor=2, mode="linear"), _SEQUENCE),
    function("trilinear_2", lambda x: F.interpolate(x, scale_factor=2, mode="trilinear"), _VOLUME),
    function("grid_sample", lambda x, g: F.grid_sample(x, g, align_corners=False), _SHAPE, _grid),
    function("grid_sample_nearest", lambda x, g: F.grid_sample(x, g, "nearest", align_corners=False), _SHAPE, _grid),
    function("affine_grid", lambda t: F.affine_grid(t, [4, 3, 112, 112], align_corners=False), (4, 2, 3)),
    _pad("pad_constant", (3, 3, 3, 3), "constant"),
    _pad("pad_reflect", (3, 3, 3, 3), "reflect"),
    _pad("pad_replicate", (3, 3, 3, 3), "replicate"),
    _pad("pad_circular", (3, 3, 3, 3), "circular"),
    _pad("pad_reflect_1d", (200, 200), "reflect", (1, 1, 16000)),
    layer("pixel_shuffle", lambda: nn.PixelShuffle(2), _SHAPE),
    layer("pixel_unshuffle", lambda: nn.PixelUnshuffle(2), _SHAPE),
    layer("channel_shuffle", lambda: nn.ChannelShuffle(4), _SHAPE),
    layer("unfold", lambda: nn.Unfold(3, padding=1), (1, 32, 28, 28)),
    layer("fold", lambda: nn.Fold((28, 28), 3, padding=1), (1, 288, 784)),
    layer("zero_pad", lambda: nn.ZeroPad2d((0, 1, 0, 1)), _SHAPE),
)
