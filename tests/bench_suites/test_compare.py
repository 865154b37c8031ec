"""`make figures`: what is kept of an interrupted run."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from bench_suites import compare, measure


def test_an_interrupted_run_keeps_the_figures_that_it_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def spawn(task: str, job: dict[str, Any], limit: float) -> dict[str, Any]:
        if job["model"] == "gpt2":
            raise KeyboardInterrupt
        return {"ms": {"icpu": 1.0}, "accuracy": {}}

    monkeypatch.setattr(compare, "spawn", spawn)
    monkeypatch.setattr(
        "sys.argv", ["compare", "--models", "bert-base", "gpt2", "--dtypes", "float32", "--out", str(tmp_path)]
    )
    with pytest.raises(KeyboardInterrupt):
        compare.main()
    (path,) = tmp_path.glob("*.json")
    assert json.loads(path.read_text())["speed"] == {"bert-base float32": {"ms": {"icpu": 1.0}, "accuracy": {}}}


def test_other_processes_compute_while_models_are_timed_and_end_then() -> None:
    def children() -> set[str]:
        return set(Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split())

    before = children()
    with measure.beside_others(2):
        assert len(children() - before) == 2
    assert children() == before
