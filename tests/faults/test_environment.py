"""An environment that changes between two runs with one cache: right answers, or an error that names the variable."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from inductor_cpu.errors import UserError
from inductor_cpu.runtime import weights
from inductor_cpu.runtime.cache import KernelCache
from tests.faults.support import compiler, libraries, run, with_executor


def test_runs_with_other_compilers_threads_vectors_and_folders_share_a_cache_and_are_right(
    cache: KernelCache, warm: KernelCache, tmp_path: Path
) -> None:
    with_executor(warm, cache)
    root = str(cache.root)
    same = compiler(tmp_path, 'exec $REAL "$@"')
    for changes in (
        {},
        {"CXX": str(same), "OMP_NUM_THREADS": "3", "TMPDIR": str(tmp_path / "gone"), "ICPU_CPP_SIMDLEN": "1"},
    ):
        done = run(ICPU_CACHE_DIR=root, **changes)
        assert done.stdout.strip() == "right", done.stderr
    # Scalar code is another kernel, and no entry was taken for it.
    assert len(libraries(cache)) == 2
    # The executor is the same by any name of the compiler.
    assert len(list((cache.root / "libs").glob("executor-*.so"))) == 1


def test_no_memory_for_a_packed_weight_is_a_user_error_and_the_next_call_is_right(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = nn.Linear(64, 64).eval()
    x = torch.randn(4, 64)
    compiled = torch.compile(model, backend="icpu")
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), model(x))
        model.weight.mul_(2)
        original = weights._made

        def full(*arguments: Any) -> torch.Tensor:
            def maker(*_: torch.Tensor) -> torch.Tensor:
                raise RuntimeError("[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory")

            return original(maker, [model.weight], arguments[-1])

        monkeypatch.setattr(weights, "_made", full)
        for _ in range(2):
            with pytest.raises(UserError, match=r"packed copy.*cpp\.weight_prepack=False"):
                compiled(x)
        monkeypatch.undo()
        torch.testing.assert_close(compiled(x), model(x))


SHORT_OF_MEMORY = """
import resource
import torch
import inductor_cpu
model = torch.nn.Linear(4096, 4096).eval()
x = torch.randn(4, 4096)
compiled = torch.compile(model, backend="icpu")
with torch.no_grad():
    torch.testing.assert_close(compiled(x), model(x), rtol=1e-4, atol=1e-4)
    model.weight.mul_(2)
    used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    limits = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + (16 << 20), limits[1]))
    try:
        compiled(x)
    except inductor_cpu.UserError as error:
        print("UserError:", error)
    resource.setrlimit(resource.RLIMIT_AS, limits)
    torch.testing.assert_close(compiled(x), model(x), rtol=1e-4, atol=1e-4)
print("right")
"""


def test_a_process_that_has_no_memory_for_packing_says_so_and_recovers() -> None:
    done = run(SHORT_OF_MEMORY)
    assert "UserError: there is no memory for the packed copy of a weight of 64 MiB" in done.stdout, done.stderr
    assert done.stdout.splitlines()[-1] == "right"
