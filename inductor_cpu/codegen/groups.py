"""How the template of convolutions of groups of channels (`templates/gemm/grouped.h`) uses registers."""

from __future__ import annotations

from inductor_cpu.ir.kernel import Product
from inductor_cpu.ir.micro_kernels import MICRO_KERNELS
from inductor_cpu.ir.nodes import Patches
from inductor_cpu.ir.windows import Groups

#: Lanes -> how many windows of a line are summed at once, at most, for one vector of results, two and so on; and how
#: many neighbouring taps with one: registers hold the sums, the weights of the taps, and a value or two.
_WINDOWS_AT_ONCE = {16: (14, 12, 8), 8: (8, 6)}
_MOST_TAPS = {16: 7, 8: 3}


def shape_of_groups(product: Product, windows: Patches, groups: Groups) -> tuple[int, ...]:
    """The template's arguments for some windows. Those whose lines have a known length share what is compiled if as
    many are summed at once."""
    lanes = MICRO_KERNELS[product.micro_kernel].columns
    vectors = _equal_parts(-(-groups.together // lanes), len(_WINDOWS_AT_ONCE[lanes]))
    taps, stride, across = windows.kernel[1], windows.stride[1], windows.outputs[1].as_int
    neighbours = vectors == 1 and taps <= _MOST_TAPS[lanes] and (stride, windows.dilation[1]) == (1, 1)
    least, most = 1, _WINDOWS_AT_ONCE[lanes][vectors - 1]
    if across is not None and across > 0:
        most = _equal_parts(across, most)
        least = max(1, most - 1) if across % most else most
    return (
        *(groups.inputs, groups.outputs, groups.together, groups.times, stride),
        *(vectors, taps if neighbours else 1, least, most),
    )


def _equal_parts(total: int, most: int) -> int:
    """The largest of as few parts as possible of at most so many, about equally large."""
    return -(-total // -(-total // most))
