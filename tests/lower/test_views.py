"""Views: no nest is made for them, and their elements are eager's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from inductor_cpu.ir.loop_nest import LoopNest
from inductor_cpu.ir.nodes import Program
from tests.lower.harness import check, externs, lower


def check_view(fn: Callable[[torch.Tensor], Any], x: torch.Tensor, dynamic: bool = False) -> Program:
    """fn gives a tensor or a tuple of tensors that are views: one nest each, for the arithmetic on it."""

    def used(x: torch.Tensor) -> Any:
        y = fn(x)
        return tuple(part + 1 for part in y) if isinstance(y, (tuple, list)) else y + 1

    program = check(used, x, dynamic=dynamic)
    nests = [node for node in program.nodes if isinstance(node, LoopNest)]
    assert len(nests) == len(program.results)
    check(fn, x, dynamic=dynamic)
    return program


VIEWS: dict[str, Callable[[torch.Tensor], Any]] = {
    "view_flat": lambda x: x.view(-1),
    "view_split_dim": lambda x: x.view(2, 2, 6, 4),
    "view_merge_dims": lambda x: x.view(24, 4),
    "view_regroup": lambda x: x.view(3, 8, 4),
    "view_with_ones": lambda x: x.view(1, 4, 1, 6, 4, 1),
    "unsqueeze": lambda x: x.unsqueeze(-2),
    "squeeze": lambda x: x.unsqueeze(0).unsqueeze(-1).squeeze(),
    "squeeze_dim": lambda x: x.unsqueeze(1).squeeze(1),
    "squeeze_dims": lambda x: x.unsqueeze(1).unsqueeze(-1).squeeze((1, -1)),
    "permute": lambda x: x.permute(2, 0, 1),
    "permute_negative": lambda x: x.permute(-1, 0, -2),
    "transpose": lambda x: x.transpose(0, -1),
    "movedim": lambda x: x.movedim(0, 2),
    "mT": lambda x: x.mT,
    "expand": lambda x: x.unsqueeze(1).expand(5, 4, 3, 6, 4),
    "slice": lambda x: x[1:3, ::2, -3:],
    "slice_beyond": lambda x: x[-100:100, 2:100],
    "slice_empty": lambda x: x[3:1],
    "select": lambda x: x[1, :, -1],
    "narrow": lambda x: x.narrow(1, -4, 3),
    "split": lambda x: x.split(2),
    "split_uneven": lambda x: x.split(4, 1),
    "split_sizes": lambda x: x.split([1, 2, 3], 1),
    "chunk": lambda x: x.chunk(3, 1),
    "unbind": lambda x: x.unbind(-1),
    "diagonal": lambda x: x.diagonal(1, 0, 2),
    "diagonal_below": lambda x: x.diagonal(-2, 1, 2),
    "unfold": lambda x: x.unfold(1, 3, 2),
    "flatten": lambda x: x.flatten(0, 1),
    "unflatten": lambda x: x.unflatten(1, (2, 3)),
    "view_as": lambda x: x.view_as(torch.empty(4, 24)) if x.is_contiguous() else x,
    "chain": lambda x: x.permute(1, 0, 2)[2:].unsqueeze(0).transpose(1, 3)[..., ::2],
    "detach": lambda x: x.detach(),
}  # fmt: skip


@pytest.mark.parametrize("name", VIEWS)
def test_view_of_a_contiguous_input(name: str) -> None:
    check_view(VIEWS[name], torch.randn(4, 6, 4))


@pytest.mark.parametrize("name", [name for name in VIEWS if not name.startswith(("view", "flatten"))])
def test_view_of_a_strided_input(name: str) -> None:
    check_view(VIEWS[name], torch.randn(8, 4, 6).permute(1, 2, 0)[:, :, 1:5])


@pytest.mark.parametrize("shape", [(6, 4), (24,), (2, 2, 6), (3, 8), (1, 24, 1), (4, 3, 2)])
def test_reshape_of_a_computed_tensor_needs_no_copy(shape: tuple[int, ...]) -> None:
    check(lambda x: (x * 2).reshape(shape) + 1, torch.randn(4, 6))
    check(lambda x: (x.t() * 2).reshape(shape) + 1, torch.randn(4, 6))


def test_views_of_scalars_and_empty_tensors() -> None:
    check_view(lambda x: x.view(1, 1), torch.randn(()))
    check_view(lambda x: x.expand(3, 2), torch.randn(()))
    check_view(lambda x: x.unsqueeze(0), torch.randn(()))
    check_view(lambda x: x.view(0, 5), torch.randn(5, 0))
    check_view(lambda x: x.permute(1, 0)[:, 2:], torch.randn(5, 0))
    check_view(lambda x: x.view(-1)[0], torch.randn(1, 1))


DYNAMIC: dict[str, Callable[[torch.Tensor], Any]] = {
    "flat": lambda x: x.view(-1),
    "merge_front": lambda x: x.view(-1, x.shape[2]),
    "merge_back": lambda x: x.view(x.shape[0], -1),
    "split_static": lambda x: x.view(x.shape[0], x.shape[1], 2, 2),
    "heads": lambda x: x.view(x.shape[0], x.shape[1], 2, -1).transpose(1, 2),
    "slice": lambda x: x[:, 1:-1],
    "slice_by_size": lambda x: x[: x.shape[0] - 1, x.shape[1] // 2 :],
    "last": lambda x: x[:, -1],
    "select_by_size": lambda x: x[:, x.shape[1] - 2],
    "permute": lambda x: x.permute(2, 0, 1),
    "expand": lambda x: x[:, None].expand(-1, 3, -1, -1),
    "chunk": lambda x: x.chunk(2, 2),
    "split": lambda x: x.split(x.shape[2] // 2, 2),
    "diagonal": lambda x: x.diagonal(0, 1, 2),
    "unfold": lambda x: x.unfold(1, 2, 1),
}


@pytest.mark.parametrize("name", DYNAMIC)
def test_view_with_sizes_known_at_run_time(name: str) -> None:
    check_view(DYNAMIC[name], torch.randn(3, 6, 4), dynamic=True)


@pytest.mark.parametrize("name", ["merge_front", "merge_back", "split_static", "heads"])
def test_a_dynamic_reshape_of_whole_dims_divides_nothing(name: str) -> None:
    program = lower(lambda x: DYNAMIC[name](x * 2) + 1, torch.randn(3, 6, 4), dynamic=True)
    text = repr(program.nodes)
    dividers = [symbol for symbol in ("// s", "% s") if symbol in text]
    assert dividers == [] or name in ("merge_front", "merge_back")


def test_as_strided_within_a_dense_tensor() -> None:
    check(lambda x: torch.as_strided(x, (3, 4), (1, 6), 2) + 1, torch.randn(4, 6))
    check(lambda x: torch.as_strided(x * 2, (2, 2, 3), (12, 1, 2), 0) + 1, torch.randn(4, 6))
    check(lambda x: torch.as_strided(x, (4, 6), (1, 4)) + 1, torch.randn(6, 4).t())


def test_a_view_as_another_dtype_goes_to_aten() -> None:
    assert externs(lower(lambda x: x.view(torch.int32) + 1, torch.randn(4))) == ["view.dtype"]


def test_outputs_that_are_views_keep_eager_strides() -> None:
    check(lambda x: (x.t(), x[1:], (x * 2).t(), (x * 2)[:, ::2], x.expand(2, 4, 6)), torch.randn(4, 6))
    check(lambda x: (x * 2).reshape(6, 4).t(), torch.randn(4, 6))


def test_a_reshape_there_and_back_is_the_tensor_itself() -> None:
    """Both results are views of what the slice was written into."""

    def fn(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = torch.sub(x, x, alpha=3).flatten(-2).unflatten(0, (-1, 2))
        return y, y[:, 0::2].copy_(y.select(1, 0).unsqueeze(1).clone())

    program = check(fn, torch.arange(6.0).view(2, 3))
    first, second = program.results
    assert first.buffer == second.buffer
