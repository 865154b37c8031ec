"""Faults of the machine: no compiler, one that does not exist, a bad cache. A clear error or a right answer."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults.support import remembering

ROOT = Path(__file__).resolve().parents[2]

PROGRAM = """
import sys
import torch
import inductor_cpu
x = torch.randn(31)
f = torch.compile(lambda x: x.sin() * 2 + x, backend="icpu")
torch.testing.assert_close(f(x), x.sin() * 2 + x)
print("right")
"""


def run(**environment: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
    return subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, env=env, check=False)


def test_no_compiler_is_a_user_error_that_says_how_to_get_one(tmp_path: Path) -> None:
    done = run(PATH=str(tmp_path), CXX="", ICPU_CACHE_DIR=str(tmp_path / "cache"))
    assert done.returncode != 0
    assert "UserError" in done.stderr
    assert "g++" in done.stderr


@pytest.mark.parametrize("variable", ["CXX", "ICPU_CPP_CXX"])
def test_compiler_that_does_not_exist_is_a_user_error_that_names_it(variable: str, tmp_path: Path) -> None:
    done = run(**{variable: "/nowhere/g++", "ICPU_CACHE_DIR": str(tmp_path / "cache")})
    assert done.returncode != 0
    assert "UserError" in done.stderr
    assert "/nowhere/g++" in done.stderr


def test_cache_folder_that_cannot_be_made_gives_a_warning_and_the_right_answer(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = run(CXX=str(remembering(tmp_path)), ICPU_CACHE_DIR=str(tmp_path / "file" / "cache"))
    assert done.stdout.strip() == "right", done.stderr
    assert "cache" in done.stderr


def test_damaged_cache_gives_the_right_answer(tmp_path: Path) -> None:
    cache, compiler = tmp_path / "cache", str(remembering(tmp_path))
    assert run(CXX=compiler, ICPU_CACHE_DIR=str(cache)).stdout.strip() == "right"
    libraries = list(cache.rglob("*.so"))
    assert libraries
    for library in libraries:
        library.write_bytes(library.read_bytes()[:100])
    done = run(CXX=compiler, ICPU_CACHE_DIR=str(cache))
    assert done.stdout.strip() == "right", done.stderr


def fake_compiler(folder: Path) -> Path:
    """A compiler that can be asked for its version and fails at everything else."""
    path = folder / "failing-g++"
    path.write_text('#!/bin/sh\ncase "$*" in *-dM*) exec g++ "$@";; esac\necho "error: out of patience" >&2\nexit 3\n')
    path.chmod(0o755)
    return path


def test_failing_compiler_is_an_error_with_its_words_and_leaves_the_cache_usable(tmp_path: Path) -> None:
    compiler, cache = fake_compiler(tmp_path), str(tmp_path / "cache")
    done = run(CXX=str(compiler), ICPU_CACHE_DIR=cache)
    assert done.returncode != 0
    for text in ("InternalError", "out of patience", "ended with code 3", f"command: {compiler}", "source: "):
        assert text in done.stderr, text
    assert run(CXX=str(remembering(tmp_path)), ICPU_CACHE_DIR=cache).stdout.strip() == "right"


def test_dump_has_a_file_per_stage_and_the_kernels(tmp_path: Path) -> None:
    done = run(ICPU_DUMP=str(tmp_path))
    assert done.stdout.strip() == "right", done.stderr
    (folder,) = tmp_path.iterdir()
    names = sorted(p.name for p in folder.iterdir())
    assert len([n for n in names if n[:2].isdigit()]) >= 4, names
    assert any(n.endswith(".cpp") for n in names), names
