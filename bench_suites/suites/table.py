"""All suites by name. A suite is imported when it is first asked for: their packages take seconds to import."""

from __future__ import annotations

import importlib
from collections.abc import Mapping

from bench_suites.suites.case import Row, Suite

MODULES: Mapping[str, tuple[str, str]] = {
    "torchbench": ("torchbench", "TORCHBENCH"),
    "huggingface": ("hugging_face", "HUGGING_FACE"),
    "timm": ("timm_models", "TIMM"),
    "kernels": ("kernels", "KERNELS"),
    "gemm": ("gemm", "GEMM"),
    "attention": ("attention", "ATTENTION"),
    "odd": ("odd", "ODD"),
}
"""The module and the name in it."""

NAMES = tuple(name for name in MODULES if name != "odd")
"""The suites that a person runs; `odd` is for the tests of the runner."""


def load(name: str) -> Suite:
    """The suite `name`. Raises KeyError."""
    module, attribute = MODULES[name]
    suite: Suite = getattr(importlib.import_module(f"bench_suites.suites.{module}"), attribute)
    return suite


def find(suite: str, model: str) -> tuple[Suite, Row]:
    """A suite and one of its rows. Raises KeyError."""
    found = load(suite)
    for row in found.rows:
        if row.name == model:
            return found, row
    raise KeyError(f"{suite} has no model {model!r}")
