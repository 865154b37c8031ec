"""The graph passes in order, FX -> FX. Each is one function in a file of its own."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from inductor_cpu.graph.affine import fold_affine
from inductor_cpu.graph.attention import AttentionChoice, use_attention_kernels
from inductor_cpu.graph.batch_norm import fold_batch_norms
from inductor_cpu.graph.clean import drop_copies, drop_unread_vectors, share_views
from inductor_cpu.graph.complex_products import multiply_pairs
from inductor_cpu.graph.convolution import (
    Refusal,
    convolve_over_two_dimensions,
    fuse_conv_binaries,
    pack_convolutions,
)
from inductor_cpu.graph.decomposed import expand_quantization, multiply_as_integers
from inductor_cpu.graph.decomposed_convolution import convolve_as_integers
from inductor_cpu.graph.edit import StrideSpreader
from inductor_cpu.graph.flex import mark_flexible
from inductor_cpu.graph.join import join_linears
from inductor_cpu.graph.kept_bytes import keep_bytes
from inductor_cpu.graph.linear import WhyNotPack, fuse_linear_binaries, pack_linears
from inductor_cpu.graph.nested_joins import nest_joins
from inductor_cpu.graph.per_call import PerCallChoice, pack_per_call
from inductor_cpu.graph.per_call_convolution import TilingChoice, convolve_by_tiles
from inductor_cpu.graph.per_call_pixels import PixelChoice, multiply_pixels
from inductor_cpu.graph.positions import shorten_positions
from inductor_cpu.graph.products import ConvolutionKernelChoice, DepthwiseChoice, GroupedChoice, MicroKernelChoice
from inductor_cpu.graph.quantized import pack_int_products
from inductor_cpu.graph.random import draw_in_loops
from inductor_cpu.graph.recurrent import drop_empty_layers, pack_recurrent, widen_layers
from inductor_cpu.graph.shared import find_shared_results, keep_shared_results
from inductor_cpu.graph.spelled import recognize_activations
from inductor_cpu.graph.spelled_attention import recognize_attention
from inductor_cpu.graph.training_layout import train_channels_last
from inductor_cpu.graph.transposed_convolution import convolve_by_phases
from inductor_cpu.graph.weights import Recipe, hoist_weights, split_weights, weight_only
from inductor_cpu.graph.widened import widen_convolutions
from inductor_cpu.graph.wrapped import complete_replays, unwrap_effects

#: Key of a graph's `meta`: what was done before AOTAutograd split it from the graph of both directions.
DONE_BEFORE = "icpu_done_before"


@dataclass(frozen=True)
class Prepared:
    """A graph ready for lowering. recipe: how its extra inputs, the packed weights, are made; None without any. notes:
    what was folded and packed, and why the rest was not."""

    gm: fx.GraphModule
    recipe: Recipe | None
    notes: tuple[str, ...]


def always_pack(*_shape: object) -> str | None:
    """The choice that packs every linear."""
    return None


def no_micro_kernel(*_shape: object) -> str | None:
    """The choice that leaves every linear to oneDNN."""
    return None


def no_products(_dtype: torch.dtype) -> bool:
    """The choice that leaves convolutions of single pixels to ATen."""
    return False


def no_attention_kernel(_dtype: torch.dtype) -> tuple[str | None, str]:
    """The choice that leaves attention to ATen."""
    return None, "kernels of ours are not asked for"


def run_joint_passes(
    gm: fx.GraphModule,
    attention_kernel: AttentionChoice,
    tiling_kernel: TilingChoice = no_micro_kernel,
    by_pixels: PixelChoice = no_products,
    eager_random: bool = True,
) -> tuple[str, ...]:
    """The passes over the graph of both directions, before AOTAutograd splits it; returns what they did. eager_random:
    random numbers are those of eager mode."""
    gm.graph.eliminate_dead_code()
    recognize_attention(gm, attention_kernel)
    counts = {
        "convolutions and gradients of convolutions run channels-last": train_channels_last(
            gm, tiling_kernel, by_pixels, eager_random
        ),
        "gradients of max pooling read positions as int32": shorten_positions(gm),
    }
    return tuple(f"{count} {what}" for what, count in counts.items() if count)


def run_passes(
    gm: fx.GraphModule,
    static_inputs: Collection[int],
    prepack: bool,
    why_not_pack: WhyNotPack = always_pack,
    micro_kernel: MicroKernelChoice = no_micro_kernel,
    convolution_kernel: ConvolutionKernelChoice = no_micro_kernel,
    depthwise_kernel: DepthwiseChoice = no_micro_kernel,
    grouped_kernel: GroupedChoice = no_micro_kernel,
    kernel_per_call: PerCallChoice = no_micro_kernel,
    tiling_kernel: TilingChoice = no_micro_kernel,
    by_pixels: PixelChoice = no_products,
    attention_kernel: AttentionChoice = no_attention_kernel,
    once: bool = False,
    eager_random: bool = True,
) -> Prepared:
    """Clean the graph and unwrap its calls; with `prepack` (inference), fold and pack what depends on the static
    inputs, linears where `why_not_pack` has no objection, by kernels of our own where `micro_kernel` (of linears),
    `convolution_kernel`, `depthwise_kernel` or `grouped_kernel` names one. `kernel_per_call` decides about products
    that would be packed at each call, `tiling_kernel` and `by_pixels` about such convolutions, `attention_kernel` about
    attention in every graph. once: no weight is to be in memory both as it is and packed. eager_random: random numbers
    are those of eager mode."""
    gm.graph.eliminate_dead_code()
    if not eager_random:
        draw_in_loops(gm)
    unwrap_effects(gm)
    complete_replays(gm)
    drop_unread_vectors(gm)
    drop_empty_layers(gm)
    widen_layers(gm)
    multiply_pairs(gm)
    attention = [*use_attention_kernels(gm, attention_kernel), *mark_flexible(gm, attention_kernel)]
    recognize_attention(gm, attention_kernel)
    if not prepack or not static_inputs:
        drop_copies(gm)
        expand_quantization(gm)
        nested = _nested(nest_joins(gm))
        multiplied, widened = multiply_pixels(gm, by_pixels), widen_convolutions(gm)
        tiled = convolve_by_tiles(gm, tiling_kernel)
        products = _per_call(pack_per_call(gm, frozenset(), micro_kernel, kernel_per_call))
        kinds = {"by tiles of windows": tiled, "as products of pixels": multiplied, "in float32": widened}
        products += [f"{n} convolutions and gradients of convolutions {kind}" for kind, n in kinds.items() if n]
        products += nested
        return Prepared(gm, None, (*gm.meta.get(DONE_BEFORE, ()), *products, *attention))
    promised, shared = keep_result_strides(gm), find_shared_results(gm)
    share_views(gm)
    drop_copies(gm)
    folded, quantized = _fold(gm, static_inputs, micro_kernel)
    nested = _nested(nest_joins(gm))
    slices, joined = join_linears(gm, weight_only(gm, static_inputs))
    phased = convolve_by_phases(gm, weight_only(gm, static_inputs), tiling_kernel)
    convolve_over_two_dimensions(gm, weight_only(gm, static_inputs))
    spreader = StrideSpreader(gm.graph, eager_random)
    for part, before in [*slices, *phased]:
        spreader.changed(part, before)
    convolutions, refused = pack_convolutions(
        gm, weight_only(gm, static_inputs), spreader, convolution_kernel, depthwise_kernel, grouped_kernel
    )
    conv_adds = fuse_conv_binaries(gm) if convolutions else 0
    widened = widen_convolutions(gm)
    products = _per_call(pack_per_call(gm, weight_only(gm, static_inputs), micro_kernel, kernel_per_call, once))
    linears, more = _pack_products(gm, static_inputs, why_not_pack, micro_kernel, once)
    linears += quantized
    recurrent, others = pack_recurrent(gm, weight_only(gm, static_inputs))
    linear_adds = fuse_linear_binaries(gm) if linears else 0
    keep_shared_results(gm, shared, promised)
    gm, recipe = split_weights(gm, static_inputs)
    counts = (
        f"{folded}, {convolutions} convolutions, {linears} linears and {recurrent} recurrent layers packed,"
        f" {conv_adds + linear_adds} operations with another tensor fused"
    )
    kinds = {"transposed convolutions as convolutions": len(phased), "convolutions in float32": widened}
    changed = [f"{count} {kind}" for kind, count in kinds.items() if count]
    why_not = _texts([*refused, *more, *others])
    return Prepared(gm, recipe, (counts, *changed, *products, *joined, *nested, *attention, *why_not))


def _fold(gm: fx.GraphModule, static_inputs: Collection[int], micro_kernel: MicroKernelChoice) -> tuple[str, int]:
    """Fold what depends on weights alone into weights; returns what was folded, for people, and the number of products
    that read bytes now."""
    hoist_weights(gm, static_inputs)
    keep_bytes(gm)
    quantized = multiply_as_integers(gm, weight_only(gm, static_inputs), micro_kernel)
    convolve_as_integers(gm, weight_only(gm, static_inputs), micro_kernel)
    expand_quantization(gm)
    spelled = recognize_activations(gm)
    norms = fold_batch_norms(gm, weight_only(gm, static_inputs))
    scaled = fold_affine(gm, weight_only(gm, static_inputs))
    # Folding leaves each new weight beside its layer; joining reads the weights of several layers at the first.
    hoist_weights(gm, static_inputs)
    folded = f"{norms} batch norms and {scaled} scales and shifts folded"
    return f"{folded}, {spelled} spelled-out activations recognized", quantized


def _pack_products(
    gm: fx.GraphModule,
    static_inputs: Collection[int],
    why_not_pack: WhyNotPack,
    micro_kernel: MicroKernelChoice,
    once: bool,
) -> tuple[int, list[Refusal]]:
    """Pack the weights of linears and of products of integers; returns how many, and those left alone."""
    linears, refused = pack_linears(gm, weight_only(gm, static_inputs), why_not_pack, micro_kernel, once)
    integers, more = pack_int_products(gm, weight_only(gm, static_inputs), micro_kernel, once)
    return linears + integers, [*refused, *more]


def keep_result_strides(gm: fx.GraphModule) -> list[tuple[Any, ...] | None]:
    """Remember on the output node what strides the caller was promised; returns them, None for what is no tensor."""
    output = gm.graph.output_node()
    results = output.args[0]
    values = [n.meta.get("val") if isinstance(n, fx.Node) else None for n in results]  # type: ignore[union-attr]
    promised = [v.stride() if isinstance(v, torch.Tensor) else None for v in values]
    output.meta["result_strides"] = promised
    return promised


def _per_call(count: int) -> list[str]:
    kinds = "of batches, or with an operand packed at each call or read by loops"
    return [f"{count} products {kinds}, by kernels of ours"] if count else []


def _nested(spared: int) -> list[str]:
    return [f"joins read {spared} parts less, as earlier ones have them"] if spared else []


def _texts(refused: list[Refusal]) -> list[str]:
    return [f"{item.node} is not packed: {item.reason}" for item in refused]
