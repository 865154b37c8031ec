"""Where the files that are not Python live."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent


def templates() -> Path:
    """The folder of the C++ templates: inside the package in a wheel, beside it in a checkout."""
    inside = _PACKAGE / "templates"
    return inside if inside.is_dir() else _PACKAGE.parent / "templates"


def native_sources() -> Path:
    """The folder with the C++ of the native executor."""
    return _PACKAGE / "runtime" / "native"


def prelude() -> Path:
    """The header that comes before every generated kernel."""
    return templates() / "prelude" / "icpu.h"
