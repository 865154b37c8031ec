"""Lets torchvision be imported where its C++ library does not load, as with a CPU-only torch.

torchvision registers shape rules for its operators when it is imported, which fails when nobody has declared them. No
model here calls them. Importing `bench_suites` does it, before timm or torchvision.
"""

from __future__ import annotations

import torch

SCHEMAS = {
    "nms": "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms": "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
}


def declare() -> torch.library.Library:
    """Declare the operators that nobody has declared yet. Keep the result: they live as long as it does."""
    library = torch.library.Library("torchvision", "FRAGMENT")
    for name, schema in SCHEMAS.items():
        if not hasattr(torch.ops.torchvision, name):
            library.define(schema)
    return library


LIBRARY = declare()
