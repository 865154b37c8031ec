"""Shared by all tests: verification on, a kernel cache inside the checkout, a fresh Dynamo and seed for every test."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch._dynamo

import bench_suites

ROOT = Path(__file__).resolve().parent.parent

# Before any test imports the package: it reads its environment once. The cache outlives a run; its keys are contents.
os.environ.setdefault("ICPU_VERIFY", "1")
os.environ.setdefault("ICPU_CACHE_DIR", str(ROOT / "build" / "test_kernel_cache"))

# Declares torchvision's operators before any test imports timm.
assert bench_suites.torchvision_ops.LIBRARY is not None


@pytest.fixture(autouse=True)
def fresh_torch() -> Iterator[None]:
    """Each test starts with seed 0 and nothing compiled."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    yield
    torch._dynamo.reset()
