"""Run tests with kernels and executor under AddressSanitizer and UndefinedBehaviorSanitizer, and red zones on.

    python -m tests.sanitize [arguments of pytest]

AddressSanitizer writes a file for each process that does something wrong, the other one to standard error (it does not
obey log_path), and both let it go on. Ends with 1 if a test fails or there is a report. torch itself is not
instrumented: leaks (which it has at exit) are not looked for.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from inductor_cpu.runtime.toolchain import find_toolchain

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "build" / "sanitize"

#: Characters of a report that are shown.
MOST_SHOWN = 8000

#: What runs kernels and the executor: those that tests make, the corpus of models' loop nests, and the part of the
#: operator sweep that every test run has.
TESTS = (
    "tests/codegen",
    "tests/kernels",
    "tests/bench_suites/test_kernels.py",
    "tests/sweep",
    "tests/runtime/test_executor.py",
    "tests/runtime/test_externs.py",
    "tests/e2e",
    "tests/semantics",
)


def environment(reports: Path) -> dict[str, str]:
    """The variables of a process that can load sanitized code, and makes it. Reports on memory are files
    `reports`.<process>."""
    options = f"halt_on_error=0:print_stacktrace=1:log_path={reports}"
    cxx = find_toolchain().command
    libraries = [
        _answer([*cxx, f"-print-file-name={name}"]) for name in ("libasan.so", "libubsan.so", "libstdc++.so.6")
    ]
    return {
        **os.environ,
        "LD_PRELOAD": " ".join(libraries),
        # Every library of kernels has the same tables of the prelude.
        "ASAN_OPTIONS": f"{options}:detect_leaks=0:detect_odr_violation=0:allocator_may_return_null=1",
        "UBSAN_OPTIONS": options,
        "ICPU_CPP_SANITIZE": "1",
        "ICPU_DEBUG_REDZONES": "1",
        "ICPU_CACHE_DIR": str(FOLDER / "cache"),
    }


def _answer(command: list[str]) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def main(arguments: list[str]) -> int:
    """Run pytest and show what the sanitizers wrote. Returns the exit code."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    name = f"report-{os.getpid()}"
    chosen = any(not argument.startswith("-") for argument in arguments)
    # Not --capture=fd, which would swallow what the sanitizers say of tests that pass.
    command = [sys.executable, "-m", "pytest", "--capture=sys", *arguments, *(() if chosen else existing(TESTS))]
    said = FOLDER / f"{name}.stderr"
    with said.open("w") as file:
        code = subprocess.run(command, env=environment(FOLDER / name), cwd=ROOT, stderr=file, check=False).returncode
    undefined = [line for line in said.read_text(errors="replace").splitlines() if "runtime error: " in line]
    reports = sorted(set(FOLDER.glob(f"{name}.*")) - {said})
    for report in reports:
        print(f"\n{report}\n{report.read_text(errors='replace')[:MOST_SHOWN]}")
    print("\n".join(["", *sorted(set(undefined))]))
    print(f"sanitizers: {len(reports)} reports on memory, {len(undefined)} on undefined behaviour ({said})")
    return code or bool(reports or undefined)


def existing(paths: tuple[str, ...]) -> list[str]:
    """Those of these paths that the checkout has."""
    return [path for path in paths if (ROOT / path).exists()]


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
