"""Dumps, timings, logs and the report."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
import torch

from inductor_cpu.errors import InternalError, UserError
from inductor_cpu.trace import (
    LOGS,
    CompileReport,
    ExternInfo,
    KernelInfo,
    StageTime,
    Trace,
    count_externs,
    count_reasons,
    set_logs,
)


def test_without_a_folder_stages_are_timed_and_nothing_is_written() -> None:
    trace = Trace("g")
    with trace.stage("lower"):
        trace.record("lower", pytest.fail)
        trace.add_file("a.cpp", "text")
    assert [t.stage for t in trace.timings] == ["lower"]
    assert trace.dump_path is None
    assert not trace.dumping


def test_dump_writes_numbered_files_with_a_header(tmp_path: Path) -> None:
    trace = Trace("inference_0_0", str(tmp_path))
    with trace.stage("fuse"):
        pass
    trace.record("lower", lambda: "program")
    trace.record("fuse", lambda: "kernels", note="a note", before=5, after=3)
    trace.record("memory", lambda: "plan", before=3, after=3)
    assert trace.folder is not None
    assert trace.folder.parent == tmp_path
    assert sorted(p.name for p in trace.folder.iterdir()) == ["00_lower.txt", "01_fuse.txt", "02_memory.txt"]
    fuse = (trace.folder / "01_fuse.txt").read_text()
    assert fuse.splitlines()[0].startswith("# inference_0_0: made by fuse, ")
    assert " ms, 5 -> 3" in fuse
    assert "# a note" in fuse
    assert fuse.endswith("\nkernels\n")
    assert "unchanged" in (trace.folder / "02_memory.txt").read_text()


def test_two_compiles_of_one_name_have_two_folders(tmp_path: Path) -> None:
    assert Trace("g", str(tmp_path)).folder != Trace("g", str(tmp_path)).folder


def test_dump_folder_that_cannot_be_made_is_a_user_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="ICPU_DUMP"):
        Trace("g", str(tmp_path / "file"))


def test_stage_that_raises_is_timed_and_stays_current() -> None:
    trace = Trace("g")
    with pytest.raises(ValueError, match="x"), trace.stage("outer"), trace.stage("inner"):
        raise ValueError("x")
    assert [t.stage for t in trace.timings] == ["inner", "outer"]
    assert trace.current_stage == "inner"


def test_internal_error_names_stage_and_dump_and_what_to_do() -> None:
    text = str(InternalError("schedule", "cycle", "/dumps/1"))
    assert "'schedule'" in text
    assert "/dumps/1" in text
    assert "ICPU_DUMP" in str(InternalError("schedule", "cycle"))


def test_report_tells_kernels_reasons_and_externs() -> None:
    report = CompileReport(
        graph="g",
        kind="inference",
        timings=(StageTime("lower", 2.0), StageTime("lower", 3.0)),
        kernels=(KernelInfo("k0", True), KernelInfo("k1", False, ("int16 has no vector type",))),
        externs=count_externs({("aten.mm", "gemm", ""): 1, ("aten.sort", "no rule", "a Generator"): 2}),
        measure_packed=lambda: 64,
    )
    text = str(report)
    assert "vectorized 1/2" in text
    assert "int16 has no vector type" in text
    assert "2 x aten.sort (through Python: a Generator): no rule" in text
    assert "extern calls: 3 (1 native, 2 through Python)" in text
    assert "lower: 5.0 ms" in text
    assert report.externs[0] == ExternInfo("aten.sort", 2, "no rule", "a Generator")


def test_logs_set_levels_by_name_and_refuse_unknown_names() -> None:
    set_logs("schedule,+codegen")
    assert logging.getLogger("inductor_cpu.schedule").level == logging.INFO
    assert logging.getLogger("inductor_cpu.codegen").level == logging.DEBUG
    with pytest.raises(UserError, match="nonsense"):
        set_logs("nonsense")


@pytest.mark.parametrize("name", [name for name in LOGS if name != "pipeline"])  # that one logs what goes wrong
def test_every_name_logs_a_compile_and_details_are_the_print_out(name: str, caplog: pytest.LogCaptureFixture) -> None:
    logger = logging.getLogger(f"inductor_cpu.{name}")
    logging.getLogger("inductor_cpu").propagate = True
    told = []
    for level in (logging.INFO, logging.DEBUG):
        caplog.clear()
        torch._dynamo.reset()
        with caplog.at_level(level, logger.name):
            torch.compile(lambda x: x + 1, backend="icpu")(torch.zeros(3))
        told.append([record.getMessage() for record in caplog.records if record.name == logger.name])
    assert told[0]
    print_out = {"graph": "torch.ops.aten.add", "lower": "program", "schedule": "schedule", "codegen": "plan:"}
    assert print_out.get(name, "") in "".join(told[1])
    assert (len(told[1]) > len(told[0])) == (name in print_out)


def test_reasons_for_scalar_code_are_counted_most_frequent_first() -> None:
    kernels = [KernelInfo("a", False, ("x",)), *[KernelInfo(name, False, ("y",)) for name in "bc"]]
    kernels.append(KernelInfo("d", True, ("one op lane by lane",)))
    assert count_reasons(kernels) == (("y", 2), ("x", 1))
    assert "2 scalar: y" in str(CompileReport("graph", "inference", kernels=tuple(kernels)))
