"""The loop structure of a kernel: outer loops and their threads, phases with their reductions, kept rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace

from inductor_cpu.codegen.alternating import UNITS, alternates
from inductor_cpu.codegen.analysis import STAGE, Facts, size_of
from inductor_cpu.codegen.divided import BOUNDS, Division
from inductor_cpu.codegen.folds import Folds
from inductor_cpu.codegen.pages import PageFetches
from inductor_cpu.codegen.pieces import Piece, facts_of, pieces_of
from inductor_cpu.codegen.prefetch import Ahead
from inductor_cpu.codegen.rows import Rows
from inductor_cpu.codegen.text import Writer
from inductor_cpu.codegen.tile_moves import TileMoves
from inductor_cpu.codegen.tiles import goes_in_columns, is_short, stays_in_registers
from inductor_cpu.codegen.tuning import (
    Choices,
    pointwise_units,
    storing_units,
    total_work,
    unroll_of,
    vertical_units,
)
from inductor_cpu.codegen.values import TILE_START, Values
from inductor_cpu.errors import InternalError
from inductor_cpu.ir.index import ZERO, Sym
from inductor_cpu.ir.kernel import Phase
from inductor_cpu.ir.loop_nest import Reduce, Scan
from inductor_cpu.ir.rewrite import store_operands, value_positions


class Loops:
    """Writes the loops of one kernel, and in each of them the values that are computed there."""

    def __init__(
        self,
        facts: Facts,
        writer: Writer,
        choices: Choices,
        piece: Piece | None = None,
        bounds: tuple[str, str] | None = None,
    ) -> None:
        self.facts, self.kernel, self.writer, self.choices = facts, facts.kernel, writer, choices
        self.vector = self.kernel.vector.loop
        self._written: set[int] = set()  # values in scope
        self._filled: set[int] = set()  # kept values whose row is complete
        self._piece = piece  # the part of the vectorized loop that is written, if not all of it
        divided, across = self.kernel.divided, self.kernel.across
        self._bounds = bounds if divided is None and across is None else BOUNDS  # of a loop, if not all of it is wanted
        self._bounded = 1 if across is None else facts.outer_level  # the level that this loop opens
        tile = None if choices.runs else facts.tile
        self._alternates = alternates(facts)
        self._columns = tile is not None and goes_in_columns(facts.kernel, tile)
        self._pieces = () if piece or self._bounds else pieces_of(facts)
        tables = piece is None and divided is None and not self._pieces
        self.values = Values(facts, writer, choices, tables)
        self._folds = Folds(facts, self.values, writer, self._alternates)
        self._rows = Rows(facts, self.values, writer)
        self._pages = PageFetches(facts, self.values, writer, choices.far)
        self._division = None if divided is None else Division(divided, facts, self.values, writer, self._define)

    # -- everything --------------------------------------------------------------------------------------------------
    def emit(self) -> None:
        """Write the body of the kernel."""
        needed = self._needed_before_phases()
        self.values.open_periods()
        with ExitStack() as stack:
            if self.kernel.across is not None:
                self._open_across(self.kernel.across, stack)
            if self._division is not None:
                self._define_threads()
                self._division.open(self._pace(self.kernel.outer[0]), stack)
            for level in range(self.facts.outer_level + 1):
                if level == self.facts.outer_level and self._pieces:
                    self._write_pieces(stack)
                    return
                if level:
                    self._open_outer(level, stack)
                if self._division is not None and level == self.facts.place_level:
                    self._division.ask(stack)
                self._define(k for k in needed if self.facts.level[k] <= level)
                self._find_rows(level)
            if self.facts.tile is not None:
                self._tile(needed)
                return
            self._rows.declare()
            self._pages.before_row()
            for number, phase in enumerate(self.kernel.phases):
                self._phase(number, phase)
            self._outer_stores()

    def _reduces(self) -> frozenset[int]:
        return frozenset(k for k, instr in enumerate(self.kernel.body) if isinstance(instr, Reduce))

    def _needed_before_phases(self) -> frozenset[int]:
        """Every value that the kernel needs and that does not depend on a reduction, to be written in outer loops."""
        roots = [k for store in self.kernel.stores for k in store_operands(store)]
        roots += [k for phase in self.kernel.phases for k in phase.reduces]
        every = self.facts.closure(roots)
        late: set[int] = set()
        reduces = self._reduces()
        for k in sorted(every):
            if k in reduces or late.intersection(self.facts.closure([k]) - {k}):
                late.add(k)
        return frozenset(every - late)

    def _define(self, positions: Iterable[int]) -> None:
        """Write the values that are not in scope yet, in the order of the body."""
        for k in sorted(set(positions) - self._written):
            self.values.emit(k)
            self._written.add(k)

    def _find_rows(self, level: int) -> None:
        """Write where loads of rows that the loop of a level, or with it loops around it, decides read some points on
        (`prefetch.py`, `lookups.py`): `ahead` and the load's position."""
        values = self.values
        for access, ahead in sorted(values.ahead.items()):
            if not ahead.loops or self.facts.depth[ahead.loops[0]] != level or self.vector is None:
                continue
            row = self.facts.address(access).substitute({self.vector: ZERO})
            names = ", ".join(f"const int64_t {values.symbol(loop)}" for loop in ahead.loops)
            with self.writer.block(f"const auto place{access} = [&]({names})", "};"):
                for k in sorted(self.facts.closure(value_positions((row,)))):
                    if self.facts.level[k] == level:
                        values.emit(k)
                self.writer.line(f"return {values.expr(row)};")
            self.writer.line(f"const int64_t ahead{access} = place{access}({self._points_on(access, ahead)});")

    def _points_on(self, access: int, ahead: Ahead) -> str:
        """The points of the loops of `ahead` as many of the innermost on as it says, but not beyond the last one."""
        values, kernel, last = self.values, self.kernel, ahead.loops[-1]
        listed = kernel.listed is not None and last == kernel.outer[0]
        onward, points = str(ahead.distance), []
        for number, loop in enumerate(ahead.loops[:-1]):
            name, size = f"on{access}_{number}", values.expr(size_of(loop))
            self.writer.line(f"const int64_t {name} = {values.symbol(loop)} + {onward};")
            points.append(f"{name} % ({size})")
            onward = f"{name} / ({size})"
        step = f"{'entry' if listed else values.symbol(last)} + {onward}"
        step = f"std::min<int64_t>({step}, ({values.expr(size_of(last))}) - 1)"
        return ", ".join([*points, f"points[{step}]" if listed else step])

    def _write_pieces(self, stack: ExitStack) -> None:
        """The innermost loop, once for each piece."""
        loop, shared = self._pieces[0].kernel.outer[-1], self.kernel.parallel == self.facts.outer_level
        if self.kernel.parallel == 1 and shared:
            self._open_flat(loop, stack)
        last = self._pieces[-1].end
        for piece in self._pieces:
            part = Loops(facts_of(piece), self.writer, self.choices, piece)
            part._written = set(self._written)
            begin, end = str(piece.begin), str(piece.end)
            if shared:
                begin = f"std::max<int64_t>(begin, {begin})" if piece.begin else "begin"
                end = f"std::min<int64_t>(end, {end})" if piece.end < last else "end"
            with part._loop(loop, begin, end):
                part._define(part._needed_before_phases())
                part._outer_stores()

    # -- outer loops -------------------------------------------------------------------------------------------------
    def _open_outer(self, level: int, stack: ExitStack) -> None:
        """Open the loops that level adds: none where parallel loops are opened together."""
        parallel = self.kernel.parallel
        if level < parallel - 1:
            return
        if parallel and level <= parallel:
            self._open_parallel(level, stack)
            return
        if self.kernel.listed is not None and level == 1:
            stack.enter_context(self.writer.block("for (int64_t entry = begin; entry < end; ++entry)"))
            self.writer.line(f"const int64_t {self.values.symbol(self.kernel.outer[0])} = points[entry];")
            return
        if self._columns and level == self.facts.outer_level:
            return
        begin, end = self._bounds if self._bounds is not None and level == self._bounded else ("0", None)
        self._open(self.kernel.outer[level - 1], begin, end, stack)

    def _open(self, loop: Sym, begin: str, end: str | None, stack: ExitStack) -> None:
        """Open an outer loop; around that of a column of tiles the vectorized one, although it stands behind it."""
        if self._columns and self.facts.tile is not None and loop == self.facts.tile.loop:
            stack.enter_context(self._loop(self.kernel.outer[-1], "0", None))
        stack.enter_context(self._loop(loop, begin, end))

    def _open_parallel(self, level: int, stack: ExitStack) -> None:
        kernel = self.kernel
        last = kernel.outer[kernel.parallel - 1]
        if kernel.parallel > 1 and level == kernel.parallel - 1:
            self._open_rows(last, stack)
            return
        if kernel.parallel == 1:
            self._open_flat(last, stack)
        self._open(last, "begin", "end", stack)

    def _define_threads(self) -> None:
        work = self.values.expr(total_work(self.kernel))
        self.writer.line(f"const int threads = {self.choices.threads_for(work)};")

    def _by_lanes(self, loop: Sym) -> bool:
        """Whether a loop advances by vectors, or by tiles."""
        return loop == self.vector or (self.facts.tile is not None and loop == self.facts.tile.loop)

    def _pace(self, loop: Sym) -> str:
        """By how many points a loop advances."""
        if not self._by_lanes(loop):
            return "1"
        return "icpu::kShortTile" if loop != self.vector and self._short else "icpu::kLanes"

    @property
    def _short(self) -> bool:
        """Whether the tile is half as high as vectors have lanes."""
        return self.facts.tile is not None and is_short(self.kernel, self.facts.tile)

    def _open_flat(self, loop: Sym, stack: ExitStack) -> None:
        size = self.values.expr(size_of(loop))
        self._define_threads()
        # Whoever goes through all rows for some columns reads few bytes of each: not fewer than there must be.
        columns = loop == self.vector and (self.kernel.across is not None or self.kernel.inner)
        head = f"icpu::parallel_{'parts' if columns else 'for'}({size}, {self._pace(loop)}, threads, "
        head += "[&](const int64_t begin, const int64_t end)"
        stack.enter_context(self.writer.block(head, "});"))

    def _open_across(self, loop: Sym, stack: ExitStack) -> None:
        """Ranges of the innermost loop around all others. One thread runs the plain loops, whose bounds are known."""
        self._define_threads()
        with self.writer.block("if (threads <= 1)"):
            alone = replace(self.kernel, across=None)
            Loops(Facts(alone, self.choices.tiling), self.writer, self.choices).emit()
        stack.enter_context(self.writer.block("else"))
        self._open_flat(loop, stack)

    def _open_rows(self, last: Sym, stack: ExitStack) -> None:
        """The parallel loops but the last one become rows; the last one runs over pieces of a row."""
        rows = self.kernel.outer[: self.kernel.parallel - 1]
        counts = [self._steps(s) for s in rows]
        size = self.values.expr(size_of(last))
        self.writer.line(f"const int64_t rows = {' * '.join(counts)};")
        self._define_threads()
        head = f"icpu::parallel_for_rows(rows, {size}, {self._pace(last)}, threads, "
        head += "[&](const int64_t row, const int64_t begin, const int64_t end)"
        stack.enter_context(self.writer.block(head, "});"))
        for place, symbol in enumerate(rows):
            text = " * ".join(counts[place + 1 :])
            text = f"row / ({text})" if text else "row"
            if place:
                text = f"{text} % {counts[place]}"
            if self._by_lanes(symbol):
                text = f"{text} * {self._pace(symbol)}"
            if symbol == self.vector or not self._by_lanes(symbol):
                self.writer.line(f"const int64_t {self.values.symbol(symbol)} = {text};")
            else:
                self._tile_bounds(text, self.values.expr(size_of(symbol)))
        if self.vector is not None and self.vector in rows:
            name, end = self.values.symbol(self.vector), self.values.expr(size_of(self.vector))
            head = f"icpu::with_lanes({name}, {end}, [&](const auto lanes) ICPU_INLINE"
            stack.enter_context(self.writer.block(head, "});"))

    def _steps(self, loop: Sym) -> str:
        """How many steps a parallel loop has: points, or vectors."""
        size = self.values.expr(size_of(loop))
        if self._by_lanes(loop):
            return f"icpu::{'vectors' if self._pace(loop) == 'icpu::kLanes' else 'short_tiles'}_in({size})"
        return f"({size})" if " " in size else size

    @contextmanager
    def _loop(
        self,
        loop: Sym,
        begin: str,
        end: str | None,
        unroll: int = 1,
        units: int = 1,
        until: str | None = None,
        searching: tuple[int, ...] = (),
    ) -> Iterator[None]:
        """One loop: over vectors if it is the vectorized one, else over points. searching: its reductions, if it first
        looks for a block."""
        name = self.values.symbol(loop)
        end = self.values.expr(size_of(loop)) if end is None else end
        if loop != self.vector and self._by_lanes(loop):
            start = self.values.symbol(TILE_START)
            head = f"for (int64_t {start} = {begin}; {start} < {end}; {start} += {self._pace(loop)})"
            with self.writer.block(head):
                self._tile_bounds(None, end)
                yield
            return
        if loop != self.vector:
            with self.writer.block(f"for (int64_t {name} = {begin}; {name} < {end}; ++{name})"):
                yield
            return
        units = max(vertical_units(self.facts), pointwise_units(self.facts), units)
        function = "for_blocks" if units > 1 else "for_vectors"
        if self._alternates:
            results = self.kernel.inner and loop in self.kernel.outer
            function = "for_alternating_blocks" if results else "for_alternating"
            units = max(units, UNITS)
        arguments = f"<{max(units, unroll)}{self._ends(loop)}>"
        part = " part" if unroll > 1 else ""
        done = "" if until is None else f"[&] {{ return {until}; }}, "
        function = function if until is None else f"{function}_until"
        function = "for_best_block" if searching else function
        parameters = "".join(f", auto& acc{k}" for k in searching)
        head = f"icpu::{function}{arguments}({done}{begin}, {end}, "
        head += f"[&](const int64_t {name}, const auto lanes, const int{part}{parameters}) ICPU_INLINE"
        with self.writer.block(head, f"}}{parameters.replace('auto& ', '')});"):
            yield

    def _ends(self, loop: Sym) -> str:
        ends = [size_of(loop).as_int] if self._piece is None else [self._piece.begin, self._piece.end]
        whole = all(end is not None and end % self.kernel.vector.lanes == 0 for end in ends)
        return ", icpu::Ends::kWhole" if whole else ""

    # -- tiles -------------------------------------------------------------------------------------------------------
    def _tile_bounds(self, start: str | None, end: str) -> None:
        """Where the tile starts and ends in its own loop."""
        assert self.facts.tile is not None
        name, pace = self.values.symbol(TILE_START), self._pace(self.facts.tile.loop)
        if start is not None:
            self.writer.line(f"const int64_t {name} = {start};")
        self.writer.line(f"const int64_t {self._tile_end()} = std::min<int64_t>({name} + {pace}, {end});")

    def _tile_end(self) -> str:
        assert self.facts.tile is not None
        return f"{self.values.symbol(self.facts.tile.loop)}_end"

    def _tile(self, needed: frozenset[int]) -> None:
        """The body over the points of a tile."""
        assert self.facts.tile is not None
        name, start = map(self.values.symbol, (self.facts.tile.loop, TILE_START))
        moves = TileMoves(self.facts.tile, self.values)
        unrolled = str(stays_in_registers(self.kernel, self.facts.tile, needed)).lower()
        rooms = "".join(f", {room}" for room in moves.open_rooms())
        kind = f"{unrolled}, icpu::kShortTile" if self._short else unrolled
        head = f"icpu::with_tile<{kind}>({start}, {self._tile_end()}, lanes, [&](const auto tile_rows) ICPU_INLINE"
        with self.writer.block(head, f"}}{rooms});"):
            moves.load()
            with self.writer.block("tile_rows.each([&](const int64_t in_tile) ICPU_INLINE", "});"):
                self.writer.line(f"const int64_t {name} = {start} + in_tile;")
                self._define(needed)
                for number in range(len(self.kernel.stores)):
                    self.values.store(number)
            moves.store()

    # -- phases ------------------------------------------------------------------------------------------------------
    def _phase(self, number: int, phase: Phase) -> None:
        self.values.phase = number
        arguments = [self._folds.reduce(k).arg for k in phase.reduces]
        roots = arguments + [k for n in phase.stores for k in store_operands(self.kernel.stores[n])]
        done = self._reduces() & self._written
        needed = self.facts.closure(roots, frozenset(self._filled) | done)
        missing = sorted((needed & self._reduces()) - self._written)
        if missing:
            raise InternalError(
                STAGE, f"{self.kernel.label}: phase {number} needs the reduction %{missing[0]} too early"
            )
        self._define(k for k in needed if self.facts.level[k] <= self.facts.outer_level)
        unroll = unroll_of(self.facts, phase, needed)
        searching = self._folds.searching(phase, needed, unroll)
        carried = () if searching else self._folds.carried(phase)
        for k in phase.reduces:
            self._folds.declare(k, unroll, carried=k in carried)
        for k in sorted(needed - self._filled):
            self._folds.declare_scan(k, number)
        scope = set(self._written)
        fills = self._rows.kept & needed - self._filled  # rows that a later phase reads to their ends
        with ExitStack() as stack:
            for level, loop in enumerate(self.kernel.inner, self.facts.outer_level + 1):
                steps = (unroll, storing_units(self.facts, phase, needed)) if loop == self.vector else (1, 1)
                until = self._folds.decided(phase) if loop == self.vector and not fills else None
                begin, end = self._folds.open_stretches(loop, max(steps), carried, stack)
                if end is not None:
                    self._pages.before_stretch(max(steps))
                stack.enter_context(self._loop(loop, begin, end, *steps, until, searching))
                self._inner_values((k for k in needed if self.facts.level[k] == level), number)
            self.values.fetch_rows_to_write()
            for k in phase.reduces:
                self._folds.add(k, unroll)
            for n in phase.stores:
                self.values.store(n)
        self._written = scope
        self._filled |= self._rows.kept & needed
        for k in phase.reduces:
            self._folds.finish(k)
            self._written.add(k)

    def _inner_values(self, positions: Iterable[int], phase: int) -> None:
        for k in sorted(positions):
            if k in self._filled:
                self._rows.restore(k)
            else:
                if isinstance(self.kernel.body[k], Scan):
                    self._folds.scan(k, phase)
                else:
                    self.values.emit(k)
                if k in self._rows.kept:
                    self._rows.save(k)
            self._written.add(k)

    # -- after the phases --------------------------------------------------------------------------------------------
    def _outer_stores(self) -> None:
        self.values.phase = None
        inside = {n for phase in self.kernel.phases for n in phase.stores}
        rest = [n for n in range(len(self.kernel.stores)) if n not in inside]
        needed = self.facts.closure(
            (k for n in rest for k in store_operands(self.kernel.stores[n])), self._reduces() & self._written
        )
        self._define(needed)
        for n in rest:
            self.values.store(n)
