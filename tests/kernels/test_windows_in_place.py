"""The windows of images of floats that micro kernels read where they lie, against fp64."""

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
from inductor_cpu.ir.windows import Pieces
from inductor_cpu.runtime.toolchain import find_toolchain
from inductor_cpu.targets.cpu import Target
from tests.codegen.harness import FUNCTION, addresses_of
from tests.kernels.manifest import machine_of

#: Stores the sums of all windows.
_CODE = """#include "../gemm/windows.h"
#include "../gemm/{header}"
extern "C" int64_t SYMBOL(void* const* p, const int64_t* n) {{
  using Kernel = icpu::gemm::{code};
  const icpu::gemm::Patches windows{{n[0], n[1], n[2], n[3], n[4], n[5], n[6], n[7], n[8], n[9], n[10], n[11], n[12],
                                    n[13], n[14], 1, 0}};
  const int64_t columns = n[16];
  icpu::gemm::convolve_windows<Kernel>(
      windows, static_cast<const {source}*>(p[0]), n[15], columns, static_cast<const {source}*>(p[1]), 2,
      [&](int64_t row, int64_t height, int64_t panel, int64_t width, const float* c) {{
        for (int64_t i = 0; i < height; ++i) {{
          for (int64_t j = 0; j < width; ++j) {{
            const int64_t column = panel * Kernel::kColumns + j;
            static_cast<float*>(p[2])[(row + i) * columns + column] += c[i * Kernel::kColumns + j];
          }}
        }}
      }});
  return 0;
}}
"""

#: channels, columns, window, stride, padding, vertical dilation, images, height, width
WINDOWS = {
    "3x3 of an image": (3, 16, (3, 3), (2, 2), (1, 1), 1, 2, 30, 45),
    "7x7 of an image": (3, 64, (7, 7), (2, 2), (3, 3), 1, 1, 30, 24),
    "patches": (3, 100, (4, 4), (4, 4), (0, 0), 1, 1, 36, 20),
    "whole blocks": (4, 33, (3, 3), (1, 1), (1, 1), 1, 1, 5, 32),
    "a single channel": (1, 17, (5, 5), (1, 1), (2, 2), 1, 3, 9, 11),
    "deeper than a part": (11, 50, (5, 5), (1, 1), (2, 2), 1, 1, 14, 13),
    "a line": (16, 96, (1, 3), (1, 1), (0, 1), 1, 1, 5, 8),
    "a column, dilated": (9, 20, (3, 1), (2, 1), (2, 0), 2, 2, 8, 7),
    "larger than the image": (5, 32, (5, 5), (1, 1), (2, 2), 1, 5, 2, 3),
    "padding beyond the window": (6, 32, (3, 3), (1, 3), (3, 4), 1, 1, 4, 6),
    "lines of lower blocks": (16, 64, (3, 3), (1, 1), (1, 1), 1, 2, 3, 28),
    "lines of blocks with a rest": (16, 40, (3, 3), (1, 1), (1, 1), 1, 1, 4, 33),
    "many values": (72, 50, (5, 5), (1, 1), (2, 2), 1, 1, 4, 20),
    "many columns": (3, 500, (3, 3), (1, 1), (0, 0), 1, 1, 20, 19),
}
IN_PLACE = {name: row for name, row in MICRO_KERNELS.items() if row.in_place}


def source_of(row: MicroKernel) -> KernelSource:
    """The function of a row."""
    code = _CODE.format(header=row.header, code=row.code, source=ELEMENT[row.dtype])
    symbol = "icpu_" + hashlib.sha256(code.encode()).hexdigest()[:24]
    return KernelSource(symbol, f"icpu_{row.name}", code.replace("SYMBOL", symbol))


@functools.cache
def addresses(machine: Target) -> dict[str, int]:
    """The functions of the rows that a machine runs, compiled together."""
    sources = {row.name: source_of(row) for row in IN_PLACE.values() if machine_of(row) == machine}
    loaded = addresses_of(sources.values(), machine, find_toolchain(sanitize=snapshot().cpp.sanitize))
    return {name: loaded[source.symbol] for name, source in sources.items()}


def convolve(row: MicroKernel, machine: Target, x: torch.Tensor, weight: torch.Tensor, name: str) -> torch.Tensor:
    """The sums for an image x (batch, height, width, channels) and a weight (columns, *window, channels)."""
    channels, columns, window, stride, padding, dilation, batch, height, width = WINDOWS[name]
    pieces = Pieces(window[0], window[1] * channels, in_place=True)
    lines = weight.reshape(columns, pieces.count, pieces.values)
    packed = pack(row, F.pad(lines, (0, pieces.depth(row) // pieces.count - pieces.values)).reshape(columns, -1))
    down = (height + 2 * padding[0] - dilation * (window[0] - 1) - 1) // stride[0] + 1
    across = (width + 2 * padding[1] - window[1]) // stride[1] + 1
    out = torch.zeros(batch, down, across, columns)
    sizes = (height, width, channels, down, across, *x.stride()[:3], *window, *stride, *padding, dilation)
    numbers = (*sizes, batch * down * across, columns)
    pointers = (ctypes.c_void_p * 3)(*(tensor.data_ptr() for tensor in (x, packed, out)))
    assert FUNCTION(addresses(machine)[row.name])(pointers, (ctypes.c_int64 * len(numbers))(*numbers)) == 0
    return out


@pytest.mark.parametrize("apart", [0, 3], ids=["side by side", "pixels apart"])
@pytest.mark.parametrize("name", WINDOWS)
@pytest.mark.parametrize("kernel", IN_PLACE)
def test_sums_over_windows_are_those_of_their_pixels_alone(kernel: str, name: str, apart: int) -> None:
    """What lies around an image, and in other windows, is not read: NaN times 0 is NaN."""
    row = IN_PLACE[kernel]
    if (machine := machine_of(row)) is None:
        pytest.skip(f"this CPU, or its system, lacks {', '.join(sorted(row.needs))}")
    channels, columns, window, stride, padding, dilation, batch, height, width = WINDOWS[name]
    torch.manual_seed(0)
    around = torch.full((batch * height * width * (channels + apart) + 2,), torch.nan, dtype=row.dtype)
    x = around[1:-1].view(batch, height, width, channels + apart)[..., :channels]
    x.copy_(torch.randn(x.shape))
    x[0, height // 2, width // 2, -1] = torch.inf
    weight = torch.randn(columns, *window, channels).to(row.dtype)
    out = convolve(row, machine, x, weight, name)
    image, filters = x.permute(0, 3, 1, 2).double(), weight.permute(0, 3, 1, 2).double()
    exact, size = (
        F.conv2d(a, b, None, stride, padding, (dilation, 1)).permute(0, 2, 3, 1)
        for a, b in ((image, filters), (image.abs(), filters.abs()))
    )
    known = size.isfinite()
    assert 0 < known.sum() < known.numel()
    assert torch.equal(out.isfinite(), known)
    assert ((out - exact).abs()[known] <= 1e-6 * size[known]).all()
