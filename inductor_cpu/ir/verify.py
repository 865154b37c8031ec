"""Verifiers: raise InternalError naming what is wrong with a Program or a Kernel (`verify_schedule.py`: a Schedule).
Quick enough for every compile of the tests."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import torch

from inductor_cpu.ir.attention import ATTENTION_KERNELS
from inductor_cpu.ir.index import Expr, Sym, as_expr, of, product
from inductor_cpu.ir.kernel import Divided, Kernel
from inductor_cpu.ir.loop_nest import Buffer, Load, LoopNest, Reduce, Scan, Store, View
from inductor_cpu.ir.micro_kernels import MICRO_KERNELS
from inductor_cpu.ir.nodes import (
    PART_OF_LONG_ROW,
    Attention,
    AttentionBackward,
    Extern,
    Gemm,
    Patches,
    Program,
    Ranking,
    Templated,
    TilePacking,
    WeightGradient,
    leaves,
)
from inductor_cpu.ir.rewrite import depends, needed_by, store_operands
from inductor_cpu.ir.scatter import is_divisible, is_place, is_sum, keeps_apart
from inductor_cpu.ir.verify_body import (
    LOWER,
    SCHEDULE,
    Checker,
    Scope,
    check_body,
    check_expr,
    check_stores,
    store_depends,
)
from inductor_cpu.ir.windows import TILE_PLACES

ACCESS_KINDS = ("uniform", "contiguous", "strided", "gather")


# -- programs --------------------------------------------------------------------------------------------------------
def verify_program(program: Program) -> None:
    """Raise InternalError if the program is not well formed."""
    _ProgramCheck(program).run()


class _ProgramCheck:
    """Walks nodes in order; knows which buffers are written and which size symbols have values so far."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.check = Checker(LOWER, program.name)
        self.written: set[str] = set()
        self.filled: dict[str, str] = {}
        self.sizes: set[Sym] = {spec.symbol for spec in program.inputs if spec.symbol is not None}

    def run(self) -> None:
        names = [buffer.name for buffer in self.program.buffers]
        self.check.require(len(names) == len(set(names)), "two buffers have one name")
        nodes = [node.name for node in self.program.nodes]
        self.check.require(len(nodes) == len(set(nodes)), "two nodes have one name")
        for buffer in self.program.buffers:
            self.declaration(buffer)
            if buffer.kind in ("input", "constant"):
                self.provide(buffer.name)
        for node in self.program.nodes:
            if isinstance(node, Extern):
                self.extern(node)
            elif isinstance(node, Gemm):
                self.gemm(node)
            elif isinstance(node, Attention):
                self.attention(node)
            elif isinstance(node, AttentionBackward):
                self.attention_backward(node)
            elif isinstance(node, Ranking):
                self.ranking(node)
            elif isinstance(node, TilePacking):
                self.tile_packing(node)
            elif isinstance(node, WeightGradient):
                self.weight_gradient(node)
            else:
                self.nest(node)
        scope = Scope(frozenset(), self.sizes, self.lookup)
        for number, result in enumerate(self.program.results):
            check = Checker(LOWER, f"result {number}")
            if isinstance(result, View):
                self.view(check, result)
            elif isinstance(result, Expr):
                check_expr(check, result, scope)

    def declaration(self, buffer: Buffer) -> None:
        check = Checker(LOWER, f"buffer {buffer.name}")
        check.require(len(buffer.sizes) == len(buffer.strides), "sizes and strides differ in number")
        if buffer.kind == "constant":
            check.require(buffer.name in self.program.constants, "the constant has no value")

    def provide(self, name: str) -> None:
        """The buffer has a value from here on, and so have the size symbols that are bound to it."""
        self.written.add(name)
        self.sizes.update(binding.symbol for binding in self.program.bindings if binding.buffer == name)

    def lookup(self, name: str) -> tuple[torch.dtype, int] | None:
        buffer = self.program.buffer_table.get(name)
        return None if buffer is None else (buffer.dtype, len(buffer.sizes))

    def read(self, check: Checker, name: str) -> None:
        check.require(name in self.program.buffer_table, f"buffer {name} does not exist")
        check.require(name in self.written, f"{name} is read before it is written")

    # -- nests -------------------------------------------------------------------------------------------------------
    def nest(self, nest: LoopNest) -> None:
        check = Checker(LOWER, nest.name)
        loops = (*nest.dims, *nest.reduce_dims)
        check.require(len({loop.name for loop in loops}) == len(loops), "two loops have one name")
        scope = Scope(frozenset(loops), self.sizes, self.lookup)
        _check_loops(check, loops, scope)
        check_body(check, nest.body, scope, bool(nest.reduce_dims))
        check_stores(check, nest.body, nest.stores, scope)
        check.require(bool(nest.stores), "it stores nothing")
        for instr in nest.body:
            if isinstance(instr, Load) and instr.buffer not in self.written:
                self.read(check, instr.buffer)
        inner = depends(nest.body, nest.reduce_dims, nest.reduce_dims) if nest.reduce_dims else []
        for number, store in enumerate(nest.stores):
            at = Checker(LOWER, f"{nest.name}, store {number}")
            if inner and not any(isinstance(instr, Scan) for instr in nest.body):
                at.require(not store_depends(store, inner, nest.reduce_dims), "it depends on a reduction loop")
            self.write(at, nest, store)

    def write(self, check: Checker, nest: LoopNest, store: Store) -> None:
        buffer = self.program.buffer(store.buffer)
        check.require(buffer.kind != "constant", f"{buffer.name} is a constant")
        if store.mode == "set" and store.mask is None:
            symbols = {symbol for expr in store.index for symbol in expr.symbols}
            lost = [d.name for d in nest.dims if d not in symbols and d.size != 1]
            scattered = any(symbol.kind == "value" for symbol in symbols)
            check.require(not lost or scattered, f"points that differ in {', '.join(lost)} write one element")
            if _covers(store, nest, buffer):
                self.fill(check, nest.name, buffer)
        self.provide(store.buffer)

    def fill(self, check: Checker, node: str, buffer: Buffer) -> None:
        """A node writes every element of the buffer; only a graph input may be filled twice."""
        first = self.filled.setdefault(buffer.name, node)
        check.require(first == node or buffer.kind == "input", f"{first} writes all of {buffer.name} too")

    # -- extern calls ------------------------------------------------------------------------------------------------
    def extern(self, node: Extern) -> None:
        check = Checker(LOWER, node.name)
        scope = Scope(frozenset(), self.sizes, self.lookup)
        for value in leaves((node.args, node.kwargs)):
            if isinstance(value, View):
                self.view(check, value)
            elif isinstance(value, Expr):
                check_expr(check, value, scope)
        for name in node.mutates:
            self.read(check, name)
        for position, symbol in node.int_outputs:
            check.require(0 <= position < len(node.outputs), f"there is no result {position} for {symbol}")
            self.sizes.add(symbol)
        for output in node.outputs:
            if output is None:
                continue
            buffer = self.program.buffer_table.get(output)
            if buffer is None:
                check.fail(f"buffer {output} does not exist")
            self.fill(check, node.name, buffer)
            self.provide(output)

    # -- matrix products ---------------------------------------------------------------------------------------------
    def gemm(self, node: Gemm) -> None:
        check = Checker(LOWER, node.name)
        view = node.a if isinstance(node.a, View) else node.a.image
        self.view(check, view)
        self.read(check, node.b)
        check.require(node.micro_kernel in MICRO_KERNELS, f"there is no micro kernel {node.micro_kernel}")
        check.require(len(view.sizes) in ((2, 3) if view is node.a else (4,)), "its first operand has the wrong rank")
        check.require(view.strides[-1] == 1, "its first operand has no contiguous rows")
        if isinstance(node.a, Patches) and node.a.outside:
            dtype = self.program.buffer(view.buffer).dtype
            fits = not dtype.is_floating_point and 0 <= node.a.outside - torch.iinfo(dtype).min < 256
            check.require(fits, f"around images of {dtype} there is no {node.a.outside}")
        buffer = self.program.buffer_table.get(node.accumulator)
        if buffer is None or buffer.kind != "accumulator":
            check.fail(f"{node.accumulator} is no accumulator")
        readers = [n for n in self.program.nodes if isinstance(n, LoopNest) and _loads(n, node.accumulator)]
        check.require(len(readers) == 1, f"{len(readers)} nests load {node.accumulator}")
        check.require(not readers[0].reduce_dims, f"{readers[0].name} folds {node.accumulator}")
        self.fill(check, node.name, buffer)
        self.provide(node.accumulator)

    # -- attention ---------------------------------------------------------------------------------------------------
    def attention(self, node: Attention) -> None:
        check = Checker(LOWER, node.name)
        self.rows(check, node, node.operands)
        for view in node.lists:
            self.view(check, view)
            check.require(view.strides[-1] == 1 and node.scores is not None, f"{view.buffer} is no list of blocks")
        if node.scores is not None:
            self.scores(check, node, node.scores)
        self.results(check, node)
        self.rows_of_results(check, (node.out,))

    def attention_backward(self, node: AttentionBackward) -> None:
        check = Checker(LOWER, node.name)
        self.rows(check, node, [view for view in node.operands if view is not node.log_sums])
        self.view(check, node.log_sums)
        rows = node.q.sizes[:3]
        sizes = (*rows, 2) if node.in_parts else rows
        check.require(node.log_sums.sizes == sizes, f"{node.log_sums.buffer} is not one value for each row, or two")
        check.require(node.slopes is None or not node.causal, "a mask that is not added has a gradient")
        self.results(check, node)
        self.rows_of_results(check, node.outputs)

    def rows(self, check: Checker, node: Attention | AttentionBackward, operands: Iterable[View]) -> None:
        check.require(node.kernel in ATTENTION_KERNELS, f"there is no kernel {node.kernel}")
        for view in operands:
            self.view(check, view)
            check.require(len(view.sizes) == 4, f"{view.buffer} has the wrong rank")
            check.require(view.strides[-1] == 1, f"{view.buffer} has no contiguous rows")
        if node.kept is not None:
            check.require(node.kept.sizes == (*node.q.sizes[:3], node.k.sizes[2]), "it drops no weights")
            check.require(
                self.program.buffer(node.kept.buffer).dtype == torch.bool and 0 < node.keep <= 1, "it keeps none"
            )

    def rows_of_results(self, check: Checker, names: Iterable[str]) -> None:
        for result in map(self.program.buffer, names):
            check.require(result.strides[-1] == 1 or result.sizes[-1] == 1, f"{result.name} has no contiguous rows")

    def scores(self, check: Checker, node: Attention, nest: LoopNest) -> None:
        check.require(len(nest.stores) == 1 and not nest.reduce_dims, "its scores become no scores")
        check.require(node.mask is None and not node.causal, "its scores are masked twice")
        check.require(node.kept is None, "it drops weights of changed scores")
        buffer = self.program.buffer_table.get(nest.stores[0].buffer)
        if buffer is None or buffer.kind != "accumulator" or buffer.dtype != torch.float32:
            check.fail(f"{nest.stores[0].buffer} is no accumulator of scores")
        check.require(buffer.sizes == (*node.q.sizes[:3], node.k.sizes[2]), "its scores have the wrong shape")
        place = tuple(of(dim) if dim.size != 1 else as_expr(0) for dim in nest.dims)
        places = {i.index for i in nest.body if isinstance(i, Load) and i.buffer == buffer.name}
        check.require({*places, nest.stores[0].index} == {place}, f"a score meets another one in {nest.name}")
        self.provide(buffer.name)
        self.nest(nest)

    def results(self, check: Checker, node: Templated) -> None:
        for name in node.outputs:
            buffer = self.program.buffer_table.get(name)
            if buffer is None:
                check.fail(f"buffer {name} does not exist")
            self.fill(check, node.name, buffer)
            self.provide(name)

    # -- topk and sort -----------------------------------------------------------------------------------------------
    def ranking(self, node: Ranking) -> None:
        check = Checker(LOWER, node.name)
        check.require(node.kind in ("top", "sorted"), f"there is no order {node.kind!r}")
        if node.long and node.kind == "top":
            columns, count = node.x.sizes[-1].as_int or 0, node.count.as_int or 0
            few = 1 <= count <= columns // PART_OF_LONG_ROW
            check.require(few, f"{node.count} elements of a row of {node.x.sizes[-1]} are not few of many")
        self.view(check, node.x)
        for d, (size, stride) in enumerate(zip(node.x.sizes, node.x.strides, strict=True)):
            gap = size != 1 and 0 not in node.x.sizes and stride != product(node.x.sizes[d + 1 :])
            check.require(not gap, f"the rows of {node.x.buffer} have gaps")
        check.require(bool(node.outputs), "it has no results")
        self.results(check, node)
        for name in node.outputs:
            check.require(
                self.program.buffer(name).sizes == (*node.x.sizes[:-1], node.count), f"{name} has the wrong sizes"
            )

    # -- tiles of windows --------------------------------------------------------------------------------------------
    def tile_packing(self, node: TilePacking) -> None:
        check, row = Checker(LOWER, node.name), MICRO_KERNELS[node.micro_kernel]
        self.view(check, node.weight)
        sizes = [size.as_int for size in node.weight.sizes]
        if len(sizes) != 4 or None in sizes or sizes[2:] != [3, 3]:
            check.fail(f"{node.weight.buffer} has no windows of 3 x 3")
        columns, channels = (size or 0 for size in (sizes[1::-1] if node.turned else sizes[:2]))
        check.require(channels % row.step == 0, f"{node.weight.buffer} has a part of a step")
        self.results(check, node)
        shape = row.packed_shape(columns, TILE_PLACES * channels)
        check.require(self.program.buffer(node.out).sizes == tuple(map(as_expr, shape)), f"{node.out} has other sizes")

    def weight_gradient(self, node: WeightGradient) -> None:
        check = Checker(LOWER, node.name)
        step = MICRO_KERNELS[node.micro_kernel].step
        for view in node.operands:
            self.view(check, view)
            channels = view.sizes[-1].as_int
            check.require(len(view.sizes) == 4 and view.strides[-1] == 1, f"{view.buffer} is not channels-last")
            check.require(channels is not None and channels % step == 0, f"{view.buffer} has a part of a step")
        self.results(check, node)
        sizes = (node.gradients.sizes[-1], as_expr(3), as_expr(3), node.image.sizes[-1])
        out = self.program.buffer(node.out)
        check.require(out.sizes == sizes, f"{node.out} has the wrong sizes")
        check.require(out.dtype == torch.float32, f"{node.out} is not of floats")

    def view(self, check: Checker, view: View) -> None:
        self.read(check, view.buffer)
        check.require(len(view.sizes) == len(view.strides), f"a view of {view.buffer} has unequal sizes and strides")
        scope = Scope(frozenset(), self.sizes, self.lookup)
        for expr in (*view.sizes, *view.strides, view.offset):
            check_expr(check, expr, scope)


def _loads(nest: LoopNest, name: str) -> bool:
    return any(isinstance(instr, Load) and instr.buffer == name for instr in nest.body)


def _check_loops(check: Checker, loops: Iterable[Sym], scope: Scope) -> None:
    for loop in loops:
        if loop.kind != "loop" or loop.size is None:
            check.fail(f"{loop} is no loop with a size")
        check_expr(check, loop.size, scope)


def _covers(store: Store, nest: LoopNest, buffer: Buffer) -> bool:
    """Whether the store's index runs over the whole buffer, one loop per dimension."""
    by_index = {of(dim): dim.size for dim in (*nest.dims, *nest.reduce_dims)}
    used = [expr for expr in store.index if expr != 0]
    return len(used) == len(set(used)) and all(
        size == 1 if expr == 0 else by_index.get(expr) == size
        for expr, size in zip(store.index, buffer.sizes, strict=True)
    )


# -- kernels ---------------------------------------------------------------------------------------------------------
def verify_kernel(kernel: Kernel) -> None:
    """Raise InternalError if the kernel is not well formed."""
    check = Checker(SCHEDULE, kernel.label)
    loops = (*kernel.outer, *kernel.inner)
    check.require(len({loop.name for loop in loops}) == len(loops), "two loops have one name")
    args = {arg.buffer: arg for arg in kernel.args}
    check.require(len(args) == len(kernel.args), "two arguments are one buffer")
    known, types = set(kernel.sizes), {name: arg.dtype for name, arg in args.items()}
    if kernel.product is not None:
        known.update(kernel.product.symbols)
        types[kernel.product.accumulator] = MICRO_KERNELS[kernel.product.micro_kernel].total
    scope = Scope(frozenset(loops), known, lambda name: (types[name], 1) if name in types else None)
    _check_loops(check, loops, scope)
    check_body(check, kernel.body, scope, bool(kernel.inner))
    check_stores(check, kernel.body, kernel.stores, scope)
    loaded = {instr.buffer for instr in kernel.body if isinstance(instr, Load)}
    stored = {store.buffer for store in kernel.stores}
    for arg in kernel.args:
        check.require(arg.reads or arg.buffer not in loaded, f"{arg.buffer} is read, but not declared so")
        check.require(arg.writes or arg.buffer not in stored, f"{arg.buffer} is written, but not declared so")
    check.require(0 <= kernel.parallel <= len(kernel.outer), f"{kernel.parallel} parallel loops do not exist")
    if kernel.across is not None:
        inside = kernel.across == kernel.outer[-1] and not kernel.inner and kernel.product is None
        check.require(
            inside and kernel.parallel == 0, f"threads share ranges of {kernel.across}, which is not innermost"
        )
        check.require(kernel.divided is None, "threads divide points and share loops")
    for loop in (*kernel.outer[: kernel.parallel], *([] if kernel.across is None else [kernel.across])):
        check.require(keeps_apart(loop, kernel.stores), f"threads that share {loop} may meet in a scatter")
    if kernel.divided is not None:
        _check_divided(check, kernel, kernel.divided, scope)
    _check_phases(check, kernel)
    _check_vector(check, kernel)


def _check_divided(check: Checker, kernel: Kernel, divided: Divided, scope: Scope) -> None:
    check.require(bool(kernel.outer) and not kernel.inner and kernel.product is None, "it has no points to divide")
    check.require(kernel.parallel == 0, "threads divide points and share loops")
    inside = kernel.vector.loop in (None, *kernel.outer[-1:])
    check.require(inside, f"lanes along {kernel.vector.loop} may have several places, and are not innermost")
    check.require(is_divisible(kernel.body, kernel.stores), "threads may meet where it reads or stores")
    store = kernel.stores[0]
    whole = divided.pieces == 1 or is_sum(kernel.body, store)
    check.require(whole, f"{store.buffer} is no sum of {divided.pieces} pieces")
    check.require(is_place(divided.place, store.index[0]), f"points that meet may have two places {divided.place}")
    check.require(divided.place.symbols <= store.index[0].symbols, f"{divided.place} is not of the address")
    for expr in divided.expressions:
        check_expr(check, expr, replace(scope, loops=frozenset()))


def _check_phases(check: Checker, kernel: Kernel) -> None:
    inner = depends(kernel.body, kernel.inner, kernel.inner)
    done: set[int] = set()
    stored: set[int] = set()
    for number, phase in enumerate(kernel.phases):
        at = Checker(check.stage, f"{check.where}, phase {number}")
        at.require(bool(kernel.inner), "there are no inner loops")
        for position in phase.reduces:
            valid = 0 <= position < len(kernel.body) and isinstance(kernel.body[position], Reduce)
            at.require(valid and position not in done, f"%{position} is no reduction that is left to do")
        for store in phase.stores:
            at.require(0 <= store < len(kernel.stores) and store not in stored, f"store {store} is not left to do")
        roots = [k for store in phase.stores for k in store_operands(kernel.stores[store])]
        roots += [kernel.body[position].arg for position in phase.reduces]  # type: ignore[union-attr]
        _check_ready(at, kernel, roots, done)
        done.update(phase.reduces)
        stored.update(phase.stores)
    for number, final in enumerate(kernel.stores):
        if number not in stored:
            at = Checker(check.stage, f"{check.where}, store {number}")
            _check_ready(at, kernel, store_operands(final), done)
            at.require(not store_depends(final, inner, kernel.inner), "it depends on inner loops and is in no phase")
    for position in kernel.kept:
        check.require(0 <= position < len(kernel.body) and inner[position], f"kept %{position} is no inner value")


def _check_ready(check: Checker, kernel: Kernel, roots: Iterable[int], done: set[int]) -> None:
    for position in needed_by(kernel.body, roots, done) - done:
        check.require(
            not isinstance(kernel.body[position], Reduce), f"reduction %{position} is not complete before its use"
        )


def _check_vector(check: Checker, kernel: Kernel) -> None:
    plan = kernel.vector
    if plan.loop is None:
        return
    check.require(plan.loop in (*kernel.outer, *kernel.inner), f"the vectorized loop {plan.loop} does not exist")
    check.require(plan.lanes > 1, f"{plan.lanes} lanes are no vector")
    access = dict(plan.access)
    wanted = {k for k, instr in enumerate(kernel.body) if isinstance(instr, Load)}
    wanted |= {-1 - number for number in range(len(kernel.stores))}
    check.require(access.keys() <= wanted, f"{sorted(access.keys() - wanted)} are no loads or stores")
    check.require(wanted <= access.keys(), f"loads or stores {sorted(wanted - access.keys())} have no access kind")
    varies = depends(kernel.body, (plan.loop,), kernel.inner)
    for position, kind in plan.access:
        at = Checker(check.stage, f"{check.where}, access {position}")
        at.require(kind in ACCESS_KINDS, f"unknown kind {kind!r}")
        node = kernel.body[position] if position >= 0 else kernel.stores[-1 - position]
        assert isinstance(node, (Load, Store))
        _check_access_kind(at, node.index[0], kind, plan.loop, varies)


def _check_access_kind(check: Checker, index: Expr, kind: str, loop: Sym, varies: list[bool]) -> None:
    """An address that is affine in the loop shows its kind."""
    if kind == "gather":
        return
    values = [int(symbol.name[1:]) for symbol in index.symbols if symbol.kind == "value"]
    check.require(not any(varies[k] for k in values), f"{index} depends on loaded values, so it is not {kind}")
    step = index.coefficient(loop)
    expected = {"uniform": 0, "contiguous": 1}.get(kind)
    if step is not None and expected is not None:
        check.require(step == expected, f"{index} has step {step} in {loop}, so it is not {kind}")
