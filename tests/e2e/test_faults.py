"""Faults of the machine: no compiler, one that does not exist, a bad cache. A clear error or a right answer."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.faults.support import environment, remembering

PROGRAM = """
import sys
import torch
import inductor_cpu
x = torch.randn(31)
f = torch.compile(lambda x: x.sin() * 2 + x, backend="icpu")
torch.testing.assert_close(f(x), x.sin() * 2 + x)
print("right")
"""

#: Runs a program in a child for each line that it reads: an environment, and files for what the child prints. Torch is
#: loaded before, once; the package is not, as it reads the environment then.
SERVER = """
import json, os, sys
import torch, torch._dynamo, torch._functorch.aot_autograd

for line in sys.stdin:
    changes, *files = json.loads(line)
    if not (child := os.fork()):
        os.environ.update(changes)
        for file, stream in zip(files, (1, 2)):
            os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT), stream)
        exec(sys.argv[1], {"__name__": "__main__"})
        sys.exit()
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


class Done(NamedTuple):
    returncode: int
    stdout: str
    stderr: str


Run = Callable[..., Done]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """Runs the program in a process of its own, with changes to the environment."""
    command = [sys.executable, "-c", SERVER, PROGRAM]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment()
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        requests, answers = server.stdin, server.stdout

        def ask(**changes: str) -> Done:
            folder = tmp_path_factory.mktemp("run")
            files = folder / "stdout", folder / "stderr"
            requests.write(json.dumps([changes, *map(str, files)]) + "\n")
            requests.flush()
            code = int(answers.readline())
            return Done(code, *(file.read_text() for file in files))

        yield ask
        requests.close()


def test_no_compiler_is_a_user_error_that_says_how_to_get_one(run: Run, tmp_path: Path) -> None:
    done = run(PATH=str(tmp_path), CXX="", ICPU_CACHE_DIR=str(tmp_path / "cache"))
    assert done.returncode != 0
    assert "UserError" in done.stderr
    assert "g++" in done.stderr


@pytest.mark.parametrize("variable", ["CXX", "ICPU_CPP_CXX"])
def test_compiler_that_does_not_exist_is_a_user_error_that_names_it(variable: str, run: Run, tmp_path: Path) -> None:
    done = run(**{variable: "/nowhere/g++", "ICPU_CACHE_DIR": str(tmp_path / "cache")})
    assert done.returncode != 0
    assert "UserError" in done.stderr
    assert "/nowhere/g++" in done.stderr


def test_cache_folder_that_cannot_be_made_gives_a_warning_and_the_right_answer(run: Run, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = run(CXX=str(remembering(tmp_path)), ICPU_CACHE_DIR=str(tmp_path / "file" / "cache"))
    assert done.stdout.strip() == "right", done.stderr
    assert "cache" in done.stderr


def fake_compiler(folder: Path) -> Path:
    """A compiler that can be asked for its version and fails at everything else."""
    path = folder / "failing-g++"
    path.write_text('#!/bin/sh\ncase "$*" in *-dM*) exec g++ "$@";; esac\necho "error: out of patience" >&2\nexit 3\n')
    path.chmod(0o755)
    return path


def test_failing_compiler_is_an_error_with_its_words_and_its_cache_serves_also_when_damaged(
    run: Run, tmp_path: Path
) -> None:
    failing, compiler, cache = fake_compiler(tmp_path), str(remembering(tmp_path)), tmp_path / "cache"
    done = run(CXX=str(failing), ICPU_CACHE_DIR=str(cache))
    assert done.returncode != 0
    for text in ("InternalError", "out of patience", "ended with code 3", f"command: {failing}", "source: "):
        assert text in done.stderr, text
    done = run(CXX=compiler, ICPU_CACHE_DIR=str(cache))
    assert done.stdout.strip() == "right", done.stderr
    libraries = list(cache.rglob("*.so"))
    assert libraries
    for library in libraries:
        library.write_bytes(library.read_bytes()[:100])
    done = run(CXX=compiler, ICPU_CACHE_DIR=str(cache))
    assert done.stdout.strip() == "right", done.stderr


def test_dump_has_a_file_per_stage_and_the_kernels(run: Run, tmp_path: Path) -> None:
    done = run(ICPU_DUMP=str(tmp_path))
    assert done.stdout.strip() == "right", done.stderr
    (folder,) = tmp_path.iterdir()
    names = sorted(p.name for p in folder.iterdir())
    assert len([n for n in names if n[:2].isdigit()]) >= 4, names
    assert any(n.endswith(".cpp") for n in names), names
