"""Shared by all tests: verification on, a kernel cache inside the checkout, a fresh Dynamo and seed for every test."""

from __future__ import annotations

import gc
import logging
import os
import signal
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import ModuleType

import pytest

# Before torch is loaded: OpenMP reads its environment then. Each process of a run has a thread for each core. One that
# spins while it waits for another keeps a third from running, which may be the one that it waits for.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import torch
import torch._dynamo

import bench_suites
from inductor_cpu.config import snapshot
from inductor_cpu.runtime.cache import content_key, open_cache
from inductor_cpu.runtime.executor import complete_executor, load_executor
from inductor_cpu.runtime.private import why_parents_unsafe
from inductor_cpu.runtime.process import ProcessGroup
from inductor_cpu.runtime.toolchain import find_toolchain
from inductor_cpu.targets.cpu import LEVELS
from tests.emulation.machine import VARIABLE, take_for_emulated

ROOT = Path(__file__).resolve().parent.parent

#: What may happen to a micro kernel, the best first: the first that happened in any test is told.
FATES = ("ran", "emulated", "compiled only", "not compiled", "not run")


def _cache_folder() -> str:
    """Inside the checkout; elsewhere if other users may write to a folder above it, as on some build machines."""
    inside = ROOT / "build" / "test_kernel_cache"
    outside = Path(tempfile.gettempdir()) / f"icpu-tests-{os.geteuid()}" / content_key(str(ROOT))
    return str(outside if why_parents_unsafe(inside.parent) else inside)


# Before any test imports the package: it reads its environment once. The cache outlives a run; its keys are contents.
os.environ.setdefault("ICPU_VERIFY", "1")
os.environ.setdefault("ICPU_CACHE_DIR", _cache_folder())
os.environ.setdefault("ICPU_FALLBACK_RANDOM", "1")  # most tests compare with eager's numbers

# A graph's kernels are cut into as many units as there may be compilers. Where the processes of a run keep all cores
# busy, more than a unit takes time for the headers, the templates and the linker, and gives none back.
if (workers := int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))) > 1:
    os.environ.setdefault("ICPU_COMPILE_THREADS", str(max(len(os.sched_getaffinity(0)) // workers, 1)))

# A shell starts what runs in the background (`nohup make test &`) with SIGINT ignored, and programs inherit that: the
# tests of interrupts would wait for ever.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

if os.environ.get(VARIABLE):
    take_for_emulated()

# Declares torchvision's operators before any test imports timm.
assert hasattr(torch.ops.torchvision, "nms"), bench_suites.torchvision_ops.__doc__

# After each compile Dynamo empties the caches of the CPU to measure how long its guards take: 0.07 s for a line of log.
torch._dynamo.guards.profile_guard_manager = lambda *_args: 0.0


# Pytest listens to loggers that hand nothing on. Torch writes each graph several times for whoever listens to this one.
logging.getLogger("torch.__trace").propagate = True


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Iterator[None]:
    """What a module draws while it is imported depends on no other module, nor on which tests were asked for."""
    if isinstance(collector, pytest.Module):
        torch.manual_seed(1000)  # not the tests' own: two draws from one seed are not independent
    return (yield)


def pytest_collection_finish() -> None:
    """What modules and tests consist of is garbage at no time: Python need not look through it again and again. And
    compiles make many objects that live a little while: looked at as often as usual, they take a tenth of the time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000)


@pytest.fixture(scope="session", autouse=True)
def executor() -> ModuleType:
    """The native executor, with its operators library from the first test on: programs get that in the background."""
    module = load_executor(open_cache(), find_toolchain(sanitize=snapshot().cpp.sanitize))
    complete_executor(ProcessGroup())
    return module


@pytest.fixture(autouse=True)
def fresh_torch() -> Iterator[None]:
    """Each test starts with seed 0 and nothing compiled."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    yield
    torch._dynamo.reset()


@pytest.fixture(autouse=True)
def no_compile_without_what_is_prebuilt(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """What is prebuilt and does not serve is given up with a warning, which nobody reads in a test that passes."""
    yield
    said = [record.getMessage() for when in ("setup", "call") for record in caplog.get_records(when)]
    assert not [text for text in said if "works only without what was prebuilt" in text]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Which generations of CPUs the micro kernels ran for, were compiled for only, or neither: tests of the manifest
    leave it in the properties of their reports, which come from other processes too."""
    reports = [report for key in ("passed", "failed", "skipped") for report in terminalreporter.stats.get(key, [])]
    found = [value for report in reports for name, value in report.user_properties if name == "micro_kernel"]
    for line in summary(found):
        terminalreporter.write_line(line)


def summary(found: Iterable[Sequence[str]]) -> list[str]:
    """A line for each generation from (generation, micro kernel, what happened to it)."""
    happened: dict[str, dict[str, set[str]]] = {}
    for level, name, what in found:
        happened.setdefault(level, {}).setdefault(name, set()).add(what)
    lines = []
    for level in (level for level in LEVELS if level in happened):
        by_fate: dict[str, list[str]] = {}
        for name, fates in sorted(happened[level].items()):
            by_fate.setdefault(next((fate for fate in FATES if fate in fates), "not run"), []).append(name)
        lines.append(f"{level}: " + "; ".join(f"{fate} {', '.join(by_fate[fate])}" for fate in by_fate))
    return ["micro kernels", *(f"  {line}" for line in lines)] if lines else []
