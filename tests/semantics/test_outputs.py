"""What results look like: strides and memory format, dtype, containers, and results that are no tensors."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
from torch.nn import functional

from tests.cases import cases
from tests.semantics.support import Tensor, check


def channels_last(*shape: int) -> Tensor:
    return torch.randn(*shape).to(memory_format=torch.channels_last)


LAYOUTS: dict[str, Callable[[], Tensor]] = {
    "contiguous": lambda: torch.randn(2, 3, 4, 6),
    "channels_last": lambda: channels_last(2, 3, 4, 6),
    "channels_last_of_one_channel": lambda: channels_last(2, 1, 4, 6),
    "transposed": lambda: torch.randn(4, 3, 2, 6).transpose(0, 2),
    "permuted": lambda: torch.randn(6, 2, 4, 3).permute(1, 3, 2, 0),
    "expanded": lambda: torch.randn(2, 1, 4, 6).expand(2, 3, 4, 6),
    "strided": lambda: torch.randn(2, 3, 4, 12)[..., ::2],
    "empty": lambda: torch.randn(2, 0, 4, 6),
    "empty_channels_last": lambda: channels_last(0, 3, 4, 6),
    "overlapping": lambda: torch.randn(40).as_strided((2, 3, 4, 6), (3, 2, 6, 1)),
}


def elementwise(x: Tensor) -> tuple[Tensor, ...]:
    return x * 2 + 1, x.to(torch.bfloat16), x > 0, torch.where(x > 0, x, 0.0)


def like(x: Tensor) -> tuple[Tensor, ...]:
    return (
        torch.zeros_like(x),
        torch.full_like(x, 3.0),
        x.clone(),
        torch.ones_like(x, memory_format=torch.channels_last),
    )


def formats(x: Tensor) -> tuple[Tensor, ...]:
    y = x * 2
    return (
        y.contiguous(),
        y.to(memory_format=torch.channels_last),
        y.clone(memory_format=torch.contiguous_format),
        x.contiguous(memory_format=torch.channels_last),
    )


def views(x: Tensor) -> tuple[Tensor, ...]:
    y = x * 2
    return y.transpose(1, 2), y.permute(3, 2, 1, 0), y[:, 1:], y.unsqueeze(-1), y.expand(2, *y.shape), y.flip(1)


def reductions(x: Tensor) -> tuple[Tensor, ...]:
    return x.sum(0), x.mean(1, keepdim=True), x.softmax(1), x.cumsum(2), torch.cat([x, x], 1), x.sum((0, 2, 3))


def with_broadcasts(x: Tensor) -> tuple[Tensor, ...]:
    return x + torch.arange(6.0), x * x[:, :, :1], torch.arange(6.0) - x, x.new_ones(6) * x.transpose(1, 2)


def by_library(x: Tensor) -> tuple[Tensor, ...]:
    return x @ x.transpose(-1, -2), x.sort(-1).values, torch.einsum("bcij,bcik->bjk", x, x)


def all_of(*functions: Callable[[Tensor], Any]) -> Callable[[Tensor], Any]:
    """The results of several functions: one compile in place of many."""
    return lambda x: [function(x) for function in functions]


#: Tried in every run; the others under `make test-full`.
FEW = ["channels_last", "strided"]


@pytest.mark.parametrize("layout", cases(FEW, [name for name in LAYOUTS if name not in FEW]))
def test_strides_are_those_of_eager_mode(layout: str) -> None:
    function = all_of(elementwise, like, formats, views, reductions, with_broadcasts, by_library)
    check(function, lambda: (LAYOUTS[layout](),), tolerance=1e-5)


@pytest.mark.parametrize("layout", cases(["channels_last"], ["transposed"]))
def test_strides_of_layers_and_of_their_gradients(layout: str) -> None:
    def function(x: Tensor, w: Tensor) -> Tensor:
        y = functional.conv2d(x, w, padding=1)
        return functional.avg_pool2d(functional.relu(functional.group_norm(y, 2)), 2) * 2

    def make() -> tuple[Tensor, Tensor]:
        return LAYOUTS[layout]().requires_grad_(), torch.randn(4, 3, 3, 3).requires_grad_()

    check(function, make, backward=True, tolerance=1e-4)


@pytest.mark.parametrize("layout", cases(["expanded"], ["channels_last", "transposed", "empty"]))
def test_strides_of_gradients(layout: str) -> None:
    def make() -> tuple[Tensor, Tensor]:
        return LAYOUTS[layout]().requires_grad_(), torch.randn(6).requires_grad_()

    check(lambda x, y: (x * y + x.sum(0)).tanh(), make, backward=True, tolerance=1e-4)


@pytest.mark.parametrize("layout", cases(["channels_last"], ["transposed"]))
def test_strides_under_dynamic_shapes(layout: str) -> None:
    check(all_of(elementwise, formats, views), lambda: (LAYOUTS[layout](),), dynamic=True)


class Pair(NamedTuple):
    first: Tensor
    second: Any


@dataclasses.dataclass
class Record:
    value: Tensor
    note: str = "note"
    rest: list[Any] = dataclasses.field(default_factory=list)


def test_nested_containers_in_and_out() -> None:
    def function(tree: dict[str, Any], *more: Any, scale: float = 2.0, **named: Tensor) -> Any:
        a, (b, c) = tree["a"], tree["nested"]
        return {
            "pair": Pair(a * scale, None),
            "list": [b + 1, (c, 3, [None, "text"])],
            "ordered": collections.OrderedDict(z=named["z"] - 1, y=a),
            "empty": ((), [], {}),
            "numbers": (len(more), 1.5, True, a.dtype, a.shape, a.numel(), 1 + 2j),
        }

    def make() -> tuple[Any, ...]:
        return {"a": torch.randn(3), "nested": [torch.randn(2), torch.randn(4)]}, 5, None

    check(lambda tree, n, none: function(tree, n, none, scale=3.0, z=tree["a"]), make)


def test_dataclass_out() -> None:
    function = lambda x: Record(x * 2, rest=[x + 1])  # noqa: E731
    compiled = torch.compile(function, backend="icpu")
    x = torch.randn(3)
    have, want = compiled(x), function(x)
    assert isinstance(have, Record)
    torch.testing.assert_close([have.value, *have.rest], [want.value, *want.rest])
    assert have.note == "note"


@pytest.mark.parametrize("dynamic", cases([True], [None, False]))
def test_python_numbers_in_and_out(dynamic: bool | None) -> None:
    def function(x: Tensor, n: int, f: float, flag: bool, text: str | None) -> tuple[Any, ...]:
        y = x * n + f if flag else x - n
        return y, n + 1, f * 2, not flag, text, x.shape[0] * n, x.shape, x.size(0) / 2

    for n, f, flag, text in ((3, 0.5, True, "a"), (4, 1.5, True, "a"), (5, 2.5, False, None)):
        check(function, lambda n=n, f=f, flag=flag, text=text: (torch.randn(6), n, f, flag, text), dynamic=dynamic)


def test_changing_floats_and_ints_in_one_compiled_function() -> None:
    def function(x: Tensor, n: int, f: float) -> tuple[Any, ...]:
        return x * f + n, f + 1, n * 2, x.add(1, alpha=f), x.clamp(max=f)

    compiled = torch.compile(function, backend="icpu")
    x = torch.randn(8)
    for n, f in ((1, 0.5), (2, 1.5), (-3, -2.5), (0, float("inf")), (1 << 40, 1e-3), (7, -0.0)):
        for have, want in zip(compiled(x, n, f), function(x, n, f), strict=True):
            if isinstance(want, Tensor):
                torch.testing.assert_close(have, want, rtol=1e-6, atol=1e-6)
            else:
                assert type(have) is type(want)
                assert have == want


def test_scalar_tensors_and_type_promotion() -> None:
    def function(x: Tensor, s: Tensor, i: Tensor) -> tuple[Tensor, ...]:
        return x * s, i * s, i / 2, i + 1.5, x.half() + s, s + 1, i.sum(), x.bool() + i, torch.tensor(2) * x

    check(function, lambda: (torch.randn(5), torch.tensor(1.25, dtype=torch.float64), torch.arange(5)))


def test_results_that_are_inputs_or_constants_only() -> None:
    check(lambda x, n: (x, n, None, 3), lambda: (torch.randn(3), 5), compiled=False)
    check(lambda x: torch.ones(3), lambda: (torch.randn(3),))
    check(lambda x: None, lambda: (torch.randn(3),), compiled=False)


def test_no_tensor_inputs() -> None:
    check(lambda: torch.arange(5) * 2, lambda: ())
    check(lambda n: torch.full((n,), n * 1.0), lambda: (4,))


def test_conjugate_and_negative_views() -> None:
    def function(z: Tensor) -> tuple[Tensor, ...]:
        return z.conj(), z.conj().imag, torch.view_as_real(z) * 2, z.conj() * 2

    check(function, lambda: (torch.randn(3, dtype=torch.complex64),), compiled=False)


def test_numpy_functions_inside() -> None:
    def function(x: Tensor) -> Tensor:
        a = x.numpy()
        return torch.from_numpy(a * 2 + a.sum())

    check(function, lambda: (torch.arange(6.0),))
