"""icpu: a torch.compile backend for x86 CPUs. `torch.compile(model, backend="icpu")`.

This module stays light: the compiler itself is imported when the backend is first looked up or `explain` or `repack` is
first used.
"""

from __future__ import annotations

import importlib
from importlib.metadata import EntryPoint
from typing import Any

from torch._dynamo.backends import registry

from inductor_cpu import config
from inductor_cpu.errors import IcpuError, InternalError, Unsupported, UserError

__version__ = "0.1.0"
__all__ = ["IcpuError", "InternalError", "Unsupported", "UserError", "__version__", "config", "explain", "repack"]

# An installed package is found by its entry point, with no import. This does the same for a checkout on sys.path, and
# unlike `register_backend` it neither imports the compiler now nor collides with the entry point later. A backend that
# is known already is that of an earlier import, whose modules are gone.
registry._BACKENDS["icpu"] = EntryPoint(name="icpu", value="inductor_cpu.backend:icpu", group="torch_dynamo_backends")
registry._COMPILER_FNS.pop("icpu", None)

_LAZY = {"explain": "inductor_cpu.explanation", "repack": "inductor_cpu.runtime.weights"}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(importlib.import_module(_LAZY[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
