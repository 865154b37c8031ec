"""What the figures were made on."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import psutil
import torch


def describe() -> dict[str, Any]:
    """The processor, its instruction sets, cores, memory, and the versions that matter, as plain data."""
    return {
        "cpu": _processor(),
        "capability": torch.backends.cpu.get_cpu_capability(),
        "isa": _instruction_sets(),
        "cores": psutil.cpu_count(logical=False),
        "logical_cores": psutil.cpu_count(),
        "memory_bytes": psutil.virtual_memory().total,
        "torch": torch.__version__,
        "commit": _commit(),
        "packages": {name: _version(name) for name in ("transformers", "timm", "torchvision", "torch_geometric")},
        "compiler": _compiler(),
        "system": platform.platform(),
        "load": list(os.getloadavg()),
    }


def sentence(machine: dict[str, Any]) -> str:
    """One line for a person."""
    return sentences([machine])[0]


def sentences(machines: Sequence[dict[str, Any]]) -> list[str]:
    """One line for each machine and version; runs that differ by the load only share one."""
    loads: dict[str, list[float]] = {}
    for machine in machines:
        loads.setdefault(_without_load(machine), []).append(machine["load"][0])
    return [f"{text}, load {_range(found)} at the start" for text, found in loads.items()]


def _without_load(machine: dict[str, Any]) -> str:
    commit = machine.get("commit")
    return (
        f"{machine['cpu']}, {machine['cores']} cores, {', '.join(machine['isa']) or machine['capability']},"
        f" torch {machine['torch']}, {machine['compiler']}" + (f", icpu at {commit}" if commit else "")
    )


def _range(loads: Sequence[float]) -> str:
    low, high = f"{min(loads):.1f}", f"{max(loads):.1f}"
    return low if low == high else f"{low} to {high}"


def _commit() -> str | None:
    """The commit of the working tree that this package is in; None where it is installed without one."""
    command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty", "--abbrev=9", "--exclude=*"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return None
    return done.stdout.strip() or None


def _processor() -> str:
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def _instruction_sets() -> list[str]:
    wanted = ("avx2", "avx512f", "avx512_bf16", "avx512_fp16", "amx_tile", "amx_bf16", "amx_fp16", "amx_int8")
    path = Path("/proc/cpuinfo")
    text = path.read_text() if path.exists() else ""
    flags = next((set(line.split(":", 1)[1].split()) for line in text.splitlines() if line.startswith("flags")), set())
    return [name for name in wanted if name in flags]


def _compiler() -> str:
    path = shutil.which(os.environ.get("CXX", "g++")) or shutil.which("clang++")
    if path is None:
        return "no C++ compiler"
    done = subprocess.run([path, "--version"], capture_output=True, text=True, check=False)
    return done.stdout.splitlines()[0] if done.stdout else path


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
