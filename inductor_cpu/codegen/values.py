"""Emission of single instructions and stores, as scalar or as vector code."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property

import torch

from inductor_cpu.codegen.address import VectorIndex, scalar_text
from inductor_cpu.codegen.analysis import STAGE, Facts
from inductor_cpu.codegen.around import stores_around
from inductor_cpu.codegen.cxx import ELEMENT, LANE, NARROW, SCALAR, literal
from inductor_cpu.codegen.prefetch import plan_ahead
from inductor_cpu.codegen.records import loaded_records, records
from inductor_cpu.codegen.scalar import SCALAR as SCALAR_OPS
from inductor_cpu.codegen.text import Writer
from inductor_cpu.codegen.tuning import Choices, pointwise_units, vertical_units
from inductor_cpu.codegen.vector import BOUNDS, LEAVES_RANGE
from inductor_cpu.codegen.vector import VECTOR as VECTOR_OPS
from inductor_cpu.errors import InternalError
from inductor_cpu.ir.index import Expr, Sym
from inductor_cpu.ir.kernel import SHORT_STRIDES, Product
from inductor_cpu.ir.loop_nest import Cast, Const, Index, Load, Scalar, Store
from inductor_cpu.ir.micro_kernels import MICRO_KERNELS
from inductor_cpu.ir.rewrite import may_fail, value_position

_NO_SYMBOL = Sym("none", "loop")

#: The first point of a tile, in its loop.
TILE_START = Sym("tile", "loop")


class Values:
    """Writes the C++ of values and stores of one kernel.

    Names: p0, p1... are the buffers in the order of the kernel's arguments, n0... its sizes, i0... outer loops, r0...
    inner loops, v0... the values by position in the body. `lanes` is in scope wherever vector code is written."""

    def __init__(self, facts: Facts, writer: Writer, choices: Choices, tables: bool) -> None:
        """tables: whether rows of tables may be asked for ahead."""
        self.facts, self.kernel, self.writer = facts, facts.kernel, writer
        self._pointers = {arg.buffer: f"p{i}" for i, arg in enumerate(self.kernel.args)}
        self._dtypes = {arg.buffer: arg.dtype for arg in self.kernel.args}
        self._symbols = {s: f"n{i}" for i, s in enumerate(self.kernel.sizes)}
        self._symbols |= {s: f"i{i}" for i, s in enumerate(self.kernel.outer)}
        self._symbols |= {s: f"r{i}" for i, s in enumerate(self.kernel.inner)}
        if self.kernel.product is not None:
            self._enter_product(self.kernel.product)
        self.ahead = plan_ahead(facts, vertical_units(facts), tables, choices.runs)
        self.around = stores_around(facts, choices.kept, choices.tiles_kept)
        self._records = {min(record): record for record in records(facts.kernel)}
        self._in_record = {number for record in self._records.values() for number in record} - self._records.keys()
        self._loaded_records = loaded_records(facts)
        self._read: set[tuple[int, ...]] = set()  # the records among them that are in scope
        self.phase: int | None = None  # the one that is being written
        if facts.tile is not None:
            self._symbols[TILE_START] = f"{self.symbol(facts.tile.loop)}_start"
        self._vector_index = VectorIndex(
            self.symbol,
            self.kernel.vector.loop or _NO_SYMBOL,
            lambda s: facts.varying[value_position(s)],
            lambda s: self.operand(value_position(s), vector=True),
            lambda s: f"v{value_position(s)}_lanes[lane]",
        )

    def _enter_product(self, product: Product) -> None:
        """The block of a matrix product and its place, as the template hands them to the epilogue."""
        self._pointers[product.accumulator] = "block"
        self._dtypes[product.accumulator] = MICRO_KERNELS[product.micro_kernel].total
        self._symbols |= {product.row: "row", product.panel: "panel", product.height: "height", product.width: "width"}

    # -- names -------------------------------------------------------------------------------------------------------
    def symbol(self, symbol: Sym) -> str:
        """The C++ name of a symbol. Raises InternalError for one that the kernel does not define."""
        if symbol.kind == "value":
            return self.operand(value_position(symbol), vector=False)
        if symbol not in self._symbols:
            raise InternalError(
                STAGE, f"{self.kernel.label}: symbol {symbol} is neither a loop nor a size of the kernel"
            )
        return self._symbols[symbol]

    def expr(self, expr: Expr) -> str:
        """An index expression as an int64_t; the vector loop's variable means lane 0."""
        return scalar_text(expr, self.symbol)

    def operand(self, position: int, *, vector: bool) -> str:
        """A value as an operand of scalar or of vector code."""
        instr = self.kernel.body[position]
        name = literal(instr.value, instr.dtype) if isinstance(instr, Const) else f"v{position}"
        if vector:
            return name if self.facts.varying[position] else f"lanes.vec({name})"
        return f"({name})" if name.startswith("-") else name

    def _fill(self, load: Load, *, vector: bool) -> str:
        text = literal(load.fill, load.dtype)
        return f"lanes.vec({text})" if vector else text

    def address(self, buffer: str, expr: Expr) -> str:
        """A pointer to the element of a buffer at an offset."""
        offset, pointer = self.expr(expr), self.pointer(buffer)
        return pointer if offset == "0" else f"{pointer} + {offset}"

    def pointer(self, buffer: str) -> str:
        """The C++ name of a buffer. Raises InternalError for one that is no argument of the kernel."""
        pointer = self._pointers.get(buffer)
        if pointer is None:
            raise InternalError(STAGE, f"{self.kernel.label}: buffer {buffer} is not an argument of the kernel")
        return pointer

    # -- values ------------------------------------------------------------------------------------------------------
    def emit(self, position: int) -> None:
        """Write the definition of a value. Constants have none, reductions are written by the loops."""
        instr = self.kernel.body[position]
        vector = self.facts.varying[position]
        if isinstance(instr, Const):
            return
        if position in self.facts.constant_masks:
            text = f"icpu::lane_mask<{self._lane_bits(position)}>(lanes)"
        elif isinstance(instr, Index):
            text = self.index(instr, vector=vector)
        elif isinstance(instr, Load):
            self._fetch_ahead(position, instr.buffer, "fetch")
            record = self._loaded_records.get(position)
            text = self._load(position, instr) if record is None else self._part(position, record)
        elif isinstance(instr, Scalar):
            text = self._scalar_op(position, instr, vector=vector)
        elif isinstance(instr, Cast):
            text = self._cast(position, instr, vector=vector)
        else:
            raise InternalError(STAGE, f"{self.kernel.label}: %{position} is used before its reduction is complete")
        self.define(position, text)

    def define(self, position: int, text: str) -> None:
        """Write `const T v = text`."""
        kind = "auto" if self.facts.varying[position] else SCALAR[self.kernel.body[position].dtype]
        self.writer.line(f"const {kind} v{position} = {text};")
        if position in self._divisors:
            self.writer.line(f"const icpu::Divisor divisor{position}(v{position});")

    def index(self, index: Index, *, vector: bool) -> str:
        """An index expression as a number, or as a vector, of the index's dtype."""
        if index.dtype == torch.int64:
            return self.lanes_index(index.expr) if vector else self.expr(index.expr)
        narrow = replace(self._vector_index, kind=SCALAR[index.dtype])
        return narrow.text(index.expr) if vector else f"{SCALAR[index.dtype]}({self.expr(index.expr)})"

    def lanes_index(self, expr: Expr) -> str:
        """An index expression as a vector of int64_t. AVX2, with 8 lanes, has no product of 64 bits."""
        short = self._vector_index.text_by_32_bits(expr) if self.kernel.vector.lanes == 8 else None
        return short or self._vector_index.text(expr)

    def stride(self, expr: Expr) -> Expr | None:
        """The distance between neighbouring lanes of an address; None if there is no such."""
        return self._vector_index.stride(expr)

    def offsets(self, expr: Expr) -> tuple[str, str]:
        """(offset of lane 0 or "0", offsets of the lanes relative to it) of an address that differs between lanes."""
        stride = self.stride(expr)
        if stride is not None and not self._vector_index.by_lane(expr):
            return self.expr(expr), f"lanes.iota(0, {self.expr(stride)})"
        return "0", self.lanes_index(expr)

    # -- short tables ------------------------------------------------------------------------------------------------
    def open_periods(self) -> None:
        """Declare the tables of loads that repeat: as many elements more than a period as a vector reads."""
        units = max(vertical_units(self.facts), pointwise_units(self.facts))
        for k, (first, length) in sorted(self.facts.periods.items()):
            load = self.kernel.body[k]
            assert isinstance(load, Load)
            kind = ELEMENT[load.dtype]
            self.writer.line(f"alignas(64) {kind} period{k}[{length + units * self.kernel.vector.lanes}];")
            self.writer.line(f"icpu::repeat({self.address(load.buffer, first)}, {length}, period{k});")

    # -- loads -------------------------------------------------------------------------------------------------------
    def _load(self, position: int, load: Load) -> str:
        if self.facts.tile is not None and position in self.facts.tile.loads:
            return f"icpu::tile_row(tile_v{position}, in_tile)"
        access = self.facts.load_access(position)
        mask_varies = load.mask is not None and self.facts.varying[load.mask]
        if access == "uniform" and not mask_varies:
            text = f"icpu::load({self.address(load.buffer, load.index[0])})"
            return self._guarded(load, text, vector=False)
        extra = ""
        if mask_varies and load.mask is not None:
            extra = f", {self.operand(load.mask, vector=True)}, {self._fill(load, vector=True)}"
        if access == "ordered":
            return self._ordered_load(position, load, extra)
        if access == "periodic":
            loop, length = self.symbol(self.kernel.vector.loop or _NO_SYMBOL), self.facts.periods[position][1]
            return f"icpu::load(period{position} + {loop} % {length}, lanes)"
        if access in ("uniform", "contiguous"):
            function = "load" if access == "contiguous" else "load_uniform"
            text = f"icpu::{function}({self.address(load.buffer, load.index[0])}, lanes{extra})"
        else:
            text = self._far_load(load, extra)
        return text if mask_varies else self._guarded(load, text, vector=True)

    def _part(self, position: int, record: tuple[int, ...]) -> str:
        """A load that is part of a record, which is read where the first of its parts is needed."""
        name = f"record{record[0]}"
        if record not in self._read:
            self._read.add(record)
            first = self.kernel.body[record[0]]
            assert isinstance(first, Load)
            place = self.address(first.buffer, first.index[0])
            self.writer.line(f"const auto {name} = icpu::load_records<{len(record)}>({place}, lanes);")
        return f"{name}.part[{record.index(position)}]"

    def _ordered_load(self, position: int, load: Load, extra: str) -> str:
        """A load whose lanes read neighbours in an order of their own, a constant mask included.

        extra: a mask that differs from vector to vector, and its fill."""
        if position in self.facts.swaps:
            return self._swapped_load(load, self.facts.swaps[position])
        order = self.facts.orders[position]
        first = self.address(load.buffer, load.index[0] + order.skipped)
        places = ", ".join(map(str, order.places))
        in_order = load.mask is not None and load.mask in self.facts.constant_masks
        last = f", {self._fill(load, vector=True)}" if in_order else extra
        text = f"icpu::load_ordered<icpu::Order<{places}>>({first}, {order.step or 0}, lanes{last})"
        return text if in_order or extra else self._guarded(load, text, vector=True)

    def _swapped_load(self, load: Load, source: int) -> str:
        """A load whose lanes swap, in pairs, what another one has read."""
        text = f"icpu::swap_pairs(v{source}, lanes)"
        if load.mask is None:
            return text
        return f"icpu::pick_lanes<{self._lane_bits(load.mask)}>({text}, {self._fill(load, vector=True)}, lanes)"

    def _lane_bits(self, mask: int) -> str:
        """The bits of a mask that is the same in every vector."""
        return f"{sum(bit << lane for lane, bit in enumerate(self.facts.constant_masks[mask])):#x}"

    def _far_load(self, load: Load, extra: str) -> str:
        """A load whose lanes are no neighbours. extra: its mask and fill, where the mask differs between lanes."""
        stride = self.stride(load.index[0])
        if stride is not None and stride.as_int in SHORT_STRIDES:
            return f"icpu::load_strided<{stride}>({self.address(load.buffer, load.index[0])}, lanes{extra})"
        base, lanes = self.offsets(load.index[0])
        pointer = self._pointers[load.buffer]
        place = pointer if base == "0" else f"{pointer} + {base}"
        if stride is not None and not self._vector_index.by_lane(load.index[0]):
            return f"icpu::load_apart({place}, {self.expr(stride)}, lanes{extra})"
        bends, turns = (not extra and f(load.index[0]) for f in (self._vector_index.bends, self._vector_index.turns))
        if (bends or turns) and self._vector_index.most_step(load.index[0]) == 1:
            at = f"[&](const int64_t lane) ICPU_INLINE {{ return {self._vector_index.lane_text(load.index[0])}; }}"
            return f"icpu::load_bent({place}, {at}, [&]() ICPU_INLINE {{ return {lanes}; }}, lanes)"
        return f"icpu::{'gather_runs' if bends else 'gather'}({place}, {lanes}, lanes{extra})"

    def _guarded(self, load: Load, text: str, *, vector: bool) -> str:
        if load.mask is None:
            return text
        return f"{self.operand(load.mask, vector=False)} ? {text} : {self._fill(load, vector=vector)}"

    def _fetch_ahead(self, access: int, buffer: str, function: str) -> None:
        """Ask for memory that a load (or the store number -1 - access) will need later; tiles ask for themselves."""
        ahead = self.ahead.get(access)
        tiled = self.facts.tile is not None and self.facts.tile.has(access)
        if ahead is None or tiled or (ahead.phase is not None and ahead.phase != self.phase):
            return
        there = self.expr(self.facts.address(access) + ahead.distance)
        if ahead.loops:
            there = f"ahead{access} + {self.symbol(self.kernel.vector.loop or _NO_SYMBOL)}"
        call = f"icpu::{function}{'_far' if ahead.far else ''}({self.pointer(buffer)}, {there}"
        if ahead.beside is None or self.kernel.product is None:
            self.writer.line(f"{call}, lanes);")
            return
        with self.writer.block(f"if ({self.symbol(self.kernel.product.panel)} % 2 == 0)"):
            self.writer.line(f"{call}, lanes);")
            self.writer.line(f"{call} + {ahead.beside}, lanes);")

    def fetch_rows_to_write(self) -> None:
        """Ask for what a later pass writes, where this pass is to do so."""
        for access, ahead in sorted(self.ahead.items()):
            if access < 0 and ahead.phase is not None and -1 - access not in self.around:
                self._fetch_ahead(access, self.kernel.stores[-1 - access].buffer, "fetch")

    # -- ops ---------------------------------------------------------------------------------------------------------
    def _scalar_op(self, position: int, instr: Scalar, *, vector: bool) -> str:
        dtype = self.kernel.body[instr.args[-1]].dtype
        if not vector:
            text = self._scalar_text(instr, dtype, [self.operand(k, vector=False) for k in instr.args])
        elif instr.op == "where" and not self.facts.varying[instr.args[0]]:
            yes, no = (self.operand(k, vector=True) for k in instr.args[1:])
            text = f"icpu::select({self.operand(instr.args[0], vector=False)}, {yes}, {no})"
        elif instr.op == "where" and instr.args[0] in self.facts.constant_masks:
            yes, no = (self.operand(k, vector=True) for k in instr.args[1:])
            text = f"icpu::pick_lanes<{self._lane_bits(instr.args[0])}>({yes}, {no}, lanes)"
        else:
            text = self._vector_text(instr, dtype)
        return self._rounded(position, text, vector=vector)

    def _rounded(self, position: int, text: str, *, vector: bool) -> str:
        function = self.facts.rounding.function(position, vector=vector)
        return text if function is None else f"{function}({text})"

    def _scalar_text(self, instr: Scalar, dtype: torch.dtype, args: list[str]) -> str:
        template = SCALAR_OPS[instr.op].template(dtype)
        if template is None:
            raise InternalError(STAGE, f"{self.kernel.label}: no C++ for {instr.op} of {dtype}")
        return self._filled(template, instr, dtype, args)

    def _filled(self, template: str, instr: Scalar, dtype: torch.dtype, args: Sequence[str]) -> str:
        text = template.replace("{T}", SCALAR[dtype]).replace("{E}", ELEMENT[dtype]).replace("{lanes}", "lanes")
        text = text.replace("{status}", "status" if may_fail(self.kernel.body, instr) else "icpu::NoStatus{}")
        for number, arg in enumerate(args):
            text = text.replace(f"{{{number}}}", arg)
        return text

    @cached_property
    def _divisors(self) -> frozenset[int]:
        """Values that divide many of bf16: their reciprocals give the same quotients (`Divisor` in low_math.h).
        A reduction that is a divisor itself, as a maximum may be, is not among them."""
        body, varying = self.kernel.body, self.facts.varying
        found = (i.args[1] for k, i in enumerate(body) if isinstance(i, Scalar) and i.op == "div" and varying[k])
        bf16 = (k for k in found if body[k].dtype == torch.bfloat16 and not varying[k])
        return frozenset(k for k in bf16 if isinstance(body[k], (Const, Load, Scalar, Cast)))

    def _quotient(self, args: tuple[int, ...]) -> str:
        a, b = args
        divisor = self.kernel.body[b]
        inverse = f"divisor{b}"
        if isinstance(divisor, Const):
            inverse = f"icpu::Divisor({literal(divisor.value, divisor.dtype)})"
        return f"icpu::quotient({self.operand(a, vector=True)}, {inverse})"

    def _vector_text(self, instr: Scalar, dtype: torch.dtype) -> str:
        if instr.op == "div" and instr.args[1] in self._divisors:
            return self._quotient(instr.args)
        row = VECTOR_OPS.get(instr.op)
        template = row.template(dtype) if row else None
        numbers = instr.args
        if instr.op in BOUNDS and dtype.is_floating_point and any(map(self._is_number, numbers)):
            template, numbers = BOUNDS[instr.op], tuple(sorted(numbers, key=self._is_number))
        args = [self.operand(k, vector=True) for k in numbers]
        if template is None:
            return self._lane_by_lane(instr, dtype, args)
        text = self._filled(template, instr, dtype, args)
        if dtype in NARROW and instr.dtype == dtype and instr.op in LEAVES_RANGE:
            return f"icpu::wrap<{SCALAR[dtype]}>({text})"
        return text

    def _is_number(self, position: int) -> bool:
        """Whether a value is a constant that is no NaN."""
        instr = self.kernel.body[position]
        return isinstance(instr, Const) and not math.isnan(float(instr.value))

    def _lane_by_lane(self, instr: Scalar, dtype: torch.dtype, args: list[str]) -> str:
        kind, result = SCALAR[dtype], SCALAR[instr.dtype]
        names = [f"x{n}" for n in range(len(args))]
        types = kind if result == kind else f"{kind}, {result}"
        head = ", ".join(f"{kind} {name}" for name in names)
        body = self._scalar_text(instr, dtype, names)
        return f"icpu::lanewise<{types}>(lanes, [&]({head}) {{ return {body}; }}, {', '.join(args)})"

    @property
    def needs_status(self) -> bool:
        """Whether any instruction can report an error."""
        return any(may_fail(self.kernel.body, instr) for instr in self.kernel.body)

    # -- conversion --------------------------------------------------------------------------------------------------
    def _cast(self, position: int, instr: Cast, *, vector: bool) -> str:
        source = self.kernel.body[instr.arg].dtype
        text = self.operand(instr.arg, vector=vector)
        to = LANE if vector else SCALAR
        if to[instr.dtype] != to[source]:
            text = f"icpu::convert<{to[instr.dtype]}>({text})"
        if vector and instr.dtype in NARROW and source not in (instr.dtype, torch.bool):
            text = f"icpu::wrap<{SCALAR[instr.dtype]}>({text})"
        return self._rounded(position, text, vector=vector)

    # -- stores ------------------------------------------------------------------------------------------------------
    def store(self, number: int) -> None:
        """Write a store, or a whole record of them. Raises InternalError if the value has another dtype than the
        buffer."""
        store = self.kernel.stores[number]
        if number in self._in_record:
            return
        dtype = self.kernel.body[store.value].dtype
        if self._dtypes.get(store.buffer) != dtype:
            raise InternalError(STAGE, f"{self.kernel.label}: a store of {dtype} into {store.buffer}")
        uniform = self.kernel.vector.loop is None or not self._store_varies(number, store)
        emit: Callable[[Store, int], str] = self._store_scalar if uniform else self._store_vector
        text = emit(store, number)
        if store.mask is not None and (uniform or not self.facts.varying[store.mask]):
            text = f"if ({self.operand(store.mask, vector=False)}) {text}"
        self.writer.line(text)

    def _store_varies(self, number: int, store: Store) -> bool:
        """Whether each lane stores something of its own. Lanes that add one value to one element add it so often."""
        masked = store.mask is not None and self.facts.varying[store.mask]
        alike = self.facts.store_access(number) == "uniform" and not self.facts.varying[store.value]
        return not alike or masked or store.mode == "add"

    def _store_scalar(self, store: Store, number: int) -> str:
        value = self.operand(store.value, vector=False)
        if self.facts.lists:
            return f"stores.put({self.expr(store.index[0])}, {value}, wanted);"
        function = "store_add" if store.mode == "add" else "store"
        return f"icpu::{function}({self.address(store.buffer, store.index[0])}, {value});"

    def _store_vector(self, store: Store, number: int) -> str:
        access = self.facts.store_access(number)
        value = self.operand(store.value, vector=True)
        if self.facts.lists:
            shown = store.mask is not None and self.facts.varying[store.mask]
            mask = f" & {self.operand(store.mask, vector=True)}" if shown and store.mask is not None else ""
            return f"stores.put({self.lanes_index(store.index[0])}, {value}, wanted{mask}, lanes);"
        if number in self._records:
            return self._store_record(self._records[number], number in self.around)
        if self.facts.tile is not None and number in self.facts.tile.stores:
            return f"icpu::put_tile_row(tile_s{number}, in_tile, {value});"
        masked = store.mask is not None and self.facts.varying[store.mask]
        extra = f", {self.operand(store.mask, vector=True)}" if masked and store.mask is not None else ""
        if access == "contiguous":
            return self._store_contiguous(store, number, value, extra)
        base, lanes = self.offsets(store.index[0])
        pointer = self._pointers[store.buffer]
        function = "scatter_add" if store.mode == "add" else "scatter"
        return f"icpu::{function}({pointer if base == '0' else f'{pointer} + {base}'}, {lanes}, {value}, lanes{extra});"

    def _store_record(self, record: Sequence[int], around: bool) -> str:
        first = self.kernel.stores[record[0]]
        stored = [self.kernel.stores[number].value for number in record]
        values = ", ".join(self.operand(value, vector=True) for value in stored)
        rounds, flags = self._rounds(stored), ""
        if around or rounds:
            flags = f"<{str(around).lower()}{rounds}>"
        return f"icpu::store_records{flags}({self.address(first.buffer, first.index[0])}, lanes, {values});"

    def _rounds(self, values: Sequence[int]) -> str:
        """What is known of the roundings of all values of a record, as an argument of its store."""
        known = self.facts.rounding
        if all(map(known.is_rounded, values)):
            return ", icpu::Rounds::kNone"
        return ", icpu::Rounds::kPlain" if all(known.rounds_plain(k) or known.is_rounded(k) for k in values) else ""

    def _store_contiguous(self, store: Store, number: int, value: str, extra: str) -> str:
        place, source = self.address(store.buffer, store.index[0]), self.kernel.body[store.value]
        function = "store_add" if store.mode == "add" else "store"
        if isinstance(source, Load) and not extra and self.facts.only_moved(number):
            function, value = "copy", self.address(source.buffer, source.index[0])
        elif store.mode == "set" and not extra and self.facts.rounding.is_rounded(store.value):
            function = "store_rounded"
        elif store.mode == "set" and not extra and self.facts.rounding.rounds_plain(store.value):
            function = "store_plain"
        if number in self.around:
            write = f"[&](auto* const line) ICPU_INLINE {{ icpu::{function}(line, {value}, lanes{extra}); }}"
            return f"icpu::around({place}, lanes, {write});"
        self._fetch_ahead(-1 - number, store.buffer, "fetch_to_write")
        return f"icpu::{function}({place}, {value}, lanes{extra});"
