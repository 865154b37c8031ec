"""Which part of a buffer belongs to one unit of the outermost loops of several kernels."""

from __future__ import annotations

from collections.abc import Sequence

from inductor_cpu.errors import InternalError
from inductor_cpu.ir.index import ZERO, Expr, Sym, const, is_nonnegative, loop_var, of, upper_bound
from inductor_cpu.ir.kernel import Kernel, Listed, Product, Strips
from inductor_cpu.ir.loop_nest import Load, View
from inductor_cpu.ir.nodes import micro_of
from inductor_cpu.ir.rewrite import loops_read, value_position
from inductor_cpu.ir.scatter import is_divisible, is_place
from inductor_cpu.ir.verify_body import SCHEDULE


def points_of(kernel: Kernel) -> int | None:
    """The points of a kernel's outermost loop, which for a matrix product are its rows, and for a scatter that is
    listed those of the buffer; None if they are not known."""
    if kernel.listed is not None:
        return kernel.listed.rows
    size = kernel.outer[0].size if kernel.product is None else kernel.product.a.sizes[0]
    return None if size is None else size.as_int


def unit_span(kernel: Kernel, share: int, buffer: str) -> int | None:
    """The number of elements s for which unit u of a kernel (`share` points of its outermost loop) only touches the
    elements [u * s, (u + 1) * s) of a buffer; None if there is none that can be shown."""
    addresses = [i.index[0] for i in kernel.body if isinstance(i, Load) and i.buffer == buffer]
    addresses += [store.index[0] for store in kernel.stores if store.buffer == buffer]
    if kernel.listed is not None:
        return _span(addresses, kernel.listed.row, share)
    if kernel.product is None:
        return _span(addresses, kernel.outer[0], share)
    row, column = loop_var("row", kernel.product.a.sizes[0]), loop_var("column", kernel.product.columns)
    whole = [_of_whole(address, kernel, kernel.product, row, column) for address in addresses]
    if buffer == kernel.product.b:
        return None
    if buffer == kernel.product.a.buffer:
        whole.append(_of_operand(kernel.product, row))
    known = [address for address in whole if address is not None]
    return _span(known, row, share) if len(known) == len(whole) else None


def can_be_listed(kernel: Kernel, listed: Listed) -> bool:
    """Whether a scatter may run its points by the rows that they write, those of a row in their order: points that meet
    write one row, the outermost loop decides which, and nothing else that the kernel writes or reads depends on the
    order of its points."""
    serial = kernel.parallel == 0 and kernel.divided is None and kernel.across is None
    if not serial or not kernel.outer or kernel.inner or kernel.product is not None or kernel.sizes:
        return False
    if not is_divisible(kernel.body, kernel.stores) or not is_place(of(listed.row), kernel.stores[0].index[0]):
        return False
    points, loops = kernel.outer[0], loops_read(kernel.body, ())[value_position(listed.row)]
    counted = listed.rows is not None and points.size is not None and points.size.as_int is not None
    return counted and loops == {points} and kernel.vector.loop != points


def _span(addresses: Sequence[Expr], loop: Sym, share: int) -> int | None:
    """The span of a unit of `loop`, if all addresses agree on it."""
    spans: set[int] = set()
    for address in addresses:
        stride = address.coefficient(loop)
        if stride is None or stride.as_int is None or stride.as_int <= 0:
            return None
        rest = address.substitute({loop: ZERO})
        last = upper_bound(rest)
        span = stride.as_int * share
        if last is None or not is_nonnegative(rest) or last + stride.as_int * (share - 1) >= span:
            return None
        spans.add(span)
    return spans.pop() if len(spans) == 1 else None


def _of_whole(address: Expr, kernel: Kernel, product: Product, row: Sym, column: Sym) -> Expr | None:
    """An address in a block of a matrix product as one in the whole of it; None if it depends on the block."""
    down, across = kernel.outer
    width = const(micro_of(product.micro_kernel, product.a).columns)
    steps = [address.coefficient(symbol) for symbol in (product.row, down, product.panel, across)]
    at_row, at_down, at_panel, at_across = steps
    if None in steps or at_row != at_down or at_across is None or at_panel != at_across * width:
        return None
    return address.substitute({product.row: ZERO, down: of(row), product.panel: ZERO, across: of(column)})


def _of_operand(product: Product, row: Sym) -> Expr | None:
    """Any address of the first operand of a product, in a row; None for windows of images."""
    if not isinstance(product.a, View):
        return None
    depth = loop_var("depth", product.a.sizes[1])
    return product.a.offset + of(row) * product.a.strides[0] + of(depth) * product.a.strides[1]


def verify_strips(strips: Strips) -> None:
    """Raise InternalError if units of the kernels are not as the strips say, or not independent."""
    kernels = strips.kernels
    for kernel in kernels:
        if kernel.listed is not None and not can_be_listed(kernel, kernel.listed):
            raise InternalError(SCHEDULE, f"the points of {kernel.label} cannot be listed by {kernel.listed.row}")
    for kernel, share in zip(kernels, strips.shares, strict=True):
        independent = kernel.parallel > 0 or kernel.product is not None or kernel.listed is not None
        if not independent or points_of(kernel) != strips.units * share:
            raise InternalError(SCHEDULE, f"{kernel.label} does not have {strips.units} units of {share} points")
    local = dict(strips.local)
    for name in {arg.buffer for kernel in kernels for arg in kernel.args}:
        users = [(k, n) for k, n in zip(kernels, strips.shares, strict=True) if name in {a.buffer for a in k.args}]
        written = any(arg.writes for kernel, _ in users for arg in kernel.args if arg.buffer == name)
        if name not in local and (len(users) == 1 or not written):
            continue
        spans = {unit_span(kernel, share, name) for kernel, share in users}
        if len(spans) != 1 or None in spans or (name in local and spans != {local[name]}):
            raise InternalError(SCHEDULE, f"{strips.label}: units of {name} are not apart")
