from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from inductor_cpu.config import snapshot
from inductor_cpu.ir.plan import KernelSource
from inductor_cpu.runtime.cache import KernelCache, open_cache
from inductor_cpu.runtime.compile import load_kernels
from inductor_cpu.runtime.toolchain import Toolchain, find_toolchain
from inductor_cpu.targets.cpu import target_for
from tests.runtime.support import ADD_ONE, PRELUDE, SCALE, SLEEP, THREADS, Runner, copy_of_executor


@pytest.fixture(scope="session")
def toolchain() -> Toolchain:
    return find_toolchain(sanitize=snapshot().cpp.sanitize)


@pytest.fixture(scope="session")
def prelude(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("prelude") / "icpu.h"
    path.write_text(PRELUDE)
    return path


@pytest.fixture(scope="session")
def executor_alone(toolchain: Toolchain, tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    """A second copy of the executor, which has no operators library."""
    return copy_of_executor(toolchain, tmp_path_factory.mktemp("executor"))


Load = Callable[..., dict[str, int]]


@pytest.fixture(scope="session")
def load(toolchain: Toolchain, prelude: Path, tmp_path_factory: pytest.TempPathFactory) -> Load:
    """load(*sources, cache=..., jobs=...) gives the addresses of kernels, by default from a cache of this session."""
    default = open_cache(tmp_path_factory.mktemp("kernels"))

    def call(*sources: KernelSource, cache: KernelCache = default, jobs: int = 2) -> dict[str, int]:
        return load_kernels(sources, target_for(), prelude, cache, toolchain, jobs)

    return call


@pytest.fixture(scope="session")
def addresses(load: Load) -> dict[str, int]:
    return load(ADD_ONE, SCALE, THREADS, SLEEP)


@pytest.fixture
def run(executor: ModuleType, addresses: dict[str, int]) -> Runner:
    return Runner(executor, addresses)


@pytest.fixture(params=["with the operators library", "without it"])
def either(
    request: pytest.FixtureRequest, executor: ModuleType, executor_alone: ModuleType, addresses: dict[str, int]
) -> Runner:
    """Runs plans as programs do, and as they do until the operators library is built."""
    return Runner(executor_alone if request.param == "without it" else executor, addresses)
