"""Normalization, dropout and activation functions."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from bench_suites.layers.row import Layer, channels_last, function, layer

_TOKENS = (4, 197, 768)
_IMAGES = (4, 64, 28, 28)

_ACTIVATIONS: tuple[tuple[str, type[nn.Module]], ...] = (
    ("relu", nn.ReLU),
    ("relu6", nn.ReLU6),
    ("leaky_relu", nn.LeakyReLU),
    ("prelu", nn.PReLU),
    ("elu", nn.ELU),
    ("celu", nn.CELU),
    ("selu", nn.SELU),
    ("gelu", nn.GELU),
    ("silu", nn.SiLU),
    ("mish", nn.Mish),
    ("sigmoid", nn.Sigmoid),
    ("log_sigmoid", nn.LogSigmoid),
    ("tanh", nn.Tanh),
    ("tanhshrink", nn.Tanhshrink),
    ("softplus", nn.Softplus),
    ("softsign", nn.Softsign),
    ("softshrink", nn.Softshrink),
    ("hardshrink", nn.Hardshrink),
    ("hardswish", nn.Hardswish),
    ("hardsigmoid", nn.Hardsigmoid),
    ("hardtanh", nn.Hardtanh),
)


def _activation(name: str, make: type[nn.Module]) -> Layer:
    return layer(name, make, _TOKENS)


ROWS = (
    *(_activation(name, make) for name, make in _ACTIVATIONS),
    layer("rrelu", nn.RReLU, _TOKENS, random=True),
    layer("gelu_tanh", lambda: nn.GELU(approximate="tanh"), _TOKENS),
    layer("glu", nn.GLU, _TOKENS),
    layer("softmax", lambda: nn.Softmax(-1), _TOKENS),
    layer("softmax_columns", lambda: nn.Softmax(1), _TOKENS),
    layer("softmin", lambda: nn.Softmin(-1), _TOKENS),
    layer("log_softmax", lambda: nn.LogSoftmax(-1), (64, 32000)),
    layer("softmax_2d", nn.Softmax2d, _IMAGES),
    function("gumbel_softmax", lambda x: F.gumbel_softmax(x, tau=0.5), _TOKENS, random=True),
    layer("batch_norm_2d", lambda: nn.BatchNorm2d(64), _IMAGES),
    layer("batch_norm_2d_channels_last", lambda: nn.BatchNorm2d(64), channels_last(*_IMAGES)),
    layer("batch_norm_1d", lambda: nn.BatchNorm1d(768), (128, 768)),
    layer("batch_norm_1d_sequence", lambda: nn.BatchNorm1d(64), (4, 64, 512)),
    layer("batch_norm_3d", lambda: nn.BatchNorm3d(16), (1, 16, 16, 32, 32)),
    layer("instance_norm_2d", lambda: nn.InstanceNorm2d(64), _IMAGES),
    layer("instance_norm_1d", lambda: nn.InstanceNorm1d(64, affine=True), (4, 64, 512)),
    layer("group_norm", lambda: nn.GroupNorm(32, 64), _IMAGES),
    layer("group_norm_1", lambda: nn.GroupNorm(1, 64), _IMAGES),
    layer("layer_norm", lambda: nn.LayerNorm(768), _TOKENS),
    layer("layer_norm_plane", lambda: nn.LayerNorm([28, 28]), _IMAGES),
    layer("rms_norm", lambda: nn.RMSNorm(768), _TOKENS),
    layer("local_response_norm", lambda: nn.LocalResponseNorm(5), _IMAGES),
    function("normalize", lambda x: F.normalize(x, dim=-1), _TOKENS),
    function("normalize_channels", lambda x: F.normalize(x, dim=1), _IMAGES),
    layer("dropout", lambda: nn.Dropout(0.1), _TOKENS, random=True),
    layer("dropout_2d", lambda: nn.Dropout2d(0.1), _IMAGES, random=True),
    layer("alpha_dropout", lambda: nn.AlphaDropout(0.1), _TOKENS, random=True),
    function(
        "weight_standardization",
        lambda w: (w - w.mean((1, 2, 3), True)) / (w.std((1, 2, 3), keepdim=True) + 1e-5),
        (256, 64, 3, 3),
    ),
    function("squared_relu", lambda x: torch.relu(x).square(), _TOKENS),
)
