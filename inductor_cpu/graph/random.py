"""Random operators whose numbers loops compute, from a seed of eager's generator, are marked (`lower/random.py`).

Where the program asks for eager's own numbers (`config.fallback_random`), none is. A call within
`run_and_save_rng_state` is not in the graph itself: ATen draws there, in the forward pass and again in the backward.
"""

from __future__ import annotations

import torch
from torch import fx

from inductor_cpu.ir.operators import DRAWN_IN_LOOPS


def draw_in_loops(gm: fx.GraphModule) -> None:
    """Mark every random operator of the graph."""
    for node in gm.graph.nodes:
        if isinstance(node.target, torch._ops.OpOverload) and torch.Tag.nondeterministic_seeded in node.target.tags:
            node.meta[DRAWN_IN_LOOPS] = True
