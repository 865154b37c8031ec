"""A few cases of the sweep that stand for many, through its command; and how results are judged and reported."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.sweep.compare import Tolerance, difference
from tests.sweep.gradients import gradients_of
from tests.sweep.report import Expected, read_expected, read_rows, report, stale, to_json, unexpected
from tests.sweep.rows import Case, Row

ROOT = Path(__file__).resolve().parents[2]
ADD = Case("op", "add", "float32", "inference")


#: Runs sweeps one after the other in one process: a small one takes most of its time to import the database.
PROGRAM = """
import contextlib, io, json, runpy, sys

found = []
for arguments in json.loads(sys.argv[1]):
    sys.argv[1:] = arguments
    text = io.StringIO()
    try:
        with contextlib.redirect_stdout(text):
            runpy.run_module("tests.sweep", run_name="__main__", alter_sys=True)
    except SystemExit as end:
        found.append((end.code, text.getvalue()))
print(json.dumps(found))
"""

#: Of every run, and those that stand for more: a case takes about a second.
FEW = ("--filter", "op (add|gather)$|module nn.Linear$", "--dtypes", "float32", "--databases", "op,module")
MORE = ("--filter", "op (add|argmax|gather|nn.functional.dropout)$|module nn.Linear$", "--dtypes", "float32,int8")
MORE += ("--databases", "op,module")
FAILING = ("--filter", "op (sum|neg)$", "--dtypes", "float32", "--kinds", "inference", "--samples", "1")


@dataclass(frozen=True)
class Done:
    """What a sweep returned and printed, and the folder of its rows."""

    code: int
    text: str
    folder: Path


@pytest.fixture(scope="module")
def sweeps(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Done]:
    """`python -m tests.sweep` with several arguments, in a process of its own: the database changes switches of
    torch."""
    pytest.importorskip("expecttest", reason="torch's operator database needs it: pip install expecttest")
    passing, failing, kept = (tmp_path_factory.mktemp(name) for name in ("passing", "failing", "kept"))
    (kept / "rows-1-of-1.jsonl").write_text(to_json(Row(ADD, "pass")) + "\n")
    arguments = {
        "representative": (passing, *FEW, "--samples", "1"),
        "failing": (failing, *FAILING, "--shard", "1/2", "--backend", "no_such_backend"),
        "resumed": (failing, *FAILING, "--shard", "2/2", "--resume", "--backend", "eager"),
        "report": (kept, "--filter", "op add$", "--dtypes", "float32", "--databases", "op", "--report"),
    }
    return swept(arguments)


def swept(arguments: dict[str, tuple[Any, ...]]) -> dict[str, Done]:
    """What sweeps into folders did, given as (folder, *options) by name."""
    lines = json.dumps([["--out", str(folder), *options] for folder, *options in arguments.values()])
    command = [sys.executable, "-c", PROGRAM, lines]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    return {
        name: Done(code, text, folder)
        for (name, (folder, *_)), (code, text) in zip(arguments.items(), found, strict=True)
    }


@pytest.mark.full
def test_more_operators_and_dtypes_pass(sweeps: dict[str, Done], tmp_path: Path) -> None:
    done = swept({"more": (tmp_path, *MORE, "--samples", "1")})["more"]
    assert done.code == 0, done.text
    assert "failures that no line covers: 0" in done.text
    assert len(read_rows(tmp_path)) > len(read_rows(sweeps["representative"].folder))


def test_representative_operators_pass_in_every_kind(sweeps: dict[str, Done]) -> None:
    done = sweeps["representative"]
    assert done.code == 0, done.text
    assert "failures that no line covers: 0" in done.text
    kinds = {row.case.kind for row in read_rows(done.folder).values() if row.status == "pass"}
    assert kinds == {"inference", "gradients", "layouts", "special", "inplace", "out", "dynamic", "errors"}


def test_a_failing_case_is_a_row_and_the_next_shard_goes_on(sweeps: dict[str, Done]) -> None:
    assert sweeps["failing"].code == 1
    assert sweeps["resumed"].code == 0, sweeps["resumed"].text
    assert sorted(row.status for row in read_rows(sweeps["failing"].folder).values()) == ["error", "pass"]


# -- when results are the same -----------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("expected", "actual", "same"),
    [
        (torch.tensor([1.0, 2.0]), torch.tensor([1.0, 2.0000001]), True),
        (torch.tensor([1.0, 2.0]), torch.tensor([1.0, 2.001]), False),
        (torch.tensor([float("nan")]), torch.tensor([float("nan")]), True),
        (torch.tensor([float("nan")]), torch.tensor([0.0]), False),
        (torch.tensor([1, 2]), torch.tensor([1, 3]), False),
        (torch.tensor([1, 2]), torch.tensor([1, 2], dtype=torch.int32), False),
        (torch.ones(2, 1), torch.ones(1, 2), False),
        ((torch.ones(2), 3), (torch.ones(2), 4), False),
        ((torch.ones(2), None), (torch.ones(2),), False),
    ],
)
def test_results_are_compared_by_type_shape_dtype_and_value(expected: object, actual: object, same: bool) -> None:
    assert (difference(expected, actual, Tolerance(), list) is None) == same


def test_strides_are_compared_where_they_mean_something() -> None:
    tolerance, rows = Tolerance(strides=True), torch.ones(2, 3)
    columns = torch.ones(3, 2).t()
    assert difference(rows, columns, Tolerance(), list) is None
    assert difference(rows, columns, tolerance, list) == "the strides are (1, 2), not (3, 1), of (2, 3)"
    assert difference(rows[:1], columns[:1], tolerance, list) is not None
    assert difference(rows[:, :1], columns[:, :1].clone(), tolerance, list) is not None
    assert difference(rows[:1, :1], columns[:1, :1], tolerance, list) is None
    assert difference(rows[:0], columns[:0], tolerance, list) is None


def test_a_low_precision_result_may_be_twice_as_far_from_fp64_as_eager() -> None:
    exact = torch.tensor([1.0, 100.0], dtype=torch.float64)
    eager = torch.tensor([1.0, 101.0], dtype=torch.bfloat16)
    near, far = torch.tensor([1.0, 98.0], dtype=torch.bfloat16), torch.tensor([1.0, 97.0], dtype=torch.bfloat16)
    assert difference(eager, near, Tolerance(), lambda: [exact]) is None
    assert difference(eager, far, Tolerance(), lambda: [exact]) is not None


def test_a_low_precision_result_without_a_float64_twin_is_held_to_eagers() -> None:
    eager = torch.tensor([1.0, 100.0], dtype=torch.bfloat16)
    near, far = torch.tensor([1.0, 100.5], dtype=torch.bfloat16), torch.tensor([1.0, 110.0], dtype=torch.bfloat16)
    assert difference(eager, near, Tolerance(), lambda: [None, None]) is None
    assert difference(eager, far, Tolerance(), lambda: [None, None]) is not None


def test_the_gradients_of_a_call_are_those_of_its_float64_twin_beside_other_calls_too() -> None:
    x, y = torch.randn(7, requires_grad=True), torch.randn(3, 4, requires_grad=True)
    twin = y.detach().double().requires_grad_(True)
    together = gradients_of([torch.sin] * 2, [x, y], [x.sin(), y.sin()])
    alone = gradients_of([torch.sin], [twin], [twin.sin()])
    torch.testing.assert_close(together[1][0], alone[0][0].float())


def test_the_sign_of_zero_counts_where_it_is_asked_for() -> None:
    zeros = torch.tensor([0.0]), torch.tensor([-0.0])
    assert difference(*zeros, Tolerance(), list) is None
    assert difference(*zeros, Tolerance(signs=True), list) is not None


# -- rows and expected failures ----------------------------------------------------------------------------------------
def test_a_report_keeps_the_rows(sweeps: dict[str, Done]) -> None:
    assert sweeps["report"].code == 0, sweeps["report"].text
    assert list(read_rows(sweeps["report"].folder)) == [ADD]


def test_rows_survive_a_line_that_was_cut_short(tmp_path: Path) -> None:
    row = Row(ADD, "fail", 3, 0.5, "1 in place of 2", ("a note",))
    (tmp_path / "rows-1-of-1.jsonl").write_text(to_json(Row(ADD, "pass")) + "\n" + to_json(row) + '\n{"database": "o')
    assert read_rows(tmp_path) == {ADD: row}


def test_an_expected_failure_is_covered_and_one_that_passes_is_stale() -> None:
    line = Expected(("op", "ad*", "*", "inference"), "a reason")
    bad, good = Row(ADD, "error"), Row(ADD, "pass")
    assert unexpected([bad], [line]) == []
    assert unexpected([bad], []) == [bad]
    assert stale([bad], [line]) == []
    assert stale([good], [line]) == [line]
    assert "passes, remove it" in report([good], [line])


def test_every_expected_failure_has_a_reason(tmp_path: Path) -> None:
    assert all(line.reason for line in read_expected())
    path = tmp_path / "expected.txt"
    path.write_text("op add * *\n")
    with pytest.raises(ValueError, match="reason"):
        read_expected(path)
