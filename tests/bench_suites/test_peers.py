"""Programs that convert a whole model: in the comparison like a backend, and no obstacle where they fail or lack."""

from __future__ import annotations

import sys
from typing import Any

import pytest
import torch

from bench_suites import compare, measure, peers
from bench_suites.models import Model, build
from bench_suites.peers import Call


@pytest.mark.parametrize(("name", "package"), [("openvino", "openvino"), ("onnxruntime", "onnxscript")])
def test_a_missing_package_is_an_error_that_says_how_to_get_it(
    name: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", sys)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError, match=r"pip install -e '\.\[peers\]'"):
        peers.PEERS[name](build("resnet50", tiny=True))


@pytest.mark.parametrize("name", ["resnet50", "bert-base", "t5-small"])
@pytest.mark.parametrize("peer", peers.PEERS)
@torch.no_grad()
def test_a_peer_gives_the_tensors_of_the_model(peer: str, name: str) -> None:
    pytest.importorskip(peer, reason="the peers are not installed")
    model = build(name, tiny=True)
    assert measure.check(model, model(), model(peers.PEERS[peer](model)), model.to(torch.float64)()).passes


@pytest.fixture
def tiny_models(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compare, "build", lambda name, dtype, batch: build(name, dtype, batch=batch, tiny=True))


def _speed(backends: list[str], monkeypatch: pytest.MonkeyPatch, peer: Any) -> compare.Result:
    monkeypatch.setitem(peers.PEERS, "openvino", peer)  # type: ignore[misc]
    job = {"model": "resnet50", "dtype": "float32", "batch": 1, "backends": backends, "seconds": 0.0, "beside": 0}
    return compare.run_speed(job)


@pytest.mark.usefixtures("tiny_models")
def test_a_peer_is_checked_and_timed_in_turn_with_backends(monkeypatch: pytest.MonkeyPatch) -> None:
    def twice_too_large(model: Model) -> Call:
        return lambda *args: [2 * model.module(*args)]

    result = _speed(["eager", "openvino"], monkeypatch, twice_too_large)
    assert set(result["ms"]) == {"eager", "openvino"}
    assert result["accuracy"]["eager"]["passes"]
    assert not result["accuracy"]["openvino"]["passes"]


def test_functions_apart_are_timed_by_the_second_call_after_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    monkeypatch.setattr(measure.time, "sleep", lambda seconds: calls.append("pause"))
    measure.take_turns({name: lambda name=name: calls.append(name) for name in "ab"}, 0.0, least=2, apart=True)  # type: ignore[misc]
    assert calls == ["pause", "a", "a", "pause", "b", "b"] * 2


@pytest.mark.usefixtures("tiny_models")
def test_a_model_that_a_peer_cannot_convert_leaves_the_others_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(model: Model) -> Call:
        raise NotImplementedError("no such operator")

    result = _speed(["openvino", "eager"], monkeypatch, refuse)
    assert result["failures"] == {"openvino": "NotImplementedError: no such operator"}
    assert set(result["ms"]) == {"eager"}


@pytest.mark.usefixtures("tiny_models")
def test_a_first_call_of_a_peer_counts_its_conversion(monkeypatch: pytest.MonkeyPatch) -> None:
    converted = []

    def convert(model: Model) -> Call:
        converted.append(model.name)
        return lambda *args: [model.module(*args)]

    monkeypatch.setitem(peers.PEERS, "openvino", convert)  # type: ignore[misc]
    job = {"model": "resnet50", "dtype": "float32", "batch": 1, "backend": "openvino"}
    assert compare.run_first_call(job)["seconds"] > 0
    assert converted == ["resnet50"]


def test_the_overhead_of_a_call_is_that_of_backends_alone() -> None:
    assert set(compare.run_overhead({"backends": ["eager", "openvino"]})["us"]) == {"eager"}
