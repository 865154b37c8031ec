"""Kernels that ask for the pages that come next, for processors that follow a run to the end of its page alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

import inductor_cpu
from inductor_cpu.codegen.analysis import Facts
from inductor_cpu.codegen.kernel import generate
from inductor_cpu.codegen.pages import Pages, long_rows, next_pages
from inductor_cpu.codegen.tuning import Choices
from inductor_cpu.ir.kernel import Kernel
from inductor_cpu.targets import cpu
from tests.lower.harness import lower
from tests.schedule.harness import kernels, schedule_of

from .build import BF16, F32
from .harness import VECTORS, Library, target

Tensor = torch.Tensor
MIB = 1 << 20


def norm(x: Tensor) -> Tensor:
    return F.layer_norm(x, x.shape[-1:])


def sums(x: Tensor) -> Tensor:
    return x.sum(-1)


def kernel_of(function: Callable[..., Tensor], *shape: int, dtype: torch.dtype = F32, isa: str = "avx512") -> Kernel:
    """The only kernel."""
    lanes = target(isa).isa.bits // 32
    (kernel,) = kernels(schedule_of(lower(function, torch.empty(shape, dtype=dtype)), lanes))
    return kernel


def asked(function: Callable[..., Tensor], *shape: int, dtype: torch.dtype = F32) -> tuple[list[str], set[Pages]]:
    """What asks for the next row's pages where 24 MB are more than a cache holds, and for which."""
    found = next_pages(Facts(kernel_of(function, *shape, dtype=dtype)), 24 * MIB)
    return sorted("store" if access < 0 else "load" for access in found), set(found.values())


def test_rows_out_of_memory_ask_for_the_pages_of_the_next_row() -> None:
    assert asked(norm, 4500, 768) == (["load", "store"], {Pages(768, 1)})
    assert asked(norm, 1024, 4096) == (["load", "store"], {Pages(4096, 4)})
    assert asked(norm, 3000, 768) == ([], set())  # the cache has them
    assert asked(norm, 40000, 96) == ([], set())  # every page several times


def test_what_computes_for_long_or_converts_asks_for_results_alone() -> None:
    assert asked(norm, 9000, 768, dtype=BF16)[0] == ["store"]
    assert asked(lambda x: x.softmax(-1), 4500, 768)[0] == ["store"]


def test_vectors_of_eight_lanes_ask_for_results_alone() -> None:
    found = next_pages(Facts(kernel_of(norm, 4500, 768, isa="avx2")), 24 * MIB)
    assert [access < 0 for access in found] == [True]
    assert long_rows(Facts(kernel_of(sums, 16, 1 << 16, isa="avx2"))) == ()


def test_rows_with_gaps_ask_for_nothing() -> None:
    assert asked(lambda x: norm(x[:, :768]), 9000, 1024)[0] == ["store"]


@pytest.mark.parametrize(
    ("rows", "columns", "asks"), [(16, 1 << 16, True), (16, 1 << 13, False), (256, 1 << 12, False)]
)
def test_only_long_rows_of_much_memory_are_asked_for_by_stretches(rows: int, columns: int, asks: bool) -> None:
    found = long_rows(Facts(kernel_of(sums, rows, columns)))
    assert bool(found) == asks


@pytest.mark.skipif("avx512" not in VECTORS, reason="needs AVX-512")
@pytest.mark.parametrize(("far", "kept", "asks"), [(1, 1 << 40, True), (1, 1, False), (None, 1 << 40, False)])
def test_kernels_ask_for_pages_unless_they_store_around_the_cache(far: int | None, kept: int, asks: bool) -> None:
    choices = Choices(runs=False, far=far, kept=kept)
    text = generate(kernel_of(norm, 4500, 768), target("avx512"), choices).code
    assert ("icpu::fetch_pages<1>(p1, 768 + i0 * 768);" in text) == asks
    assert ("icpu::fetch_pages_to_write<1>(p0, 768 + i0 * 768);" in text) == asks


@pytest.mark.parametrize(("zen", "asks"), [(0, False), (3, False), (4, True), (5, True)])
def test_only_processors_that_follow_runs_are_asked_for_pages(
    zen: int, asks: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    machine = replace(cpu.detect(), zen=zen, l3=32 * MIB)
    monkeypatch.setattr(cpu, "detect", lambda: machine)
    with inductor_cpu.config.patch({"dump": str(tmp_path)}):
        torch.compile(norm, backend="icpu", dynamic=False)(torch.zeros(4500, 768))
    (text,) = (path.read_text() for path in tmp_path.glob("*/icpu_*.cpp"))
    assert ("icpu::fetch_pages" in text) == asks


@pytest.mark.parametrize("isa", VECTORS)
def test_results_are_right_where_pages_behind_the_end_are_asked_for(isa: str) -> None:
    shapes = {norm: (300, 4100), sums: (16, 1 << 16)}
    steps = {function: kernel_of(function, *shape, isa=isa) for function, shape in shapes.items()}
    library = Library(isa, steps.values(), Choices(runs=False, far=1))
    for function, kernel in steps.items():
        x = torch.randn(shapes[function], generator=torch.Generator().manual_seed(0))
        expected = function(x.double()).float()
        out = torch.empty_like(expected)
        assert library.run(kernel, out, x) == 0
        torch.testing.assert_close(out, expected, atol=1e-4, rtol=1e-5)
