"""Copies with a loop over two neighbours move both at once."""

from __future__ import annotations

from functools import cache

import pytest
import torch

from inductor_cpu.codegen.pairs import as_pairs
from inductor_cpu.ir.index import Expr, const, loop_var, of
from inductor_cpu.ir.kernel import Kernel
from tests.cases import in_turns

from .build import BF16, F32, F64, I8, U8, Build
from .harness import VECTORS, Library

DTYPES = (F32, BF16, torch.int32, U8, I8, torch.float8_e4m3fn)
BATCH, CHANNELS, ROWS, COLUMNS = 3, 21, 5, 19
ISAS = VECTORS


def patches(dtype: torch.dtype, *, isa: str = "avx512", start: int = 0, shift: int = 0, parallel: int = 1) -> Kernel:
    """Y[b, i, j, c, r, k] = X[start + (b, c, 2 i + r, 2 j + k)], written `shift` elements further on; lanes along c."""
    sizes = (BATCH, ROWS, COLUMNS, 2, 2, CHANNELS)
    loops = [loop_var(f"i{d}", size) for d, size in enumerate(sizes)]
    b, i, j, r, k, c = map(of, loops)
    build = Build()
    line, image = 2 * COLUMNS, 4 * ROWS * COLUMNS
    read = b * (CHANNELS * image) + c * image + i * (2 * line) + r * line + j * 2 + k
    x = build.load("X", read + start, dtype, "strided")
    written = b * (ROWS * COLUMNS * 4 * CHANNELS) + i * (COLUMNS * 4 * CHANNELS) + j * (4 * CHANNELS) + r * 2 + k
    build.store("Y", written + c * 4 + shift, x, "strided")
    return build.kernel(isa, loops, vector=loops[-1], parallel=parallel, work=20)


@cache
def kernels(isa: str) -> dict[object, Kernel]:
    found = {(dtype, 0): patches(dtype, isa=isa) for dtype in DTYPES}
    return found | {(F32, parallel): patches(F32, isa=isa, parallel=parallel) for parallel in (0, 4, 5, 6)}


@pytest.mark.parametrize(("dtype", "parallel"), kernels("avx512"), ids=str)
@pytest.mark.parametrize("start", [0, 1], ids=["aligned", "an_element_further"])
def test_patches(library: Library, isa: str, dtype: torch.dtype, parallel: int, start: int) -> None:
    count = BATCH * CHANNELS * ROWS * COLUMNS * 4
    bits = torch.randint(-128, 128, (dtype.itemsize * (count + 1),), dtype=torch.int8)
    x = bits.view(dtype)[start : start + count].view(BATCH, CHANNELS, ROWS, 2, COLUMNS, 2)
    y = torch.zeros(dtype.itemsize * (count + 7), dtype=torch.int8).view(dtype)
    library.run(kernels(isa)[dtype, parallel], y[start:], x)
    bytes_of_y = y.view(torch.int8)
    want = x.permute(0, 2, 4, 1, 3, 5).contiguous().view(-1).view(torch.int8)
    ends = start * dtype.itemsize, (start + count) * dtype.itemsize
    assert torch.equal(bytes_of_y[ends[0] : ends[1]], want)
    assert not bytes_of_y[: ends[0]].any()
    assert not bytes_of_y[ends[1] :].any()


def test_a_loop_over_neighbours_is_gone() -> None:
    kernel = as_pairs(patches(F32, parallel=5))
    assert (len(kernel.outer), kernel.parallel) == (5, 4)
    assert {arg.dtype for arg in kernel.args} == {torch.int64}
    assert {arg.dtype for arg in as_pairs(patches(U8)).args} == {torch.int16}


@pytest.mark.parametrize(
    "kernel",
    [
        patches(F64),
        patches(F32, start=1),
        patches(F32, shift=1),
        patches(F32, start=1, shift=1),
    ],
    ids=["no integer is twice as large", "odd start", "odd end", "both odd"],
)
def test_other_copies_stay_as_they_are(kernel: Kernel) -> None:
    assert as_pairs(kernel) is kernel


def windows(step: int, *, reverse: bool = False, doubled: bool = False) -> Kernel:
    """Y[i, k, j] = X[step * i + k, j's stride 40]: windows of two, which overlap where the step is 1."""
    i, k, j = loop_var("i", 20), loop_var("k", 2), loop_var("j", 32)
    build = Build()
    along: Expr = const(1) - of(k) if reverse else of(k)
    x = build.load("X", of(i) * step + along + of(j) * 40, F32, "strided")
    value = build.op("add", x, x) if doubled else x
    build.store("Y", of(i) * 64 + of(j) * 2 + of(k), value, "strided")
    return build.kernel("avx512", (i, k, j), vector=j, work=1)


@pytest.mark.parametrize(
    ("kernel", "paired"),
    [
        (windows(2), True),
        (windows(1), False),
        (windows(3), False),
        (windows(2, reverse=True), False),
        (windows(2, doubled=True), False),
    ],
    ids=["side by side", "overlapping", "odd step", "turned over", "computed"],
)
def test_only_pairs_that_begin_at_even_places_are_moved_together(kernel: Kernel, paired: bool) -> None:
    assert (as_pairs(kernel) is not kernel) == paired


@pytest.mark.parametrize(("dynamic", "offset"), in_turns([False, True], [0, 1]))
def test_patches_of_an_image_equal_eagers(dynamic: bool, offset: int) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        batch, channels, height, width = x.shape
        x = x.reshape(batch, channels, height // 2, 2, width // 2, 2)
        return x.permute(0, 2, 4, 1, 3, 5).reshape(batch, -1, channels * 4)

    compiled = torch.compile(function, backend="icpu", dynamic=dynamic)
    for shape in ((2, 33, 12, 10), (1, 64, 20, 34)):
        count = torch.Size(shape).numel()
        x = torch.randn(count + offset)[offset:].view(shape)
        assert torch.equal(compiled(x), function(x))
