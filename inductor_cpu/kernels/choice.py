"""Who computes the products of a graph: `linear.py` decides, once for each shape. Under `max_autotune` it does so by
measurements, of candidates that the caller compiles.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

import torch

from inductor_cpu.ir.micro_kernels import BY_LOOPS, MICRO_KERNELS
from inductor_cpu.ir.windows import Windows, is_read_in_place, of_groups
from inductor_cpu.kernels import linear
from inductor_cpu.kernels.usable import usable_micro_kernels
from inductor_cpu.targets.blocking import blocking_for
from inductor_cpu.targets.cpu import Target


class Trials(Protocol):
    """What measures candidates."""

    def seconds(
        self, question: str, candidates: Callable[[], Mapping[str, Callable[[], object]]]
    ) -> Mapping[str, float]:
        """Seconds of one call of each candidate; `candidates` is called only if the answer is not known."""

    def has_onednn(self, dtype: torch.dtype) -> bool:
        """Whether oneDNN computes linears of a dtype on this CPU."""

    def own_linear(self, shape: linear.Shape, name: str) -> Callable[[], object]:
        """A call of a micro kernel, or of `BY_LOOPS`, on random data of a shape."""

    def own_product(self, x: torch.Tensor, weight: torch.Tensor, name: str) -> Callable[[], object]:
        """A call of a micro kernel, or of `BY_LOOPS`, that packs weight at each call."""


class ProductChoice:
    """Who computes the linears, convolutions and other products of one graph."""

    def __init__(
        self, target: Target, split_float32: bool, winograd: bool, prepack: bool, trials: Trials | None
    ) -> None:
        """split_float32, winograd, prepack: settings; trials: None to decide by the cost model."""
        self._target, self._split_float32, self._winograd = target, split_float32, winograd
        self._prepack, self._trials = prepack, trials
        self._blocking = blocking_for(target)
        self._decisions: dict[linear.Shape, linear.Decision] = {}
        self._products: dict[linear.PerCall, linear.Decision] = {}

    def why_not_pack(self, rows: int | None, inner: int | None, columns: int | None, dtype: torch.dtype) -> str | None:
        """The reason for the BLAS; None for oneDNN."""
        decision = self._decide(linear.Shape(rows, inner, columns, dtype, dtype))
        return f"the BLAS is faster: {decision.reason}" if decision.implementation == "blas" else None

    def micro_kernel(
        self,
        rows: int | None,
        inner: int | None,
        columns: int | None,
        dtype: torch.dtype,
        weight: torch.dtype | None = None,
    ) -> str | None:
        """The micro kernel that computes a linear, or `BY_LOOPS`; None for a library. weight: its dtype if another."""
        decision = self._decide(linear.Shape(rows, inner, columns, dtype, weight or dtype))
        return decision.implementation if decision.implementation in (*MICRO_KERNELS, BY_LOOPS) else None

    def convolution_kernel(self, windows: Windows, dtype: torch.dtype) -> str | None:
        """The micro kernel that computes a convolution, or `BY_LOOPS` where a window is one pixel; None for oneDNN,
        where folded weights cost no accuracy."""
        windows = replace(windows, neighbours=windows.neighbours and self._winograd)
        # A linear layer of this shape, which trials would measure, tells nothing of tiles, and of windows in place.
        kernel = self._tiling_kernel(windows, dtype) or self._reading_kernel(windows, dtype)
        kernel = kernel or self.micro_kernel(windows.rows, windows.pixels * windows.channels, windows.columns, dtype)
        if kernel == BY_LOOPS:
            return kernel if windows.pixels == 1 else None
        return kernel if kernel is not None and self._wins(kernel, windows) else None

    def depthwise_kernel(self, dtype: torch.dtype, uses: float) -> str | None:
        """The micro kernel that computes a convolution of each channel by itself, or `BY_LOOPS`; None for oneDNN. uses:
        how many windows a pixel is in."""
        usable = usable_micro_kernels(self._target)
        rows = (row for row in MICRO_KERNELS.values() if row.depthwise and row.name in usable)
        own = next((row.name for row in rows if row.dtype == dtype), None)
        return BY_LOOPS if own is not None and uses < linear.LEAST_USES else own

    def grouped_kernel(self, dtype: torch.dtype, inputs: int, outputs: int, groups: int) -> str | None:
        """The micro kernel that convolves groups of channels by themselves; None for oneDNN. inputs, outputs: channels
        and results of a group."""
        usable = usable_micro_kernels(self._target)
        rows = (row for row in MICRO_KERNELS.values() if row.grouped and row.name in usable and row.dtype == dtype)
        return next((row.name for row in rows if of_groups(row, (1, 1), inputs, outputs, groups) is not None), None)

    def kernel_per_call(
        self,
        rows: int | None,
        inner: int | None,
        columns: int | None,
        dtype: torch.dtype,
        batch: int | None,
        transposed: bool,
        by_depth: bool = False,
    ) -> str | None:
        """The micro kernel that computes a product even if its second operand is packed at each call, or `BY_LOOPS`;
        None for the BLAS. transposed, by_depth: whether the second operand lies as (columns, inner), the first one as
        (inner, rows)."""
        if not self._prepack:
            return None
        product = linear.PerCall(linear.Shape(rows, inner, columns, dtype, dtype), batch, transposed, by_depth)
        if product not in self._products:
            self._products[product] = self._decide_per_call(product)
        implementation = self._products[product].implementation
        return None if implementation == "blas" else implementation

    def tiling_kernel(self, windows: int | None, channels: int, columns: int, dtype: torch.dtype) -> str | None:
        """The micro kernel that computes a convolution of 3 x 3 neighbours by tiles even if its weights are packed at
        each call; None for ATen. As in products, floats are not split into parts."""
        if not self._prepack or not self._winograd:
            return None
        shape = linear.Shape(windows, 9 * channels, columns, dtype, dtype)
        usable = usable_micro_kernels(self._target) - {"split_f32"}
        own = linear.own_kernels(shape, usable, self._blocking)[:1]
        wins = (name for name in own if linear.tiles_pay_per_call(name, Windows(windows, 9, channels, columns)))
        return next(wins, None)

    def multiplies_pixels(self, dtype: torch.dtype) -> bool:
        """Whether products beat ATen's convolutions of single channels-last pixels and their gradients, if weights are
        not static."""
        shape = linear.Shape(None, None, None, dtype, dtype)
        own = linear.own_kernels(shape, usable_micro_kernels(self._target) - {"split_f32"}, self._blocking)[:1]
        return self._prepack and any(linear.pixels_pay_per_call(name, self._target.features) for name in own)

    def notes(self) -> list[str]:
        """One line for each shape."""
        products = [f"product {product}: {d.implementation}, {d.reason}" for product, d in self._products.items()]
        return [f"linear {shape}: {d.implementation}, {d.reason}" for shape, d in self._decisions.items()] + products

    def _decide_per_call(self, product: linear.PerCall) -> linear.Decision:
        """What a library computes with floats in all bits is not split into parts: that is a setting of inference."""
        usable = usable_micro_kernels(self._target)
        own = linear.own_kernels(product.shape, usable - {"split_f32"}, self._blocking)[:2]
        trials = self._trials
        if trials is None or not own:
            return linear.choose_per_call(product, usable, self._blocking, self._target.features)
        if linear.may_be_loops(product):
            own = [*own, BY_LOOPS]

        def candidates() -> Mapping[str, Callable[[], object]]:
            x, weight = linear.operands_per_call(product)
            ours = {name: trials.own_product(x, weight, name) for name in own}
            return {"blas": lambda: torch.matmul(x, weight), **ours}

        question = f"product {product}, packed at each call: {', '.join(['blas', *own])}"
        return linear.choose(product.shape, trials.seconds(question, candidates))

    def _usable(self) -> frozenset[str]:
        """The micro kernels of linears and convolutions."""
        return usable_micro_kernels(self._target) - (frozenset() if self._split_float32 else {"split_f32"})

    def _tiling_kernel(self, windows: Windows, dtype: torch.dtype) -> str | None:
        """The first micro kernel for a convolution if it multiplies its windows by tiles."""
        own = self._own(windows, dtype, self._usable())
        return next((name for name in own if linear.tiles_pay(name, windows)), None)

    def _reading_kernel(self, windows: Windows, dtype: torch.dtype) -> str | None:
        """The first one if it reads windows where they lie; the next one where to split floats does not pay."""
        own = self._own(windows, dtype, self._usable())
        if own == ["split_f32"] and not self._wins(own[0], windows):
            own = self._own(windows, dtype, self._usable() - {"split_f32"})
        return next((name for name in own if is_read_in_place(MICRO_KERNELS[name], windows)), None)

    def _wins(self, name: str, windows: Windows) -> bool:
        return linear.wins_convolution(name, windows, self._blocking, self._target.features)

    def _own(self, windows: Windows, dtype: torch.dtype, usable: Collection[str]) -> list[str]:
        shape = linear.Shape(windows.rows, windows.pixels * windows.channels, windows.columns, dtype, dtype)
        return linear.own_kernels(shape, usable, self._blocking)[:1]

    def _decide(self, shape: linear.Shape) -> linear.Decision:
        if shape not in self._decisions:
            usable = self._usable()
            own = linear.own_kernels(shape, usable, self._blocking)[:2] or [BY_LOOPS]
            self._decisions[shape] = linear.choose_linear(shape, usable, self._blocking, self._measured(shape, own))
        return self._decisions[shape]

    def _measured(self, shape: linear.Shape, own: Sequence[str]) -> Mapping[str, float] | None:
        trials = self._trials
        if trials is None or not shape.weight.is_floating_point:
            return None
        onednn = trials.has_onednn(shape.dtype)
        question = f"linear {shape}: {', '.join([*(['onednn'] if onednn else []), 'blas', *own])}"

        def candidates() -> Mapping[str, Callable[[], object]]:
            ours = {name: trials.own_linear(shape, name) for name in own}
            return {**linear.candidates(shape, onednn), **ours}

        return trials.seconds(question, candidates)
