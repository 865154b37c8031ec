"""How products are cut on a machine."""

from __future__ import annotations

from dataclasses import replace

from inductor_cpu.runtime.toolchain import find_toolchain
from inductor_cpu.targets.blocking import blocking_for
from inductor_cpu.targets.cpu import detect


def test_packed_rows_take_half_of_the_l2_cache_and_the_compiler_knows() -> None:
    small = replace(detect(), l2=512 << 10)
    assert blocking_for(small).packed_bytes == 256 << 10
    assert f"-DICPU_GEMM_PACKED_BYTES={256 << 10}" in find_toolchain().kernel_flags(small)
