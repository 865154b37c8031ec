"""Imports every family of rules, so that `RULES` is full. Add a new family here."""

from __future__ import annotations

from inductor_cpu.lower import (
    activations,
    arithmetic,
    attention,
    concat,
    copies,
    creation,
    depthwise,
    flex,
    indexing,
    moments,
    normalization,
    pointwise,
    pooling,
    products,
    random,
    ranking,
    reductions,
    scans,
    scatter,
    search,
    shaping,
    softmax,
    special,
    symbolic,
    upsample,
    views,
)
from inductor_cpu.lower.registry import RULES

FAMILIES = (
    activations,
    arithmetic,
    attention,
    concat,
    copies,
    creation,
    depthwise,
    flex,
    indexing,
    moments,
    normalization,
    pointwise,
    pooling,
    products,
    random,
    ranking,
    reductions,
    scans,
    scatter,
    search,
    shaping,
    softmax,
    special,
    symbolic,
    upsample,
    views,
)

__all__ = ["FAMILIES", "RULES"]
