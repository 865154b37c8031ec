"""FX graph -> Program: walks the nodes in order, applies rules, and turns what has no rule into extern calls."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import fx
from torch.utils import _pytree as pytree

from inductor_cpu.errors import Unsupported
from inductor_cpu.ir.index import Expr, Sym, of
from inductor_cpu.ir.loop_nest import Buffer, View
from inductor_cpu.ir.nodes import Extern, InputSpec, Program, SizeBinding
from inductor_cpu.ir.ops import LOOP_DTYPES
from inductor_cpu.lower import aliases, extern, float8, in_place, residual
from inductor_cpu.lower.computed import definition, size_function
from inductor_cpu.lower.context import Lowering, meta_of
from inductor_cpu.lower.rules import RULES
from inductor_cpu.lower.sizes import size_expr, size_exprs, stride_exprs, symbol_of
from inductor_cpu.lower.values import TensorValue


def lower_graph(gm: fx.GraphModule, name: str) -> Program:
    """Lower a functional ATen graph whose nodes carry fake values in meta["val"]. Raises Unsupported when the graph as
    a whole cannot be expressed (sparse tensors, sizes that are no integer expressions)."""
    return _GraphLowering(gm, name).run()


class _GraphLowering:
    def __init__(self, gm: fx.GraphModule, name: str) -> None:
        self.gm = gm
        self.ctx = Lowering(name)
        self.env: dict[fx.Node, Any] = {}
        self.inputs: list[InputSpec] = []
        self.bindings: list[SizeBinding] = []
        self.bound: set[Sym] = set()
        self.floats: dict[Any, View] = {}  # sympy symbols of floats that tensors hold
        self.roots: dict[fx.Node, fx.Node] = {}  # of the results
        self.sharers: Counter[fx.Node] = Counter()  # how many results have a root
        self.copies: dict[tuple[fx.Node, tuple[Expr, ...]], TensorValue] = {}  # of values that results are made of
        self.results: tuple[Any, ...] = ()

    def run(self) -> Program:
        handlers: dict[str, Callable[[fx.Node], Any]] = {
            "placeholder": self.placeholder,
            "get_attr": self.get_attr,
            "call_function": self.call_function,
            "output": self.output,
        }
        given = [node.meta.get("val") for node in self.gm.graph.find_nodes(op="placeholder")]
        for node in self.gm.graph.nodes:
            if node.op == "call_function":
                self.define_sizes([*given, node.meta.get("val")])
                given = []
            self.env[node] = handlers[node.op](node)
        return Program(
            name=self.ctx.graph_name,
            buffers=tuple(self.ctx.buffers.values()),
            inputs=tuple(self.inputs),
            bindings=tuple(self.bindings),
            nodes=tuple(self.ctx.nodes),
            results=self.results,
            constants=self.ctx.constants,
        )

    # -- inputs ------------------------------------------------------------------------------------------------------
    def placeholder(self, node: fx.Node) -> Any:
        position = len(self.inputs)
        fake = node.meta.get("val")
        if isinstance(fake, torch.Tensor):
            if fake.layout != torch.strided:
                raise Unsupported(node, f"an input with layout {fake.layout}")
            buffer = self.ctx.new_buffer(fake.dtype, size_exprs(fake.shape), stride_exprs(fake.stride()), "input")
            self.inputs.append(InputSpec(position, buffer=buffer.name))
            self.bind_sizes(buffer)
            return self.ctx.whole(buffer)
        if isinstance(fake, torch.SymInt):
            expr = size_expr(fake)
            symbol = _single_symbol(expr)
            self.inputs.append(InputSpec(position, symbol=symbol))
            if symbol is not None:
                self.bound.add(symbol)
            return expr
        self.inputs.append(InputSpec(position))
        return fake

    def bind_sizes(self, buffer: Buffer) -> None:
        """Symbols that are nothing but a size or a stride of this buffer get their value from it."""
        for what, exprs in (("size", buffer.sizes), ("stride", buffer.strides)):
            for dim, expr in enumerate(exprs):
                symbol = _single_symbol(expr)
                if symbol is not None and symbol not in self.bound:
                    self.bound.add(symbol)
                    self.bindings.append(SizeBinding(symbol, buffer.name, dim, what))

    def get_attr(self, node: fx.Node) -> Any:
        value: Any = self.gm
        for part in str(node.target).split("."):
            value = getattr(value, part)
        if not isinstance(value, torch.Tensor):
            return value
        buffer = self.ctx.new_buffer(value.dtype, size_exprs(value.shape), stride_exprs(value.stride()), "constant")
        self.ctx.constants[buffer.name] = value
        return self.ctx.whole(buffer)

    # -- sizes that a call computes ----------------------------------------------------------------------------------
    def define_sizes(self, fakes: Any) -> None:
        """Calls that compute the sizes in these fake values, if they are no arithmetic on what is known."""
        for number in _symbolic_numbers(fakes):
            for symbol in size_expr(number).symbols - self.bound:
                part = definition(symbol.name, [number.node.expr])
                if part is None:
                    continue
                if not self.compute(part, number.node.shape_env, "int", None, ((0, symbol),)):
                    raise Unsupported(None, f"the size {part} is not known when it is needed")
                self.bound.add(symbol)

    def compute(
        self, part: Any, env: Any, kind: str, output: str | None, ints: tuple[tuple[int, Sym], ...] = ()
    ) -> bool:
        """Call a function of sizes, if they are all known. Returns whether they are."""
        target = size_function(part, kind)
        args = [self.floats.get(symbol) or of(symbol_of(symbol, env)) for symbol in target.symbols]
        if not all(isinstance(arg, View) or arg.symbols <= self.bound for arg in args):
            return False
        reason = "a number that is no integer arithmetic on sizes"
        self.ctx.nodes.append(
            Extern(self.ctx.fresh("extern"), target, tuple(args), (), (output,), reason, int_outputs=ints)
        )
        return True

    def float_size(self, fake: torch.SymFloat) -> TensorValue | None:
        """A float that depends on sizes, as a 0-dim tensor; None if it depends on anything else."""
        buffer = self.ctx.new_buffer(torch.float64, (), (), "extern")
        if self.compute(fake.node.expr, fake.node.shape_env, "tensor", buffer.name):
            return self.ctx.whole(buffer)
        del self.ctx.buffers[buffer.name]
        return None

    # -- calls -------------------------------------------------------------------------------------------------------
    def call_function(self, node: fx.Node) -> Any:
        args = fx.map_arg(node.args, self.env.__getitem__)
        kwargs = fx.map_arg(node.kwargs, self.env.__getitem__)
        if node.target is operator.getitem:
            source: Any = args[0]
            return source[args[1]]
        fake = node.meta.get("val")
        if isinstance(fake, (int, torch.SymInt, torch.SymBool)) and not isinstance(fake, bool):
            known = self.known_size(fake)
            if known is not None:
                return known
        if self.has_new_sizes(node):
            return self.call_extern(node, args, kwargs, "the size of its result depends on data")
        if residual.can_update(self.ctx, node, self.env):
            return residual.update(self.ctx, node, tuple(args))
        lower = RULES.get(node.target)
        if lower is None and isinstance(fake, torch.SymFloat):
            value = self.float_size(fake)
            if value is not None:
                return value
        if lower is None:
            return self.call_extern(node, args, kwargs, extern.reason_for(node))
        if in_place.may_overwrite(node, self.env):
            self.ctx.overwrites[node] = self.env[node.all_input_nodes[0]].buffer
        mark = len(self.ctx.nodes)
        try:
            _check_dtypes(node)
            value = lower(self.ctx, node, *args, **kwargs)
            if isinstance(fake, torch.SymFloat) and fake.node.expr.is_Symbol:
                self.floats[fake.node.expr] = extern.argument(self.ctx, node, value)
            return value
        except Unsupported as error:
            del self.ctx.nodes[mark:]
            self.ctx.overwrites.pop(node, None)
            return self.call_extern(node, args, kwargs, error.reason)

    def call_extern(self, node: fx.Node, args: Any, kwargs: Any, reason: str) -> Any:
        value = extern.call(self.ctx, node, args, kwargs, reason)
        call = self.ctx.nodes[-1]
        assert isinstance(call, Extern)
        for output in call.outputs:  # sizes that depend on data are known after the call
            if output is not None:
                self.bind_sizes(self.ctx.buffers[output])
        for _, symbol in call.int_outputs:
            self.bound.add(symbol)
        return value

    def known_size(self, fake: int | torch.SymInt | torch.SymBool) -> Expr | None:
        """An int or a condition that is an expression of sizes already bound needs no call."""
        expr = size_expr(fake)
        return expr if expr.symbols <= self.bound else None

    def has_new_sizes(self, node: fx.Node) -> bool:
        """Whether the result has a size that only the call itself tells, as x[:n] has when n comes from a tensor."""
        fake = node.meta.get("val")
        if not node.meta.get("unbacked_bindings") or not isinstance(fake, torch.Tensor):
            return False
        return any(not size.symbols <= self.bound for size in size_exprs(fake.shape))

    # -- results -----------------------------------------------------------------------------------------------------
    def output(self, node: fx.Node) -> None:
        values: Any = node.args[0]
        items = list(values) if isinstance(values, (tuple, list)) else [values]
        promised = node.meta.get("result_strides", [None] * len(items))
        self.roots = aliases.roots(item for item in items if isinstance(self.env.get(item), TensorValue))
        self.sharers = Counter(self.roots.values())
        results = []
        first: dict[View, fx.Node] = {}
        made: dict[tuple[fx.Node, tuple[Expr, ...]], View] = {}  # a value that is returned twice is one tensor
        for item, strides in zip(items, promised, strict=True):
            value = self.env[item] if isinstance(item, fx.Node) else item
            if isinstance(value, TensorValue):
                wanted = stride_exprs(meta_of(item).stride() if strides is None else strides)
                if (item, wanted) not in made:
                    made[item, wanted] = self.result(item, value, wanted)
                value = made[item, wanted]
                value = replace(value, own=first.setdefault(value, item) is not item)
            results.append(value)
        self.results = tuple(results)

    def result(self, node: fx.Node, value: TensorValue, strides: tuple[Expr, ...]) -> View:
        """A tensor result, with the strides that were promised: by a graph pass that changed layouts, or by the fake
        value. As in eager mode it is a view of the value that it is part of, at the same offset (see aliases.py)."""
        view = self.part_of_root(node, value, strides)
        if view is None:
            view = self.view_with(node, value, strides)
        buffer = self.ctx.buffers[view.buffer]
        if buffer.kind == "temp":
            self.ctx.buffers[view.buffer] = replace(buffer, kind="output")
        return replace(view, strides=strides)

    def part_of_root(self, node: fx.Node, value: TensorValue, strides: tuple[Expr, ...]) -> View | None:
        """A result as a view of its root; None for a root itself, and for a lone view that starts where its root starts
        and would need a copy of all of it."""
        root = self.roots[node]
        given = self.env[root]
        if root is node or not isinstance(given, TensorValue) or strides != stride_exprs(meta_of(node).stride()):
            return None
        offset, layout = aliases.offset_in(node, root), stride_exprs(meta_of(root).stride())
        if offset == 0 and self.sharers[root] == 1 and not self.lies_as(root, given, layout):
            return None
        base = self.view_with(root, given, layout)
        own = self.ctx.strided(value)
        if own is not None and own.buffer == base.buffer:
            return replace(own, strides=strides)
        return View(base.buffer, value.sizes, strides, base.offset + offset)

    def view_with(self, node: fx.Node, value: TensorValue, strides: tuple[Expr, ...]) -> View:
        """A value where it lies if it has these strides there, else a copy; one copy for all that ask."""
        if self.lies_as(node, value, strides):
            view = self.ctx.strided(value)
        else:
            if (node, strides) not in self.copies:
                self.copies[node, strides] = self.ctx.copy(node, value, strides)
            view = self.ctx.strided(self.copies[node, strides])
        assert view is not None
        return view

    def lies_as(self, node: fx.Node, value: TensorValue, strides: tuple[Expr, ...]) -> bool:
        # A result is no view of an input that the program updates, unless it is that input.
        if value.buffer in self.ctx.overwrites.values() and node.target is not torch.ops.aten.copy_.default:
            return False
        view = self.ctx.strided(value)
        return view is not None and extern.same_strides(view, strides)


def _symbolic_numbers(fakes: Any) -> Iterator[torch.SymInt | torch.SymBool]:
    """The ints and conditions in fake values, sizes and strides among them, that are more than one symbol."""
    for fake in pytree.tree_leaves(fakes):
        strided = isinstance(fake, torch.Tensor) and fake.layout == torch.strided
        for number in (*fake.shape, *fake.stride()) if strided else (fake,):
            if isinstance(number, torch.SymInt | torch.SymBool) and not number.node.expr.is_Symbol:
                yield number


def _single_symbol(expr: Expr) -> Sym | None:
    if len(expr.terms) == 1 and expr.terms[0][1] == 1 and len(expr.terms[0][0]) == 1:
        atom = expr.terms[0][0][0]
        return atom if isinstance(atom, Sym) else None
    return None


def _check_dtypes(node: fx.Node) -> None:
    """Loops compute with some dtypes only; anything else goes to ATen."""
    for item in (node, *node.all_input_nodes):
        fake = item.meta.get("val")
        for tensor in fake if isinstance(fake, (tuple, list)) else (fake,):
            if not isinstance(tensor, torch.Tensor):
                continue
            if tensor.dtype not in LOOP_DTYPES:
                raise Unsupported(node, f"dtype {tensor.dtype} has no loops")
            float8.check(node, tensor.dtype)
