"""The runner keeps going: crashes, hangs and exhausted memory are rows, and a run that was killed goes on."""

from __future__ import annotations

import argparse
import gc
import json
import os
import runpy
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch

from bench_suites import execute, run, supervise
from bench_suites.__main__ import main, parser
from bench_suites.execute import first_line, run_job
from bench_suites.job import Job
from bench_suites.store import Store


def odd(model: str, backends: tuple[str, ...] = ("eager",)) -> Job:
    """A job on an artificial model."""
    return Job("odd", model, backends, repeat=2)


def arguments(*options: str) -> argparse.Namespace:
    """The parsed command line of `run`."""
    return parser().parse_args(["run", *options])


def test_models_that_end_their_process_are_rows() -> None:
    # Side by side: one of them only waits.
    limits = {"hangs": supervise.Limits(8, 6 << 30), "grows": supervise.Limits(60, 2 << 30)}
    with ThreadPoolExecutor() as pool:
        rows = list(pool.map(lambda model: supervise.run(odd(model), limits[model], {}), limits))
    assert [(row["status"], row["error"]) for row in rows] == [
        ("timeout", "no answer in 8 s"),
        ("memory", "took more than 2 GiB"),
    ]


def test_a_backend_that_fails_or_differs_is_no_pass_and_the_others_are_timed() -> None:
    failed = run_job(odd("raises", ("eager", "icpu")))
    assert failed["status"] == "fail"
    assert failed["backends"]["eager"]["status"] == "pass"
    assert len(failed["backends"]["eager"]["ms"]) == 2
    assert "cannot be compiled" in failed["backends"]["icpu"]["log"]
    wrong = run_job(odd("differs", ("eager", "icpu")))
    assert wrong["status"] == wrong["backends"]["icpu"]["status"] == "mismatch"
    assert wrong["backends"]["icpu"]["error"].startswith("outputs, torch.float32 (4, 8)")


def test_a_backend_that_is_wrong_at_its_second_call_is_no_pass() -> None:
    wrong = run_job(odd("stale", ("eager", "icpu")))
    assert wrong["backends"]["icpu"]["status"] == "mismatch"
    assert wrong["backends"]["icpu"]["error"].startswith("the second call: outputs")


def test_a_step_that_replaces_a_buffer_is_checked_twice_from_the_same_start() -> None:
    row = run_job(Job("odd", "remembers", ("eager", "icpu"), mode="training", repeat=0))
    assert row["status"] == "pass", row


def test_a_model_that_fails_with_the_default_type_has_a_reference_in_double_precision() -> None:
    assert run_job(odd("fills"))["eager_error"] < 1e-6
    assert torch.get_default_dtype() == torch.float32


def test_no_round_checks_without_timing() -> None:
    row = run_job(Job("odd", "works", ("eager", "icpu"), repeat=0))
    assert row["status"] == "pass"
    assert [row["backends"][name]["ms"] for name in ("eager", "icpu")] == [[], []]
    assert row["eager_error"] is None  # double precision was not needed


def test_a_step_that_changes_buffers_is_checked_with_the_weights_of_one_backend_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    modules: list[weakref.ref[torch.nn.Module]] = []
    alive: list[int] = []

    def watched(*args: Any) -> execute.Competitor:
        competitor = prepare(*args)
        gc.collect()
        alive.append(sum(module() is not None for module in modules))
        modules.append(weakref.ref(competitor.module))
        return competitor

    prepare = execute.prepare
    monkeypatch.setattr(execute, "prepare", watched)
    row = run_job(Job("odd", "counts", ("eager", "aot_eager", "icpu"), mode="training", repeat=0))
    assert row["status"] == "pass", row
    assert alive == [0, 0, 0, 0]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", "RuntimeError: "),
        ("\nsizes differ\nat line 3", "RuntimeError: sizes differ"),
        (
            "backend='tvm' raised:\nModuleNotFoundError: no tvm\nmore",
            "RuntimeError: backend='tvm' raised: ModuleNotFoundError: no tvm",
        ),
    ],
)
def test_the_line_of_an_error_says_what_went_wrong(text: str, line: str) -> None:
    assert first_line(RuntimeError(text)) == line


def test_icpu_gives_counters() -> None:
    row = run_job(odd("works", ("eager", "icpu")))
    assert row["status"] == "pass"
    reports = row["backends"]["icpu"]["reports"]
    assert (reports["graphs"], reports["kernels"], reports["vectorized"], reports["externs"]) == (1, 1, 1, {})


@pytest.fixture
def term() -> Iterator[None]:
    """The command line answers SIGTERM in its own way, which ends with the test."""
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.mark.usefixtures("term")
def test_a_killed_run_resumes_with_what_is_missing(tmp_path: Path) -> None:
    command = ["run", "kernels", "--tiny", "--backends", "eager", "--models", "add_relu,gelu", "--repeat", "1"]
    command += ["--out", str(tmp_path)]
    process = os.fork()  # `python -m bench_suites`, which need not import torch
    if process == 0:
        try:
            sys.argv[1:] = command
            runpy.run_module("bench_suites", run_name="__main__")
        finally:
            os._exit(1)
    deadline = time.monotonic() + 60
    while not Store(tmp_path).rows() and time.monotonic() < deadline:
        time.sleep(0.05)
    os.kill(process, signal.SIGKILL)
    assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == -signal.SIGKILL
    kept = Store(tmp_path).rows()
    assert len(kept) == 1
    # What a process writes when it is killed in the middle of a line.
    with (tmp_path / "results.jsonl").open("a") as file:
        file.write('{"key": "kernels/ge')
    assert main([*command, "--resume"]) == 0
    rows = Store(tmp_path).rows()
    assert [row["job"]["model"] for row in rows] == ["add_relu", "gelu"]
    assert rows[0] == kept[0]
    assert len((tmp_path / "results.jsonl").read_text().splitlines()) == 2
    assert len((tmp_path / "results.csv").read_text().splitlines()) == 3


def test_a_crash_is_a_row_the_rest_goes_on_and_an_interrupt_keeps_what_is_done_and_ends_the_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workers: list[int] = []
    watch = supervise._watch

    def watched(process: subprocess.Popen[bytes], limits: supervise.Limits) -> tuple[tuple[str, str] | None, int]:
        workers.append(process.pid)
        if len(workers) < 3:
            return watch(process, limits)
        interrupt = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
        interrupt.start()
        try:
            return watch(process, limits)
        finally:
            interrupt.cancel()

    monkeypatch.setattr(supervise, "_watch", watched)
    store = Store(tmp_path)
    assert run.run_all([odd("crashes"), odd("works_too"), odd("hangs")], store, arguments("timm"))
    assert [(r["job"]["model"], r["status"]) for r in store.rows()] == [("crashes", "crash"), ("works_too", "pass")]
    assert store.rows()[0]["error"] == "ended by SIGSEGV"
    with pytest.raises(ProcessLookupError):
        os.kill(workers[-1], 0)


def test_shards_part_the_models_and_filters_choose() -> None:
    def names(*options: str) -> list[str]:
        return [job.model for job in run.select(arguments("timm", *options), ["eager"])]

    everything = names()
    assert len(everything) == 66
    parts = [names("--shard", f"{i}/3") for i in (1, 2, 3)]
    assert sorted(n for part in parts for n in part) == sorted(everything)
    assert names("--filter", "^resnet18$") == ["resnet18"]
    assert names("--models", "levit_128,resnet18") == ["levit_128", "resnet18"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["run", "timm", "--models", "resnet18,resnet81"], "no model resnet81"),
        (["run", "timm", "--backends", "eager,icup"], "no backend 'icup'"),
        (["report", "no/such/folder"], "no folder of results"),
    ],
)
def test_a_wrong_argument_is_told(options: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(options) == 2
    assert message in capsys.readouterr().err


def test_a_job_survives_json() -> None:
    job = Job("timm", "resnet18", ("eager", "icpu"), threads=1, batch=2)
    assert Job.of(json.loads(json.dumps(job.plain()))) == job
    assert job.key == "timm/resnet18/float32/inference/1 threads/batch 2"
