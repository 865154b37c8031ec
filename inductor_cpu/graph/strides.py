"""Results whose fake tensors have other strides than eager's because those of a view have: eager mode reads the memory
format of an argument from all its strides, also from those of dimensions with one element.

In a forward graph AOTAutograd makes views of some results and saves others for the backward, and counts on the fake
strides of these: they are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import Any

import torch
from torch import fx
from torch._dispatch.python import no_python_dispatcher
from torch._guards import detect_fake_mode
from torch.utils._python_dispatch import _disable_current_modes

from inductor_cpu.graph.edit import StrideSpreader, args_of, aten, copy_as_before, fake, hint_of
from inductor_cpu.graph.fake_strides import laid_out
from inductor_cpu.graph.orders import Order, hints_of, meta_of, order_of


def correct_strides(gm: fx.GraphModule, free: Container[int] | None = None) -> int:
    """Give the results of the operators in `_ORDERS` the strides of eager mode, and what follows from them; returns
    how many they were. free: positions of the graph's results that may change, None for all; the others become copies
    with the strides that they had."""
    spreader, count = StrideSpreader(gm.graph), 0
    for node in list(gm.graph.nodes):
        spreader.visit(node)
        rule = _ORDERS.get(node.target) if node.op == "call_function" else None
        if rule is not None and _correct(node, rule, spreader):
            count += 1
    if count and free is not None:
        _keep_results(gm.graph, free)
    return count


def _keep_results(graph: fx.Graph, free: Container[int]) -> None:
    end = graph.output_node()
    (results,) = end.args
    assert isinstance(results, list | tuple)
    end.args = (
        [
            copy_as_before(graph, end, result) if position not in free and _has_changed(result) else result
            for position, result in enumerate(results)
        ],
    )


def _has_changed(result: Any) -> bool:
    if not isinstance(result, fx.Node) or "value_before" not in result.meta:
        return False
    return not _same_layout(fake(result), result.meta["value_before"])


def _correct(node: fx.Node, rule: Callable[[fx.Node], Order | None], spreader: StrideSpreader) -> bool:
    value = fake(node)
    result = value[0] if isinstance(value, list | tuple) else value
    if any(hint_of(n) is None for n in (*result.shape, *result.stride())) or result.numel() == 0:
        return False
    order = rule(node)
    if order is None:
        return False
    mode = detect_fake_mode([result])
    assert mode is not None
    made = laid_out(mode, result, order)
    if _same_layout(made, result):
        return False
    spreader.changed(node, value)
    node.meta["val"] = type(value)([made, *value[1:]]) if isinstance(value, list | tuple) else made
    return True


def _same_layout(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether the strides agree where they matter, at the sizes of this compile."""
    return all(
        n == 1 or a == b
        for n, a, b in zip(hints_of(one.shape), hints_of(one.stride()), hints_of(other.stride()), strict=True)
    )


def _formatted(node: fx.Node) -> Order | None:
    """Pooling and resizing take channels-last or contiguous from all strides of their argument, also from those of
    dimensions with one element, which fake tensors of views of it may have otherwise."""
    x, *others = args_of(node)
    if not _is_view_with_ones(x):
        return None
    # The modes would compute the views as fake tensors do.
    with no_python_dispatcher(), _disable_current_modes():
        made = _call(node.target, _as_eager(x), *others)
    return order_of(made[0] if isinstance(made, tuple) else made)


def _joined(node: fx.Node) -> Order | None:
    """A join has the format that all its parts share, told from all their strides, too."""
    parts, *dim = args_of(node)
    if not any(map(_is_view_with_ones, parts)) or any(hint_of(n) is None for part in parts for n in fake(part).shape):
        return None
    with no_python_dispatcher(), _disable_current_modes():
        return order_of(_call(node.target, [_as_eager(part) for part in parts], *dim))


def _is_view_with_ones(x: fx.Node) -> bool:
    """Whether a value of known sizes is a view with a dimension of one element."""
    sizes = [hint_of(n) for n in fake(x).shape]
    return x.target in _VIEWS and 1 in sizes and None not in sizes


def _as_eager(x: fx.Node) -> torch.Tensor:
    """On the meta device, what eager mode makes of a tensor by these views."""
    if x.op != "call_function" or x.target not in _VIEWS:
        return meta_of(fake(x))
    source, *others = args_of(x)
    return _call(x.target, _as_eager(source), *others)


def _call(operator: Any, *args: Any) -> Any:
    """The operator, with the numbers of this compile for those that the graph computes."""
    return operator(*fx.map_arg(args, lambda node: hint_of(fake(node))))


_VIEWS = (
    aten.permute.default,
    aten.squeeze.dim,
    aten.squeeze.dims,
    aten.transpose.int,
    aten.unsqueeze.default,
    aten.view.default,
)
_BY_FORMAT = (
    aten.avg_pool2d.default,
    aten.avg_pool3d.default,
    aten.max_pool2d_with_indices.default,
    aten.max_pool3d_with_indices.default,
    aten._upsample_nearest_exact2d.default,
    aten.upsample_bilinear2d.default,
    aten.upsample_nearest2d.default,
)
_ORDERS: dict[Any, Callable[[fx.Node], Order | None]] = {
    aten.cat.default: _joined,
    **dict.fromkeys(_BY_FORMAT, _formatted),
}
