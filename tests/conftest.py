"""Shared by all tests: verification on, a kernel cache inside the checkout, a fresh Dynamo and seed for every test."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch._dynamo

import bench_suites
from inductor_cpu.runtime.cache import content_key
from inductor_cpu.runtime.private import why_parents_unsafe

ROOT = Path(__file__).resolve().parent.parent


def _cache_folder() -> str:
    """Inside the checkout; elsewhere if other users may write to a folder above it, as on some build machines."""
    inside = ROOT / "build" / "test_kernel_cache"
    outside = Path(tempfile.gettempdir()) / f"icpu-tests-{os.geteuid()}" / content_key(str(ROOT))
    return str(outside if why_parents_unsafe(inside.parent) else inside)


# Before any test imports the package: it reads its environment once. The cache outlives a run; its keys are contents.
os.environ.setdefault("ICPU_VERIFY", "1")
os.environ.setdefault("ICPU_CACHE_DIR", _cache_folder())

# A shell starts what runs in the background (`nohup make test &`) with SIGINT ignored, and programs inherit that: the
# tests of interrupts would wait for ever.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Declares torchvision's operators before any test imports timm.
assert bench_suites.torchvision_ops.LIBRARY is not None


@pytest.fixture(autouse=True)
def fresh_torch() -> Iterator[None]:
    """Each test starts with seed 0 and nothing compiled."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    yield
    torch._dynamo.reset()
