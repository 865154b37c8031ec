"""The entry point of `torch.compile(..., backend="icpu")`: options, AOTAutograd and its three compilers.

Importing this module starts the background build of the executor, which every graph needs: Dynamo imports it when a
program names the backend, so it runs while Dynamo traces. The prelude is precompiled after the first kernels.
"""

from __future__ import annotations

import functools
import inspect
import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Any, Literal

import torch
from torch import fx
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.exc import ShortenTraceback
from torch._functorch import config as functorch_config
from torch._functorch._aot_autograd.schemas import MutationType, OutputAliasInfo, OutputType
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch._guards import CompileContext, TracingContext

from inductor_cpu.config import Config, from_options, snapshot
from inductor_cpu.errors import InternalError, UserError
from inductor_cpu.graph.circular import join_circular_padding
from inductor_cpu.graph.decompositions import decompositions
from inductor_cpu.graph.dropped_attention import drop_in_attention
from inductor_cpu.graph.fake_strides import strides_of_eager
from inductor_cpu.graph.passes import DONE_BEFORE, run_joint_passes
from inductor_cpu.graph.positions import lengthen_positions
from inductor_cpu.graph.updated import NO_UPDATES, Updates
from inductor_cpu.graph.zero_points import drop_zero_points
from inductor_cpu.lower.rules import RULES
from inductor_cpu.pipeline import (
    attention_kernel,
    compile_graph,
    multiplies_pixels,
    tiling_kernel,
    warm_up,
    warm_up_training,
)
from inductor_cpu.trace import CompileReport, Trace, set_logs

Kind = Literal["inference", "forward", "backward"]
Observer = Callable[[CompileReport], None]

log = logging.getLogger("inductor_cpu.backend")

_IN_GRAPH = MutationType.MUTATED_IN_GRAPH

# By operator, because the fake tensors of quantized dtypes claim to be float32.
_QUANTIZERS = frozenset({torch.quantize_per_tensor, torch.quantize_per_channel, torch.quantize_per_tensor_dynamic})

_AUTOGRAD_SETTINGS = {
    "unlift_effect_tokens": True,  # else None is passed for tokens at run time
    # Else a gradient is copied into the strides of its result, where elements of an unfolded one overlap.
    "guess_tangent_strides_as_outputs": False,
}


class VisibleUserError(UserError, ShortenTraceback):
    """A UserError that Dynamo hands to the program as it is; any other exception becomes a BackendCompilerFailed.

    Its traceback starts at `frame`, where it is raised: Dynamo's own frames tell a person nothing.
    """

    def __init__(self, error: UserError, frame: FrameType | None) -> None:
        ShortenTraceback.__init__(self, str(error), first_useful_frame=frame)
        self.__traceback__ = error.__traceback__


class VisibleInternalError(InternalError, ShortenTraceback):
    """An InternalError that Dynamo hands to the program as it is. Its traceback goes on to the defect."""

    def __init__(self, error: InternalError, frame: FrameType | None) -> None:
        ShortenTraceback.__init__(self, str(error), first_useful_frame=frame)
        self.stage, self.message, self.dump = error.stage, error.message, error.dump
        self.__traceback__ = error.__traceback__


def icpu(
    gm: fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    mode: str | None = None,
    options: Mapping[str, object] | None = None,
) -> Callable[..., Any]:
    """Compile one Dynamo graph; the function that Dynamo calls for `backend="icpu"`.

    `mode` and `options` are those of torch.compile. Returns a callable with the inputs and outputs of `gm`. Raises
    UserError (options, environment, machine) and InternalError (a defect of the compiler).
    """
    return compile_dynamo_graph(gm, example_inputs, mode=mode, options=options)


def compile_dynamo_graph(
    gm: fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    mode: str | None = None,
    options: Mapping[str, object] | None = None,
    observe: Observer | None = None,
) -> Callable[..., Any]:
    """`icpu`, with an observer that gets the report of every graph compiled for `gm`, also later (backward)."""
    try:
        config = from_options(options, mode)
    except UserError as error:
        raise VisibleUserError(error, inspect.currentframe()) from None
    reason = eager_reason(gm, example_inputs)
    if reason is not None:
        log.warning("this graph runs in eager mode: %s", reason)
        if observe is not None:
            observe(CompileReport(graph=_graph_name("eager"), kind="eager", notes=(f"runs in eager mode: {reason}",)))
        return gm.forward
    if _has_gradients(example_inputs) and not config.debug_interpret:
        warm_up_training(config)
    drop_in_attention(gm, functools.partial(attention_kernel, config))
    join_circular_padding(gm)
    if config.cpp.weight_prepack:
        drop_zero_points(gm, example_inputs)
    try:
        return _differentiate(gm, example_inputs, config, observe, mutations_in_graph=True)
    except _MisplacedResult:
        return _differentiate(gm, example_inputs, config, observe, mutations_in_graph=False)


def _has_gradients(example_inputs: Sequence[Any]) -> bool:
    tensors = (value for value in example_inputs if isinstance(value, torch.Tensor))
    return torch.is_grad_enabled() and any(value.requires_grad for value in tensors)


def _differentiate(
    gm: fx.GraphModule,
    example_inputs: Sequence[Any],
    config: Config,
    observe: Observer | None,
    mutations_in_graph: bool,
) -> Callable[..., Any]:
    """Hand the graph to AOTAutograd. mutations_in_graph: whether the compiled graph changes inputs where it can; else
    it returns their new values, which are copied. Raises _MisplacedResult (only with them)."""
    compiler = aot_autograd(
        fw_compiler=_GraphCompiler("forward", config, observe),
        bw_compiler=_GraphCompiler("backward", config, observe),
        inference_compiler=_GraphCompiler("inference", config, observe),
        decompositions=decompositions(RULES),
        partition_fn=functools.partial(_split, config),
        keep_inference_input_mutations=mutations_in_graph,
    )
    with torch._functorch.config.patch(_AUTOGRAD_SETTINGS), strides_of_eager():
        return compiler(gm, example_inputs)


def _split(config: Config, gm: fx.GraphModule, *args: Any, **kwargs: Any) -> tuple[fx.GraphModule, fx.GraphModule]:
    """The forward and the backward graph of one of both directions. Raises VisibleInternalError if a pass fails."""
    try:
        done = run_joint_passes(
            gm,
            functools.partial(attention_kernel, config),
            functools.partial(tiling_kernel, config),
            functools.partial(multiplies_pixels, config),
            config.fallback_random,
        )
    except Exception as error:
        defect = InternalError("graph", f"{type(error).__name__}: {error}")
        raise VisibleInternalError(defect, inspect.currentframe()) from error
    forward, backward = min_cut_rematerialization_partition(gm, *args, **kwargs)
    forward.meta[DONE_BEFORE] = done
    lengthen_positions(backward)
    return forward, backward


class _MisplacedResult(Exception):
    """AOTAutograd returns an input that the graph changes in the place of another input's new value."""


def _check_places() -> None:
    """Raise _MisplacedResult if the traced graph has its results in wrong places.

    A result that is a changed input is returned as this input if the graph changes it. AOTAutograd counts its place
    from the first result of the program, but the new values of inputs that change outside of the graph come before.
    """
    context = TracingContext.try_get()
    if context is None or context.fw_metadata is None or not context.fw_metadata.num_mutated_inp_runtime_indices:
        return
    changed = {k for k, info in enumerate(context.fw_metadata.input_info) if info.mutation_type is _IN_GRAPH}
    if any(o.output_type is OutputType.is_input and o.base_idx in changed for o in context.fw_metadata.output_info):
        raise _MisplacedResult


@dataclass(frozen=True)
class _GraphCompiler:
    """One of AOTAutograd's compilers. It carries its settings, because a backward may be compiled much later, and on
    another thread, than its forward."""

    kind: Kind
    config: Config
    observe: Observer | None

    def __call__(self, gm: fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[[list[Any]], Any]:
        trace = Trace(_graph_name(self.kind), self.config.dump)
        log.info("compile %s: %d nodes", trace.graph, len(gm.graph.nodes))
        if self.kind != "backward":
            _check_places()
        strides, numbers = output_strides(gm), number_results(gm)
        try:
            compiled = compile_graph(
                gm,
                kind=self.kind,
                config=self.config,
                trace=trace,
                static_inputs=_static_inputs(self.kind, gm),
                free_results=_free_results(self.kind),
                updates=_updates(self.kind),
            )
        except UserError as error:
            raise VisibleUserError(error, inspect.currentframe()) from error
        except InternalError as error:
            raise VisibleInternalError(error, inspect.currentframe()) from error
        if self.kind != "backward":
            _report_output_strides(strides)
        log.info("compiled %s in %.0f ms", trace.graph, sum(t.ms for t in trace.timings))
        if self.observe is not None:
            self.observe(compiled.report)
        return _boxed_function(compiled, numbers) if numbers or self.kind == "backward" else compiled


def _boxed_function(
    compiled: Callable[[list[Any]], Any], numbers: Mapping[int, type[bool] | type[float]]
) -> Callable[[list[Any]], Any]:
    """`compiled` as a function, whose results at these positions are bools and floats. Dynamo wraps a backward and
    copies the attributes of the instance only, so that a mark on the class would be lost and the arguments would come
    unboxed."""

    def call(args: list[Any]) -> Any:
        results = compiled(args)
        for position, kind in numbers.items():
            results[position] = kind(results[position])
        return results

    call._boxed_call = True  # type: ignore[attr-defined]
    return call


def _graph_name(kind: str) -> str:
    """`inference_0_1`: what it is, and Dynamo's frame and compile numbers."""
    compile_id = CompileContext.current_compile_id()
    return kind if compile_id is None else f"{kind}_{compile_id}".replace("/", "_")


def _static_inputs(kind: Kind, gm: fx.GraphModule) -> frozenset[int]:
    """Positions of the graph inputs that are parameters or buffers: the same tensors at every call."""
    context = TracingContext.try_get()
    if kind == "backward" or context is None or context.fw_metadata is None:
        return frozenset()
    # Tokens of effects come first there; they were inputs, and the graph makes them itself.
    tokens = len(gm.graph.find_nodes(op="call_function", target=torch.ops.prims._make_token.default))
    return frozenset(k - tokens for k in context.fw_metadata.static_input_indices if k >= tokens)


def _free_results(kind: Kind) -> frozenset[int] | None:
    """Positions of the results whose strides nobody but the caller reads; None for all. A forward's other results are
    changed inputs, bases of views that AOTAutograd makes, and what it saves."""
    context = TracingContext.try_get()
    if kind == "inference":
        return None
    if context is None or context.fw_metadata is None or context.fw_metadata.tokens:
        return frozenset()
    metadata = context.fw_metadata
    view_of_result = OutputType.alias_of_intermediate_base_is_user_output
    views = (info for info in metadata.output_info if info.output_type is view_of_result)
    bases = {info.base_idx for info in views if not _is_replayed(info)}
    own = {
        position
        for position, info in enumerate(metadata.output_info)
        if info.output_type in (OutputType.non_alias, OutputType.unsafe_view_alias) and position not in bases
    }
    return frozenset(metadata.num_mutated_inp_runtime_indices + position for position in own)


def _is_replayed(info: OutputAliasInfo) -> bool:
    """Whether AOTAutograd calls the operators of a view again on its base, and does not read the base's strides."""
    sequence = info.view_meta_sequence
    if sequence is None or not functorch_config.view_replay_for_aliased_outputs:
        return False
    return not any(step.has_symbolic_inputs for step in sequence.sequence)


def _updates(kind: Kind) -> Updates:
    """Which results are views of inputs, and which are new values of inputs."""
    context = TracingContext.try_get()
    if kind == "backward" or context is None or context.fw_metadata is None or context.fw_metadata.tokens:
        return NO_UPDATES
    metadata = context.fw_metadata
    first = metadata.num_mutated_inp_runtime_indices
    views = {
        first + position: info.base_idx
        for position, info in enumerate(metadata.output_info)
        if info.output_type is OutputType.alias_of_input and info.base_idx is not None
    }
    return Updates(views, {number: place for place, number in enumerate(metadata.mutated_inp_runtime_indices)})


def output_strides(gm: fx.GraphModule) -> list[tuple[int, ...] | None]:
    """The strides of each output of `gm`, which the compiled graph keeps; None for a non-tensor or symbolic strides."""
    (outputs,) = gm.graph.output_node().args
    assert isinstance(outputs, list | tuple)
    values = [o.meta.get("val") if isinstance(o, fx.Node) else None for o in outputs]
    return [_concrete_strides(v) for v in values]


def number_results(gm: fx.GraphModule) -> dict[int, type[bool] | type[float]]:
    """Position -> type of the results that are bools or floats made from sizes. A plan has ints (1 or 0) and 0-dim
    tensors for them."""
    (outputs,) = gm.graph.output_node().args
    assert isinstance(outputs, list | tuple)
    kinds: dict[type, type[bool] | type[float]] = {torch.SymBool: bool, torch.SymFloat: float}
    values = [o.meta.get("val") if isinstance(o, fx.Node) else None for o in outputs]
    return {position: kinds[type(value)] for position, value in enumerate(values) if type(value) in kinds}


def _concrete_strides(value: object) -> tuple[int, ...] | None:
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
        return None
    strides = value.stride()
    return tuple(strides) if all(isinstance(s, int) for s in strides) else None


def _report_output_strides(strides: list[tuple[int, ...] | None]) -> None:
    """Tell AOTAutograd which strides the backward will see in what the forward saves."""
    context = TracingContext.try_get()
    if context is not None and context.output_strides is not None:
        context.output_strides.extend(strides)


def eager_reason(gm: fx.GraphModule, example_inputs: Sequence[Any]) -> str | None:
    """Why `gm` cannot be compiled for the CPU as a whole and has to run in eager mode; None when it can.

    That is: any value in it, or in its subgraphs, that lives on another device, or is not a plain strided tensor.
    """
    for value in example_inputs:
        if (reason := _foreign(value)) is not None:
            return f"an input {reason}"
    for node, value in _values(gm):
        if node.target in _QUANTIZERS or str(node.target).startswith("quantized."):
            return f"'{node.name}' has a quantized dtype, which only eager mode has"
        if (reason := _foreign(value)) is not None:
            return f"'{node.name}' {reason}"
    return None


def _values(gm: fx.GraphModule) -> Iterator[tuple[fx.Node, object]]:
    for module in gm.modules():
        if isinstance(module, fx.GraphModule):
            for node in module.graph.nodes:
                value = node.meta.get("example_value", node.meta.get("val"))
                for item in value if isinstance(value, list | tuple) else (value,):
                    yield node, item


def _foreign(value: object) -> str | None:
    if not isinstance(value, torch.Tensor):
        return None
    if value.device.type != "cpu":
        return f"is on the device {value.device}; icpu compiles for the CPU only"
    if value.layout is not torch.strided:
        return f"has the layout {value.layout}; icpu compiles strided tensors only"
    return None


set_logs(os.environ.get("ICPU_LOGS", ""))
warm_up(snapshot())
