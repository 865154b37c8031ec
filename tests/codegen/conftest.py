"""What the tests of kernels share: the ISAs of this machine, a library of a file's kernels, guarded memory."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Iterator

import pytest
import torch

from tests.codegen.harness import Library, available


@pytest.fixture(scope="module", params=available())
def isa(request: pytest.FixtureRequest) -> str:
    """Each instruction set of this machine, scalar code among them."""
    return str(request.param)


@pytest.fixture(scope="module")
def library(request: pytest.FixtureRequest, isa: str) -> Library:
    """What the file's `kernels(isa)` gives, compiled."""
    return Library(isa, request.module.kernels(isa).values())


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
