from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from inductor_cpu.runtime import compile as compile_module
from inductor_cpu.runtime.cache import KernelCache, open_cache
from tests.faults.support import children, leftovers
from tests.runtime.conftest import load, prelude, toolchain

__all__ = ["load", "prelude", "toolchain"]


@pytest.fixture
def cache(tmp_path: Path) -> KernelCache:
    """An empty cache."""
    return open_cache(tmp_path / "cache")


@pytest.fixture
def warm() -> KernelCache:
    """The cache of the tests."""
    return open_cache()


@pytest.fixture(autouse=True)
def nothing_stays(tmp_path: Path) -> Iterator[None]:
    """No test leaves a process, a zombie or, in a cache of its own, a temporary file."""
    before = children()
    yield
    assert children() <= before
    if (tmp_path / "cache" / "tmp").is_dir():
        assert leftovers(KernelCache(tmp_path / "cache")) == []


@pytest.fixture(autouse=True)
def new_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a new process: nothing is loaded."""
    monkeypatch.setattr(compile_module, "_LOADED", compile_module._Loaded())
