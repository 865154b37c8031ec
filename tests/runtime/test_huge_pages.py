"""Packed weights in large pages."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path

import pytest
import torch

from inductor_cpu.runtime.huge_pages import Shelf


def flags_of(address: int) -> list[str]:
    """What the kernel says of the mapping that an address is in (VmFlags of smaps)."""
    inside = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        first = line.split(maxsplit=1)[0]
        if "-" in first and not first.endswith(":"):
            start, end = (int(part, 16) for part in first.split("-"))
            inside = start <= address < end
        elif inside and first == "VmFlags:":
            return line.split()[1:]
    raise AssertionError("no such mapping")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int8], ids=str)
def test_tensors_are_copied_next_to_each_other_into_large_pages(dtype: torch.dtype) -> None:
    shelf = Shelf()
    tensors = [torch.arange(n).reshape(7, -1).to(dtype) for n in (70_007, 70_049)]
    placed = [shelf.place(tensor) for tensor in tensors]
    for tensor, copy in zip(tensors, placed, strict=True):
        assert copy.dtype == dtype
        assert torch.equal(copy, tensor)
        assert copy.is_contiguous()
        assert copy.data_ptr() % 64 == 0
        assert "hg" in flags_of(copy.data_ptr())
    assert 0 < placed[1].data_ptr() - placed[0].data_ptr() < placed[0].nbytes + 64


def test_a_tensor_larger_than_a_piece_gets_its_own() -> None:
    large = torch.randint(-100, 100, (40 << 20,), dtype=torch.int8)
    assert torch.equal(Shelf().place(large), large)


def test_small_and_strided_tensors_stay_where_they_are() -> None:
    for tensor in (torch.ones(10), torch.ones(1000, 1000).t(), torch.empty(0)):
        assert Shelf().place(tensor) is tensor


def test_the_memory_goes_with_its_last_tensor() -> None:
    shelf = Shelf()
    first, second = (shelf.place(torch.ones(10_000)) for _ in range(2))
    piece = weakref.ref(shelf._piece)
    del shelf, first
    gc.collect()
    assert piece() is not None
    assert second.sum() == 10_000
    del second
    gc.collect()
    assert piece() is None
