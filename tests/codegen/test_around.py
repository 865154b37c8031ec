"""Results that no cache keeps are written around it, whole lines at a time, and are the same."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import inductor_cpu
from inductor_cpu.codegen import around
from inductor_cpu.codegen.analysis import Facts
from inductor_cpu.codegen.around import MOST_KEPT, kept_bytes, stores_around, tiles_kept_bytes
from inductor_cpu.codegen.generate import generate_all
from inductor_cpu.codegen.tuning import Choices
from inductor_cpu.ir.loop_nest import Load
from inductor_cpu.targets import cpu
from tests.cases import cases
from tests.codegen.harness import BITS, VECTORS
from tests.e2e.support import compile_counted
from tests.lower.harness import lower
from tests.schedule.harness import kernels, schedule_of

MANY = MOST_KEPT // 4  # floats
ROWS = 4096
COLUMNS = MANY // ROWS


def stores(function: Callable[..., object], *inputs: torch.Tensor) -> list[set[int]]:
    return [set(stores_around(Facts(kernel), MOST_KEPT)) for kernel in kernels(schedule_of(lower(function, *inputs)))]


def test_half_of_a_small_cache_is_kept_and_32_megabytes_of_a_large_one() -> None:
    assert kept_bytes(32 << 20) == 16 << 20
    assert kept_bytes(480 << 20) == MOST_KEPT == 32 << 20


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64], ids=str)
def test_tiles_of_whole_lines_go_around_the_cache_where_they_are_told_to(dtype: torch.dtype) -> None:
    """From three quarters of other results on."""
    rows = tiles_kept_bytes(32 << 20) // 1024 // dtype.itemsize
    assert rows * 1024 * dtype.itemsize == 12 << 20

    def found(rows: int, tiles_kept: int | None) -> set[int]:
        turned = lower(lambda x: x.t().contiguous() + 1, torch.empty(1024, rows, dtype=dtype))
        (kernel,) = kernels(schedule_of(turned))
        facts = Facts(kernel)
        assert facts.tile is not None
        return set(stores_around(facts, 0, tiles_kept))

    assert found(rows, None) == set()
    assert found(rows, 12 << 20) == (set() if dtype == torch.bfloat16 else {0})
    assert found(rows - 16, 12 << 20) == set()


@pytest.mark.parametrize(("cpu_name", "gains"), [("AMD EPYC", True), ("Intel(R) Xeon(R)", False)])
def test_kernels_for_cpus_of_amd_write_large_tiles_around_the_cache(
    cpu_name: str, gains: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    machine = replace(cpu.detect(), cpu_name=cpu_name, l3=1 << 20)
    if machine.isa.bits != 512:
        pytest.skip("no lines")
    monkeypatch.setattr(cpu, "detect", lambda: machine)
    x, y = torch.randn(336, 320), torch.randn(320, 336)  # 420 KB
    with inductor_cpu.config.patch({"dump": str(tmp_path)}):
        have = torch.compile(lambda x, y: x.t() + y, backend="icpu", dynamic=False)(x, y)
    (text,) = (path.read_text() for path in tmp_path.glob("*/icpu_*.cpp"))
    assert ("icpu::around" in text) == gains
    assert torch.equal(have, x.t() + y)


@pytest.mark.parametrize("dtype", cases([torch.bfloat16], [torch.float32, torch.float64]), ids=str)
def test_copies_with_avx2_move_through_whole_registers(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """In two halves, by way of memory, a copy takes twice as long: the load of the whole waits for both."""
    machine = replace(cpu.detect(), l3=1 << 20)
    if machine.isa.bits == 0:
        pytest.skip("no vectors")
    monkeypatch.setattr(cpu, "detect", lambda: machine)
    with inductor_cpu.config.patch({"dump": str(tmp_path), "cpp.simdlen": 256}):
        x = torch.randn(64, 4, 1024).to(dtype)
        have = torch.compile(lambda x: x.transpose(0, 1).contiguous(), backend="icpu", dynamic=False)(x)
    assert torch.equal(have, x.transpose(0, 1))
    (script,) = tmp_path.glob("*/compile.sh")
    command = re.sub(r" -shared -o \S+\.so", " -S -o kernel.s", script.read_text())
    subprocess.run(["sh", "-c", command.replace('"$(dirname "$0")"', str(script.parent))], check=True)
    code = (script.parent / "kernel.s").read_text()
    assert "vmovntdq" in code
    assert not re.search(r"\(%r[sb]p\), %[xy]mm\d+\n\s*vmovntdq", code)


def test_results_that_no_cache_keeps_go_around_it_and_smaller_ones_do_not() -> None:
    assert stores(lambda x: x + 1, torch.empty(MANY)) == [{0}]
    assert stores(lambda x: x + 1, torch.empty(MANY - 16)) == [set()]


def test_all_results_of_a_kernel_count_together() -> None:
    assert stores(lambda x: (x + 1, x * 2), torch.empty(MANY // 2)) == [{0, 1}]


@pytest.mark.parametrize(
    ("dtype", "lanes", "light", "long"),
    [
        (torch.float32, 16, {0, 1}, {0, 1}),
        (torch.float32, 8, {0, 1}, {0}),
        (torch.bfloat16, 8, {0, 1}, set()),
    ],
    ids=["whole lines", "halves", "quarters"],
)
def test_loops_that_compute_for_long_fill_lines_of_one_result_bit_by_bit(
    dtype: torch.dtype, lanes: int, light: set[int], long: set[int]
) -> None:
    def found(function: Callable[..., object]) -> set[int]:
        x = torch.empty(MOST_KEPT // dtype.itemsize, dtype=dtype)
        (kernel,) = kernels(schedule_of(lower(function, x), lanes=lanes))
        return set(stores_around(Facts(kernel), MOST_KEPT))

    assert found(lambda x: (x + 1, x * 2)) == light
    assert found(lambda x: (x.log(), x.log() * x)) == long


def test_rows_that_do_not_start_with_a_line_are_stored_plainly() -> None:
    padded = torch.empty(ROWS, 3, COLUMNS + 1)[:, :, :-1]
    assert stores(lambda x: x.softmax(-1), torch.empty(ROWS, COLUMNS)) == [{0}]
    assert stores(lambda x: x.softmax(-1), torch.empty(ROWS + 8, COLUMNS - 1)) == [set()]
    assert stores(lambda x: x.sum(1, keepdim=True) + x, padded) == [{0}]  # the operand's rows may start anywhere


def test_what_is_updated_in_place_is_in_the_cache_already() -> None:
    (kernel,) = kernels(schedule_of(lower(lambda x: x + 1, torch.empty(MANY))))
    (source,) = (instr.buffer for instr in kernel.body if isinstance(instr, Load))
    updated = replace(kernel, stores=(replace(kernel.stores[0], buffer=source),))
    assert [stores_around(Facts(k), MOST_KEPT) for k in (kernel, updated)] == [{0}, set()]


def test_what_is_stored_at_indices_from_memory_is_stored_plainly() -> None:
    def put(x: torch.Tensor, index: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x.index_put((index,), y)

    assert set() in stores(put, torch.empty(ROWS, COLUMNS), torch.empty(ROWS, dtype=torch.int64), torch.empty(COLUMNS))


FUNCTIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "pointwise": lambda x: torch.relu(x) + 1,
    "heads": lambda x: x.view(ROWS, COLUMNS // 64, 64).transpose(0, 1).contiguous(),
    "rows": lambda x: x - x.amax(-1, keepdim=True),
    "to booleans": lambda x: torch.cat([x, x, x, x]) > 0,
    "to bfloat16": lambda x: torch.cat([x, x]).bfloat16(),
    "to int64": lambda x: x.long(),
}


@pytest.mark.parametrize("isa", VECTORS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_numbers_are_eager_s(name: str, isa: str) -> None:
    torch.manual_seed(0)
    x = torch.randn(ROWS, COLUMNS)
    with inductor_cpu.config.patch({"cpp.simdlen": BITS[isa]}):
        have = torch.compile(FUNCTIONS[name], backend="icpu")(x)
    assert torch.equal(have, FUNCTIONS[name](x))


def test_a_result_that_does_not_start_with_a_line_is_right() -> None:
    x, y = torch.randn(MANY), torch.zeros(MANY + 1)
    torch.compile(lambda x, y: y[1:].copy_(x + 1), backend="icpu")(x, y)
    assert y[0] == 0
    assert torch.equal(y[1:], x + 1)


@pytest.mark.parametrize("vectors", cases((2, 3, 7, 8), (4, 5, 6, 9, 10, 11)))
def test_nothing_is_written_beyond_the_end(monkeypatch: pytest.MonkeyPatch, vectors: int) -> None:
    monkeypatch.setattr(around, "MOST_KEPT", 1)
    size = 16 * vectors * 7  # up to 7 units at a time, which need not be whole lines
    dtypes = (torch.bfloat16, torch.float16, torch.uint8)
    xs = [torch.randint(0, 100, (3, size)).to(dtype) for dtype in dtypes]
    ys = [torch.full((size + 64,), 7, dtype=dtype) for dtype in dtypes]

    def function(xs: list[torch.Tensor], ys: list[torch.Tensor]) -> None:
        for x, y in zip(xs, ys, strict=True):
            y[:size].copy_(x.amax(0))

    compiled, reports = compile_counted(function)
    compiled(xs, ys)
    assert [len(report.kernels) for report in reports] == [len(dtypes)]
    for x, y in zip(xs, ys, strict=True):
        assert torch.equal(y[:size], x.amax(0)), x.dtype
        assert (y[size:] == 7).all(), x.dtype


@pytest.mark.parametrize(
    ("length", "scattered", "around"), [(MANY, True, False), (MANY, False, True), (2 * MANY, True, True)]
)
def test_what_scatters_will_look_for_stays_in_a_cache_that_holds_it(length: int, scattered: bool, around: bool) -> None:
    machine = cpu.detect()
    if machine.isa.bits == 0:
        pytest.skip("no lines")

    def counted(at: torch.Tensor) -> torch.Tensor:
        zeros = torch.zeros(length)
        return zeros.scatter_add(0, at, torch.ones(1000)) if scattered else zeros

    schedule = schedule_of(lower(counted, torch.zeros(1000, dtype=torch.int64)), machine.isa.bits // 32)
    sources, _ = generate_all(schedule, machine, Choices())
    assert any("icpu::around(" in source.code for source in sources) == around
