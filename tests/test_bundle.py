"""The archive of a report: one command, everything in it that is needed, nothing that is private."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from inductor_cpu import bundle

PROGRAM = """
import sys
import torch

x = torch.randn(16)
y = torch.compile(lambda x: x * 2 + 1, backend="icpu")(x)
print("argument", sys.argv[1])
raise SystemExit(3)
"""


def read(archive: Path) -> dict[str, str]:
    """The text files of an archive, by name without the top folder and the number of the process."""
    with tarfile.open(archive) as tar:
        found = {}
        for member in tar.getmembers():
            file = tar.extractfile(member)
            if file is not None:
                found[member.name.split("/", 1)[1]] = file.read().decode()
    return found


def test_program_gives_an_archive_with_dumps_machine_and_findings(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "private-words")
    monkeypatch.setenv("ICPU_COMPILE_THREADS", "1")
    program, archive = tmp_path / "shows_it.py", tmp_path / "out" / "report.tar.gz"
    program.write_text(PROGRAM)
    assert bundle.main(["--out", str(archive), str(program), "--flag"]) == 0
    assert "no difference" in capsys.readouterr().out
    files = read(archive)
    names = {name.rsplit("/", 1)[-1] for name in files}
    assert {"program.py", "machine.txt", "repro.py", "repro_output.txt", "compile.sh"} <= names
    assert any(name.endswith(".cpp") for name in names)
    assert "argument --flag" in files["program_output.txt"]
    assert "ended with code 3" in files["program_output.txt"]
    assert "no difference" in files["findings.txt"]
    for words in ("icpu ", "torch 2", "CPU: ", "compiler: ", "settings: ", "variable ICPU_COMPILE_THREADS=1"):
        assert words in files["machine.txt"], words
    assert not [name for name, text in files.items() if "private-words" in text]


def test_dumps_made_before_and_a_difference_that_their_repro_finds(tmp_path: Path) -> None:
    folder = tmp_path / "dumps" / "1_000_inference_0"
    folder.mkdir(parents=True)
    (folder / "repro.py").write_text("print('icpu:\\n  DIFFERENT, at most 1 apart (result 0)'); raise SystemExit(1)")
    lines = bundle.bundle(tmp_path / "dumps", tmp_path / "report.tar.gz")
    assert lines == ["1_000_inference_0: A DIFFERENCE, see repro_output.txt"]
    assert "DIFFERENT" in read(tmp_path / "report.tar.gz")["dumps/1_000_inference_0/repro_output.txt"]


@pytest.mark.parametrize("asked", [["--dumps", "{}/nothing"], ["{}/nothing.py"]])
def test_nothing_to_bundle_is_an_error_that_says_so(
    asked: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert bundle.main(["--out", str(tmp_path / "x.tar.gz"), *(a.format(tmp_path) for a in asked)]) == 2
    assert "nothing" in capsys.readouterr().err
    assert not (tmp_path / "x.tar.gz").exists()
