"""The windows of convolutions of bytes, for every micro kernel of integers: copied, or shifted where it has records."""

from __future__ import annotations

import ctypes
import functools
import hashlib

import pytest
import torch
from torch.nn import functional as F

from inductor_cpu.codegen.cxx import ELEMENT
from inductor_cpu.config import snapshot
from inductor_cpu.ir.micro_kernels import MICRO_KERNELS, MicroKernel, pack
from inductor_cpu.ir.plan import KernelSource
from inductor_cpu.ir.windows import pieces_of
from inductor_cpu.runtime.toolchain import find_toolchain
from inductor_cpu.targets.cpu import Target
from tests.codegen.harness import FUNCTION, addresses_of
from tests.kernels.manifest import machine_of

#: Stores the sums of all windows.
_CODE = """#include "../gemm/patches.h"
#include "../gemm/shifted.h"
#include "../gemm/{header}"
extern "C" int64_t SYMBOL(void* const* p, const int64_t* n) {{
  using Kernel = icpu::gemm::{code};
  const auto* const a = static_cast<const {source}*>(p[0]);
  const auto* const b = static_cast<const int8_t*>(p[1]);
  auto* const out = static_cast<int32_t*>(p[2]);
  const icpu::gemm::Patches windows{{n[0], n[1], n[2], n[3], n[4], n[0] * n[1] * n[2], n[1] * n[2], n[2], n[5], n[6],
                                    n[7], n[8], n[9], n[10], n[11], n[12], int(n[13])}};
  const int64_t rows = n[14], columns = n[15], depth = n[2] * n[5] * n[6];
  const auto finish = [&](int64_t row, int64_t height, int64_t panel, int64_t width, const int32_t* c) {{
    for (int64_t i = 0; i < height; ++i) {{
      for (int64_t j = 0; j < width; ++j) {{
        out[(row + i) * columns + panel * Kernel::kColumns + j] = c[i * Kernel::kColumns + j];
      }}
    }}
  }};
  {call}
  return 0;
}}
"""
_COPIED = """const auto pack = [&](int64_t first, int64_t height, int64_t from, int64_t part, Kernel::Element* to) {
    windows.pack<Kernel>(a, first, height, from, part, to);
  };
  icpu::gemm::multiply<Kernel>({rows, columns, depth}, b, 2, pack, finish);"""
_SHIFTED = "icpu::gemm::convolve<Kernel>(windows, a, rows, n[16] != 0, columns, b, 2, finish);"

#: channels, columns, window, stride, padding, dilation, images, height, width
WINDOWS = {
    "3x3": (64, 50, (3, 3), (1, 1), (1, 1), (1, 1), 2, 9, 11),
    "of few channels": (16, 33, (3, 3), (1, 1), (1, 1), (1, 1), 1, 12, 13),
    "7x7 of an image": (3, 64, (7, 7), (2, 2), (3, 3), (1, 1), 1, 30, 24),
    "with a stride": (40, 24, (3, 3), (2, 2), (1, 1), (1, 1), 3, 15, 17),
    "lines of pixels apart": (3, 32, (5, 5), (1, 1), (4, 4), (2, 2), 1, 9, 11),
    "apart from each other": (70, 32, (2, 2), (2, 2), (1, 1), (1, 1), 2, 7, 8),
    "larger than the image": (33, 32, (5, 5), (1, 1), (2, 2), (1, 1), 5, 2, 3),
    "three windows": (64, 50, (3, 3), (1, 1), (1, 1), (1, 1), 1, 3, 1),
    "in parts of the depth": (300, 64, (3, 3), (1, 1), (1, 1), (1, 1), 1, 20, 20),
    "other numbers down than across": (32, 48, (5, 3), (2, 1), (1, 3), (2, 1), 2, 30, 30),
}
INTEGERS = {name: row for name, row in MICRO_KERNELS.items() if not row.dtype.is_floating_point}


def source_of(row: MicroKernel, shifted: bool) -> KernelSource:
    """The function of a row."""
    code = _CODE.format(
        header=row.header, code=row.code, source=ELEMENT[row.dtype], call=_SHIFTED if shifted else _COPIED
    )
    symbol = "icpu_" + hashlib.sha256(code.encode()).hexdigest()[:24]
    return KernelSource(symbol, f"icpu_{row.name}", code.replace("SYMBOL", symbol))


@functools.cache
def addresses(machine: Target) -> dict[tuple[str, bool], int]:
    """The functions of the rows that a machine runs, compiled together."""
    rows = [row for row in INTEGERS.values() if machine_of(row) == machine]
    sources = {(row.name, way): source_of(row, way) for row in rows for way in (False, True)[: 1 + row.shifts]}
    loaded = addresses_of(sources.values(), machine, find_toolchain(sanitize=snapshot().cpp.sanitize))
    return {key: loaded[source.symbol] for key, source in sources.items()}


@pytest.mark.parametrize("name", WINDOWS)
@pytest.mark.parametrize("kernel", INTEGERS)
def test_sums_over_windows_are_exact_whatever_is_outside(kernel: str, name: str) -> None:
    row = INTEGERS[kernel]
    if (machine := machine_of(row)) is None:
        pytest.skip(f"this CPU, or its system, lacks {', '.join(sorted(row.needs))}")
    channels, columns, window, stride, padding, dilation, batch, height, width = WINDOWS[name]
    limits = torch.iinfo(row.dtype)
    torch.manual_seed(0)
    x = torch.randint(limits.min, limits.max + 1, (batch, height, width, channels), dtype=row.dtype)
    weight = torch.randint(-128, 128, (columns, *window, channels), dtype=torch.int8)
    pieces = pieces_of(row, window, stride, dilation, channels, columns)
    in_pieces = weight.reshape(columns, pieces.count, pieces.values)
    padded = F.pad(in_pieces, (0, pieces.depth(row) // pieces.count - pieces.values)).reshape(columns, -1)
    packed, lines = pack(row, padded), pieces.count not in (1, window[0] * window[1])
    for outside in (0, limits.min, limits.max, 5):
        down, across = padding
        around = F.pad(x.permute(0, 3, 1, 2).double(), (across, across, down, down), value=outside)
        exact = F.conv2d(around, weight.permute(0, 3, 1, 2).double(), None, stride, 0, dilation)
        outputs = exact.shape[2:]
        out = torch.full((batch, *outputs, columns), 77, dtype=torch.int32)
        sizes = (height, width, channels, *outputs, *window, *stride, *padding, *dilation, outside)
        numbers = (*sizes, batch * outputs.numel(), columns, int(lines))
        function = FUNCTION(addresses(machine)[kernel, pieces.count > 1])
        pointers = (ctypes.c_void_p * 3)(*(tensor.data_ptr() for tensor in (x, packed, out)))
        assert function(pointers, (ctypes.c_int64 * len(numbers))(*numbers)) == 0
        assert torch.equal(out, exact.permute(0, 2, 3, 1).int())
