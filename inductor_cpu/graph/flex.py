"""flex_attention: attention whose scores a function of the program changes, and another one masks.

The call stays as it is, with its functions as subgraphs. It is marked for a kernel of ours where there is one, and the
fake values in the functions become those that eager mode has: float32 scores, int64 positions.
"""

from __future__ import annotations

import torch
from torch import fx

from inductor_cpu.graph.attention import AttentionChoice
from inductor_cpu.graph.edit import args_of, compute_fake, fake
from inductor_cpu.ir.operators import FLEX_ATTENTION, FLEX_KERNEL


def mark_flexible(gm: fx.GraphModule, choose: AttentionChoice) -> list[str]:
    """Mark the calls that a kernel of ours computes; returns a line for each other one, with the reason."""
    lines = []
    for node in gm.graph.find_nodes(op="call_function", target=FLEX_ATTENTION):
        kernel, reason = choose(fake(args_of(node)[0]).dtype)
        if any(user.args[1] == 2 for user in node.users):
            kernel, reason = None, "its largest scores are a result"
        score, mask = (getattr(gm, str(function.target)) for function in (args_of(node)[3], args_of(node)[4][-1]))
        if any("val" not in n.meta for f in (score, mask) for n in f.graph.nodes if n.op != "output"):
            kernel, reason = None, "a function of its scores holds a tensor"
        if kernel is None:
            lines.append(f"{node.name} runs through Python: {reason}")
            continue
        _retype(score, [torch.float32] + [torch.int64] * 4)
        _retype(mask, [torch.int64] * 4)
        node.meta[FLEX_KERNEL] = kernel
    return lines


def _retype(function: fx.GraphModule, dtypes: list[torch.dtype]) -> None:
    """Give the first arguments these dtypes, and what is computed from them the dtypes that follow."""
    inputs = function.graph.find_nodes(op="placeholder")
    for node, dtype in zip(inputs, dtypes, strict=False):
        node.meta["val"] = fake(node).to(dtype)
    for node in function.graph.nodes:
        # A number that is read from a tensor, or computed from such, keeps its symbol.
        if node.op != "call_function" or not isinstance(fake(node), torch.Tensor):
            continue
        if any(isinstance(fake(n), torch.Tensor) for n in node.all_input_nodes):
            node.meta["val"] = compute_fake(node.target, node.args, node.kwargs)
