"""Results whose fake tensors have other strides than eager's: torch computes those of some operators in Python, by
other rules than its kernels follow.

In a forward graph AOTAutograd makes views of some results and saves others for the backward, and counts on the fake
strides of these: they are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from typing import Any

import torch
from torch import fx
from torch._dispatch.python import no_python_dispatcher
from torch._guards import detect_fake_mode
from torch._prims_common import suggest_memory_format
from torch.utils._python_dispatch import _disable_current_modes

from inductor_cpu.graph.edit import MASKS, StrideSpreader, args_of, aten, copy_as_before, fake
from inductor_cpu.ir.ops import LOW_PRECISION

#: Which dimension is the outermost, the next, ... in memory.
Order = Sequence[int]


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
    if any(_hint(n) is None for n in (*result.shape, *result.stride())) or result.numel() == 0:
        return False
    order = rule(node)
    if order is None:
        return False
    made = _laid_out(result, order)
    if _same_layout(made, result):
        return False
    spreader.changed(node, value)
    node.meta["val"] = type(value)([made, *value[1:]]) if isinstance(value, list | tuple) else made
    return True


def _same_layout(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether the strides agree where they matter, at the sizes of this compile."""
    return all(
        n == 1 or a == b
        for n, a, b in zip(_hints(one.shape), _hints(one.stride()), _hints(other.stride()), strict=True)
    )


def _laid_out(value: torch.Tensor, order: Order) -> torch.Tensor:
    """A dense fake tensor like `value`, with its dimensions in this order in memory."""
    mode = detect_fake_mode([value])
    assert mode is not None
    back = [list(order).index(d) for d in range(value.dim())]
    with mode:
        return torch.empty([value.shape[d] for d in order], dtype=value.dtype).permute(back)


def _hint(number: Any) -> int | None:
    return number.node.hint if isinstance(number, torch.SymInt) else number


def _hints(numbers: Sequence[Any]) -> list[int]:
    return [_hint(n) or 0 for n in numbers]


# -- the rules of torch's kernels --------------------------------------------------------------------------------------
def _contiguous(node: fx.Node) -> Order:
    value = fake(node)
    return range((value[0] if isinstance(value, list | tuple) else value).dim())


def _of_format(node: fx.Node) -> Order:
    """Channels-last if the first argument lies in that order, perhaps with gaps; else contiguous."""
    x = fake(args_of(node)[0])
    if suggest_memory_format(_meta(x)) is torch.contiguous_format:
        return range(x.dim())
    return (0, *range(2, x.dim()), 1)


def _iterated(*operands: torch.Tensor) -> Order | None:
    """The order that torch's iterator gives the result of an elementwise kernel. Operands are on the meta device."""
    kernels: dict[int, Callable[..., torch.Tensor]] = {1: torch.neg, 2: torch.add, 3: torch.addcmul}
    if len(operands) not in kernels:
        return None
    return _order_of(kernels[len(operands)](*operands))


def _meta(x: torch.Tensor) -> torch.Tensor:
    """A float on the meta device that lies in memory as `x` does at this compile."""
    return torch.empty_strided(_hints(x.shape), _hints(x.stride()), device="meta")


def as_iterated(result: torch.Tensor, *operands: torch.Tensor) -> torch.Tensor:
    """The result of an elementwise decomposition, copied if torch's iterator gives that of a kernel another order."""
    with no_python_dispatcher(), _disable_current_modes():
        order = _iterated(*map(_meta, operands))
    assert order is not None
    back = [list(order).index(d) for d in range(result.dim())]
    return result.permute(*order).contiguous().permute(back)


def _formatted(node: fx.Node) -> Order | None:
    """Pooling and resizing take channels-last or contiguous from all strides of their argument, also from those of
    dimensions with one element, which fake tensors of views of it may have otherwise."""
    x, *others = args_of(node)
    if not _is_view_with_ones(x):
        return None
    # The modes would compute the views as fake tensors do.
    with no_python_dispatcher(), _disable_current_modes():
        made = _call(node.target, _as_eager(x), *others)
    return _order_of(made[0] if isinstance(made, tuple) else made)


def _joined(node: fx.Node) -> Order | None:
    """A join has the format that all its parts share, told from all their strides, too."""
    parts, *dim = args_of(node)
    if not any(map(_is_view_with_ones, parts)) or any(_hint(n) is None for part in parts for n in fake(part).shape):
        return None
    with no_python_dispatcher(), _disable_current_modes():
        return _order_of(_call(node.target, [_as_eager(part) for part in parts], *dim))


def _is_view_with_ones(x: fx.Node) -> bool:
    """Whether a value of known sizes is a view with a dimension of one element."""
    sizes = [_hint(n) for n in fake(x).shape]
    return x.target in _VIEWS and 1 in sizes and None not in sizes


def _order_of(made: torch.Tensor) -> Order:
    strides = made.stride()
    return sorted(range(len(strides)), key=lambda d: (-strides[d], d))


def _rolled(node: fx.Node) -> Order | None:
    """A roll joins two parts of its argument, dimension by dimension; a join has the format that its parts share."""
    x, shifts = _meta(fake(args_of(node)[0])), args_of(node)[1]
    dims = args_of(node)[2] if len(args_of(node)) > 2 else ()
    if not dims or any(not isinstance(n, int) for n in shifts):
        return range(x.dim())
    for shift, dim in zip(shifts, dims, strict=True):
        start = -shift % x.shape[dim]
        x = torch.cat([x.narrow(dim, start, x.shape[dim] - start), x.narrow(dim, 0, start)], dim)
    return _order_of(x)


def _as_eager(x: fx.Node) -> torch.Tensor:
    """On the meta device, what eager mode makes of a tensor by these views."""
    if x.op != "call_function" or x.target not in _VIEWS:
        return _meta(fake(x))
    source, *others = args_of(x)
    return _call(x.target, _as_eager(source), *others)


def _call(operator: Any, *args: Any) -> Any:
    """The operator, with the numbers of this compile for those that the graph computes."""
    return operator(*fx.map_arg(args, lambda node: _hint(fake(node))))


def _elementwise(node: fx.Node) -> Order | None:
    values = [fake(a) for a in args_of(node)]
    return _iterated(*(_meta(v) for v in values if isinstance(v, torch.Tensor)))


def _of_expanded(node: fx.Node) -> Order | None:
    """Python converts operands of low precision first, and makes a contiguous tensor of one that repeats its elements;
    so does eager mode, but only where operands have different dtypes."""
    values = [v for a in args_of(node) if isinstance(v := fake(a), torch.Tensor)]
    dtypes = {v.dtype for v in values}
    if len(dtypes) > 1 or dtypes.isdisjoint(LOW_PRECISION) or not any(map(_repeats, values)):
        return None
    return _iterated(*map(_meta, values))


def _repeats(value: torch.Tensor) -> bool:
    return any(s == 0 and n != 1 for n, s in zip(_hints(value.shape), _hints(value.stride()), strict=True))


def _as_copy(node: fx.Node) -> Order | None:
    """The order of the first argument's copy, which is changed then."""
    return _iterated(_meta(fake(args_of(node)[0])))


def _indexed(node: fx.Node) -> Order | None:
    """Advanced indexing walks the tensor, where the indices do not tell, and the indices together."""
    x, indices = _meta(fake(args_of(node)[0])), [fake(i) for i in args_of(node)[1]]
    given = [k for k, index in enumerate(indices) if index is not None]
    if any(indices[k].dtype in MASKS for k in given):
        return None
    front = given[0] if given[-1] - given[0] + 1 == len(given) else 0
    kept = [d for d in range(x.dim()) if d not in given]
    before, after = kept[:front], kept[front:]
    expanded = torch.broadcast_tensors(*(_meta(indices[k]) for k in given))
    shape = expanded[0].shape
    sizes = [*(x.shape[d] for d in before), *shape, *(x.shape[d] for d in after)]
    strides = [*(x.stride(d) for d in before), *(0 for _ in shape), *(x.stride(d) for d in after)]
    walked = [torch.empty_strided(sizes, strides, device="meta")]
    # Torch reshapes the indices, so that dimensions of one element get strides, which count too.
    walked += [index.reshape(*(1 for _ in before), *shape, *(1 for _ in after)) for index in expanded]
    return _iterated(*walked)


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
    aten.upsample_bilinear2d.vec,
    aten.upsample_nearest2d.vec,
)
_BATCH_NORMS = (
    aten._native_batch_norm_legit_no_training.default,
    aten.native_batch_norm.default,
    aten._native_batch_norm_legit.default,
    aten._native_batch_norm_legit.no_stats,
    aten._native_batch_norm_legit_functional.default,
    aten._batch_norm_with_update_functional.default,
)
_BY_PYTHON = (
    aten.copysign.Tensor,
    aten.div.Tensor_mode,
    aten.floor_divide.default,
    aten.heaviside.default,
    aten.logaddexp.default,
    aten.logaddexp2.default,
    aten.logical_and.default,
    aten.logical_or.default,
    aten.logical_xor.default,
    aten.special_xlog1py.default,
    aten.xlogy.Tensor,
)
_OF_LOW_PRECISION = (
    aten.add.Tensor,
    aten.atan2.default,
    aten.clamp.Tensor,
    aten.div.Tensor,
    aten.eq.Tensor,
    aten.fmax.default,
    aten.fmin.default,
    aten.fmod.Tensor,
    aten.ge.Tensor,
    aten.gt.Tensor,
    aten.hypot.default,
    aten.le.Tensor,
    aten.lt.Tensor,
    aten.maximum.default,
    aten.minimum.default,
    aten.mul.Tensor,
    aten.ne.Tensor,
    aten.remainder.Tensor,
    aten.rsub.Tensor,
    aten.sub.Tensor,
)
_ORDERS: dict[Any, Callable[[fx.Node], Order | None]] = {
    aten.cat.default: _joined,
    aten.pow.Scalar: _contiguous,
    aten.index.Tensor: _indexed,
    aten.index_fill.int_Scalar: _as_copy,
    aten.index_fill.int_Tensor: _as_copy,
    aten.roll.default: _rolled,
    **dict.fromkeys((*_BATCH_NORMS, aten.native_group_norm.default), _of_format),
    **dict.fromkeys(_BY_FORMAT, _formatted),
    **dict.fromkeys(_BY_PYTHON, _elementwise),
    **dict.fromkeys(_OF_LOW_PRECISION, _of_expanded),
}
