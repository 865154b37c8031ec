"""Stored results as figures, a page and a comparison."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bench_suites import machine, metrics, timing
from bench_suites.__main__ import main
from bench_suites.job import Job
from bench_suites.report import figures, page
from bench_suites.store import Store

REPORTS = {
    "graphs": 1,
    "eager_graphs": [],
    "kernels": 4,
    "vectorized": 3,
    "scalar_reasons": {"a gather": 2},
    "externs": {"aten.mm.default": 2},
    "extern_reasons": {"aten.mm.default": "MKL"},
    "packed_bytes": 1 << 20,
    "stage_ms": {"codegen": 5.0},
}


def result(ms: float, **others: Any) -> dict[str, Any]:
    """One backend's result: 20 rounds within 1 % of `ms`."""
    rounds = [ms * (1 + 0.01 * (i % 3 - 1)) for i in range(20)]
    return {
        "status": "pass",
        "breaks": {},
        "reports": None,
        "first_call_s": 2.0,
        "peak_bytes": 1 << 20,
        "ms": rounds,
        **others,
    }


def write(folder: Path, icpu: dict[str, dict[str, Any]], eager_ms: float = 10.0) -> Path:
    """A folder of results with these results of icpu by model."""
    store = Store(folder)
    for model, found in icpu.items():
        backends = {"eager": result(eager_ms), "icpu": found}
        store.add(Job("timm", model, ("eager", "icpu")), {"status": found["status"], "backends": backends})
    return folder


def test_medians_ratios_and_intervals() -> None:
    ratio, low, high = timing.speedup([10.0, 11.0, 9.0] * 5, [5.0, 5.5, 4.5] * 5)
    assert ratio == 2.0
    assert low <= 2.0 <= high
    assert timing.speedup([4.0], [2.0]) == (2.0, 2.0, 2.0)
    assert timing.geometric_mean([1.0, 4.0]) == pytest.approx(2.0)


def test_a_wrong_result_has_no_speedup_and_counts_as_no_pass(tmp_path: Path) -> None:
    write(
        tmp_path, {"good": result(5.0, reports=REPORTS), "bad": result(1.0, status="mismatch", error="outputs differ")}
    )
    (group,) = figures.groups(Store(tmp_path).rows())
    line = next(f for f in figures.figures(group) if f.backend == "icpu")
    assert (line.passed, line.run, line.vectorized) == (1, 2, (3, 4))
    assert line.speedup == pytest.approx(2.0)
    assert line.externs == (("aten.mm.default", 2),)


def test_memory_is_that_of_all_models_together(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for model, eager, icpu in (("small", 1 << 10, 10 << 20), ("large", 100 << 20, 190 << 20)):
        backends = {"eager": result(1.0, peak_bytes=eager), "icpu": result(1.0, peak_bytes=icpu)}
        store.add(Job("timm", model, ("eager", "icpu")), {"status": "pass", "backends": backends})
    (group,) = figures.groups(store.rows())
    assert [f.memory for f in figures.figures(group)] == [None, pytest.approx(2.0, abs=1e-3)]


def test_rows_that_were_only_checked_have_no_speedup(tmp_path: Path) -> None:
    checked = {**result(1.0), "ms": [], "peak_bytes": None}
    backends = {"eager": checked, "icpu": {**checked, "reports": REPORTS}}
    Store(tmp_path).add(Job("timm", "m", ("eager", "icpu")), {"status": "pass", "backends": backends})
    rows, machines = page.load([tmp_path])
    line = figures.figures(figures.groups(rows)[0])[1]
    assert (line.passed, line.speedup, line.memory, line.vectorized) == (1, None, None, (3, 4))
    assert "First call" in page.page(rows, machines, tmp_path)


def test_the_page_is_self_contained_and_shows_failures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    failed = result(1.0, status="fail", error="ValueError: <script>", log="the traceback")
    write(tmp_path, {"good": result(5.0, reports=REPORTS), "broken": failed})
    assert main(["report", str(tmp_path)]) == 0
    page = (tmp_path / "report.html").read_text()
    assert "<svg" in page
    assert "currentColor" in page
    assert "ValueError: &lt;script&gt;" in page
    assert "http" not in page.replace("http://www.w3.org", "").replace("https://matplotlib.org", "").replace(
        "http://purl.org", ""
    ).replace("http://creativecommons.org", "")
    assert 'href="logs/timm_broken_float32_inference.txt"' in page
    assert (tmp_path / "logs" / "timm_broken_float32_inference.txt").read_text() == "the traceback"
    assert "| timm, inference float32 | icpu" in capsys.readouterr().out
    assert (tmp_path / "report.md").exists()


def test_runs_of_one_machine_share_a_line_with_the_range_of_loads() -> None:
    first = {**machine.describe(), "load": [0.5, 0.0, 0.0], "commit": "abc"}
    others = [{**first, "load": [2.25, 0.0, 0.0]}, {**first, "commit": "def"}]
    lines = machine.sentences([first, *others])
    assert [line.partition("icpu at ")[2] for line in lines] == [
        "abc, load 0.5 to 2.2 at the start",
        "def, load 0.5 at the start",
    ]


def test_a_single_round_has_no_interval_and_long_times_are_written_out(tmp_path: Path) -> None:
    write(tmp_path, {"m": result(5.0)}, eager_ms=2990.0)
    rows, machines = page.load([tmp_path])
    text = page.page([{**row, "backends": _first_rounds(row)} for row in rows], machines, tmp_path)
    assert "2,960" in text
    assert " to " not in text.partition("<tbody>")[2]


def _first_rounds(row: dict[str, Any]) -> dict[str, Any]:
    return {name: {**found, "ms": found["ms"][:1]} for name, found in row["backends"].items()}


def test_a_pass_with_graph_breaks_or_in_eager_mode_is_told(tmp_path: Path) -> None:
    eager = {**REPORTS, "eager_graphs": ["runs in eager mode: an input is on the device cuda"]}
    write(
        tmp_path,
        {"breaks": result(5.0, breaks={"a call of print": 2}, reports=REPORTS), "eager": result(5.0, reports=eager)},
    )
    write(tmp_path, {"nothing": result(5.0)})
    lines = figures.failures(figures.groups(Store(tmp_path).rows()))
    assert [(f.model, f.status, f.error) for f in lines] == [
        ("breaks", "graph breaks", "2: a call of print"),
        ("eager", "eager graphs", "runs in eager mode: an input is on the device cuda"),
        ("nothing", "eager graphs", "nothing was compiled"),
    ]


def test_compare_fails_on_a_slower_or_wrong_model_and_not_on_noise(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = write(tmp_path / "a", {"m": result(5.0, reports=REPORTS)})
    same = write(tmp_path / "b", {"m": result(5.05, reports=REPORTS)})
    slower = write(tmp_path / "c", {"m": result(6.0, reports=REPORTS)})
    busier = write(tmp_path / "d", {"m": result(10.0, reports=REPORTS)}, eager_ms=20.0)
    wrong = write(tmp_path / "e", {"m": result(5.0, reports=REPORTS, status="mismatch", error="differs")})
    scalar = write(tmp_path / "f", {"m": result(5.0, reports={**REPORTS, "vectorized": 2})})
    codes = [main(["compare", str(before), str(other)]) for other in (same, slower, busier, wrong, scalar)]
    assert codes == [0, 1, 0, 1, 1]
    output = capsys.readouterr().out
    assert "speed over eager" in output
    assert "mismatch: differs" in output
    assert "scalar kernels" in output


def test_metrics_count_over_models(tmp_path: Path) -> None:
    rows = Store(write(tmp_path, {"one": result(5.0, reports=REPORTS), "two": result(5.0, reports=REPORTS)})).rows()
    assert metrics.vectorized(rows) == (6, 8)
    assert metrics.externs(rows) == {"aten.mm.default": 4}
    assert "2 x a gather" in metrics.vectorization(rows)
    assert "MKL" in metrics.fallbacks(rows)
    assert "median first call: eager 2.00 s, icpu 2.00 s" in metrics.compile_time(rows)
    assert "packed MiB" in metrics.memory(rows)
