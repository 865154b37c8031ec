"""Random bits: the published test vectors, and the same bits in every kind of code."""

from __future__ import annotations

import pytest
import torch

from inductor_cpu.ir.index import loop_var, of, size_symbol
from inductor_cpu.ir.meaning import MEANING

from .build import Build
from .harness import Library

I32 = torch.int32
N = size_symbol("n")
I = loop_var("i", of(N))
WORDS = ("philox", "philox_second")

#: counter, its upper half, key -> two words: philox2x32 with 10 rounds in the file kat_vectors of Random123.
KNOWN = [
    ((0x00000000, 0x00000000, 0x00000000), (0xFF1DAE59, 0x6CD10DF2)),
    ((0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF), (0x2C3F628B, 0xAB4FD7AD)),
    ((0x243F6A88, 0x85A308D3, 0x13198A2E), (0xDD7CE038, 0xF62A4C12)),
]


def words(*values: int) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int64).to(I32)  # modulo 2^32


@pytest.mark.parametrize(("given", "bits"), KNOWN)
def test_meaning_gives_the_published_bits(given: tuple[int, ...], bits: tuple[int, ...]) -> None:
    got = [MEANING[name](*map(words, given)) for name in WORDS]
    assert got == [words(bit) for bit in bits]


@pytest.mark.parametrize("vectors", [True, False])
def test_kernels_give_the_bits_of_the_meaning(isa: str, vectors: bool) -> None:
    extreme = torch.cartesian_prod(*[words(0, 1, -1, 1 << 31, (1 << 31) - 1)] * 3)
    args = [t.contiguous() for t in torch.cat([extreme, torch.randint(-(1 << 31), 1 << 31, (91, 3)).to(I32)]).unbind(1)]
    b = Build()
    operands = [b.load(name, of(I), I32) for name in "XYZ"]
    for name in WORDS:
        b.store(name, of(I), b.op(name, *operands))
    kernel = b.kernel(isa, (I,), vector=I if vectors else None, sizes=(N,))
    outputs = [torch.empty_like(args[0]) for _ in WORDS]
    assert Library(isa, [kernel]).run(kernel, *args, *outputs, sizes=[len(args[0])]) == 0
    for name, got in zip(WORDS, outputs, strict=True):
        torch.testing.assert_close(got, MEANING[name](*args), rtol=0, atol=0)
