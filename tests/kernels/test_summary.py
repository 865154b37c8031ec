"""What the summary of a test run says about micro kernels."""

from __future__ import annotations

from tests.conftest import summary


def test_the_summary_tells_the_best_that_happened_to_each_kernel() -> None:
    found = [
        ("amx", "a", "compiled only"),
        ("amx", "a", "ran"),
        ("amx", "b", "compiled only"),
        ("amx", "b", "not run"),
        ("amx", "d", "emulated"),
        ("amx", "d", "compiled only"),
        ("avx2", "c", "not compiled"),
        ("avx2", "c", "not run"),
    ]
    assert summary(found) == ["micro kernels", "  avx2: not compiled c", "  amx: ran a; compiled only b; emulated d"]


def test_a_run_without_micro_kernels_says_nothing() -> None:
    assert summary([]) == []
