"""Settings change the generated code in the way that they promise."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch

from inductor_cpu import config
from tests.e2e.support import Function, compile_counted

Tensor = torch.Tensor


def compiled_text(folder: Path, function: Function, *args: Any, **options: Any) -> str:
    """The C++ of all kernels of `function`, whose result is checked. options: `cpp` settings by their short name."""
    settings = {"dump": str(folder)} | {f"cpp.{name}": value for name, value in options.items()}
    compiled = torch.compile(function, backend="icpu", options=settings)
    torch.testing.assert_close(compiled(*args), function(*args))
    return "\n".join(path.read_text() for path in sorted(folder.rglob("*.cpp")))


def threads_calls(text: str) -> list[list[str]]:
    """The arguments after the work of every `threads_for` in the text."""
    return [call.split(", ")[1:] for call in re.findall(r"threads_for\((.*)\);", text)]


def scaled(x: Tensor) -> Tensor:
    return x.exp() * 2


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, ["20480"]),
        ({"threads": 3}, ["20480", "3"]),
        ({"threads": 1}, ["20480", "1"]),
        ({"min_chunk_size": 10}, ["50"]),
        ({"threads": 2, "min_chunk_size": 1}, ["5", "2"]),
    ],
    ids=str,
)
def test_threads_and_their_least_share_are_in_the_kernel(
    options: dict[str, Any], expected: list[str], tmp_path: Path
) -> None:
    assert threads_calls(compiled_text(tmp_path, scaled, torch.randn(1000, 700), **options)) == [expected]


def test_without_dynamic_threads_a_kernel_keeps_the_number_of_the_compile(tmp_path: Path) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        text = compiled_text(tmp_path, scaled, torch.randn(1000, 700), dynamic_threads=False)
    finally:
        torch.set_num_threads(before)
    assert threads_calls(text) == [["20480", "2"]]


@pytest.mark.parametrize("tiling", [True, False])
def test_tiles_are_used_if_tiling_is_on(tiling: bool, tmp_path: Path) -> None:
    text = compiled_text(
        tmp_path, lambda x, y: x.t().contiguous() + y, torch.randn(65, 70), torch.randn(70, 65), enable_tiling=tiling
    )
    assert ("load_tile" in text) == tiling


@pytest.mark.parametrize(("most", "kernels"), [(16, 1), (2, 2), (1, 4)])
def test_loops_without_a_dependency_are_joined_up_to_the_limit(most: int, kernels: int) -> None:
    compiled, reports = compile_counted(lambda x: (x.sin(), x.cos(), x.exp(), x + 1))
    x = torch.randn(50)
    with config.patch({"cpp.max_horizontal_fusion_size": most}):
        torch.testing.assert_close(compiled(x), (x.sin(), x.cos(), x.exp(), x + 1))
    assert [len(report.kernels) for report in reports] == [kernels]


def test_the_interpreter_calls_operators_of_complex_numbers_as_eager_mode_does() -> None:
    z = torch.randn(3, 2, dtype=torch.complex64)
    compiled = torch.compile(torch.linalg.pinv, backend="icpu", options={"debug_interpret": True})
    torch.testing.assert_close(compiled(z), torch.linalg.pinv(z))
