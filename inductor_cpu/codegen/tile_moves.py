"""Loads and stores of whole tiles (`tiles.py`), which turn squares over in registers."""

from __future__ import annotations

from inductor_cpu.codegen.analysis import STAGE
from inductor_cpu.codegen.cxx import LANE
from inductor_cpu.codegen.tiles import Tile
from inductor_cpu.codegen.values import TILE_START, Values
from inductor_cpu.errors import InternalError
from inductor_cpu.ir.index import of


class TileMoves:
    """Writes the loads and stores of the tiles of one kernel. `tile_rows` and `lanes` are in scope there."""

    def __init__(self, tile: Tile, values: Values) -> None:
        self.tile, self.values, self.kernel, self.writer = tile, values, values.kernel, values.writer

    def open_rooms(self) -> list[str]:
        """Define how much of the tiles of masked loads is read; returns the names."""
        start, names = {self.tile.loop: of(TILE_START)}, []
        for k, room in sorted(self.tile.rooms.items()):
            sizes = ", ".join(self.values.expr(points.substitute(start)) for points in (room.rows, room.lanes))
            self.writer.line(f"const icpu::Room room_v{k}{{{sizes}}};")
            names.append(f"room_v{k}")
        return names

    def load(self) -> None:
        """Declare the tiles and fill those that are loaded."""
        body, stores = self.kernel.body, self.kernel.stores
        named = [(f"tile_v{k}", body[k].dtype) for k in sorted(self.tile.loads)]
        named += [(f"tile_s{n}", body[stores[n].value].dtype) for n in sorted(self.tile.stores)]
        for name, dtype in named:
            self.writer.line(f"alignas(64) {LANE[dtype]} {name}[icpu::kLanes * icpu::kLanes];")
        for k in sorted(self.tile.loads):
            self._move("load", k, f"tile_v{k}")

    def store(self) -> None:
        """Write the tiles that are stored."""
        for n in sorted(self.tile.stores):
            self._move("store", -1 - n, f"tile_s{n}")

    def _move(self, kind: str, access: int, tile: str) -> None:
        """Write the load or the store of a whole tile, and the request for the next one. The stride is that of the
        lanes."""
        values, instr = self.values, self.values.facts.instruction(access)
        stride = values.stride(instr.index[0])
        if stride is None:
            raise InternalError(STAGE, f"{self.kernel.label}: no stride in {instr.index[0]}")
        start = instr.index[0].substitute({self.tile.loop: of(TILE_START)})
        place, step = values.address(instr.buffer, start), values.expr(stride)
        if access in values.ahead:
            function = "fetch_tile" if access >= 0 else "fetch_tile_to_write"
            there = values.expr(start + values.ahead[access].distance)
            self.writer.line(f"icpu::{function}({values.pointer(instr.buffer)}, {there}, {step}, lanes);")
        room = f", room_v{access}" if access in self.tile.rooms else ""
        self.writer.line(f"icpu::{kind}_tile({place}, {step}, tile_rows, lanes{room}, {tile});")
