"""The micro kernels of the table on their own: a function for each, sizes and strides being arguments."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from inductor_cpu import paths
from inductor_cpu.codegen.cxx import ELEMENT
from inductor_cpu.codegen.product import instance_of
from inductor_cpu.config import snapshot
from inductor_cpu.ir.index import Sym, as_expr
from inductor_cpu.ir.kernel import Product
from inductor_cpu.ir.loop_nest import View
from inductor_cpu.ir.micro_kernels import MICRO_KERNELS, MicroKernel, pack
from inductor_cpu.ir.nodes import Patches
from inductor_cpu.ir.plan import Instance, KernelSource
from inductor_cpu.ir.windows import Pieces, of_groups
from inductor_cpu.kernels.usable import usable_micro_kernels
from inductor_cpu.runtime.toolchain import COMMON_FLAGS, KERNEL_FLAGS, find_toolchain
from inductor_cpu.targets.blocking import blocking_for, definitions
from inductor_cpu.targets.cpu import ISAS, LEVELS, Target, detect
from tests.codegen.harness import FUNCTION, addresses_of, available, emulated_machine, target

#: The rows that multiply matrices; those that read the first operand in place also without it, packed.
MATRICES = {
    name: row
    for each in MICRO_KERNELS.values()
    if each.multiplies
    for name, row in (
        (each.name, replace(each, in_place=False)),
        *([(f"{each.name} in place", each)] if each.in_place else ()),
    )
}

#: What the function of a row does with a block of C: stores it, or max(c * scale + bias, -1) with one rounding to the
#: type of A (of floats) or to float.
_CODE = """#include "../gemm/in_place.h"
#include "../gemm/{header}"
extern "C" int64_t SYMBOL(void* const* p, const int64_t* n) {{
  using Kernel = icpu::gemm::{code};
  const auto* const a = static_cast<const {source}*>(p[0]);
  const auto* const b = static_cast<const {weight}*>(p[1]);
  const auto *const scale = static_cast<const float*>(p[3]), *const bias = static_cast<const float*>(p[4]);
  const int64_t rows = n[0], columns = n[1], depth = n[2], leading = n[3], leading_of_c = n[4];
  const auto finish = [&](int64_t row, int64_t height, int64_t panel, int64_t width, const {total}* c) {{
    for (int64_t i = 0; i < height; ++i) {{
      for (int64_t j = 0; j < width; ++j) {{
        const int64_t column = panel * Kernel::kColumns + j, at = (row + i) * leading_of_c + column;
        const {total} sum = c[i * Kernel::kColumns + j];
        if (n[6]) {{
          static_cast<{finished}*>(p[2])[at] = std::max(float(sum) * scale[column] + bias[column], -1.0f);
        }} else {{
          static_cast<{total}*>(p[2])[at] = sum;
        }}
      }}
    }}
  }};
  {call}
  return 0;
}}
"""
_PACKED = """const auto pack = [&](int64_t first, int64_t height, int64_t from, int64_t part, Kernel::Element* out) {
    Kernel::pack(a + first * leading + from, leading, height, part, out);
  };
  icpu::gemm::multiply<Kernel>({rows, columns, depth}, b, int(n[5]), pack, finish);"""
_IN_PLACE = "icpu::gemm::multiply_matrix_in_place<Kernel>({rows, columns, depth}, a, leading, b, int(n[5]), finish);"


def finished_dtype(row: MicroKernel) -> torch.dtype:
    """Of the results with an epilogue."""
    return row.dtype if row.dtype.is_floating_point else torch.float32


def source_of(row: MicroKernel) -> KernelSource:
    """The function of a row."""
    code = _CODE.format(
        header=row.header,
        code=row.code,
        source=ELEMENT[row.dtype],
        weight=ELEMENT[row.weight],
        total=ELEMENT[row.total],
        finished=ELEMENT[finished_dtype(row)],
        call=_IN_PLACE if row.in_place else _PACKED,
    )
    symbol = "icpu_" + hashlib.sha256(code.encode()).hexdigest()[:24]
    return KernelSource(symbol, f"icpu_{row.name}", code.replace("SYMBOL", symbol))


def runs_here(row: MicroKernel) -> bool:
    """Whether this CPU and its system run a row."""
    return row.isa in available() and row.name in usable_micro_kernels(target(row.isa))


def machine_of(row: MicroKernel) -> Target | None:
    """What runs a row: this machine, or an emulated one; None if neither does."""
    if runs_here(row):
        return target(row.isa)
    found = emulated_machine(row.isa)
    return found if found is not None and row.needs <= found.features else None


@functools.cache
def _addresses(machine: Target) -> dict[tuple[str, bool], int]:
    """All rows that a machine runs, compiled together; by name, and whether they read in place."""
    sources = {(row.name, row.in_place): source_of(row) for row in MATRICES.values() if machine_of(row) == machine}
    toolchain = find_toolchain(sanitize=snapshot().cpp.sanitize)
    addresses = addresses_of(sources.values(), machine, toolchain)
    return {key: addresses[source.symbol] for key, source in sources.items()}


def why_not_compiled(rows: Sequence[MicroKernel]) -> str | None:
    """Check the code of rows of one header: the reason if this compiler does not know their instructions. Raises
    AssertionError when it does and the code is wrong."""
    isa = next(isa for isa in ISAS if isa.name == rows[0].isa)
    tools = find_toolchain()
    cuts = definitions(blocking_for(detect()))
    wanted = [flag for feature, flag in isa.optional if feature in rows[0].needs]
    base = [
        *tools.command,
        *COMMON_FLAGS,
        *KERNEL_FLAGS,
        *isa.flags,
        *wanted,
        *(f"-D{define}" for define in isa.defines),
        *cuts,
    ]
    known = subprocess.run([*base, "-fsyntax-only", "-x", "c++", "/dev/null"], text=True, capture_output=True)
    if known.returncode != 0:
        return f"this compiler has no {' '.join(wanted)}"
    instances = [instance for row in rows for instance in instances_of(row)]
    shared = [f'#include "{header}"' for instance in instances for header in instance.headers]
    shared += [f"template {instance.declaration};" for instance in instances]
    text = "\n".join(['#include "icpu.h"', *shared, *(source_of(row).code for row in rows if row.multiplies)])
    command = [*base, *tools.includes, "-I", str(paths.prelude().parent), "-fsyntax-only", "-x", "c++", "-"]
    done = subprocess.run(command, input=text, text=True, capture_output=True)
    assert done.returncode == 0, done.stderr
    return None


def instances_of(row: MicroKernel) -> list[Instance]:
    """What kernels with products by a row share: of matrices, and of images where it takes these."""
    one, name = as_expr(1), Sym("n", "value")
    around = one, "c", name, name, name, name
    image, windows = View("a", (one,) * 4, (one,) * 4, one), ((3, 3), (1, 1), (1, 1), (1, 1), (one, one))
    if row.depthwise:
        return [instance_of(Product(row.name, Patches(image, *windows, Pieces(1, 9, depthwise=True)), "b", *around))]
    if row.grouped:
        shapes = [of_groups(row, (3, 3), 8, outputs, 4) for outputs in (8, 24, 40, 64)]
        return [instance_of(Product(row.name, Patches(image, *windows, of), "b", *around)) for of in shapes if of]
    operands: list[View | Patches] = [View("a", (one, one), (one, one), one)]
    if row.shifts:
        operands.append(Patches(image, *windows, Pieces(9, 1)))
    if row.tiles:
        operands.append(Patches(image, *windows, Pieces(16, 1, tiles=True)))
    if row.in_place:
        operands.append(Patches(image, *windows, Pieces(3, 3, in_place=True)))
    return [instance_of(Product(row.name, a, "b", *around)) for a in operands]


def level(row: MicroKernel) -> str:
    """The generation of CPUs that a row needs."""
    needs = row.needs | next(isa for isa in ISAS if isa.name == row.isa).needs
    return next(name for name, features in LEVELS.items() if needs <= features)


@dataclass(frozen=True)
class Epilogue:
    """float32 vectors with one value for each column."""

    scale: torch.Tensor
    bias: torch.Tensor


def multiply(
    row: MicroKernel,
    a: torch.Tensor,
    weight: torch.Tensor,
    out: torch.Tensor,
    epilogue: Epilogue | None,
    threads: int = 1,
) -> None:
    """out (rows, columns) = a (rows, depth) @ weight (columns, depth).t(), both a and out with any distance of rows."""
    packed = pack(row, weight)
    vectors = (epilogue.scale, epilogue.bias) if epilogue else (torch.empty(0), torch.empty(0))
    pointers = (ctypes.c_void_p * 5)(*(t.data_ptr() for t in (a, packed, out, *vectors)))
    sizes = (*a.shape[:1], *weight.shape, a.stride(0), out.stride(0), threads, int(epilogue is not None))
    machine = machine_of(row)
    assert machine is not None
    assert FUNCTION(_addresses(machine)[row.name, row.in_place])(pointers, (ctypes.c_int64 * len(sizes))(*sizes)) == 0
