"""What the tests of kernels share: the ISAs of this machine, a library of a file's kernels, guarded memory."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Iterator, Sequence

import pytest
import torch

from tests.codegen.harness import Library, available, library_of


@pytest.fixture(scope="module")
def isa(request: pytest.FixtureRequest) -> str:
    """Each instruction set of this machine, scalar code among them; in a file with a list `ISAS`, those."""
    return str(request.param)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Choose the values of `isa`, unless the test does it itself."""
    own = {name for mark in metafunc.definition.iter_markers("parametrize") for name in _names(mark.args[0])}
    if "isa" in metafunc.fixturenames and "isa" not in own:
        metafunc.parametrize("isa", getattr(metafunc.module, "ISAS", available()), indirect=True, scope="module")


def _names(names: str | Sequence[str]) -> Sequence[str]:
    return [names] if isinstance(names, str) else names


@pytest.fixture(scope="module")
def library(request: pytest.FixtureRequest, isa: str) -> Library:
    """What the file's `kernels(isa)` gives, compiled: those with keys in its `FULL`, if it has that, when a `full` case
    calls one of them."""
    return library_of(isa, request.module.kernels(isa), getattr(request.module, "FULL", ()))


@pytest.fixture(scope="module")
def last_page() -> Iterator[torch.Tensor]:
    """A page of bytes; whoever reads beyond it ends the process."""
    size = mmap.PAGESIZE
    pages = mmap.mmap(-1, 2 * size)
    page = torch.frombuffer(pages, dtype=torch.uint8)
    address, protect = page.data_ptr() + size, ctypes.CDLL(None).mprotect
    protect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    assert protect(address, size, 0) == 0
    yield page[:size]
    assert protect(address, size, mmap.PROT_READ | mmap.PROT_WRITE) == 0
