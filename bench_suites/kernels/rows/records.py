"""Short last dimensions: boxes, points, complex numbers, classes of a few."""

from __future__ import annotations

import torch

from bench_suites.kernels.row import BF16, F32, Inputs, KernelRow, Pick

BOTH = (F32, BF16)
randn = torch.randn


def _boxes(pick: Pick) -> Inputs:
    return (randn(pick(400_000, 23, 8000), 4),)


def _pairs(pick: Pick) -> Inputs:
    count = pick(400_000, 23, 8000)
    return randn(count, 2), randn(count, 2)


def _points(pick: Pick) -> Inputs:
    return (randn(pick(400_000, 23), 3),)


def _corners(boxes: torch.Tensor) -> torch.Tensor:
    x, y, width, height = boxes.unbind(-1)
    return torch.stack([x - 0.5 * width, y - 0.5 * height, x + 0.5 * width, y + 0.5 * height], -1)


def _clipped(boxes: torch.Tensor) -> torch.Tensor:
    return torch.cat([boxes[:, :2].clamp(0, 640), boxes[:, 2:].clamp(0, 480)], -1)


def _overlaps(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Intersection over union of each box with each."""
    first, last = torch.max(a[:, None, :2], b[:, :2]), torch.min(a[:, None, 2:], b[:, 2:])
    sides = (last - first).clamp(min=0)
    common, areas = sides[..., 0] * sides[..., 1], [(x[:, 2:] - x[:, :2]).prod(-1) for x in (a, b)]
    return common / (areas[0][:, None] + areas[1] - common)


def _complex_product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    real = a[:, 0] * b[:, 0] - a[:, 1] * b[:, 1]
    return torch.stack([real, a[:, 0] * b[:, 1] + a[:, 1] * b[:, 0]], -1)


def _updated(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    x = x.clone()
    x[1:-1, :, 2] = y[1:-1, :, 0] * y[1:-1, :, 1]
    return x


RECORDS = (
    KernelRow("corners_of_boxes", _corners, _boxes, BOTH, streaming=True),
    KernelRow("clip_boxes", _clipped, _boxes, BOTH, streaming=True),
    KernelRow("overlaps_of_boxes", _overlaps, lambda p: (randn(p(1000, 9), 4), randn(p(1000, 7), 4))),
    KernelRow("complex_product", _complex_product, _pairs, BOTH, streaming=True),
    KernelRow("unit_vectors", lambda x: x / x.norm(dim=-1, keepdim=True), _points, BOTH),
    KernelRow(
        "rotate_points",
        lambda turn, x: torch.einsum("nij,nj->ni", turn, x),
        lambda p: (randn(p(100_000, 23), 3, 3), randn(p(100_000, 23), 3)),
        BOTH,
    ),
    KernelRow("products_of_matrices", torch.bmm, lambda p: tuple(randn(p(50_000, 23), 4, 4) for _ in range(2))),
    KernelRow("update_a_coordinate", _updated, lambda p: (randn(p(400, 5), 1000, 3), randn(p(400, 5), 1000, 2))),
    KernelRow("best_of_few_classes", lambda x: x.argmax(-1), lambda p: (randn(p(400_000, 23), 5),), BOTH),
)
