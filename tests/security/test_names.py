"""Names of the model never become code: quotes, newlines, ends of comments, other alphabets."""

from __future__ import annotations

import ast
import string
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from inductor_cpu import paths
from inductor_cpu.runtime import compile as compile_module
from inductor_cpu.runtime.cache import open_cache
from inductor_cpu.runtime.compile import load_kernels
from inductor_cpu.runtime.toolchain import Toolchain, find_toolchain
from inductor_cpu.targets.cpu import target_for
from tests.runtime.support import kernel

EVIL = (
    'a"b',
    "x */ int evil; /*",
    "x\nint evil = 1;",
    "x\\",
    "??/",
    "naïve_模型",
    "a'b;$(touch evil)`id`",
    "%s{0}",
    "\x00",
)
SAFE = set(string.ascii_letters + string.digits + " .,:()<>=+-_")

PACKAGE = Path(paths.__file__).parent


@pytest.mark.parametrize("name", EVIL)
def test_a_label_is_spelled_in_a_safe_alphabet(name: str) -> None:
    comment = compile_module._comment(name)
    assert set(comment) <= SAFE
    assert len(comment) == len(name)


def test_a_library_of_kernels_with_evil_labels_compiles_to_the_same_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prelude = tmp_path / "icpu.h"
    prelude.write_text("#include <stdint.h>\n")
    texts: list[str] = []
    original = compile_module.run_compiler

    def reading(command: list[str], *rest: object, **more: object) -> None:
        texts.append(next(Path(word) for word in command if word.endswith(".cpp")).read_text())
        original(command, *rest, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(compile_module, "run_compiler", reading)
    plain = [kernel(f"*(int64_t*)p[0] = {n};", "plain") for n in range(len(EVIL))]
    evil = [replace(source, label=name) for source, name in zip(plain, EVIL, strict=True)]
    assert load_kernels(evil, target_for(), prelude, open_cache(tmp_path / "cache"), find_toolchain(), 1)
    (text,) = texts
    assert [line for line in text.splitlines() if not line.startswith("//")] == [
        line for source in sorted(plain, key=lambda s: text.index(s.symbol)) for line in source.code.splitlines()
    ]
    assert text.isascii()


class Named(nn.Module):
    """Parameters, buffers and modules with names that are no identifiers."""

    def __init__(self) -> None:
        super().__init__()
        for name in (n for n in EVIL if "." not in n):
            self.register_parameter(f"p{name}", nn.Parameter(torch.randn(7)))
            self.register_buffer(f"b{name}", torch.randn(7))
            self.add_module(f"m{name}", nn.Linear(7, 7))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for name in (n for n in EVIL if "." not in n):
            x = getattr(self, f"m{name}")(x * getattr(self, f"p{name}") + getattr(self, f"b{name}")).tanh()
        return x


def test_a_model_with_evil_names_compiles_and_is_right(tmp_path: Path) -> None:
    model, x = Named().eval(), torch.randn(3, 7)
    compiled = torch.compile(model, backend="icpu", options={"dump": str(tmp_path)})
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), model(x))
    sources = list(tmp_path.rglob("icpu_*.cpp"))
    assert sources
    for path in sources:
        text = path.read_text()
        assert text.isascii()
        assert "evil" not in text
    for path in tmp_path.rglob("repro.py"):
        ast.parse(path.read_text())


def test_evil_names_of_graph_nodes_do_not_reach_the_code(tmp_path: Path) -> None:
    def backend(gm: torch.fx.GraphModule, inputs: object) -> object:
        for node, name in zip((n for n in gm.graph.nodes if n.op == "call_function"), EVIL, strict=False):
            node.name = name
        from_backend = torch._dynamo.lookup_backend("icpu")
        return from_backend(gm, inputs, options={"dump": str(tmp_path)})

    def function(x: torch.Tensor) -> torch.Tensor:
        for _ in EVIL:
            x = x.sin() + 1
        return x

    x = torch.randn(33)
    torch.testing.assert_close(torch.compile(function, backend=backend)(x), function(x))
    for path in tmp_path.rglob("icpu_*.cpp"):
        assert path.read_text().isascii()
        assert "evil" not in path.read_text()


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_no_source_starts_a_shell_or_trusts_a_pickle(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = {alias.name.split(".")[0] for alias in node.names} | {str(getattr(node, "module", ""))}
            assert not names & {"pickle", "cPickle", "marshal", "shelve", "dill", "cloudpickle"}
        if isinstance(node, ast.Call):
            words = ast.unparse(node.func)
            assert words not in {"os.system", "os.popen", "torch.load", "eval", "exec", "subprocess.getoutput"}
            assert not any(k.arg == "shell" for k in node.keywords)


def test_a_compiler_name_with_shell_words_is_not_given_to_a_shell(tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    found = find_toolchain(f'g++ "-DX=$(touch {marker})" -DY=`id`')
    assert isinstance(found, Toolchain)
    assert not marker.exists()
