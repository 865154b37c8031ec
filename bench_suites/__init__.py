"""Models, demonstration and comparisons. The package `inductor_cpu` never imports this."""

from __future__ import annotations

from bench_suites import torchvision_ops

# Declared here, because it has to happen before any module of this package imports timm.
__all__ = ["torchvision_ops"]
