"""Which value a result is a view of."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from inductor_cpu.lower import aliases
from tests.lower.harness import lower

Tensor = torch.Tensor


def test_a_split_is_looked_at_once_for_all_its_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    seen, called = [], aliases._called
    monkeypatch.setattr(aliases, "_called", lambda call, source: (seen.append(call), called(call, source))[1])
    program = lower(lambda x: x.split(1), torch.randn(30, 2))
    assert len(program.results) == 30
    assert len(seen) == 1


def test_to_look_at_splits_changes_no_size() -> None:
    """Torch writes the rows as a sum of the pieces once it knows two pieces to be 1: at the second look."""
    x, y = torch.arange(50.0).view(5, 10)[:, 1::2], torch.arange(50.0).view(10, 5)[1::2]
    compiled = torch.compile(lambda x, y, s: x.split(s) + y.split(s), backend="icpu", dynamic=True)
    actual, expected = compiled(x, y, [1, 3, 1]), x.split([1, 3, 1]) + y.split([1, 3, 1])
    for piece, other in zip(actual, expected, strict=True):
        assert piece.data_ptr() == other.data_ptr()
        torch.testing.assert_close(piece, other, rtol=0, atol=0)


CONJUGATES: dict[str, Callable[[Tensor], object]] = {
    "alone": lambda z: torch.conj(z * 2),
    "with its base": lambda z: (y := z * 2, y.conj()),
    "before its base": lambda z: ((y := z * 2).conj(), y),
    "of the argument": lambda z: (z.conj(), z.conj() + 1),
    "a part of it": lambda z: ((y := z * 2).conj()[1:], y[1:]),
    "transposed": lambda z: (z * 2).mH,
    "its imaginary part": lambda z: ((y := z * 2).conj().imag, y.imag),
    "of an inverse transform": lambda z: torch.fft.ifft(z.real),
}


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("name", CONJUGATES)
def test_a_conjugate_is_no_view_of_the_numbers_in_memory(name: str, grad: bool) -> None:
    z = torch.randn(4, 3, dtype=torch.complex64, generator=torch.Generator().manual_seed(0)).requires_grad_(grad)
    actual, expected = torch.compile(CONJUGATES[name], backend="icpu")(z), CONJUGATES[name](z)
    torch.testing.assert_close(actual, expected)
