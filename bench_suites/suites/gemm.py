"""Matrix products alone: the shapes of transformers and of a classifier, as one linear layer each."""

from __future__ import annotations

import functools

import torch
from torch import nn

from bench_suites.suites.case import Case, Request, Row, Suite

SHAPES: tuple[tuple[int, int, int], ...] = (
    (1, 1024, 1024),
    (1, 4096, 4096),
    (16, 1024, 4096),
    (128, 768, 768),
    (128, 768, 3072),
    (128, 3072, 768),
    (128, 512, 8192),
    (384, 1024, 1024),
    (512, 2048, 2048),
    (1024, 1024, 1000),
)
"""Rows of the input, its features, and features of the output: whole modules, for `bench_suites run gemm`."""

#: What `bench_suites/gemm` measures against the limits of the machine: rows, and (features, outputs) of weights.
ROWS: tuple[int, ...] = (32, 128, 197, 512)
WEIGHTS: tuple[tuple[int, int], ...] = (
    (768, 768),
    (768, 2304),
    (768, 3072),
    (3072, 768),
    (1024, 4096),
    (4096, 4096),
)
ONE_ROW: tuple[tuple[int, int, int], ...] = (
    *((1, features, outputs) for features, outputs in WEIGHTS),
    (4, 4096, 4096),
    (16, 4096, 4096),
)

#: Rows and features of MLPs with small weights: the first stages of Swin and ConvNeXt, a small ViT, a batch.
MLPS: tuple[tuple[int, int], ...] = ((3136, 96), (784, 192), (1576, 192), (12544, 96))


class Up(nn.Module):
    """The first half of an MLP: rows normalized, four times as many features, gelu."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.norm, self.linear = nn.LayerNorm(features), nn.Linear(features, 4 * features)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x (rows, features); (rows, 4 * features)."""
        return nn.functional.gelu(self.linear(self.norm(x)))


class Down(nn.Module):
    """The second half: back to the features, added to the rows."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.linear = nn.Linear(4 * features, features)

    def forward(self, x: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:
        """x (rows, features), hidden (rows, 4 * features); (rows, features)."""
        return x + self.linear(hidden)


class Mlp(nn.Module):
    """Both halves."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.up, self.down = Up(features), Down(features)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x (rows, features); (rows, features)."""
        return self.down(x, self.up(x))


class Int8Linear(nn.Module):
    """A linear layer of bytes with a scale for each column."""

    weight: torch.Tensor
    scale: torch.Tensor
    bias: torch.Tensor

    def __init__(self, features: int, outputs: int) -> None:
        super().__init__()
        self.register_buffer("weight", torch.randint(-128, 128, (outputs, features), dtype=torch.int8))
        self.register_buffer("scale", torch.rand(outputs) * 0.01)
        self.register_buffer("bias", torch.randn(outputs))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x (rows, features) of int8; (rows, outputs) of float32."""
        return torch._int_mm(x, self.weight.t()) * self.scale + self.bias


class WeightOnlyLinear(nn.Module):
    """A linear layer of bf16 with a weight of bytes and a scale for each column."""

    weight: torch.Tensor
    scale: torch.Tensor

    def __init__(self, features: int, outputs: int) -> None:
        super().__init__()
        self.register_buffer("weight", torch.randint(-128, 128, (outputs, features), dtype=torch.int8))
        self.register_buffer("scale", (torch.rand(outputs) * 0.01).bfloat16())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x (rows, features) of bf16; (rows, outputs) of bf16."""
        return torch.ops.aten._weight_int8pack_mm(x, self.weight, self.scale)


def _build(rows: int, features: int, outputs: int, request: Request) -> Case:
    if request.tiny:
        rows, features, outputs = min(rows, 8), 32, 48
    return Case(nn.Linear(features, outputs), (torch.randn(rows * (request.batch or 1), features),))


GEMM = Suite(
    "gemm",
    tuple(Row(f"linear_{m}x{k}x{n}", functools.partial(_build, m, k, n)) for m, k, n in SHAPES),
    inference=1e-4,
    training=1e-4,
    low_precision=1e-3,
)
