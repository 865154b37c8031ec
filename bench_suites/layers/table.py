"""All layers, in one table."""

from __future__ import annotations

from bench_suites.layers.row import Layer
from bench_suites.layers.rows import convolution, dense, indexing, loss, norm, pointwise, pooling, reduction, signal

LAYERS: tuple[Layer, ...] = (
    *convolution.ROWS,
    *pooling.ROWS,
    *norm.ROWS,
    *dense.ROWS,
    *loss.ROWS,
    *pointwise.ROWS,
    *reduction.ROWS,
    *indexing.ROWS,
    *signal.ROWS,
)
