"""Pooling: every window is a small reduction with masked loads; padding reads nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from inductor_cpu.errors import Unsupported
from inductor_cpu.ir.index import ONE, ZERO, Expr, as_expr, divide_exact, is_nonnegative, maximum, minimum, product
from inductor_cpu.ir.ops import identity
from inductor_cpu.lower.body import Body
from inductor_cpu.lower.context import Lowering, dense_strides, meta_of
from inductor_cpu.lower.reductions import accumulator, number
from inductor_cpu.lower.registry import rule
from inductor_cpu.lower.sizes import size_exprs
from inductor_cpu.lower.values import TensorValue

aten = torch.ops.aten

#: So many windows side by side fill most lanes of any vector.
NARROW_PICTURE = 12

#: Windows as wide as these take their columns out of a few registers.
NARROW_WINDOWS = (2, 3, 4)


@dataclass(frozen=True)
class Window:
    """The windows along one dimension: window o holds start(o) + k * dilation for 0 <= k < extent.

    size: of the input; outputs: number of windows; stop(o): where positions stop counting, None if the extent says
    it all; clipped: whether some windows reach below 0."""

    size: Expr
    outputs: Expr
    extent: int | Expr
    start: Callable[[Expr], Expr]
    dilation: int = 1
    clipped: bool = False
    stop: Callable[[Expr], Expr] | None = None

    def at(self, out: Expr, k: Expr) -> Expr:
        """The input position of element k of window `out`."""
        return self.start(out) + k * self.dilation

    def mask(self, body: Body, out: Expr, k: Expr) -> list[int]:
        """The conditions under which the element exists."""
        position, found = self.at(out, k), []
        if self.clipped:
            found.append(body.op("ge", body.index(position), body.index(0)))
        if self.stop is not None:
            found.append(body.op("lt", body.index(position), body.index(self.stop(out))))
        return found

    def length(self, out: Expr) -> Expr:
        """How many elements window `out` has, where nothing is clipped and dilation is 1."""
        return as_expr(self.extent) if self.stop is None else self.stop(out) - self.start(out)


def window_mask(body: Body, windows: Sequence[Window], outs: Sequence[Expr], ks: Sequence[Expr]) -> int | None:
    """The condition under which the elements k of windows `outs` all exist; None where they always do."""
    mask: int | None = None
    for window, out, k in zip(windows, outs, ks, strict=True):
        for condition in window.mask(body, out, k):
            mask = condition if mask is None else body.op("logical_and", mask, condition)
    return mask


def regular_window(size: Expr, outputs: Expr, kernel: int, stride: int, padding: int, dilation: int) -> Window:
    """Windows of a fixed extent at regular distances."""
    last = (outputs - 1) * stride - padding + (kernel - 1) * dilation
    stop = None if is_nonnegative(size - 1 - last) else (lambda out: size)
    return Window(size, outputs, kernel, lambda out: out * stride - padding, dilation, padding > 0, stop)


def adaptive_window(node: fx.Node, size: Expr, outputs: Expr) -> Window:
    """Windows from floor(o * size / outputs) to ceil((o + 1) * size / outputs)."""
    whole = divide_exact(size, outputs) if outputs != 0 else None
    if whole is not None:
        return Window(size, outputs, whole, lambda out: out * whole)
    static_size, static_outputs = size.as_int, outputs.as_int
    if static_size is None or not static_outputs:
        raise Unsupported(node, "adaptive pooling with sizes that are not known at compile time")

    def start(out: Expr) -> Expr:
        return (out * static_size) // static_outputs

    def stop(out: Expr) -> Expr:
        return ((out + 1) * static_size + (static_outputs - 1)) // static_outputs

    starts = [(o * static_size) // static_outputs for o in range(static_outputs)]
    stops = [-((-(o + 1) * static_size) // static_outputs) for o in range(static_outputs)]
    extents = [b - a for a, b in zip(starts, stops, strict=True)]
    return Window(size, outputs, max(extents), start, stop=stop if min(extents) != max(extents) else None)


def per_dim(value: Any, count: int, default: Any = None) -> tuple[int, ...]:
    """An int or a list of one or `count` ints, as `count` ints."""
    value = value if isinstance(value, (tuple, list)) else (value,)
    if not value:
        return tuple(default)
    return tuple(value) * count if len(value) == 1 else tuple(value)


def _pool(
    ctx: Lowering,
    node: fx.Node,
    x: TensorValue,
    windows: Sequence[Window],
    kind: str,
    fake: torch.Tensor,
    finish: Callable[[Body, int, tuple[Expr, ...]], int] | None = None,
    element: Callable[[Body, int, Sequence[Expr]], int] | None = None,
) -> TensorValue:
    """Fold each window; finish(body, folded value, output position). What is folded is element(body, loaded value,
    position in the window), or the loaded value."""
    lead = x.ndim - len(windows)
    acc = accumulator(x.dtype) if kind == "sum" else x.dtype
    if kind == "sum" and _by_rows_first(node, windows):
        x, windows = _summed_rows(ctx, node, x, windows[0], acc), (_every(windows[0].outputs), windows[1])
    fill = identity("sum" if kind == "sum" else kind.removeprefix("arg"), x.dtype)
    loops = [d for d, window in enumerate(windows) if as_expr(window.extent) != 1]

    def compute(body: Body, at: tuple[Expr, ...], inner: tuple[Expr, ...]) -> int:
        ks = [ZERO] * len(windows)
        for d, k in zip(loops, inner, strict=True):
            ks[d] = k
        outs = at[lead:]
        mask = window_mask(body, windows, outs, ks)
        position = tuple(window.at(out, k) for window, out, k in zip(windows, outs, ks, strict=True))
        loaded = body.load(x, (*at[:lead], *position), mask, fill)
        value = body.cast(loaded, acc) if element is None else element(body, loaded, ks)
        if loops:
            value = body.reduce(kind, value)
        elif kind == "argmax":
            value = body.const(0, torch.int64)
        return finish(body, value, at) if finish else value

    sizes = (*x.sizes[:lead], *(window.outputs for window in windows))
    extents = [as_expr(windows[d].extent) for d in loops]
    return ctx.reduction(node, compute, extents, sizes, fake.dtype, dense_strides(fake))


def _every(outputs: Expr) -> Window:
    """Windows of one element each."""
    return Window(outputs, outputs, 1, lambda out: out)


def _by_rows_first(node: fx.Node, windows: Sequence[Window]) -> bool:
    """Whether the rows of each window are added first: where few windows lie side by side, they leave lanes empty, but
    windows of sums of rows follow each other without gaps."""
    if len(windows) != 2 or any(window.clipped or window.stop is not None for window in windows):
        return False
    rows, columns = windows
    x = meta_of(node.all_input_nodes[0])
    side_by_side, extent = columns.outputs.as_int, as_expr(columns.extent).as_int
    gapless = columns.at(ONE, ZERO) == as_expr(columns.extent) and columns.size == columns.outputs * columns.extent
    narrow = side_by_side is not None and side_by_side < NARROW_PICTURE and extent in NARROW_WINDOWS
    return narrow and gapless and as_expr(rows.extent) != 1 and x.is_contiguous()


def _summed_rows(ctx: Lowering, node: fx.Node, x: TensorValue, rows: Window, acc: torch.dtype) -> TensorValue:
    """The sums over the rows of each window, column by column."""

    def compute(body: Body, at: tuple[Expr, ...], inner: tuple[Expr, ...]) -> int:
        *lead, out, column = at
        return body.reduce("sum", body.cast(body.load(x, (*lead, rows.at(out, inner[0]), column)), acc))

    sizes = (*x.sizes[:-2], rows.outputs, x.sizes[-1])
    return ctx.reduction(node, compute, [as_expr(rows.extent)], sizes, acc)


# -- maximum ---------------------------------------------------------------------------------------------------------
def _max_with_indices(ctx: Lowering, node: fx.Node, x: TensorValue, windows: Sequence[Window]) -> Any:
    """(largest element, its position in the flattened input plane) of each window. Of equal elements the first counts,
    of several NaN the last."""
    values, indices = meta_of(node)
    lead = x.ndim - len(windows)
    last_nan = _last_nan(ctx, node, x, windows, indices) if x.dtype.is_floating_point else None

    def plane_position(body: Body, found: int, at: tuple[Expr, ...]) -> int:
        if last_nan is not None:
            nan = body.load(last_nan, at)
            found = body.op("where", body.op("ge", nan, body.const(0, torch.int64)), nan, found)
        rest = body.as_index(found, product(as_expr(window.extent) for window in windows))
        ks: list[Expr] = []
        for window in reversed(windows):
            ks.insert(0, rest % as_expr(window.extent))
            rest = rest // as_expr(window.extent)
        total = ZERO
        for window, out, k in zip(windows, at[lead:], ks, strict=True):
            total = total * window.size + _first_valid(window, window.at(out, k))
        return body.index(total)

    return (
        _pool(ctx, node, x, windows, "max", values),
        _pool(ctx, node, x, windows, "argmax", indices, plane_position),
    )


def _last_nan(
    ctx: Lowering, node: fx.Node, x: TensorValue, windows: Sequence[Window], fake: torch.Tensor
) -> TensorValue:
    """The position in each window of its last NaN, row-major; -1 if it has none."""

    def position(body: Body, value: int, inner: Sequence[Expr]) -> int:
        flat = ZERO
        for window, k in zip(windows, inner, strict=True):
            flat = flat * as_expr(window.extent) + k
        return body.op("where", body.op("isnan", value), body.index(flat), body.const(-1, torch.int64))

    return _pool(ctx, node, x, windows, "max", fake, element=position)


def _first_valid(window: Window, position: Expr) -> Expr:
    """In a window of nothing but -inf the first element wins, which may be padding: take the first that is not."""
    if not window.clipped:
        return position
    if window.dilation == 1:
        return maximum(position, 0)
    steps = maximum(-((position) // window.dilation), 0)  # ceil(-position / dilation)
    return position + steps * window.dilation


def _max_pool(dims: int) -> Any:
    def lower(
        ctx: Lowering,
        node: fx.Node,
        x: TensorValue,
        kernel_size: Any,
        stride: Any = (),
        padding: Any = 0,
        dilation: Any = 1,
        ceil_mode: bool = False,
    ) -> Any:
        windows = _regular_windows(node, x, dims, kernel_size, stride, padding, dilation)
        return _max_with_indices(ctx, node, x, windows)

    return lower


def _regular_windows(
    node: fx.Node, x: TensorValue, dims: int, kernel: Any, stride: Any, padding: Any, dilation: Any
) -> list[Window]:
    fake = meta_of(node)
    outputs = size_exprs((fake[0] if isinstance(fake, (tuple, list)) else fake).shape)[-dims:]
    kernel = per_dim(kernel, dims)
    numbers = zip(kernel, per_dim(stride, dims, kernel), per_dim(padding, dims), per_dim(dilation, dims), strict=True)
    return [regular_window(size, out, *four) for size, out, four in zip(x.sizes[-dims:], outputs, numbers, strict=True)]


rule(aten.max_pool2d_with_indices.default)(_max_pool(2))
rule(aten.max_pool3d_with_indices.default)(_max_pool(3))


def _adaptive_windows(node: fx.Node, x: TensorValue, output_size: Any, dims: int) -> list[Window]:
    outputs = size_exprs(per_dim(output_size, dims))
    return [adaptive_window(node, size, out) for size, out in zip(x.sizes[-dims:], outputs, strict=True)]


def _adaptive_max_pool(dims: int) -> Any:
    def lower(ctx: Lowering, node: fx.Node, x: TensorValue, output_size: Any) -> Any:
        _require_float(node, x)
        return _max_with_indices(ctx, node, x, _adaptive_windows(node, x, output_size, dims))

    return lower


rule(aten.adaptive_max_pool2d.default)(_adaptive_max_pool(2))
rule(aten.adaptive_max_pool3d.default)(_adaptive_max_pool(3))


# -- average ---------------------------------------------------------------------------------------------------------
def _avg_pool(dims: int) -> Any:
    def lower(
        ctx: Lowering,
        node: fx.Node,
        x: TensorValue,
        kernel_size: Any,
        stride: Any = (),
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Any:
        _require_float(node, x)
        windows = _regular_windows(node, x, dims, kernel_size, stride, padding, 1)
        pads = per_dim(padding, dims)

        def finish(body: Body, value: int, at: tuple[Expr, ...]) -> int:
            if divisor_override is not None:
                divisor = as_expr(divisor_override)
            else:
                outs = at[x.ndim - dims :]
                divisor = product(
                    counted(window, out, pad, count_include_pad)
                    for window, out, pad in zip(windows, outs, pads, strict=True)
                )
            return body.op("div", value, number(body, divisor, body.dtype(value)))

        return _pool(ctx, node, x, windows, "sum", meta_of(node), finish)

    return lower


def counted(window: Window, out: Expr, pad: int, with_padding: bool) -> Expr:
    """How many elements of a window count: those in the input or, with padding, in the padded input."""
    start = window.start(out)
    stop = start + window.extent
    if with_padding:
        return as_expr(window.extent) if window.stop is None else minimum(stop, window.size + pad) - start
    stop = stop if window.stop is None else minimum(stop, window.size)
    return stop - (maximum(start, 0) if window.clipped else start)


def _require_float(node: fx.Node, x: TensorValue) -> None:
    if not x.dtype.is_floating_point:
        raise Unsupported(node, f"pooling of {x.dtype}")


def _adaptive_avg_pool(dims: int) -> Any:
    def lower(ctx: Lowering, node: fx.Node, x: TensorValue, output_size: Any) -> Any:
        _require_float(node, x)
        windows = _adaptive_windows(node, x, output_size, dims)

        def finish(body: Body, value: int, at: tuple[Expr, ...]) -> int:
            for window, out in zip(windows, at[x.ndim - dims :], strict=True):
                value = body.op("div", value, number(body, window.length(out), body.dtype(value)))
            return value

        return _pool(ctx, node, x, windows, "sum", meta_of(node), finish)

    return lower


rule(aten.avg_pool2d.default)(_avg_pool(2))
rule(aten.avg_pool3d.default)(_avg_pool(3))
rule(aten._adaptive_avg_pool2d.default)(_adaptive_avg_pool(2))
rule(aten._adaptive_avg_pool3d.default)(_adaptive_avg_pool(3))
