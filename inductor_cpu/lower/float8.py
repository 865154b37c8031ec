"""Floats of 8 bits: eager mode only moves them, chooses among them and converts them, and so do loops.

Every other operator on them is a call, which raises what eager mode raises.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from inductor_cpu.errors import Unsupported
from inductor_cpu.ir.ops import FLOAT8

_VIEWS = (
    "view reshape _unsafe_view _reshape_alias unsqueeze squeeze collapse_view split_dim permute transpose t movedim "
    "expand broadcast_in_dim slice narrow select unbind split split_with_sizes unsafe_split diagonal unfold as_strided"
)
_COPIES = "alias detach lift_fresh view_of clone lift_fresh_copy contiguous _to_copy convert_element_type copy copy_"
_NEW = "full full_like new_full fill zeros zeros_like new_zeros empty empty_like empty_strided new_empty zero ones"
_MOVES = "cat stack constant_pad_nd repeat roll where index _unsafe_index index_select embedding"
_WRITES = "index_put _unsafe_index_put slice_scatter select_scatter diagonal_scatter"

#: Operators that have loops for them.
OPERATORS: frozenset[str] = frozenset(" ".join((_VIEWS, _COPIES, _NEW, _MOVES, _WRITES)).split())


def check(node: fx.Node, dtype: torch.dtype) -> None:
    """Raise Unsupported if a dtype among the tensors of a node is a float of 8 bits that its operator computes with."""
    if dtype not in FLOAT8:
        return
    target: Any = node.target
    name = str(target._schema.name).rpartition("::")[2]
    accumulates = name in ("index_put", "_unsafe_index_put") and any(x is True for x in node.args[3:])
    if name not in OPERATORS or accumulates:
        raise Unsupported(node, f"{dtype} is only moved and converted")
