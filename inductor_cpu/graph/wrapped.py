"""Calls that AOTAutograd hands over inside a higher-order operator become what the lowering expects.

`with_effects` keeps calls with effects (checks of linear algebra, prints) in order by tokens. Our programs keep their
order without: the wrapper goes, and the call is marked. `run_and_save_rng_state` and `run_with_rng_state` let a
recomputed forward draw the same random numbers; they stay calls, and get the fake values that they come without.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import torch
from torch import fx
from torch._higher_order_ops.effects import with_effects
from torch._prims.rng_prims import run_and_save_rng_state, run_with_rng_state
from torch._subclasses.fake_tensor import FakeTensor, maybe_get_fake_mode
from torch.utils import _pytree as pytree

from inductor_cpu.ir.nodes import ORDERED

_TOKENS = (torch.ops.prims._make_token.default, torch.ops.prims._sink_tokens.default)


def unwrap_effects(gm: fx.GraphModule) -> int:
    """Replace every `with_effects` by its call, marked as ordered; returns how many there were."""
    wrapped = gm.graph.find_nodes(op="call_function", target=with_effects)
    for node in wrapped:
        _unwrap(gm.graph, node)
    for target in _TOKENS[::-1]:
        for node in gm.graph.find_nodes(op="call_function", target=target):
            gm.graph.erase_node(node)
    return len(wrapped)


def _unwrap(graph: fx.Graph, node: fx.Node) -> None:
    """Results of the wrapper: the token, then those of the call."""
    token, target, *args = node.args
    assert isinstance(token, fx.Node)
    _, *values = node.meta["val"]
    single = isinstance(target, torch._ops.OpOverload) and len(target._schema.returns) <= 1
    with graph.inserting_before(node):
        call = graph.call_function(target, tuple(args), node.kwargs)  # type: ignore[arg-type]
    call.meta = {**node.meta, "val": values[0] if single else tuple(values), ORDERED: True}
    for user in list(node.users):
        position = user.args[1]
        assert isinstance(position, int)
        if position == 0:
            user.replace_all_uses_with(token)
            graph.erase_node(user)
        elif single:
            user.replace_all_uses_with(call)
            graph.erase_node(user)
        else:
            user.args = (call, position - 1)
    graph.erase_node(node)


def complete_replays(gm: fx.GraphModule) -> None:
    """Give calls that save or replay a generator's state their fake values."""
    for node in gm.graph.find_nodes(op="call_function", target=run_and_save_rng_state):
        results = {user.args[1]: user.meta.get("val") for user in node.users if user.target is operator.getitem}
        if "val" not in node.meta:
            node.meta["val"] = (results.get(0, torch.get_rng_state()), results.get(1))
    for node in gm.graph.find_nodes(op="call_function", target=run_with_rng_state):
        if "val" not in node.meta:
            _, target, *args = node.args
            node.meta["val"] = _fake_result(target, args, node.kwargs)


def _fake_result(target: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """The fake value of a call of `target`."""
    fakes, named = fx.map_arg((tuple(args), kwargs), lambda node: node.meta["val"])
    modes = (maybe_get_fake_mode(leaf) for leaf in pytree.tree_leaves((fakes, named)) if isinstance(leaf, FakeTensor))
    mode = next(modes, None) or torch._guards.detect_fake_mode()
    assert mode is not None
    with mode:
        return target(*fakes, **named)
