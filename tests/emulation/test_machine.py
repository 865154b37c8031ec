"""The emulated CPU: what it is taken for, and that its instructions compute what the real ones do."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from inductor_cpu.paths import prelude
from inductor_cpu.runtime.toolchain import find_toolchain
from inductor_cpu.targets.cpu import ISAS, LEVELS, detect
from tests.emulation.machine import emulated, emulated_avx2, is_emulated

AVX512, AVX2, SCALAR = ISAS
CPU = replace(detect(), isa=AVX2, features=LEVELS["avx2"])

#: Checks, each of an expression of the intrinsics, for -0, what is out of range, NaN and masks.
PROGRAM = """
#include "icpu.h"
namespace icpu {
template <class V> float lane(V v, int i) { return ((Reg<float>)v)[i]; }
int check() {
  const float nan = NAN, inf = INFINITY;
  if (!std::signbit(lane(_mm512_set1_ps(-0.0f), 3))) return 1;
  if (((Reg<int32_t>)_mm512_cvttps_epi32(_mm512_set1_ps(3e9f)))[7] != INT32_MIN) return 2;
  if (((Reg<int32_t>)_mm512_cvtps_epi32(_mm512_set1_ps(2.5f)))[7] != 2) return 3;
  if (lane(_mm512_scalef_ps(_mm512_set1_ps(nan), _mm512_set1_ps(inf)), 1) != inf) return 4;
  if (lane(_mm512_scalef_ps(_mm512_set1_ps(3.0f), _mm512_set1_ps(-1.5f)), 1) != 0.75f) return 5;
  if (_mm512_cmp_ps_mask(_mm512_set1_ps(nan), _mm512_set1_ps(1.0f), _CMP_NLT_UQ) != 0xffff) return 6;
  if (_mm512_cmp_ps_mask(_mm512_set1_ps(nan), _mm512_set1_ps(1.0f), _CMP_GE_OQ) != 0) return 7;
  if (lane(_mm512_max_ps(_mm512_set1_ps(nan), _mm512_set1_ps(1.0f)), 0) != 1.0f) return 8;
  if (lane(_mm512_getmant_ps(_mm512_set1_ps(1.75f), _MM_MANT_NORM_p75_1p5, _MM_MANT_SIGN_nan), 0) != 0.875f) return 9;
  if (_mm512_fpclass_ps_mask(_mm512_set1_ps(1e-40f), 0x20) != 0xffff) return 10;
  float memory[16] = {};
  _mm512_mask_storeu_ps(memory, 0x8002, _mm512_set1_ps(2.0f));
  for (int i = 0; i < 16; ++i) if (memory[i] != (i == 1 || i == 15 ? 2.0f : 0.0f)) return 11;
  const __m512i counted = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  const __m512i packed = _mm512_maskz_compress_epi32(0x8100, counted);
  if (((Reg<int32_t>)packed)[0] != 8 || ((Reg<int32_t>)packed)[1] != 15 || ((Reg<int32_t>)packed)[2] != 0) return 12;
  return 0;
}
}  // namespace icpu
int main() { return icpu::check(); }
"""


def test_a_cpu_with_avx2_is_taken_for_one_with_amx() -> None:
    machine = emulated(CPU)
    assert machine is not None
    assert is_emulated(machine)
    assert not is_emulated(CPU)
    assert machine.isa.name == "avx512"
    assert machine.isa.bits == 512
    assert "amx_bf16" in machine.features
    assert "-mavx2" in machine.flags
    assert not any("avx512" in flag or "amx" in flag for flag in machine.flags if "-m" in flag)


def test_instructions_that_the_cpu_has_stay_instructions() -> None:
    machine = emulated(replace(detect(), isa=AVX512, features=LEVELS["avx512_vnni"]))
    assert machine is not None
    assert {"-mavx512f", "-mavx512vnni"} <= set(machine.flags)
    assert "avx512_bf16" in machine.features
    assert "-mavx512bf16" not in machine.flags


def test_kernels_of_avx2_have_the_dot_products_that_came_after_it() -> None:
    machine = emulated_avx2(CPU)
    assert machine is not None
    assert machine.isa.name == "avx2"
    assert "avx_vnni" in machine.features
    assert "-mavxvnni" not in machine.flags


def test_a_cpu_without_avx2_is_not_emulated() -> None:
    assert emulated(replace(detect(), isa=SCALAR, features=frozenset())) is None


@pytest.mark.skipif("avx2" not in detect().features, reason="AVX-512 is emulated with AVX2")
def test_instructions_give_what_intels_manual_says(tmp_path: Path) -> None:
    machine, tools = emulated(CPU), find_toolchain()
    assert machine is not None
    source, program = tmp_path / "check.cpp", tmp_path / "check"
    source.write_text(PROGRAM)
    flags = [*tools.kernel_flags(machine), "-O1", *tools.includes, "-I", str(prelude().parent)]
    links = [*tools.link_flags(), f"-Wl,-rpath,{tools.torch_root / 'lib'}"]
    subprocess.run([*tools.command, *flags, str(source), "-o", str(program), *links], check=True)
    assert subprocess.run([str(program)]).returncode == 0
