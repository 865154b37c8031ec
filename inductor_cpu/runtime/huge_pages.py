"""Memory for packed weights in pages of 2 MiB, where the system has them.

A product that reads a weight once meets a new page of 4 KiB every few hundred cycles, and looking its address up takes
as long as fetching a line: with large pages, products of 128 rows with weights that are not in the cache take two
thirds of the time.
"""

from __future__ import annotations

import mmap

import torch

#: Of a large page on x86.
_HUGE = 2 << 20

#: Weights are put next to each other in pieces of memory of this size; a larger one gets its own.
_PIECE = 32 << 20

#: Smaller tensors stay where they are.
_LEAST = 16 << 10

#: Bytes that a tensor's address is a multiple of.
_ALIGNMENT = 64


class Shelf:
    """Places for tensors that live about equally long: a piece of memory goes with the last tensor in it."""

    def __init__(self) -> None:
        self._piece: mmap.mmap | None = None
        self._free, self._end = 0, 0

    def place(self, tensor: torch.Tensor) -> torch.Tensor:
        """A copy of a dense tensor in large pages. Other tensors, small ones and those of other devices come back as
        they are, and so do all where the system has no large pages."""
        size = tensor.numel() * tensor.element_size()
        dense = tensor.layout is torch.strided and tensor.device.type == "cpu" and tensor.is_contiguous()
        if not dense or size < _LEAST or not hasattr(mmap, "MADV_HUGEPAGE"):
            return tensor
        if self._piece is None or self._free + size > self._end:
            self._open(max(size, _PIECE))
        assert self._piece is not None
        bytes_of_it = torch.frombuffer(self._piece, dtype=torch.uint8, count=size, offset=self._free)
        self._free += -(-size // _ALIGNMENT) * _ALIGNMENT
        return bytes_of_it.view(tensor.dtype).view(tensor.shape).copy_(tensor)

    def _open(self, size: int) -> None:
        """A new piece of memory, of which nothing is resident until it is written."""
        piece = mmap.mmap(-1, size + _HUGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        start = torch.frombuffer(piece, dtype=torch.uint8).data_ptr()
        self._piece, self._free = piece, -start % _HUGE
        self._end = self._free + size
        piece.madvise(mmap.MADV_HUGEPAGE)
