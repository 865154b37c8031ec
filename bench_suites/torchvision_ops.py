"""Lets torchvision be imported where its C++ library does not load, as with a CPU-only torch.

torchvision registers shape rules for its operators when it is imported, which fails when nobody has declared them. No
model here calls them. Importing `bench_suites` does it, before timm or torchvision.
"""

from __future__ import annotations

from importlib.machinery import PathFinder

import torch

SCHEMAS = {
    "nms": "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms": "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
}


def loads_own(package: str = "torchvision") -> bool:
    """Load the package's C++ library, if it is there and fits this torch; whether it did. It declares the operators,
    and ends the process where somebody has before."""
    found = PathFinder.find_spec(package)
    library = PathFinder.find_spec("_C", found.submodule_search_locations) if found is not None else None
    if library is None or library.origin is None:
        return False
    try:
        torch.ops.load_library(library.origin)
    except OSError:
        return False
    return True


def declare() -> torch.library.Library:
    """Declare the operators that nobody has declared yet. Keep the result: they live as long as it does."""
    library = torch.library.Library("torchvision", "FRAGMENT")
    for name, schema in SCHEMAS.items():
        if not hasattr(torch.ops.torchvision, name):
            library.define(schema)
    return library


LIBRARY = None if loads_own() else declare()
