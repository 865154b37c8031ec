"""Fake values of new nodes: what torch computes for them, with fewer calls of it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import fx, nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext

from inductor_cpu.graph import edit
from inductor_cpu.graph.edit import aten, compute_fake

#: Arguments after the first one, of a value of the sizes (4, 5, 6), or of one with other strides.
ARGUMENTS: dict[Any, Sequence[Any]] = {
    **dict.fromkeys(edit.RESHAPES, ([-1, 2],)),
    aten.permute.default: ([2, 0, 1],),
    aten.transpose.int: (0, -1),
    aten.diagonal.default: (1, 0, 2),
    aten.expand.default: ([3, -1, -1, -1],),
    aten.select.int: (1, -2),
    aten.slice.Tensor: (1, 1, sys.maxsize, 2),
    aten.squeeze.dim: (0,),
    aten.squeeze.dims: ([0, 1],),
    aten.unsqueeze.default: (-1,),
}


@pytest.mark.parametrize("target", edit._VIEWS, ids=str)
def test_a_fake_view_has_the_places_of_torch_s(target: Any) -> None:
    base = torch.arange(123.0)[3:].view(4, 5, 6)
    values = [base, base.transpose(0, 1), base[:, :, :3], base[:1]]
    for value in values if target is not aten.t.default else [base[0], base[0].t()]:
        arguments = ARGUMENTS.get(target, ())
        eager = aten.reshape.default if target in edit.RESHAPES else target
        expected, x = eager(value, *arguments), fx.Graph().placeholder("x")
        x.meta["val"] = FakeTensorMode(shape_env=ShapeEnv()).from_tensor(value)
        made = compute_fake(target, (x, *arguments), {})
        assert isinstance(made, FakeTensor)
        assert (made.device, made.dtype) == (expected.device, expected.dtype)
        assert (made.shape, made.stride(), made.storage_offset()) == (
            (expected.shape, expected.stride(), expected.storage_offset())
        )
        assert is_in(made, x.meta["val"]) == is_in(expected, value)


def is_in(view: torch.Tensor, value: torch.Tensor) -> bool:
    """Whether they share their memory."""
    return view.untyped_storage()._cdata == value.untyped_storage()._cdata


def test_a_fake_view_of_symbolic_sizes_is_torch_s() -> None:
    mode, x = FakeTensorMode(shape_env=ShapeEnv()), fx.Graph().placeholder("x")
    x.meta["val"] = mode.from_tensor(
        torch.randn(4, 6), symbolic_context=StatelessSymbolicContext([DimDynamic.DYNAMIC] * 2)
    )
    made = compute_fake(aten.permute.default, (x, [1, 0]), {})
    assert made.shape == x.meta["val"].shape[::-1]
    assert isinstance(made.shape[0], torch.SymInt)


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
