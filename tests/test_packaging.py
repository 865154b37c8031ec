"""The wheel: what it carries, and that it works where there is no checkout."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def run(*command: str, **options: object) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(command, capture_output=True, text=True, check=False, **options)  # type: ignore[call-overload]
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}\n{done.stderr}"
    return done  # type: ignore[no-any-return]


def pip(*arguments: str) -> None:
    run(sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", *arguments)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout. No build isolation: the test needs no network."""
    folder = tmp_path_factory.mktemp("wheel")
    pip("wheel", str(ROOT), "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder))
    (path,) = folder.glob("*.whl")
    return path


def files_below(folder: Path) -> set[str]:
    found = (p for p in folder.rglob("*") if p.is_file() and "__pycache__" not in p.parts)
    return {str(p.relative_to(folder)) for p in found}


def test_wheel_carries_package_native_sources_and_templates_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = {n for n in archive.namelist() if ".dist-info/" not in n}
    package = {f"inductor_cpu/{n}" for n in files_below(ROOT / "inductor_cpu")}
    templates = {f"inductor_cpu/templates/{n}" for n in files_below(ROOT / "templates")}
    assert templates
    assert any(n.startswith("inductor_cpu/runtime/native/") and n.endswith(".cpp") for n in names)
    assert names == package | templates


def test_wheel_metadata_has_entry_point_and_runtime_dependencies(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        info = {Path(n).name: archive.read(n).decode() for n in archive.namelist() if ".dist-info/" in n}
    assert "[torch_dynamo_backends]\nicpu = inductor_cpu.backend:icpu" in info["entry_points.txt"]
    required = [line for line in info["METADATA"].splitlines() if line.startswith("Requires-Dist") and ";" not in line]
    assert sorted(line.split(":")[1].strip().partition(">")[0].partition("<")[0] for line in required) == [
        "jinja2",
        "sympy",
        "torch",
    ]


PROGRAM = """
import sys
checkout, site = sys.argv[1:]
sys.path[:] = [p for p in sys.path if p != checkout]  # an editable install puts it there
import torch
assert not any(m.startswith("inductor_cpu") for m in sys.modules)
f = torch.compile(lambda x: torch.nn.functional.layer_norm(x.sin() + 1, (64,)), backend="icpu")
x = torch.randn(8, 64)
torch.testing.assert_close(f(x), torch.nn.functional.layer_norm(x.sin() + 1, (64,)))
paths = {m.__file__ for n, m in sys.modules.items() if n.split(".")[0] == "inductor_cpu" and m.__file__}
assert paths and all(p.startswith(site) for p in paths), paths
print("compiled")
"""


def test_installed_wheel_compiles_by_name_with_no_import_from_another_folder(wheel: Path, tmp_path: Path) -> None:
    site, elsewhere = tmp_path / "site", tmp_path / "elsewhere"
    elsewhere.mkdir()
    pip("install", "--no-deps", "--no-index", "--target", str(site), str(wheel))
    environment = {**os.environ, "PYTHONPATH": str(site)}
    done = run(sys.executable, "-c", PROGRAM, str(ROOT), str(site), cwd=elsewhere, env=environment)
    assert done.stdout.strip() == "compiled"
