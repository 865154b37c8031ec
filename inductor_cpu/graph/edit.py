"""Small tools for graph passes: add nodes with fake values, follow single uses, spread new strides."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import fx
from torch._guards import detect_fake_mode
from torch._subclasses.fake_tensor import FakeTensor, in_kernel_invocation_manager

from inductor_cpu.ir.depthwise import DEPTHWISE_CONVOLUTION, PACKED_DEPTHWISE_CONVOLUTION
from inductor_cpu.ir.grouped import PACKED_GROUPED_CONVOLUTION
from inductor_cpu.ir.operators import (
    DRAWN_IN_LOOPS,
    PACKED_BMM,
    PACKED_CONVOLUTION,
    PACKED_INT_CONVOLUTION,
    PACKED_INT_MM,
    PACKED_LINEAR,
    PACKED_OPERAND,
)
from inductor_cpu.ir.winograd import PACKED_TILES, WEIGHT_GRADIENT

aten = torch.ops.aten

#: Operators that only change a shape by reading the same elements in the same order.
RESHAPES = (aten.view.default, aten._unsafe_view.default, aten.reshape.default)

#: Operators that only change the order of dimensions.
TRANSPOSES = (aten.permute.default, aten.t.default, aten.transpose.int)

#: Operators that view their argument, or copy it where a reshape cannot view it.
_VIEWS = (
    *RESHAPES, *TRANSPOSES, aten.alias.default, aten.diagonal.default, aten.expand.default, aten.select.int,
    aten.slice.Tensor, aten.squeeze.default, aten.squeeze.dim, aten.squeeze.dims, aten.unsqueeze.default,
)  # fmt: skip

#: Ours that take any strides.
_OWN = (
    DEPTHWISE_CONVOLUTION, PACKED_BMM, PACKED_CONVOLUTION, PACKED_DEPTHWISE_CONVOLUTION, PACKED_GROUPED_CONVOLUTION,
    PACKED_INT_CONVOLUTION, PACKED_INT_MM, PACKED_LINEAR, PACKED_OPERAND, PACKED_TILES, WEIGHT_GRADIENT,
)  # fmt: skip
_FORMATS = {4: torch.channels_last, 5: torch.channels_last_3d}


def args_of(node: fx.Node) -> tuple[Any, ...]:
    """A node's positional arguments, of whatever type (fx's own type for them names fifteen)."""
    return tuple(node.args)


def fake(node: Any) -> Any:
    """The fake value of a node; anything else is itself."""
    return node.meta["val"] if isinstance(node, fx.Node) else node


def compute_fake(target: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """What an operator gives for fake arguments. A view of memory that is no longer contiguous becomes a reshape: the
    lowering reads views as index arithmetic, so only the strides of the result matter here."""
    values, named = fx.map_arg(args, fake), fx.map_arg(kwargs, fake)
    leaves = torch.utils._pytree.tree_leaves((values, named))
    mode = detect_fake_mode([v for v in leaves if isinstance(v, torch.Tensor)])
    if mode is None:
        raise RuntimeError(f"{target} has no fake arguments")
    target = aten.reshape.default if target in RESHAPES else target
    # Torch takes up to a millisecond for a view; sizes that are numbers do not need its Python.
    at_once = target in _VIEWS and not any(map(_has_symbols, leaves))
    with torch.no_grad(), in_kernel_invocation_manager(mode) if at_once else mode:
        made = target(*values, **named)
    return FakeTensor(mode, made, torch.device("cpu")) if at_once else made


def _has_symbols(value: Any) -> bool:
    return value._has_symbolic_sizes_strides if isinstance(value, torch.Tensor) else isinstance(value, torch.SymInt)


def add(graph: fx.Graph, target: Callable[..., Any], *args: Any, value: Any = None, **kwargs: Any) -> fx.Node:
    """A call at the graph's insertion point, with its fake value (computed unless given)."""
    node = graph.call_function(target, args, kwargs)
    node.meta["val"] = compute_fake(target, args, kwargs) if value is None else value
    return node


#: What was said about a node: who draws its numbers, in which direction it runs, if a checkpoint computes it again.
_SAID = (DRAWN_IN_LOOPS, "ac_graph_id", "custom", "partitioner_tag", "recompute", "seq_nr", "stack_trace")


def carry(before: fx.Node, *nodes: fx.Node) -> None:
    """Let nodes have what was said about the one whose place they take."""
    for node in nodes:
        node.meta.update({key: before.meta[key] for key in _SAID if key in before.meta})


def is_view(node: fx.Node) -> bool:
    """Whether a call views its first argument, in several parts perhaps, or takes one of such parts; reshapes count,
    which copy where they have to."""
    if node.target is operator.getitem:
        return is_view(args_of(node)[0])
    return isinstance(node.target, torch._ops.OpOverload) and (node.target.is_view or node.target in RESHAPES)


def view_again(graph: fx.Graph, view: fx.Node, source: fx.Node) -> fx.Node:
    """The same view of another value, or the same part of other parts."""
    if view.target is operator.getitem:
        part = args_of(view)[1]
        return add(graph, operator.getitem, source, part, value=fake(source)[part])
    target: Any = aten.reshape.default if view.target in RESHAPES else view.target
    return add(graph, target, source, *args_of(view)[1:])


def is_cast_of_bytes(weight: Any) -> bool:
    """Whether a value is int8, cast and seen in another order or shape, or several of them after each other."""
    if not isinstance(weight, fx.Node):
        return False
    if is_call(weight, (aten._to_copy.default,)) and fake(args_of(weight)[0]).dtype == torch.int8:
        return True
    if is_call(weight, (aten.cat.default,)):
        return all(is_cast_of_bytes(part) for part in args_of(weight)[0])
    return is_call(weight, RESHAPES + TRANSPOSES) and is_cast_of_bytes(args_of(weight)[0])


def bytes_of(graph: fx.Graph, weight: fx.Node) -> fx.Node:
    """The int8 values that a value with `is_cast_of_bytes` has."""
    if weight.target is aten._to_copy.default:
        return args_of(weight)[0]
    if weight.target is aten.cat.default:
        parts, *dim = args_of(weight)
        return add(graph, aten.cat.default, [bytes_of(graph, part) for part in parts], *dim)
    return view_again(graph, weight, bytes_of(graph, args_of(weight)[0]))


def size_of(graph: fx.Graph, node: fx.Node, dim: int) -> int | fx.Node:
    """A size as an argument: a number, or the node of a symbol."""
    size = fake(node).shape[dim]
    return size if isinstance(size, int) else add(graph, aten.sym_size.int, node, dim, value=size)


def only_user(node: fx.Node) -> fx.Node | None:
    """The single node that uses this one, once."""
    return next(iter(node.users)) if len(node.users) == 1 else None


def is_call(node: Any, targets: Iterable[Any]) -> bool:
    """Whether a node calls one of these operators."""
    return isinstance(node, fx.Node) and node.op == "call_function" and node.target in targets


def is_number(value: Any) -> bool:
    """Whether an argument is a plain number."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def order_of_dims(node: fx.Node) -> list[int]:
    """Of a transposing node: which dimension of its input each dimension of its result is."""
    rank = fake(node).dim()
    if node.target is aten.permute.default:
        return [int(d) % rank for d in args_of(node)[1]]
    order = list(range(rank))
    if node.target is aten.t.default:
        return order[::-1]
    a, b = (int(d) % rank for d in args_of(node)[1:3])
    order[a], order[b] = order[b], order[a]
    return order


def channels_last(value: torch.Tensor) -> torch.Tensor:
    """A fake tensor like `value`, channels-last when it has four or five dimensions."""
    mode = detect_fake_mode([value])
    assert mode is not None
    with mode:
        made = torch.empty(tuple(value.shape), dtype=value.dtype)
        return made.to(memory_format=_FORMATS[value.dim()]) if value.dim() in _FORMATS else made


def to_channels_last(graph: fx.Graph, x: fx.Node) -> fx.Node:
    """`x`, copied unless it is channels-last. For four or five dimensions."""
    layout = _FORMATS[fake(x).dim()]
    return x if fake(x).is_contiguous(memory_format=layout) else add(graph, aten.clone.default, x, memory_format=layout)


def to_contiguous(graph: fx.Graph, x: fx.Node | None) -> fx.Node | None:
    """`x`, copied unless it is contiguous: oneDNN's operators read a bias as if it were."""
    if x is None or fake(x).is_contiguous():
        return x
    return add(graph, aten.clone.default, x, memory_format=torch.contiguous_format)


def typical_size(value: torch.Tensor) -> list[int]:
    """An input size to choose a weight's layout for: without one, oneDNN chooses layouts that it then changes at every
    call."""
    return [s if isinstance(s, int) else hint_of(s) or 1 for s in value.shape]


def product_operands(product: fx.Node) -> tuple[Any, fx.Node, fx.Node]:
    """(bias or None, x, weight) of a matrix product."""
    bias, x, weight = args_of(product) if product.target is aten.addmm.default else (None, *args_of(product))
    return bias, x, weight


# -- strides -----------------------------------------------------------------------------------------------------------
class StrideSpreader:
    """Recomputes fake values downstream of nodes whose results have got other strides, as long as strides differ from
    before. `visit` takes the nodes in the graph's order. A node that depends on its inputs' strides gets them as they
    were. eager_random: so do random operators, which draw eager's numbers in the order of memory."""

    def __init__(self, graph: fx.Graph, eager_random: bool = False) -> None:
        self._graph, self._eager_random = graph, eager_random
        self._dirty: set[fx.Node] = set()

    def changed(self, node: fx.Node, before: torch.Tensor) -> None:
        """Say that `node`, which is new, has other strides than `before`, the value that it stands for."""
        node.meta["value_before"] = before
        self._dirty.add(node)

    def visit(self, node: fx.Node) -> None:
        """Bring the fake value of a call up to date."""
        changed = [n for n in node.all_input_nodes if n in self._dirty]
        if node.op != "call_function" or not changed:
            return
        if getattr(node.target, "namespace", "") == "mkldnn" or node.target in _OWN:
            return  # takes any strides, and its own do not depend on them
        if _depends_on_strides(node) or (self._eager_random and _is_random(node)):
            for source in changed:
                _restore(self._graph, node, source)
            return
        target: Any = node.target
        after = compute_fake(target, node.args, node.kwargs)
        if _places(node.meta.get("val")) != _places(after):
            node.meta.setdefault("value_before", node.meta.get("val"))
            node.meta["val"] = after
            self._dirty.add(node)


#: Operators of ATen whose result depends on how their argument lies in memory.
_BY_STORAGE = ("aten::as_strided", "aten::as_strided_copy", "aten::as_strided_scatter", "aten::set_", "aten::resize_")
#: Operators that scaled_dot_product_attention calls only where the last dimension is dense, and that do not look again.
_ATTENTION = (
    "aten::_scaled_dot_product_flash_attention_for_cpu",
    "aten::_scaled_dot_product_fused_attention_overrideable",
)
#: The types of indices that are masks.
MASKS = (torch.bool, torch.uint8)
_OUR_OPERATORS = ("aten", "prims", "mkldnn", "icpu")
_SIZES_FROM_DATA = (torch.Tag.dynamic_output_shape, torch.Tag.data_dependent_output)


def _depends_on_strides(node: fx.Node) -> bool:
    """Custom operators, attention, and those that make new sizes (recomputing them would make the sizes anew)."""
    if not isinstance(node.target, torch._ops.OpOverload):
        return getattr(node.target, "__module__", "") not in ("_operator", "builtins")
    if node.target.namespace not in _OUR_OPERATORS or node.target._schema.name in (*_BY_STORAGE, *_ATTENTION):
        return True
    if node.target in (aten.view_as_complex.default, aten.view.dtype):  # errors for other strides
        return True
    if node.target is aten.index.Tensor:  # new sizes come of masks only
        return any(index is not None and fake(index).dtype in MASKS for index in args_of(node)[1])
    return any(tag in node.target.tags for tag in _SIZES_FROM_DATA)


def _is_random(node: fx.Node) -> bool:
    return isinstance(node.target, torch._ops.OpOverload) and torch.Tag.nondeterministic_seeded in node.target.tags


def _restore(graph: fx.Graph, node: fx.Node, source: fx.Node) -> None:
    """Give `node` a copy of `source` with the strides that it had."""
    if isinstance(source.meta["value_before"], torch.Tensor):
        node.replace_input_with(source, copy_as_before(graph, node, source))


def copy_as_before(graph: fx.Graph, node: fx.Node, source: fx.Node) -> fx.Node:
    """A copy of `source`, in front of `node`, with the strides that `source` had before they were changed. A view
    becomes the same view of a copy of what it is taken of: only so it has its gaps and its offset, too."""
    base = args_of(source)[0]
    if is_view(source) and "value_before" in base.meta:
        copy = copy_as_before(graph, node, base)
        with graph.inserting_before(node):
            return view_again(graph, source, copy)
    return copy_with_strides(graph, node, source, source.meta["value_before"].stride())


def hint_of(number: Any) -> int | None:
    """A size or stride at this compile; None for one that depends on data. Asking sets no guard."""
    return number.node.hint if isinstance(number, torch.SymInt) else number


def hints(numbers: Iterable[Any]) -> list[Any]:
    """Sizes or strides at this compile, None for those that depend on data."""
    return [hint_of(n) for n in numbers]


def copy_with_strides(graph: fx.Graph, node: fx.Node, source: fx.Node, strides: Sequence[Any]) -> fx.Node:
    """A dense copy of `source`, in front of `node`, with its dimensions in memory as these strides have them. Strides
    that depend on data count as large, those of outer dimensions first."""
    known = [math.inf if stride is None else stride for stride in hints(strides)]
    order = sorted(range(len(known)), key=lambda d: (-known[d], d))
    back = [order.index(d) for d in range(len(known))]
    with graph.inserting_before(node):
        moved = add(graph, aten.permute.default, source, order)
        packed = add(graph, aten.clone.default, moved, memory_format=torch.contiguous_format)
        return add(graph, aten.permute.default, packed, back)


def _places(value: Any) -> Any:
    """Where the elements of tensors lie: a scalar that is a view has no strides, but an offset."""
    leaves = torch.utils._pytree.tree_leaves(value)
    return [(tuple(v.stride()), v.storage_offset()) for v in leaves if isinstance(v, torch.Tensor)]
