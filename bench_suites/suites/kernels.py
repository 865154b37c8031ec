"""Single kernels: the pointwise chains, reductions, normalizations, copies and lookups that models are made of."""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

from bench_suites.suites.case import Case, Request, Row, Suite

Function = Callable[..., torch.Tensor]
Inputs = Callable[[int, int], tuple[torch.Tensor, ...]]


class Call(nn.Module):
    """A function as a module."""

    def __init__(self, function: Function) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        """The function of the inputs."""
        return self.function(*inputs)


def _matrix(rows: int, columns: int) -> tuple[torch.Tensor, ...]:
    return (torch.randn(rows, columns),)


def _matrices(rows: int, columns: int) -> tuple[torch.Tensor, ...]:
    return torch.randn(rows, columns), torch.randn(rows, columns)


def _matrix_and_row(rows: int, columns: int) -> tuple[torch.Tensor, ...]:
    return torch.randn(rows, columns), torch.randn(columns)


def _lookup(rows: int, columns: int) -> tuple[torch.Tensor, ...]:
    return torch.randint(0, rows, (rows,)), torch.randn(rows, columns)


def _image(rows: int, columns: int) -> tuple[torch.Tensor, ...]:
    side = max(8, int((rows * columns / 64) ** 0.5))
    return (torch.randn(1, 64, side, side),)


FUNCTIONS: dict[str, tuple[Function, Inputs]] = {
    "add_relu": (lambda x, y: F.relu(x + y), _matrices),
    "gelu": (F.gelu, _matrix),
    "silu_and_multiply": (lambda x, y: F.silu(x) * y, _matrices),
    "tanh_chain": (lambda x: torch.tanh(x * 0.5) * 0.5 + 0.5, _matrix),
    "exp_log": (lambda x: torch.log1p(torch.exp(-x.abs())), _matrix),
    "transposed_add": (lambda x, y: x.t().contiguous() + y.t(), _matrices),
    "softmax": (lambda x: torch.softmax(x, -1), _matrix),
    "softmax_columns": (lambda x: torch.softmax(x, 0), _matrix),
    "log_softmax": (lambda x: torch.log_softmax(x, -1), _matrix),
    "layer_norm": (lambda x, w: F.layer_norm(x, w.shape, w, w), _matrix_and_row),
    "rms_norm": (lambda x, w: F.rms_norm(x, w.shape, w), _matrix_and_row),
    "sum_rows": (lambda x: x.sum(-1), _matrix),
    "sum_columns": (lambda x: x.sum(0), _matrix),
    "variance": (lambda x: torch.var(x, -1), _matrix),
    "maximum_of_rows": (lambda x: torch.amax(x, -1), _matrix),
    "concatenate": (lambda x, y: torch.cat([x * 2, y + 1], -1), _matrices),
    "embedding": (lambda i, w: F.embedding(i, w), _lookup),
    "max_pool": (lambda x: F.max_pool2d(x, 3, 2, 1), _image),
    "average_pool": (lambda x: F.avg_pool2d(x, 2), _image),
    "upsample_bilinear": (lambda x: F.interpolate(x, scale_factor=2.0, mode="bilinear"), _image),
    "upsample_nearest": (lambda x: F.interpolate(x, scale_factor=2.0), _image),
}


def _build(function: Function, inputs: Inputs, request: Request) -> Case:
    rows, columns = (8, 40) if request.tiny else (1024 * (request.batch or 1), 1024)
    return Case(Call(function), inputs(rows, columns))


KERNELS = Suite(
    "kernels",
    tuple(
        Row(name, functools.partial(_build, function, inputs), modes=("inference",))
        for name, (function, inputs) in FUNCTIONS.items()
    ),
    inference=1e-4,
    training=1e-4,
    low_precision=1e-3,
)
