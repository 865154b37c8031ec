"""One archive for a report: `python -m inductor_cpu.bundle program.py [arguments]`.

The program runs with dumps and verification on; then every dumped graph is run again by its `repro.py`, which says
whether icpu, or its interpreter, differs from eager mode. The archive has all of it, and what the machine is. Weights
and inputs are not in it: a `repro.py` draws random numbers of the same shapes.

With `--dumps FOLDER` the archive is made from a folder that `ICPU_DUMP` filled before.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path

import torch

from inductor_cpu import __version__
from inductor_cpu.config import SETTINGS, snapshot, to_dict
from inductor_cpu.errors import IcpuError, UserError
from inductor_cpu.runtime.toolchain import find_toolchain
from inductor_cpu.targets.cpu import detect

#: Variables with these beginnings change what icpu or torch does; no other variable goes into the archive.
_VARIABLES = (
    "ICPU_",
    "OMP_",
    "KMP_",
    "GOMP_",
    "MKL_",
    "DNNL_",
    "ONEDNN_",
    "ATEN_",
    "TORCH",
    "PYTORCH_",
    "CXX",
    "LD_PRELOAD",
)
_PACKAGES = ("torch", "numpy", "sympy", "timm", "transformers", "torchvision")
_REPRO_SECONDS = 300.0


def bundle(dumps: Path, archive: Path, files: Mapping[str, str] | None = None) -> list[str]:
    """Write `archive` (a .tar.gz) from a folder of dumps, with `files` (name -> text) beside them.

    Runs the `repro.py` of each graph. Returns one line per graph: its name and what its repro found. Raises UserError
    if there are no dumps or the archive cannot be written.
    """
    graphs = sorted(folder for folder in dumps.iterdir() if (folder / "repro.py").exists()) if dumps.is_dir() else []
    if not graphs:
        raise UserError(f"{dumps} has no dumps: nothing was compiled with backend='icpu', or ICPU_DUMP was not set.")
    with tempfile.TemporaryDirectory(prefix="icpu-bundle-") as scratch:
        root = Path(scratch) / archive.name.removesuffix(".tar.gz")
        root.mkdir()
        lines = []
        for folder in graphs:
            copy = root / "dumps" / folder.name
            shutil.copytree(folder, copy)
            finding, printed = _run_repro(copy)
            (copy / "repro_output.txt").write_text(printed)
            lines.append(f"{folder.name}: {finding}")
        for name, text in (files or {}).items():
            (root / name).write_text(text)
        (root / "machine.txt").write_text("\n".join(describe_machine()) + "\n")
        (root / "findings.txt").write_text("\n".join(lines) + "\n")
        _pack(root, archive)
    return lines


def describe_machine() -> Iterator[str]:
    """Lines: versions, CPU, compiler, settings that differ from their defaults, variables, torch's own description."""
    yield f"icpu {__version__}, Python {platform.python_version()}, {platform.platform()}"
    for name in _PACKAGES:
        try:
            yield f"{name} {metadata.version(name)}"
        except metadata.PackageNotFoundError:
            continue
    target = detect()
    yield f"CPU: {target}"
    yield f"threads: {torch.get_num_threads()} of {os.cpu_count()} cores"
    try:
        yield f"compiler: {find_toolchain(snapshot().cpp.cxx).identity}"
    except IcpuError as error:
        yield f"compiler: {error}"
    settings = {k: v for k, v in to_dict(snapshot()).items() if v != SETTINGS[k].default}
    yield f"settings: {settings or 'all default'}"
    yield from (f"variable {k}={v}" for k, v in sorted(os.environ.items()) if k.startswith(_VARIABLES))
    yield torch.__config__.show()


def _run_repro(folder: Path) -> tuple[str, str]:
    """What the repro of a graph found, in a few words, and all that it printed."""
    done, printed = _run([sys.executable, "repro.py"], folder, {"ICPU_DUMP": ""}, _REPRO_SECONDS)
    if done is None:
        return f"no result in {_REPRO_SECONDS:.0f} s", printed
    if done == 0:
        return "no difference with random inputs", printed
    if "DIFFERENT" in printed:
        return "A DIFFERENCE, see repro_output.txt", printed
    return f"repro.py ended with code {done}, see repro_output.txt", printed


def _run(
    command: Sequence[str], folder: Path, variables: Mapping[str, str], seconds: float | None
) -> tuple[int | None, str]:
    """The exit code, or None after `seconds`, and what a command printed. Python finds this very package."""
    paths = [str(Path(__file__).resolve().parent.parent), os.environ.get("PYTHONPATH", "")]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths)), **variables}
    try:
        done = subprocess.run(
            command, cwd=folder, env=env, timeout=seconds, check=False,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        return None, error.stdout.decode(errors="replace") if isinstance(error.stdout, bytes) else ""
    return done.returncode, done.stdout


def _pack(root: Path, archive: Path) -> None:
    try:
        archive.parent.mkdir(parents=True, exist_ok=True)
        with tarfile.open(archive, "w:gz") as tar:
            tar.add(root, arcname=root.name)
    except OSError as error:
        raise UserError(f"cannot write {archive}: {error}. Give another place with --out.") from error


def _of_program(program: Path, arguments: Sequence[str], archive: Path) -> list[str]:
    """Run a program with dumps on and bundle what it dumped, also if it fails."""
    with tempfile.TemporaryDirectory(prefix="icpu-dumps-") as dumps:
        command = [sys.executable, str(program.resolve()), *arguments]
        code, printed = _run(command, Path.cwd(), {"ICPU_DUMP": dumps, "ICPU_VERIFY": "1"}, None)
        output = f"$ python {program.name} {' '.join(arguments)}\n{printed}\nended with code {code}\n"
        files = {"program.py": program.read_text(), "program_output.txt": output}
        return bundle(Path(dumps), archive, files)


def main(argv: Sequence[str] | None = None) -> int:
    """The command line. Returns 0, or 2 for a UserError, which it prints."""
    parser = argparse.ArgumentParser(prog="python -m inductor_cpu.bundle", description="Make one archive for a report.")
    parser.add_argument("--out", type=Path, help="the archive; default: icpu-report-<time>.tar.gz here")
    parser.add_argument("--dumps", type=Path, help="a folder that ICPU_DUMP filled, in place of a program")
    parser.add_argument("program", type=Path, nargs="?", help="a Python program that shows the fault")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="its arguments")
    asked = parser.parse_args(argv)
    if (asked.program is None) == (asked.dumps is None):
        parser.error("give a program, or --dumps FOLDER")
    archive = asked.out or Path(f"icpu-report-{time.strftime('%Y%m%d-%H%M%S')}.tar.gz")
    try:
        if asked.program is not None and not asked.program.is_file():
            raise UserError(f"there is no program {asked.program}")
        lines = _of_program(asked.program, asked.arguments, archive) if asked.program else bundle(asked.dumps, archive)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print("\n".join([*lines, f"wrote {archive}: please attach it to the report"]))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
