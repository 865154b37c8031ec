"""Calls of ATen and other operators: arguments as strided views, results as new buffers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from inductor_cpu.errors import Unsupported
from inductor_cpu.ir.index import ZERO, Expr, Sym, contiguous_strides, product
from inductor_cpu.ir.loop_nest import View
from inductor_cpu.ir.nodes import ORDERED, Extern
from inductor_cpu.lower.context import Lowering, meta_of
from inductor_cpu.lower.library import LIBRARY
from inductor_cpu.lower.sizes import new_symbol, size_expr, size_exprs, stride_exprs
from inductor_cpu.lower.values import TensorValue, loop_dims, point

aten = torch.ops.aten

#: Why random operators are extern calls.
RANDOM = "random numbers follow eager's generator stream"

#: Attention kernels are tagged as random for the sake of their dropout: its position among the arguments.
_DROPOUT: dict[Any, int] = {aten._scaled_dot_product_flash_attention_for_cpu.default: 3}


#: Operators that count from the start of their first argument's storage.
_OF_STORAGE = frozenset({aten.as_strided.default, aten.as_strided_copy.default, aten.as_strided_scatter.default})


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


@dataclass(frozen=True)
class FloatCall:
    """A call of an operator some of whose arguments are floats that a program has as 0-dim tensors.

    marks: nested as the arguments (positional, named), True for such a float."""

    target: Any
    marks: tuple[Any, Any]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        positional = [_unwrapped(arg, mark) for arg, mark in zip(args, self.marks[0], strict=True)]
        return self.target(*positional, **{name: _unwrapped(arg, self.marks[1][name]) for name, arg in kwargs.items()})

    def __str__(self) -> str:
        return str(self.target)


def _unwrapped(value: Any, mark: Any) -> Any:
    if mark is True and isinstance(value, torch.Tensor):
        return value.item()
    if isinstance(value, (tuple, list)):
        return [_unwrapped(item, inner) for item, inner in zip(value, mark, strict=True)]
    return value


@dataclass(frozen=True)
class ResolvedCall:
    """A call of an operator that refuses the conjugate bit, which a gradient may have although its fake has not."""

    target: Any

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return self.target(x.resolve_conj())

    def __str__(self) -> str:
        return str(self.target)


def called(node: fx.Node) -> Any:
    """What an extern call of a node calls."""
    if node.target is aten.view_as_real.default:
        return ResolvedCall(node.target)
    if not any(isinstance(meta_of(n), torch.SymFloat) for n in node.all_input_nodes if "val" in n.meta):
        return node.target
    is_float = lambda n: isinstance(n.meta.get("val"), torch.SymFloat)  # noqa: E731
    return FloatCall(node.target, fx.map_arg((tuple(node.args), dict(node.kwargs)), is_float))


def with_storage(ctx: Lowering, node: fx.Node, view: View) -> View:
    """`view` where it lies in its storage as in eager mode: an input's own memory, or a copy that has a storage of its
    own. A temp does not: it lies somewhere in the arena. Raises Unsupported for a view of which eager's storage has
    more than the view."""
    fake, buffer = meta_of(node.args[0]), ctx.buffers[view.buffer]  # type: ignore[arg-type]
    if same_strides(view, stride_exprs(fake.stride())):
        if buffer.kind == "input":
            return view
        whole = size_expr(fake.storage_offset()) == 0 and same_strides(view, contiguous_strides(view.sizes))
        if whole and size_expr(fake.untyped_storage().nbytes() // fake.element_size()) == product(view.sizes):
            copy = ctx.new_buffer(buffer.dtype, view.sizes, view.strides, "extern")
            name, reason = ctx.fresh("extern"), f"{node.target} counts from the start of a storage"
            ctx.nodes.append(Extern(name, aten.clone.default, (view,), (), (copy.name,), reason))
            return View(copy.name, view.sizes, view.strides, ZERO)
    raise Unsupported(node, f"{node.target} of a tensor that is not all of its storage")


def same_strides(view: View, strides: Sequence[Expr]) -> bool:
    """Whether a view has these strides, where they mean something."""
    if any(size == 0 for size in view.sizes):
        return True
    return all(size == 1 or a == b for size, a, b in zip(view.sizes, view.strides, strides, strict=True))


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
    if node.target in _OF_STORAGE:
        fixed_args = (with_storage(ctx, node, fixed_args[0]), *fixed_args[1:])
    fixed_kwargs = tuple((k, argument(ctx, node, v)) for k, v in kwargs.items())
    outputs: list[str | None] = []
    ints: list[tuple[int, Sym]] = []
    value = result(ctx, node, node.meta.get("val"), outputs, ints) if has_results(node) else None
    ctx.nodes.append(
        Extern(
            name=ctx.fresh("extern"),
            target=called(node),
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
    if node.meta.get(ORDERED):
        return True
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
