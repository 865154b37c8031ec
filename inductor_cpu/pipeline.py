"""The stages in order: graph, lower, schedule, codegen, runtime. The only module that knows all of them.

Each stage is run, verified when `config.verify` is set, dumped when a dump folder is set, and timed. A defect in a
stage becomes an `InternalError` that names it; `Unsupported` from the lowering sends the whole graph to eager
operators, with the reason in the report.
"""

from __future__ import annotations

import copy
import functools
import logging
import shlex
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import fx
from torch.fx.experimental.proxy_tensor import make_fx

from inductor_cpu import paths
from inductor_cpu.codegen.around import kept_bytes, tiles_kept_bytes
from inductor_cpu.codegen.generate import generate_all
from inductor_cpu.codegen.pages import far_bytes
from inductor_cpu.codegen.plan import build_plan
from inductor_cpu.codegen.tuning import Choices
from inductor_cpu.compiled import CompiledGraph, Kind, interpreted, run_eagerly
from inductor_cpu.config import Config
from inductor_cpu.errors import IcpuError, InternalError, Unsupported
from inductor_cpu.graph.convolution import unsupported_dtype
from inductor_cpu.graph.passes import Prepared, no_micro_kernel, run_passes
from inductor_cpu.graph.per_call import pack_per_call
from inductor_cpu.graph.strides import correct_strides
from inductor_cpu.graph.updated import NO_UPDATES, Updates, return_views_of_inputs
from inductor_cpu.graph.weights import NO_RECIPE, Recipe, read_inputs
from inductor_cpu.ir.kernel import CALLS, Kernel, Schedule, Scored, Strips, kernels_of
from inductor_cpu.ir.loop_nest import LoopNest
from inductor_cpu.ir.micro_kernels import BY_LOOPS, MICRO_KERNELS, pack
from inductor_cpu.ir.nodes import Extern, Program, Templated
from inductor_cpu.ir.operators import PACKED_LINEAR
from inductor_cpu.ir.plan import REDZONE, ExecutionPlan, KernelSource
from inductor_cpu.ir.printer import show
from inductor_cpu.ir.verify import verify_program
from inductor_cpu.ir.verify_schedule import verify_schedule
from inductor_cpu.kernels import attention, linear
from inductor_cpu.kernels.choice import ProductChoice
from inductor_cpu.lower.graph import lower_graph
from inductor_cpu.repro_text import repro_text
from inductor_cpu.runtime import executor
from inductor_cpu.runtime.background import start_executor_build, start_header_build, start_operators_build
from inductor_cpu.runtime.cache import KernelCache, open_cache, private_cache
from inductor_cpu.runtime.compile import load_kernels
from inductor_cpu.runtime.measurements import Measurements
from inductor_cpu.runtime.toolchain import Toolchain, find_toolchain
from inductor_cpu.runtime.weights import Dropping, PackedWeights
from inductor_cpu.schedule.schedule import schedule_program
from inductor_cpu.targets.cpu import Target, target_for
from inductor_cpu.trace import CompileReport, KernelInfo, Trace, count_externs

log = logging.getLogger("inductor_cpu.pipeline")


@dataclass(frozen=True)
class Machine:
    """What kernels are built for and with."""

    target: Target
    toolchain: Toolchain
    cache: KernelCache


def machine_for(config: Config) -> Machine:
    """The target, compiler and cache of these settings. Raises UserError, for example when there is no compiler."""
    cache = private_cache() if config.force_disable_caches else open_cache(config.cache_dir)
    toolchain = find_toolchain(config.cpp.cxx, config.cpp.compile_timeout, config.cpp.sanitize)
    return Machine(_target(config), toolchain, cache)


def _target(config: Config) -> Target:
    return target_for(config.cpp.simdlen, config.cpp.max_isa)


def warm_up(config: Config) -> None:
    """Start building what every graph needs; returns at once. Faults are left to the compile that needs the result."""
    machine = _machine_in_background(config)
    if machine is not None:
        start_executor_build(machine.cache, machine.toolchain)


def warm_up_training(config: Config) -> None:
    """Start building what a forward and a backward graph will need after they are traced; returns at once."""
    machine = _machine_in_background(config)
    if machine is not None:
        start_header_build(machine.target, paths.prelude(), machine.cache, machine.toolchain, delay=0.0)


def _machine_in_background(config: Config) -> Machine | None:
    try:
        return machine_for(config)
    except IcpuError as error:
        log.info("no background builds: %s", error)
        return None


def compile_graph(
    gm: fx.GraphModule,
    *,
    kind: Kind,
    config: Config,
    trace: Trace,
    static_inputs: frozenset[int] = frozenset(),
    free_results: frozenset[int] | None = None,
    updates: Updates = NO_UPDATES,
) -> CompiledGraph:
    """Compile a functional ATen graph whose nodes carry fake values.

    kind: what AOTAutograd asked for; static_inputs: positions of parameters and buffers; free_results: those of results
    that may get the strides of eager mode where fake tensors have others, None for all; updates: which results are
    views of updated inputs. Raises UserError for what a person must change, InternalError for a defect."""
    try:
        return_views_of_inputs(gm, updates)
        return _compile(gm, kind, config, trace, static_inputs, free_results)
    except IcpuError:
        raise
    except Exception as error:
        stage = trace.current_stage or "pipeline"
        raise InternalError(stage, f"{type(error).__name__}: {error}", trace.dump_path) from error


def _compile(
    gm: fx.GraphModule,
    kind: Kind,
    config: Config,
    trace: Trace,
    static_inputs: frozenset[int],
    free_results: frozenset[int] | None,
) -> CompiledGraph:
    if trace.dumping:
        trace.add_file("repro.py", repro_text(gm, trace.graph, kind, static_inputs, config))
    prepared, before = _prepare(gm, kind, config, trace, static_inputs, free_results)
    try:
        with trace.stage("lower"):
            program = lower_graph(prepared.gm, trace.graph)
    except Unsupported as error:
        return run_eagerly(fx.GraphModule(prepared.gm, before), kind, trace, error)
    if config.verify:
        with trace.stage("verify"):
            verify_program(program)
    trace.record("lower", lambda: show(program))
    if config.debug_interpret:
        return interpreted(program, kind, trace)
    machine = machine_for(config)
    schedule = _schedule(program, machine.target, config, trace)
    plan, sources = _generate(schedule, machine, config, trace)
    with trace.stage("runtime"):
        runnable = _load(plan, sources, machine, config)
        reads = read_inputs(prepared.gm, static_inputs) if config.cpp.drop_original_weights else None
        call, measure = _with_weights(runnable, prepared.recipe, reads, machine)
    report = _report(schedule, runnable, kind, trace)
    notes = (*prepared.notes, *_dropping_notes(prepared.recipe, reads), *report.notes)
    return CompiledGraph(call, replace(report, notes=notes, measure_packed=measure))


def _prepare(
    gm: fx.GraphModule,
    kind: Kind,
    config: Config,
    trace: Trace,
    static_inputs: frozenset[int],
    free_results: frozenset[int] | None,
) -> tuple[Prepared, fx.Graph]:
    """The graph after its passes, and a copy of what it was: passes change it, and let it read packed weights."""
    with trace.stage("graph"):
        nodes = len(gm.graph.nodes)
        before = copy.deepcopy(gm.graph)
        prepack = kind == "inference" and config.cpp.weight_prepack and not config.debug_interpret
        if kind != "backward":
            correct_strides(gm, free_results)
        choice = _product_choice(config)
        prepared = run_passes(
            gm,
            static_inputs,
            prepack,
            choice.why_not_pack,
            choice.micro_kernel,
            choice.convolution_kernel,
            choice.depthwise_kernel,
            choice.grouped_kernel,
            choice.kernel_per_call,
            choice.tiling_kernel,
            choice.multiplies_pixels,
            functools.partial(attention_kernel, config),
            once=config.cpp.drop_original_weights,
            eager_random=config.fallback_random,
        )
        prepared = replace(prepared, notes=(*prepared.notes, *choice.notes()))
    text = functools.partial(prepared.gm.print_readable, print_output=False)
    trace.record("graph", text, "\n".join(prepared.notes), before=nodes, after=len(prepared.gm.graph.nodes))
    return prepared, before


def _schedule(program: Program, target: Target, config: Config, trace: Trace) -> Schedule:
    """The schedule of a program, verified."""
    cores = config.cpp.threads if config.cpp.threads > 0 else target.cores
    with trace.stage("schedule"):
        lanes, most = _lanes(target), config.cpp.max_horizontal_fusion_size
        schedule = schedule_program(program, lanes, cores, most, _redzone(config), target.l2)
    if config.verify:
        with trace.stage("verify"):
            verify_schedule(schedule)
    trace.record("schedule", lambda: show(schedule), before=len(program.nodes), after=len(schedule.steps))
    return schedule


def _generate(
    schedule: Schedule, machine: Machine, config: Config, trace: Trace
) -> tuple[ExecutionPlan, list[KernelSource]]:
    """The plan of a schedule, and the C++ that it calls."""
    with trace.stage("codegen"):
        sources, functions = generate_all(schedule, machine.target, _choices(config, machine.target))
        plan = build_plan(schedule, functions, _redzone(config))
    trace.record("codegen", lambda: show(plan))
    if trace.dumping:
        for source in sources:
            trace.add_file(f"{source.symbol}.cpp", source.code)
        trace.add_file("compile.sh", _compile_script(sources, machine))
    return plan, sources


@dataclass(frozen=True)
class _Trials:
    """What may compute a product, compiled like any graph, and its time on this machine."""

    config: Config

    def seconds(
        self, question: str, candidates: Callable[[], Mapping[str, Callable[[], object]]]
    ) -> Mapping[str, float]:
        """As measured once per machine."""
        machine = machine_for(self.config)
        return Measurements(machine.cache, machine.target.cpu_name).seconds(question, candidates)

    def has_onednn(self, dtype: torch.dtype) -> bool:
        """Whether oneDNN computes linears of a dtype on this CPU."""
        return unsupported_dtype(dtype, "linear") is None

    def own_linear(self, shape: linear.Shape, name: str) -> Callable[[], object]:
        """A call of a micro kernel, or of loops, on random data."""
        x, weight = linear.operands(shape)
        if name == BY_LOOPS:
            return self.own_product(x, weight.mT.contiguous(), name)
        packed = pack(MICRO_KERNELS[name], weight)

        def multiply(x: torch.Tensor, packed: torch.Tensor) -> tuple[torch.Tensor]:
            return (PACKED_LINEAR(x, packed, None, None, len(weight), name),)

        return self._compiled(make_fx(multiply, tracing_mode="fake")(x, packed), (x, packed), name)

    def own_product(self, x: torch.Tensor, weight: torch.Tensor, name: str) -> Callable[[], object]:
        """The same for a product whose second operand is packed at each call."""
        multiply = torch.mm if x.dim() == 2 else torch.bmm
        graph = make_fx(lambda x, weight: (multiply(x, weight),), tracing_mode="fake")(x, weight)
        pack_per_call(graph, frozenset(), no_micro_kernel, lambda *_: name)
        return self._compiled(graph, (x, weight), name)

    def _compiled(self, graph: fx.GraphModule, inputs: Sequence[torch.Tensor], name: str) -> Callable[[], object]:
        settings = replace(self.config, max_autotune=False, dump=None)
        compiled = compile_graph(graph, kind="inference", config=settings, trace=Trace(f"measured_{name}"))
        return lambda: compiled(list(inputs))


def tiling_kernel(config: Config, windows: int | None, channels: int, columns: int, dtype: torch.dtype) -> str | None:
    """The micro kernel for a convolution of 3 x 3 neighbours with weights that are packed at each call; None for
    ATen."""
    return _product_choice(config).tiling_kernel(windows, channels, columns, dtype)


def multiplies_pixels(config: Config, dtype: torch.dtype) -> bool:
    """Whether convolutions of single pixels with weights that are not static are products of matrices."""
    return _product_choice(config).multiplies_pixels(dtype)


def _product_choice(config: Config) -> ProductChoice:
    """Who computes products: by the cost model or, under `max_autotune`, by measurements."""
    trials = _Trials(config) if config.max_autotune else None
    tiles = config.cpp.winograd and not config.cpp.drop_original_weights  # whose packed weights are larger
    return ProductChoice(_target(config), config.cpp.split_float32, tiles, config.cpp.weight_prepack, trials)


def attention_kernel(config: Config, dtype: torch.dtype) -> tuple[str | None, str]:
    """The kernel for attention in a dtype, or None for ATen, and why."""
    decision = attention.choose(dtype, _target(config))
    return decision.kernel, decision.reason


def _with_weights(
    runnable: executor.RunnablePlan, recipe: Recipe | None, reads: tuple[int, ...] | None, machine: Machine
) -> tuple[Callable[[list[Any]], Any], Callable[[], int]]:
    """The plan behind a step that appends the packed weights to its inputs, and what measures their bytes. reads: the
    positions of the weights that the graph itself reads, to drop the others; None to keep all."""
    if recipe is None and not reads:
        return runnable, lambda: 0
    recipe = recipe or NO_RECIPE
    module = executor.load_executor(machine.cache, machine.toolchain)
    dropping = None if reads is None else Dropping(reads, module)
    weights = PackedWeights(recipe.graph, recipe.sources, recipe.uses, recipe.texts, module.WeightGuard, dropping)

    def call(inputs: list[Any]) -> Any:
        weights.extend(inputs)
        return runnable(inputs)

    return call, weights.measure()


def _dropping_notes(recipe: Recipe | None, reads: tuple[int, ...] | None) -> tuple[str, ...]:
    if reads is None:
        return ()
    packed = frozenset(recipe.sources) - set(reads) if recipe is not None else frozenset()
    return (
        f"{len(packed)} weights are read in packed copies only and may lose their memory at the second call,"
        f" {len(reads)} are read unpacked",
    )


#: What a setting counts as an element's work, in adds: a load or two, a few operations and a store.
ADDS_PER_ELEMENT = 5


def _choices(config: Config, target: Target) -> Choices:
    """The settings of the generated code."""
    threads: int | None = config.cpp.threads
    if threads in (-1, 0):
        threads = None if config.cpp.dynamic_threads else torch.get_num_threads()
    grain = config.cpp.min_chunk_size * ADDS_PER_ELEMENT
    return Choices(
        threads,
        grain,
        config.cpp.enable_tiling,
        kept_bytes(target.l3),
        not target.follows_runs,
        tiles_kept_bytes(target.l3) if target.gains_by_tiles_around_cache else None,
        far_bytes(target.l3) if target.follows_runs else None,
    )


def _redzone(config: Config) -> int:
    return REDZONE if config.debug_redzones else 0


def _lanes(target: Target) -> int:
    return target.isa.bits // 32


def _compile_script(sources: list[KernelSource], machine: Machine) -> str:
    """A script that compiles the dumped kernels, with the backend's command."""
    prelude = paths.prelude()
    commands = [
        machine.toolchain.kernel_command(
            machine.target, prelude, prelude.parent, Path(f"{source.symbol}.cpp"), Path(f"{source.symbol}.so")
        )
        for source in sources
    ]
    return "\n".join(["#!/bin/sh", "set -e", 'cd "$(dirname "$0")"', *map(shlex.join, commands)]) + "\n"


def _load(plan: ExecutionPlan, sources: list[KernelSource], machine: Machine, config: Config) -> executor.RunnablePlan:
    addresses: dict[str, int] = {}
    if sources:
        tools = (machine.target, paths.prelude(), machine.cache, machine.toolchain)
        # The next graph with new kernels, here or in another process, gains from a precompiled prelude.
        after_build = functools.partial(start_header_build, *tools)
        addresses = load_kernels(sources, *tools, config.compile_threads, after_build)
    module = executor.load_executor(machine.cache, machine.toolchain)
    start_operators_build()
    return executor.build(plan, addresses, module, profile=config.cpp.enable_kernel_profile)


# -- report ------------------------------------------------------------------------------------------------------------
def _kernel_info(step: Kernel | Strips | Scored | Templated) -> KernelInfo:
    plans = [kernel.vector for kernel in kernels_of(step)]
    reasons = tuple(reason for plan in plans for reason in plan.reasons)
    label = f"icpu_{step.name}" if isinstance(step, CALLS) else step.label
    return KernelInfo(label, all(plan.vectorized for plan in plans), reasons)


def _report(schedule: Schedule, runnable: executor.RunnablePlan, kind: Kind, trace: Trace) -> CompileReport:
    kernels = tuple(_kernel_info(step) for step in schedule.steps if not isinstance(step, Extern))
    paths_taken = executor.describe(runnable)
    calls = Counter((row.label, row.reason, row.why_python) for row in paths_taken)
    return CompileReport(
        graph=trace.graph,
        kind=kind,
        timings=trace.timings,
        kernels=kernels,
        externs=count_externs(calls),
        ops_before_fusion=sum(isinstance(node, LoopNest) for node in schedule.program.nodes),
    )
