"""Convolutions of one to three dimensions, plain, grouped, dilated, strided, transposed."""

from __future__ import annotations

from torch import nn

from bench_suites.layers.row import channels_last, layer

_IMAGE = (1, 64, 56, 56)

ROWS = (
    layer("conv1d_3", lambda: nn.Conv1d(128, 128, 3, padding=1), (4, 128, 512)),
    layer("conv1d_7_dilated", lambda: nn.Conv1d(64, 64, 7, padding=9, dilation=3), (2, 64, 2000)),
    layer("conv1d_1", lambda: nn.Conv1d(256, 256, 1), (4, 256, 500)),
    layer("conv1d_depthwise", lambda: nn.Conv1d(256, 256, 31, padding=15, groups=256), (2, 256, 400)),
    layer("conv1d_stem", lambda: nn.Conv1d(1, 512, 10, stride=5), (1, 1, 16000)),
    layer("conv1d_grouped", lambda: nn.Conv1d(768, 768, 128, padding=64, groups=16), (1, 768, 50)),
    layer("conv2d_1x1", lambda: nn.Conv2d(64, 256, 1), _IMAGE),
    layer("conv2d_1x1_channels_last", lambda: nn.Conv2d(64, 256, 1), channels_last(*_IMAGE)),
    layer("conv2d_1x1_stride_2", lambda: nn.Conv2d(256, 512, 1, stride=2), (1, 256, 56, 56)),
    layer("conv2d_3x3", lambda: nn.Conv2d(64, 64, 3, padding=1), _IMAGE),
    layer("conv2d_3x3_channels_last", lambda: nn.Conv2d(64, 64, 3, padding=1), channels_last(*_IMAGE)),
    layer("conv2d_3x3_batch_8", lambda: nn.Conv2d(64, 64, 3, padding=1), (8, 64, 28, 28)),
    layer("conv2d_3x3_stride_2", lambda: nn.Conv2d(128, 128, 3, stride=2, padding=1), (1, 128, 56, 56)),
    layer("conv2d_3x3_dilated", lambda: nn.Conv2d(128, 128, 3, padding=4, dilation=4), (1, 128, 28, 28)),
    layer("conv2d_3x3_reflect", lambda: nn.Conv2d(64, 64, 3, padding=1, padding_mode="reflect"), _IMAGE),
    layer("conv2d_3x3_circular", lambda: nn.Conv2d(64, 64, 3, padding=1, padding_mode="circular"), _IMAGE),
    layer("conv2d_3x3_same", lambda: nn.Conv2d(64, 64, 3, padding="same"), _IMAGE),
    layer("conv2d_5x5", lambda: nn.Conv2d(48, 48, 5, padding=2), (1, 48, 56, 56)),
    layer("conv2d_7x7_stem", lambda: nn.Conv2d(3, 64, 7, stride=2, padding=3), (1, 3, 224, 224)),
    layer("conv2d_3x3_stem", lambda: nn.Conv2d(3, 32, 3, stride=2, padding=1), (1, 3, 224, 224)),
    layer("conv2d_patches", lambda: nn.Conv2d(3, 384, 16, stride=16), (1, 3, 224, 224)),
    layer("conv2d_few_channels", lambda: nn.Conv2d(64, 3, 9, padding=4), (1, 64, 96, 96)),
    layer("conv2d_one_channel", lambda: nn.Conv2d(1, 32, 3), (8, 1, 28, 28)),
    layer("conv2d_1x7", lambda: nn.Conv2d(128, 128, (1, 7), padding=(0, 3)), (1, 128, 28, 28)),
    layer("conv2d_depthwise_3x3", lambda: nn.Conv2d(96, 96, 3, padding=1, groups=96), (1, 96, 56, 56)),
    layer("conv2d_depthwise_5x5_s2", lambda: nn.Conv2d(96, 96, 5, 2, 2, groups=96), (1, 96, 56, 56)),
    layer("conv2d_depthwise_7x7", lambda: nn.Conv2d(96, 96, 7, padding=3, groups=96), (1, 96, 56, 56)),
    layer("conv2d_depthwise_double", lambda: nn.Conv2d(96, 192, 3, padding=1, groups=96), (1, 96, 56, 56)),
    layer("conv2d_grouped_32", lambda: nn.Conv2d(128, 128, 3, padding=1, groups=32), (1, 128, 56, 56)),
    layer("conv2d_grouped_2", lambda: nn.Conv2d(128, 128, 3, padding=1, groups=2), (1, 128, 28, 28)),
    layer("conv3d_3", lambda: nn.Conv3d(16, 32, 3, padding=1), (1, 16, 16, 32, 32)),
    layer("conv3d_1x3x3", lambda: nn.Conv3d(32, 32, (1, 3, 3), padding=(0, 1, 1)), (1, 32, 8, 28, 28)),
    layer("conv3d_3x1x1", lambda: nn.Conv3d(32, 32, (3, 1, 1), padding=(1, 0, 0)), (1, 32, 8, 28, 28)),
    layer("conv3d_stem", lambda: nn.Conv3d(3, 32, (3, 7, 7), (1, 2, 2), (1, 3, 3)), (1, 3, 8, 112, 112)),
    layer("transposed1d_4_s2", lambda: nn.ConvTranspose1d(128, 64, 4, 2, 1), (1, 128, 1000)),
    layer("transposed1d_16_s8", lambda: nn.ConvTranspose1d(256, 128, 16, 8, 4), (1, 256, 200)),
    layer("transposed2d_2x2_s2", lambda: nn.ConvTranspose2d(128, 64, 2, 2), (1, 128, 32, 32)),
    layer("transposed2d_4x4_s2", lambda: nn.ConvTranspose2d(128, 64, 4, 2, 1), (1, 128, 28, 28)),
    layer("transposed2d_3x3_s2", lambda: nn.ConvTranspose2d(128, 64, 3, 2, 1, 1), (1, 128, 28, 28)),
    layer("transposed2d_3x3_s1", lambda: nn.ConvTranspose2d(64, 64, 3, 1, 1), (1, 64, 28, 28)),
    layer("transposed2d_5x5_s2", lambda: nn.ConvTranspose2d(96, 96, 5, 2, 2, 1), (1, 96, 28, 28)),
    layer("transposed2d_grouped", lambda: nn.ConvTranspose2d(64, 64, 4, 2, 1, groups=64), (1, 64, 28, 28)),
    layer("transposed3d_2_s2", lambda: nn.ConvTranspose3d(64, 32, 2, 2), (1, 64, 8, 14, 14)),
)
