"""Calls of ATen and other operators: arguments as strided views, results as new buffers."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from inductor_cpu.errors import Unsupported
from inductor_cpu.ir.index import Sym
from inductor_cpu.ir.nodes import Extern, View
from inductor_cpu.lower.context import Lowering, meta_of
from inductor_cpu.lower.library import LIBRARY
from inductor_cpu.lower.sizes import new_symbol, size_expr, size_exprs, stride_exprs
from inductor_cpu.lower.values import TensorValue, loop_dims, point

aten = torch.ops.aten

#: Why random operators are extern calls.
RANDOM = "random numbers follow eager's generator stream"

#: Attention kernels are tagged as random for the sake of their dropout: its position among the arguments.
_DROPOUT: dict[Any, int] = {aten._scaled_dot_product_flash_attention_for_cpu.default: 3}


def is_random(node: fx.Node) -> bool:
    """Whether a call draws from a generator, so that its place in the program matters."""
    target = node.target
    if not isinstance(target, torch._ops.OpOverload) or torch.Tag.nondeterministic_seeded not in target.tags:
        return False
    if target in _DROPOUT:
        position = _DROPOUT[target]
        return bool(node.args[position] if len(node.args) > position else node.kwargs.get("dropout_p", 0.0))
    return True


def reason_for(node: fx.Node) -> str:
    """Why a call without a lowering rule goes to a library."""
    if is_random(node):
        return RANDOM
    if not isinstance(node.target, torch._ops.OpOverload):
        return f"{node.target} is not an operator"
    if node.target.namespace == "mkldnn":
        return "oneDNN, with packed weights and post-ops"
    return LIBRARY.get(node.target._schema.name, f"{node.target} has no lowering rule")


def argument(ctx: Lowering, node: fx.Node, value: Any) -> Any:
    """A lowered value as an extern argument; a tensor that is no strided view is copied first."""
    if isinstance(value, TensorValue):
        view = ctx.strided(value)
        if view is None:
            view = ctx.strided(ctx.copy(node, value))
        assert view is not None
        return view
    if isinstance(value, (tuple, list)):
        return tuple(argument(ctx, node, item) for item in value)
    return value


def result(ctx: Lowering, node: fx.Node, fake: Any, outputs: list[str | None], ints: list[tuple[int, Sym]]) -> Any:
    """Buffers for the results that `fake` describes, appended to `outputs` in flattened order."""
    if isinstance(fake, torch.Tensor):
        if fake.layout != torch.strided:
            raise Unsupported(node, f"a result with layout {fake.layout}")
        buffer = ctx.new_buffer(fake.dtype, size_exprs(fake.shape), stride_exprs(fake.stride()), "extern")
        outputs.append(buffer.name)
        dims = loop_dims(buffer.sizes)
        return TensorValue(buffer.name, buffer.dtype, dims, point(dims))
    if isinstance(fake, (torch.SymInt, torch.SymBool)):
        symbol = new_symbol(fake)
        if symbol is not None:
            ints.append((len(outputs), symbol))
        outputs.append(None)
        return size_expr(fake)
    if isinstance(fake, (tuple, list)):
        return tuple(result(ctx, node, item, outputs, ints) for item in fake)
    if fake is None or isinstance(fake, (bool, int, float)):
        outputs.append(None)
        return fake
    raise Unsupported(node, f"a result of type {type(fake).__name__}")


def call(ctx: Lowering, node: fx.Node, args: Any, kwargs: dict[str, Any], reason: str) -> Any:
    """Append an Extern for an FX node and return its lowered results."""
    fixed_args = tuple(argument(ctx, node, a) for a in args)
    fixed_kwargs = tuple((k, argument(ctx, node, v)) for k, v in kwargs.items())
    outputs: list[str | None] = []
    ints: list[tuple[int, Sym]] = []
    value = result(ctx, node, node.meta.get("val"), outputs, ints) if has_results(node) else None
    ctx.nodes.append(
        Extern(
            name=ctx.fresh("extern"),
            target=node.target,
            args=fixed_args,
            kwargs=fixed_kwargs,
            outputs=tuple(outputs),
            reason=reason,
            int_outputs=tuple(ints),
            mutates=mutated(node, fixed_args, fixed_kwargs),
            ordered=is_ordered(node),
            origins=(node.name,),
        )
    )
    return value


def has_results(node: fx.Node) -> bool:
    """Whether a call returns anything: an operator without returns has no results, not a result that is None."""
    return not isinstance(node.target, torch._ops.OpOverload) or bool(node.target._schema.returns)


def is_ordered(node: fx.Node) -> bool:
    """Whether a call must keep its place among others: random numbers, effects, anything not a pure operator."""
    if not isinstance(node.target, torch._ops.OpOverload):
        return True
    return is_random(node) or node.target._schema.is_mutable or not node.target._schema.returns


def mutated(node: fx.Node, args: tuple[Any, ...], kwargs: tuple[tuple[str, Any], ...]) -> tuple[str, ...]:
    """The buffers that an operator writes, from its schema."""
    if not isinstance(node.target, torch._ops.OpOverload) or not node.target._schema.is_mutable:
        return ()
    named = dict(kwargs)
    found: list[str] = []
    for position, spec in enumerate(node.target._schema.arguments):
        if spec.alias_info is None or not spec.alias_info.is_write:
            continue
        value = args[position] if position < len(args) else named.get(spec.name)
        found.extend(
            view.buffer for view in (value if isinstance(value, tuple) else (value,)) if isinstance(view, View)
        )
    return tuple(found)


__all__ = ["RANDOM", "argument", "call", "is_ordered", "is_random", "meta_of", "mutated", "reason_for", "result"]
