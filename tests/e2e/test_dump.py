"""The files of a dump can be used: the graph runs again, the kernels compile."""

from __future__ import annotations

import os
import runpy
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from inductor_cpu.codegen import generate
from inductor_cpu.ir.plan import KernelSource
from tests.e2e.support import Function

Tensor = torch.Tensor


def dump(folder: Path, function: Function, *args: Any, **options: Any) -> Path:
    """The dump folder of the only graph of `function`."""
    compiled = torch.compile(function, backend="icpu", options={"dump": str(folder)}, **options)
    with torch.no_grad():
        compiled(*args)
    (made,) = folder.iterdir()
    return made


def run_repro(folder: Path) -> int:
    with pytest.raises(SystemExit) as end:
        runpy.run_path(str(folder / "repro.py"), run_name="__main__")
    assert isinstance(end.value.code, int)
    return end.value.code


def layered(x: Tensor, w: Tensor, i: Tensor) -> Any:
    h = F.layer_norm(x.t() + torch.tensor([1.0, float("inf"), 3.0]).clamp(max=2), (3,), w)
    return h, F.embedding(i, h).sum(), x.to(torch.bfloat16) * 2


def conditional(x: Tensor) -> Tensor:
    return torch.cond(x.sum() > 0, lambda x: x.sin() + 1, lambda x: x.cos() - 1, (x,)) * 2


def scaled(x: Tensor, n: int) -> Tensor:
    return x.reshape(-1, 2) * n


def updated(x: Tensor) -> Tensor:
    x.add_(1)
    return F.dropout(x, 0.5)


@pytest.mark.parametrize(
    ("function", "args", "dynamic"),
    [
        (layered, (torch.randn(3, 8), torch.randn(3), torch.tensor([1, 0])), False),
        (conditional, (torch.ones(5),), False),
        (scaled, (torch.randn(4, 6), 3), True),
        (updated, (torch.randn(4, 6),), False),
    ],
    ids=["layers", "condition", "dynamic", "mutation"],
)
def test_repro_runs_the_graph_again_and_finds_no_difference(
    function: Function, args: tuple[Any, ...], dynamic: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = dump(tmp_path, function, *args, dynamic=dynamic)
    code = run_repro(folder)
    printed = capsys.readouterr().out
    assert code == 0, printed
    assert "icpu:" in printed
    assert "debug_interpret:" in printed
    assert printed.count("close, at most") >= 2


def test_repro_shows_a_wrong_kernel_and_that_the_program_is_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = dump(tmp_path, lambda x: x.exp() + 1, torch.randn(40))
    right = generate.generate

    def wrong(*args: Any) -> KernelSource:
        source = right(*args)
        code = source.code.replace("double(1", "double(7").replace("float(1", "float(7").replace("1.0f", "7.0f")
        symbol = source.symbol[:-4] + "beef"
        return KernelSource(symbol, source.label, code.replace(source.symbol, symbol))

    monkeypatch.setattr(generate, "generate", wrong)
    assert run_repro(folder) == 1
    icpu, interpreter = capsys.readouterr().out.split("debug_interpret:")
    assert "DIFFERENT" in icpu
    assert "DIFFERENT" not in interpreter


def test_repro_of_a_failing_compile_is_written_and_shows_the_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: Any) -> KernelSource:
        raise ValueError("no code today")

    monkeypatch.setattr(generate, "generate", fail)
    with pytest.raises(Exception, match="no code today"):
        dump(tmp_path, lambda x: x.exp(), torch.randn(40))
    (folder,) = tmp_path.iterdir()
    assert run_repro(folder) == 1
    assert "InternalError" in capsys.readouterr().out


def test_compile_script_builds_every_kernel(tmp_path: Path) -> None:
    folder = dump(tmp_path, lambda x: (x.exp() + 1).sum(0).sort().values * 2, torch.randn(40, 30))
    sources = sorted(folder.glob("*.cpp"))
    assert sources
    subprocess.run(["sh", str(folder / "compile.sh")], check=True, env=os.environ)
    assert [path.with_suffix(".so").exists() for path in sources] == [True] * len(sources)
