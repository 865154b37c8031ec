"""Fake values of new nodes: what torch computes for them, with fewer calls of it."""

from __future__ import annotations

import pytest
import torch
from torch import fx, nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from inductor_cpu.graph import edit
from inductor_cpu.graph.edit import aten, compute_fake


@pytest.mark.parametrize("target", edit.RESHAPES, ids=str)
@pytest.mark.parametrize("offset", [0, 3])
def test_a_fake_reshape_views_or_copies_as_torch_does(target: object, offset: int) -> None:
    values = torch.arange(123.0)[offset : offset + 120].view(4, 5, 6)
    for value in (values, values.transpose(0, 1), values[:, :, :3], values[:0]):
        for sizes in ([-1, 2], [2, -1]) if value.numel() else ([0, 4],):
            expected = value.reshape(sizes)
            x = fx.Graph().placeholder("x")
            mode = FakeTensorMode(shape_env=ShapeEnv())
            x.meta["val"] = mode.from_tensor(value)
            made = compute_fake(target, (x, sizes), {})  # type: ignore[arg-type]
            assert isinstance(made, FakeTensor)
            assert (made.device, made.dtype) == (expected.device, expected.dtype)
            assert (made.shape, made.stride()) == (expected.shape, expected.stride())
            assert made.storage_offset() == expected.storage_offset()
            same = [
                v.untyped_storage()._cdata == w.untyped_storage()._cdata
                for v, w in ((made, x.meta["val"]), (expected, value))
            ]
            assert same[0] == same[1]


@torch.no_grad()
def test_strides_spread_once_to_what_many_convolutions_meet_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a dense block each result is joined with all that follow."""

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(nn.Conv2d(8 * (n + 1), 8, 3, padding=1) for n in range(6))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            seen = [x]
            for layer in self.layers:
                seen.append(layer(torch.cat(seen, 1)).relu())
            return torch.cat(seen, 1)

    joins: list[object] = []
    original = edit.compute_fake

    def counting(target: object, *rest: object) -> object:
        joins.extend([target] * (target is aten.cat.default))
        return original(target, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(edit, "compute_fake", counting)
    block, x = Block().eval(), torch.randn(1, 8, 10, 10)
    torch.testing.assert_close(torch.compile(block, backend="icpu")(x), block(x), rtol=1e-4, atol=1e-5)
    assert 0 < len(joins) <= 7
