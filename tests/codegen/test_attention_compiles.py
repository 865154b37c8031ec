"""Kernels of attention compile for every instruction set of the table, also where the CPU lacks it."""

from __future__ import annotations

import dataclasses
import subprocess

import pytest

from inductor_cpu.ir.attention import ATTENTION_KERNELS, AttentionKernel
from inductor_cpu.ir.micro_kernels import MICRO_KERNELS
from inductor_cpu.paths import prelude
from inductor_cpu.runtime.prebuilt import declarations
from inductor_cpu.runtime.toolchain import find_toolchain
from inductor_cpu.targets.cpu import ISAS, LEVELS, Target, detect
from tests.codegen import test_attention as forward
from tests.codegen import test_attention_backward as backward
from tests.codegen.harness import available
from tests.kernels.manifest import level

#: Those of AVX2 run wherever tests do.
WIDE = {name: row for name, row in ATTENTION_KERNELS.items() if "avx512" in row.isas}


def oldest_cpu(row: AttentionKernel) -> Target:
    """This machine as one of the first generation of CPUs that runs a kernel with vectors of AVX-512."""
    generation = level(MICRO_KERNELS[row.micro_kernel]) if row.micro_kernel else "avx512"
    return dataclasses.replace(detect(), isa=ISAS[0], features=LEVELS[generation])


@pytest.mark.parametrize("kernel", WIDE)
def test_kernels_and_what_they_share_compile_without_the_cpu(kernel: str) -> None:
    row = WIDE[kernel]
    its_target = oldest_cpu(row)
    if its_target.isa.name in available() and its_target.features <= detect().features:
        pytest.skip("the kernel runs here")
    dtype = min(row.dtypes, key=str)
    sources = [
        forward.source(kernel, its_target, dtype, "added", 0.3, False, False),
        backward.source(kernel, dtype, "bool"),
    ]
    shared = [instance for source in sources for instance in source.instances]
    text = "\n".join(
        [
            '#include "icpu.h"',
            declarations(shared),
            *(source.code for source in sources),
            *(f"template {instance.declaration};" for instance in shared),
        ]
    )
    tools = find_toolchain()
    flags = [*tools.kernel_flags(its_target), *tools.includes, "-I", str(prelude().parent)]
    if subprocess.run([*tools.command, *flags, "-fsyntax-only", "-x", "c++", "/dev/null"]).returncode != 0:
        pytest.skip(f"this compiler lacks some of {' '.join(its_target.flags)}")
    command = [*tools.command, *flags, "-fsyntax-only", "-x", "c++", "-"]
    done = subprocess.run(command, input=text, text=True, capture_output=True)
    assert done.returncode == 0, done.stderr
