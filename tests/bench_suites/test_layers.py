"""The survey of single layers: what is measured, and what is told of it."""

from __future__ import annotations

import re

import pytest
import torch
from torch import nn

from bench_suites.layers import measure
from bench_suites.layers.__main__ import main, page
from bench_suites.layers.measure import Measured
from bench_suites.layers.row import Layer, function, layer
from bench_suites.layers.table import LAYERS


def test_names_are_unique() -> None:
    names = [row.name for row in LAYERS]
    assert len(names) == len(set(names)) > 400


@pytest.mark.parametrize("training", [False, True])
def test_a_layer_is_timed_in_eager_mode_and_compiled(training: bool) -> None:
    found = measure.measure(layer("linear", lambda: nn.Linear(4, 8), (2, 4)), torch.float32, training)
    assert not found.error
    assert min(found.eager, found.compiled) > 0
    assert found.lost == found.compiled - found.eager


@pytest.mark.parametrize(
    ("row", "error"),
    [
        (function("other", lambda x: x + float(torch.compiler.is_compiling()), (64,)), "result 0: error 1"),
        (function("bad", lambda x: x @ x, (2, 3)), "RuntimeError: mat1 and mat2 shapes cannot be multiplied"),
    ],
    ids=["differs", "fails"],
)
def test_what_fails_or_differs_is_told_and_not_timed(row: Layer, error: str) -> None:
    found = measure.measure(row, torch.float32, False)
    assert re.match(re.escape(error), found.error)
    assert found.eager == found.compiled == 0


def test_the_page_has_what_loses_most_first_and_errors_last() -> None:
    text = page(
        [Measured("won", 30.0, 10.0), Measured("lost", 10.0, 30.0), Measured("wrong", error="result 0 differs")]
    )
    assert [
        text.index(word) for word in ("lost ", "won ", "2 layers, 1.00 times", "wrong: result 0 differs")
    ] == sorted(text.index(word) for word in ("lost ", "won ", "2 layers, 1.00 times", "wrong: result 0 differs"))


def test_the_command_runs_the_layers_that_are_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    threads = torch.get_num_threads()
    try:
        assert main(["--filter", "^(mse|dot)$", "--threads", "1"]) == 0
    finally:
        torch.set_num_threads(threads)
    assert "2 layers" in capsys.readouterr().out
