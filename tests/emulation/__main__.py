"""Run tests as on a CPU with AVX-512 and AMX, which are emulated where this one lacks them.

    python -m tests.emulation [arguments of pytest]

Kernels of AVX-512 take about ten times as long as real ones. What torch computes itself knows nothing of it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.emulation.machine import VARIABLE

ROOT = Path(__file__).resolve().parents[2]

#: What compiles kernels by the instruction set, and what chooses among kernels.
TESTS = ("tests/codegen", "tests/kernels", "tests/graph", "tests/schedule", "tests/lower", "tests/e2e")


def main(arguments: list[str]) -> int:
    """Run pytest. Returns its exit code."""
    chosen = any(not argument.startswith("-") for argument in arguments)
    command = [sys.executable, "-m", "pytest", *arguments, *(() if chosen else TESTS)]
    return subprocess.run(command, env={**os.environ, VARIABLE: "1"}, cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
