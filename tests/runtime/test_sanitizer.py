"""Sanitized kernels: refused where they cannot run, and errors of memory and undefined behaviour are reported."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from inductor_cpu import config
from inductor_cpu.errors import UserError
from inductor_cpu.runtime.toolchain import find_toolchain
from tests.sanitize.__main__ import ROOT, environment

PROGRAM = '''
import ctypes, sys
import torch
from pathlib import Path
from inductor_cpu.ir.plan import KernelSource
from inductor_cpu.runtime.cache import open_cache
from inductor_cpu.runtime.compile import load_kernels
from inductor_cpu.runtime.toolchain import find_toolchain
from inductor_cpu.targets.cpu import target_for

code = """extern "C" int64_t icpu_wild(void* const* p, const int64_t* n) {
  float* f = (float*)p[0];
  f[n[0]] = f[0];
  return int(n[1]) << n[2];
}"""
source = KernelSource("icpu_wild", "wild", code)
toolchain = find_toolchain(sanitize=True)
address = load_kernels([source], target_for(), Path(sys.argv[1]), open_cache(), toolchain)["icpu_wild"]
call = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)(address)
x = torch.zeros(10)
for ints in (9, 1, 3), (10, 1, 3), (9, 1, 40):
    call((ctypes.c_void_p * 1)(x.data_ptr()), (ctypes.c_int64 * 3)(*ints))
print("done")
'''


@pytest.mark.skipif(config.snapshot().cpp.sanitize, reason="the sanitizer is loaded")
def test_sanitized_code_without_the_runtime_is_a_user_error_with_the_command() -> None:
    with pytest.raises(UserError, match=r"LD_PRELOAD=.*-print-file-name=libasan\.so"):
        find_toolchain(sanitize=True)


@pytest.mark.skipif(find_toolchain().family != "gcc", reason="the runtime is found for gcc only")
def test_a_write_out_of_bounds_and_undefined_behaviour_are_reported_and_nothing_else(tmp_path: Path) -> None:
    prelude = tmp_path / "icpu.h"
    prelude.write_text("#include <stdint.h>\n")
    env = {**environment(tmp_path / "report"), "PYTHONPATH": str(ROOT), "ICPU_CACHE_DIR": str(tmp_path / "cache")}
    command = [sys.executable, "-c", PROGRAM, str(prelude)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "done", done.stderr
    reports = "".join(path.read_text() for path in tmp_path.glob("report.*"))
    assert reports.count("heap-buffer-overflow on address") == 1
    assert "icpu_wild" in reports
    assert done.stderr.count("shift exponent 40 is too large") == 1
    assert done.stderr.count("runtime error") == 1
