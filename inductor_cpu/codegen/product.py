"""The call of a matrix product's template, around the loops of its epilogue."""

from __future__ import annotations

from math import prod

from inductor_cpu.codegen.cxx import ELEMENT
from inductor_cpu.codegen.groups import shape_of_groups
from inductor_cpu.codegen.loops import Loops
from inductor_cpu.codegen.text import Writer
from inductor_cpu.codegen.tuning import Choices
from inductor_cpu.codegen.values import Values
from inductor_cpu.ir.kernel import Product
from inductor_cpu.ir.loop_nest import View
from inductor_cpu.ir.micro_kernels import MICRO_KERNELS, MicroKernel
from inductor_cpu.ir.nodes import Patches
from inductor_cpu.ir.plan import Instance

_SPACE = "icpu::gemm"

#: The templates of convolutions: windows that are copied, shifted images, tiles of windows, windows where they lie, and
#: those of each channel, or of groups of them, by themselves.
_COPIED, _SHIFTED, _TILES = "../gemm/patches.h", "../gemm/shifted.h", "../gemm/winograd.h"
_IN_PLACE, _DEPTHWISE, _GROUPED = "../gemm/windows.h", "../gemm/depthwise.h", "../gemm/grouped.h"

#: Their functions that take images as they are.
_OF_IMAGES = {
    _TILES: "convolve_tiles",
    _IN_PLACE: "convolve_windows",
    _DEPTHWISE: "convolve_channels",
    _GROUPED: "convolve_groups",
}

#: Those of batches, and of matrices whose rows are read where they lie.
_BATCH, _ROWS_IN_PLACE = "../gemm/batch.h", "../gemm/in_place.h"

#: Rows that meet up to so many panels are read where they lie: more make up for the packing. Past fewer rows the weight
#: streams, and these are packed once.
_MOST_PANELS_IN_PLACE, _LEAST_ROWS_IN_PLACE = 4, 5


def headers_of(product: Product) -> list[str]:
    """The templates that a product needs, relative to the folder of the prelude."""
    if isinstance(product.a, Patches):
        around = [_template_of(product.a)]
    else:
        around = [_BATCH] * _is_batch(product) + [_ROWS_IN_PLACE] * _reads_rows_in_place(product)
    return [*around, _header(MICRO_KERNELS[product.micro_kernel])]


def _header(micro: MicroKernel) -> str:
    return f"../gemm/{micro.header}"


def instance_of(product: Product) -> Instance:
    """The template's loops around the micro kernel, which call the kernel's own code by reference."""
    micro = MICRO_KERNELS[product.micro_kernel]
    kind, sums = _class_of(product), f"const {_SPACE}::Epilogue<{ELEMENT[micro.total]}>&"
    rest = f"const {kind}::Weight*, int"
    headers = [_header(micro)]
    if _reads_rows_in_place(product) or (isinstance(product.a, Patches) and product.a.pieces.in_place):
        headers = [_ROWS_IN_PLACE, *headers]
        given = f"int64_t, int64_t, const {_SPACE}::PartsOfBlock&, const {_SPACE}::Find<{kind}::Source>&"
        declaration = f"void {_SPACE}::multiply_in_place<{kind}>({given}, {rest}, {sums})"
    elif isinstance(product.a, Patches) and (function := _OF_IMAGES.get(_template_of(product.a))) is not None:
        headers = headers_of(product)
        given = f"const {_SPACE}::Patches&, const {ELEMENT[micro.dtype]}*, int64_t, int64_t"
        declaration = f"void {_SPACE}::{function}<{kind}>({given}, {rest}, {sums})"
    elif isinstance(product.a, Patches) and _template_of(product.a) == _SHIFTED:
        headers = headers_of(product)
        given = f"const {_SPACE}::Patches&, const {ELEMENT[micro.dtype]}*, int64_t, bool, int64_t"
        declaration = f"void {_SPACE}::convolve<{kind}>({given}, {rest}, {sums})"
    else:
        pack = f"const {_SPACE}::Pack<{kind}::Element>&"
        declaration = f"void {_SPACE}::multiply<{kind}>(const {_SPACE}::Sizes&, {rest}, {pack}, {sums})"
    return Instance(tuple(headers), declaration)


def _class_of(product: Product) -> str:
    """The C++ class of a product's micro kernel: one for each shape of groups of channels."""
    code = f"{_SPACE}::{MICRO_KERNELS[product.micro_kernel].code}"
    if isinstance(product.a, View) or (groups := product.a.pieces.groups) is None:
        return code
    return f"{code}<{', '.join(map(str, shape_of_groups(product, product.a, groups)))}>"


def _is_batch(product: Product) -> bool:
    return isinstance(product.a, View) and len(product.a.sizes) == 3


def _reads_rows_in_place(product: Product) -> bool:
    """Whether many rows of a matrix meet few panels."""
    if isinstance(product.a, Patches) or _is_batch(product):
        return False
    micro = MICRO_KERNELS[product.micro_kernel]
    rows, columns = product.a.sizes[0].as_int, product.columns.as_int
    if not micro.in_place or rows is None or columns is None:
        return False
    return rows >= _LEAST_ROWS_IN_PLACE and columns <= _MOST_PANELS_IN_PLACE * micro.columns


def _template_of(windows: Patches) -> str:
    if windows.pieces.tiles:
        return _TILES
    if windows.pieces.depthwise:
        return _DEPTHWISE
    if windows.pieces.groups is not None:
        return _GROUPED
    if windows.pieces.in_place:
        return _IN_PLACE
    return _SHIFTED if windows.pieces.count > 1 else _COPIED


def emit_product(
    product: Product, loops: Loops, writer: Writer, choices: Choices, bounds: tuple[str, str] | None = None
) -> None:
    """Write the call: sizes, packing of the first operand, and the epilogue with the kernel's loops. bounds: names of
    the first row and of the row after the last one, in one thread, if not all are wanted."""
    values, micro = loops.values, MICRO_KERNELS[product.micro_kernel]
    kind = _class_of(product)
    *batch, rows, depth = (values.expr(size) for size in product.a.sizes)
    view = product.a if isinstance(product.a, View) else product.a.image
    b = values.address(product.b, product.columns * 0)
    threads = choices.most_threads
    if bounds is not None:
        rows, threads = f"{bounds[1]} - {bounds[0]}", "1"
    writer.line(f"const {ELEMENT[micro.dtype]}* const a = {values.address(view.buffer, view.offset)};")
    writer.line(f"const int64_t rows = {rows}, columns = {values.expr(product.columns)}, depth = {depth};")
    if isinstance(product.a, Patches):
        writer.line(f"const {_SPACE}::Patches windows{{{_windows(product.a, values)}}};")
    else:  # by names: they are multiplied, and may be sums of sizes
        for name, stride in zip(("leading", "apart"), reversed(product.a.strides[:-1]), strict=False):
            writer.line(f"const int64_t {name} = {values.expr(stride)};")
    if isinstance(product.a, Patches) and (function := _OF_IMAGES.get(_template_of(product.a))) is not None:
        call = f"{_SPACE}::{function}<{kind}>(windows, a, rows, columns, {b}, {threads}"
    elif isinstance(product.a, Patches) and _template_of(product.a) == _SHIFTED:
        lines = "true" if product.a.pieces.count != prod(product.a.kernel) else "false"
        call = f"{_SPACE}::convolve<{kind}>(windows, a, rows, {lines}, columns, {b}, {threads}"
    elif isinstance(product.a, View) and _reads_rows_in_place(product):
        matrix = "a, leading" if bounds is None else f"a + {bounds[0]} * leading, leading"
        call = f"{_SPACE}::multiply_matrix_in_place<{kind}>({{rows, columns, depth}}, {matrix}, {b}, {threads}"
    elif batch:
        _emit_pack(product, kind, writer, bounds)
        call = f"{_SPACE}::multiply_batch<{kind}>({batch[0]}, {{rows, columns, depth}}, {b}, {threads}, pack"
    else:
        _emit_pack(product, kind, writer, bounds)
        call = f"{_SPACE}::multiply<{kind}>({{rows, columns, depth}}, {b}, {threads}, pack"
    row = "row" if bounds is None else "place"
    head = f"{call}, [&](const int64_t {row}, const int64_t height, const int64_t panel, const int64_t width, "
    head += f"const {ELEMENT[micro.total]}* block) ICPU_INLINE"
    with writer.block(head, "});"):
        if bounds is not None:
            writer.line(f"const int64_t row = {bounds[0]} + place;")
        loops.emit()


def _emit_pack(product: Product, kind: str, writer: Writer, bounds: tuple[str, str] | None) -> None:
    """The function that packs rows of the first operand."""
    of = "const int64_t n, " if _is_batch(product) else ""
    head = (
        f"const auto pack = [&]({of}const int64_t first, const int64_t height, const int64_t from, const int64_t part, "
    )
    with writer.block(f"{head}{kind}::Element* out) ICPU_INLINE", "};"):
        if isinstance(product.a, Patches):
            writer.line(f"windows.pack<{kind}>(a, first, height, from, part, out);")
        else:
            start = "first * leading" if bounds is None else f"({bounds[0]} + first) * leading"
            start = f"n * apart + {start}" if _is_batch(product) else start
            writer.line(f"{kind}::pack(a + {start} + from, leading, height, part, out);")


def _windows(patches: Patches, values: Values) -> str:
    """The members of the template's `Patches`, in order."""
    strides = patches.image.strides[:3]
    numbers = [values.expr(e) for e in (*patches.image.sizes[1:], *patches.outputs, *strides)]
    constants = (*patches.kernel, *patches.stride, *patches.padding, *patches.dilation, patches.outside)
    return ", ".join([*numbers, *map(str, constants)])
