"""Spectra, decompositions, solvers, and short programs of several layers."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from bench_suites.layers.row import function, layer


def _definite() -> torch.Tensor:
    x = torch.randn(4, 48, 48)
    return x @ x.mT + 48 * torch.eye(48)


def _squares() -> torch.Tensor:
    return torch.randn(4, 32, 32) + 6 * torch.eye(32)


def _mel(x: torch.Tensor) -> torch.Tensor:
    spectrum = torch.stft(x, 400, 160, window=torch.hann_window(400), return_complex=True).abs().square()
    return (torch.linspace(0, 1, 80 * 201).view(80, 201) @ spectrum).clamp_min(1e-10).log10()


def _rotary(x: torch.Tensor) -> torch.Tensor:
    angles = torch.arange(x.shape[2])[:, None] / 10000 ** (torch.arange(0, 64, 2) / 64)
    cos, sin = angles.cos().repeat(1, 2).to(x.dtype), angles.sin().repeat(1, 2).to(x.dtype)
    first, second = x.chunk(2, -1)
    return x * cos + torch.cat((-second, first), -1) * sin


class _SqueezeExcite(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down, self.up = nn.Conv2d(96, 24, 1), nn.Conv2d(24, 96, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * torch.sigmoid(self.up(F.silu(self.down(x.mean((2, 3), keepdim=True)))))


class _Bottleneck(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(
            *(nn.Conv2d(64, 64, 3, padding=1, bias=False), nn.BatchNorm2d(64), nn.ReLU()),
            *(nn.Conv2d(64, 64, 3, padding=1, bias=False), nn.BatchNorm2d(64)),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(super().forward(x) + x)


ROWS = (
    function("fft", lambda x: torch.view_as_real(torch.fft.fft(x)), (16, 1024), low_precision=False),
    function(
        "rfft_and_back", lambda x: torch.fft.irfft(torch.fft.rfft(x) * 0.5, n=1024), (16, 1024), low_precision=False
    ),
    function("fft2_filter", lambda x: torch.fft.ifft2(torch.fft.fft2(x)).real, (3, 128, 128), low_precision=False),
    function(
        "stft",
        lambda x: torch.view_as_real(torch.stft(x, 400, 160, window=torch.hann_window(400), return_complex=True)),
        (2, 16000),
        low_precision=False,
    ),
    function("mel_spectrogram", _mel, (2, 16000), low_precision=False),
    function("cholesky", torch.linalg.cholesky, _definite, low_precision=False),
    function("inverse", torch.linalg.inv, _squares, low_precision=False),
    function("solve", lambda a, b: torch.linalg.solve(a, b), _squares, (4, 32, 8), low_precision=False),
    function("determinant", torch.linalg.det, _squares, low_precision=False),
    function("qr", lambda a: torch.linalg.qr(a)[1], _squares, low_precision=False),
    function("singular_values", torch.linalg.svdvals, _squares, low_precision=False),
    function("eigenvalues", torch.linalg.eigvalsh, _definite, low_precision=False),
    function("matrix_exp", torch.linalg.matrix_exp, lambda: _squares() * 0.05, low_precision=False),
    layer(
        "spectral_norm_linear",
        lambda: nn.utils.parametrizations.spectral_norm(nn.Linear(256, 256)),
        (32, 256),
        low_precision=False,
    ),
    layer("weight_norm_linear", lambda: nn.utils.parametrizations.weight_norm(nn.Linear(256, 256)), (32, 256)),
    function("rotary", _rotary, (1, 12, 256, 64)),
    layer("squeeze_excite", _SqueezeExcite, (1, 96, 28, 28)),
    layer("residual_block", _Bottleneck, (1, 64, 28, 28)),
    layer("mlp", lambda: nn.Sequential(nn.Linear(256, 1024), nn.GELU(), nn.Linear(1024, 256)), (64, 256)),
    function("swiglu", lambda x, y: F.silu(x) * y, (128, 2048), (128, 2048)),
)
