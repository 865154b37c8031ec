"""The call of a matrix product's template, around the loops of its epilogue."""

from __future__ import annotations

from inductor_cpu.codegen.cxx import ELEMENT
from inductor_cpu.codegen.loops import Loops
from inductor_cpu.codegen.text import Writer
from inductor_cpu.codegen.tuning import Choices
from inductor_cpu.codegen.values import Values
from inductor_cpu.ir.kernel import Product
from inductor_cpu.ir.micro_kernels import MICRO_KERNELS
from inductor_cpu.ir.nodes import Patches, View


def headers_of(product: Product) -> list[str]:
    """The templates that a product needs, relative to the folder of the prelude."""
    windows = ["../gemm/patches.h"] if isinstance(product.a, Patches) else []
    return [*windows, f"../gemm/{MICRO_KERNELS[product.micro_kernel].header}"]


def emit_product(product: Product, loops: Loops, writer: Writer, choices: Choices) -> None:
    """Write the call: sizes, packing of the first operand, and the epilogue with the kernel's loops."""
    values, micro = loops.values, MICRO_KERNELS[product.micro_kernel]
    kind, element = f"icpu::gemm::{micro.code}", ELEMENT[micro.dtype]
    rows, depth = (values.expr(size) for size in product.a.sizes)
    view = product.a if isinstance(product.a, View) else product.a.image
    a = values.address(view.buffer, view.offset)
    b = values.address(product.b, product.columns * 0)
    threads = "omp_get_max_threads()" if choices.threads is None else str(choices.threads)
    writer.line(f"const {element}* const a = {a};")
    writer.line(f"const int64_t rows = {rows}, columns = {values.expr(product.columns)}, depth = {depth};")
    if isinstance(product.a, Patches):
        writer.line(f"const icpu::gemm::Patches windows{{{_windows(product.a, values)}}};")
    head = "const auto pack = [&](const int64_t first, const int64_t height, const int64_t from, const int64_t part, "
    with writer.block(f"{head}{kind}::Element* out) ICPU_INLINE", "};"):
        if isinstance(product.a, Patches):
            writer.line(f"windows.pack<{kind}>(a, first, height, from, part, out);")
        else:
            leading = values.expr(product.a.strides[0])
            writer.line(f"{kind}::pack(a + first * {leading} + from, {leading}, height, part, out);")
    head = f"icpu::gemm::multiply<{kind}>({{rows, columns, depth}}, {b}, {threads}, pack, [&](const int64_t row, "
    head += "const int64_t height, const int64_t panel, const int64_t width, "
    head += f"const {ELEMENT[micro.total]}* block) ICPU_INLINE"
    with writer.block(head, "});"):
        loops.emit()


def _windows(patches: Patches, values: Values) -> str:
    """The members of the template's `Patches`, in order."""
    strides = patches.image.strides[:3]
    numbers = [values.expr(e) for e in (*patches.image.sizes[1:], *patches.outputs, *strides)]
    return ", ".join([*numbers, *map(str, (*patches.kernel, *patches.stride, *patches.padding, *patches.dilation))])
