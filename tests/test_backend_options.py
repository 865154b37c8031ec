"""How `torch.compile(..., backend="icpu")` takes options and modes, and how its errors reach the program."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch

import inductor_cpu
from inductor_cpu import backend
from inductor_cpu.config import Config
from inductor_cpu.graph.updated import Updates
from inductor_cpu.trace import CompileReport, Trace


class Recorder:
    """Stands for the pipeline: keeps what it is given and runs the graph as it is, or raises `error`."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.calls: list[tuple[str, Config, frozenset[int]]] = []

    def __call__(
        self,
        gm: torch.fx.GraphModule,
        *,
        kind: str,
        config: Config,
        trace: Trace,
        static_inputs: frozenset[int],
        free_results: frozenset[int] | None,
        updates: Updates,
    ) -> Callable[[list[Any]], Any]:
        self.calls.append((kind, config, static_inputs))
        if self.error is not None:
            raise self.error
        return Interpreted(gm, CompileReport(trace.graph, kind))


class Interpreted:
    """A compiled graph with the boxed calling convention."""

    _boxed_call = True

    def __init__(self, gm: torch.fx.GraphModule, report: CompileReport) -> None:
        self.gm = gm
        self.report = report

    def __call__(self, args: list[Any]) -> Any:
        values = list(args)
        args.clear()
        return torch.fx.Interpreter(self.gm).boxed_run(values)


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    made = Recorder()
    monkeypatch.setattr(backend, "compile_graph", made)
    return made


def double(x: torch.Tensor) -> torch.Tensor:
    return x * 2


def test_options_reach_the_compile_as_a_snapshot(recorder: Recorder) -> None:
    torch.compile(double, backend="icpu", options={"cpp.simdlen": 256})(torch.ones(3))
    assert [c[1].cpp.simdlen for c in recorder.calls] == [256]
    assert inductor_cpu.config.cpp.simdlen is None


def test_mode_reaches_the_compile(recorder: Recorder) -> None:
    torch.compile(double, backend="icpu", mode="max-autotune")(torch.ones(3))
    assert [c[1].max_autotune for c in recorder.calls] == [True]


def test_settings_of_the_program_reach_the_compile(recorder: Recorder) -> None:
    with inductor_cpu.config.patch({"cpp.weight_prepack": False}):
        torch.compile(double, backend="icpu")(torch.ones(3))
    assert [c[1].cpp.weight_prepack for c in recorder.calls] == [False]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"options": {"cpp.simdln": 256}}, "Did you mean 'cpp.simdlen'"),
        ({"options": {"cpp.simdlen": "256"}}, "'cpp.simdlen' takes one of"),
        ({"mode": "max-autotun"}, "Did you mean 'max-autotune'"),
    ],
)
def test_wrong_option_is_a_plain_user_error_at_the_first_call(arguments: dict[str, Any], text: str) -> None:
    with pytest.raises(inductor_cpu.UserError, match=text):
        torch.compile(double, backend="icpu", **arguments)(torch.ones(3))


def test_internal_error_reaches_the_program_with_its_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    error = inductor_cpu.InternalError("schedule", "two writers", "/dumps/7")
    monkeypatch.setattr(backend, "compile_graph", Recorder(error))
    with pytest.raises(inductor_cpu.InternalError, match=r"stage 'schedule': two writers(.|\n)*/dumps/7") as caught:
        torch.compile(double, backend="icpu")(torch.ones(3))
    assert (caught.value.stage, caught.value.dump) == ("schedule", "/dumps/7")


def test_a_pass_over_both_directions_that_fails_is_an_internal_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ValueError("two owners")

    monkeypatch.setattr(backend, "run_joint_passes", fail)
    with pytest.raises(inductor_cpu.InternalError, match=r"stage 'graph': ValueError: two owners"):
        torch.compile(double, backend="icpu")(torch.ones(3, requires_grad=True))


def test_forward_and_backward_are_compiled_apart_with_the_same_settings(recorder: Recorder) -> None:
    model = torch.nn.Linear(3, 2)
    x = torch.randn(4, 3, requires_grad=True)
    torch.compile(model, backend="icpu", options={"cpp.simdlen": 256})(x).sum().backward()
    assert [(kind, config.cpp.simdlen) for kind, config, _ in recorder.calls] == [("forward", 256), ("backward", 256)]
    torch.testing.assert_close(x.grad, model.weight.sum(0).expand(4, 3))


def test_lazy_backward_gets_boxed_arguments(recorder: Recorder) -> None:
    x = torch.ones(4, requires_grad=True)
    torch.compile(lambda x: x.sin().sum(), backend="icpu", dynamic=True)(x).backward()
    assert [c[0] for c in recorder.calls] == ["forward", "backward"]
    torch.testing.assert_close(x.grad, torch.ones(4).cos())


def test_parameters_and_buffers_are_static_inputs_of_inference(recorder: Recorder) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2)).eval()
    with torch.no_grad():
        torch.compile(model, backend="icpu")(torch.randn(4, 3))
    ((kind, _, static),) = recorder.calls
    assert kind == "inference"
    assert len(static) == 6


@pytest.mark.parametrize(
    ("function", "x"),
    [
        (lambda x: x * 2, torch.ones(3, device="meta")),
        (lambda x: (x + x).to_dense(), torch.ones(3, 3).to_mkldnn()),
        (lambda x: torch.quantize_per_tensor(x, 0.5, 0, torch.quint8), torch.ones(3)),
    ],
    ids=["other device", "other layout", "quantized"],
)
@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor")
def test_tensor_that_is_not_plain_cpu_runs_in_eager_mode_and_says_so(
    function: Callable[[torch.Tensor], torch.Tensor],
    x: torch.Tensor,
    recorder: Recorder,
    caplog: pytest.LogCaptureFixture,
) -> None:
    expected = function(x)
    result = torch.compile(function, backend="icpu")(x)
    assert (result.device, result.layout, result.dtype) == (expected.device, expected.layout, expected.dtype)
    assert recorder.calls == []
    assert "eager mode" in caplog.text


def test_other_device_inside_the_graph_runs_in_eager_mode(recorder: Recorder) -> None:
    def f(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x + 1, torch.empty(3, device="meta") + 1

    cpu, meta = torch.compile(f, backend="icpu")(torch.ones(3))
    torch.testing.assert_close(cpu, torch.full((3,), 2.0))
    assert meta.device.type == "meta"
    assert recorder.calls == []


def test_explain_tells_graphs_breaks_and_kinds(recorder: Recorder) -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        y = x + 1
        torch._dynamo.graph_break()
        return y * 2

    explained = inductor_cpu.explain(f, torch.ones(3))
    assert [g.kind for g in explained.graphs] == ["inference", "inference"]
    assert sum(count for _, count in explained.breaks) == 1
    assert "2 graph(s), 1 graph break(s)" in str(explained)
    assert "graph_break()" in str(explained)


def fresh(program: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run `program` in a new process with this checkout on its path."""
    path = os.pathsep.join(p for p in sys.path if p)
    env = {**os.environ, "PYTHONPATH": path, **environment}
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=env, check=False)


def test_import_registers_the_backend_and_does_not_import_the_compiler() -> None:
    done = fresh(
        "import sys, inductor_cpu, torch\n"
        "assert 'icpu' in torch._dynamo.list_backends()\n"
        "assert 'inductor_cpu.backend' not in sys.modules, 'too early'\n"
        "torch.compile(lambda x: x, backend='icpu')\n"
        "assert 'inductor_cpu.backend' in sys.modules\n"
        "import inductor_cpu.backend\n"
        "torch.compile(lambda x: x, backend='icpu')\n"
    )
    assert done.returncode == 0, done.stderr


def test_bad_environment_variable_is_a_user_error_that_names_it() -> None:
    done = fresh(
        "import torch, inductor_cpu\ntorch.compile(lambda x: x + 1, backend='icpu')(torch.ones(3))",
        ICPU_CPP_SIMDLEN="wide",
    )
    assert done.returncode != 0
    assert "UserError: environment variable ICPU_CPP_SIMDLEN takes one of" in done.stderr


def test_package_imports_nothing_of_stock_inductor() -> None:
    root = os.path.dirname(inductor_cpu.__file__)
    for folder, _, names in os.walk(root):
        for name in (n for n in names if n.endswith(".py")):
            with open(os.path.join(folder, name), encoding="utf-8") as file:
                bad = [n for n in file if n.lstrip().startswith(("import torch._inductor", "from torch._inductor"))]
            assert not bad, f"{name}: {bad}"
