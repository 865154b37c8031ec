"""Kernels that differ in numbers alone are one function."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from torch import nn

import inductor_cpu
from inductor_cpu.codegen.alike import Function, join_alike
from inductor_cpu.codegen.source import HEAD, named, unnamed
from inductor_cpu.ir.plan import Instance, KernelSource


def kernel(*lines: str, label: str = "label", instances: tuple[Instance, ...] = ()) -> KernelSource:
    return named("".join((f"{HEAD} {{\n", *(f"  {line}\n" for line in lines), "}\n")), label, instances)


def joined(*sources: KernelSource, sizes: int = 0) -> list[tuple[KernelSource, Function]]:
    found = join_alike(dict.fromkeys(sources, sizes))
    return [found[source] for source in sources if source in found]


def test_numbers_that_differ_are_ints_and_equal_ones_stay() -> None:
    one = kernel("f(p0 + 16 * i, 64, 0.5f, 64);", "g(3, 7);")
    other = kernel("f(p0 + 16 * i, 128, 0.5f, 128);", "g(4, 7);")
    (first, by_first), (second, by_second) = joined(one, other)
    assert first == second
    assert by_first == Function(first.symbol, (64, 3))
    assert by_second == Function(first.symbol, (128, 4))
    lines = ("const int n0 = sizes[0];", "const int n1 = sizes[1];", "f(p0 + 16 * i, n0, 0.5f, n0);")
    assert first == kernel(*lines, "g(n1, 7);")


def test_numbers_that_are_equal_in_one_kernel_alone_are_two_ints() -> None:
    (_, by_first), (_, by_second) = joined(kernel("f(8, 8);"), kernel("f(8, 9);"))
    assert (by_first.ints, by_second.ints) == ((8,), (9,))
    (_, by_first), (_, by_second) = joined(kernel("f(8, 8);"), kernel("f(7, 9);"))
    assert (by_first.ints, by_second.ints) == ((8, 8), (7, 9))


def test_ints_follow_the_kernel_s_own_sizes() -> None:
    ((source, function), _) = joined(kernel("f(n0, n1, 5);"), kernel("f(n0, n1, 6);"), sizes=2)
    assert unnamed(source).splitlines()[1:3] == ["  const int n2 = sizes[2];", "  f(n0, n1, n2);"]
    assert function.ints == (5,)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("f<4>(x);", "f<8>(x);"),
        ("f<A<1>, 4>(x);", "f<A<1>, 8>(x);"),
        ("float row[768];", "float row[512];"),
        ("alignas(64) float x;", "alignas(32) float x;"),
        ("f(x / 49);", "f(x / 7);"),
        ("f(x % 49);", "f(x % 7);"),
        ("icpu::floordiv(x, 49);", "icpu::floordiv(x, 7);"),
        ("f(0.5f);", "f(0.25f);"),
        ("f(1e-05f);", "f(1e-06f);"),
        ("f(v1);", "f(v2);"),
        ("f(5u);", "f(6u);"),
        ("f(x);", "g(x);"),
    ],
)
def test_what_c_plus_plus_wants_constant_and_divisors_keep_kernels_apart(one: str, other: str) -> None:
    assert joined(kernel(one), kernel(other)) == []


def test_kernels_of_other_templates_and_sizes_stay_apart() -> None:
    instance = Instance(("a.h",), "void f()")
    assert joined(kernel("f(4);"), kernel("f(5);", instances=(instance,))) == []
    assert join_alike({kernel("f(4);"): 0, kernel("f(5);"): 1}) == {}


def test_ints_have_the_types_of_the_numbers() -> None:
    """5 is an int, and 1 << 31 none: of what differs in that are vectors of other types."""
    large, larger = kernel("lanes.vec(2147483648);"), kernel("lanes.vec(4294967296);")
    (source, function), _ = joined(large, larger, kernel("lanes.vec(5);"))
    assert "const int64_t n0 = sizes[0];" in source.code
    assert function.ints == (1 << 31,)


def test_comparisons_begin_no_template_arguments() -> None:
    (source, _), _ = joined(kernel("for (int i = 0; i < 64; ++i) f();"), kernel("for (int i = 0; i < 32; ++i) f();"))
    assert "i < n0;" in source.code


def test_equal_texts_of_two_labels_are_one_function() -> None:
    a, b, c = kernel("f(4);", label="a"), kernel("f(4);", label="b"), kernel("f(5);", label="c")
    assert [function.ints for _, function in joined(a, b, c)] == [(4,), (4,), (5,)]
    assert [function for _, function in joined(a, b)] == [Function(a.symbol)] * 2


def layers(*widths: int) -> nn.Sequential:
    return nn.Sequential(*(layer for a, b in pairwise(widths) for layer in (nn.Linear(a, b), nn.ReLU()))).eval()


@torch.no_grad()
@pytest.mark.parametrize("dynamic", [False, True])
def test_layers_of_several_widths_share_a_function(dynamic: bool, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = layers(256, 512, 768, 768, 768, 1024)
    with inductor_cpu.config.patch({"dump": str(tmp_path)}):
        compiled = torch.compile(model, backend="icpu", dynamic=dynamic)
        for rows in (150, 200) if dynamic else (150,):
            x = torch.randn(rows, 256)
            torch.testing.assert_close(compiled(x), model(x), rtol=1e-4, atol=1e-5)
    texts = [path.read_text() for path in tmp_path.glob("*/icpu_*.cpp")]
    products = [text for text in texts if "icpu::gemm::multiply" in text]
    assert len(products) < 3, "five layers, of four shapes, and the last one may be cut otherwise"


def test_positions_that_are_compared_with_other_numbers_keep_their_type() -> None:
    """The gradient of a reflection compares lanes of 32 bits with numbers of 32 bits."""

    def several(*xs: torch.Tensor) -> list[torch.Tensor]:
        return [nn.functional.pad(x, (3, 2), mode="reflect") for x in xs]

    def gradients(function: Callable[..., list[torch.Tensor]]) -> tuple[torch.Tensor, ...]:
        xs = [(torch.arange(size).float().view(1, size)).requires_grad_() for size in (70, 640, 6400)]
        return torch.autograd.grad(sum(y.square().sum() for y in function(*xs)), xs)

    with inductor_cpu.config.patch({"cpp.max_horizontal_fusion_size": 1}):
        found = gradients(torch.compile(several, backend="icpu", dynamic=False))
    for result, expected in zip(found, gradients(several), strict=True):
        torch.testing.assert_close(result, expected)


@torch.no_grad()
def test_loops_over_one_dimension_share_a_function(tmp_path: Path) -> None:
    xs = [torch.randn(size) for size in (64, 640, 6400)]
    with inductor_cpu.config.patch({"dump": str(tmp_path), "cpp.max_horizontal_fusion_size": 1}):
        results = torch.compile(lambda *xs: [x.sin() + 1 for x in xs], backend="icpu", dynamic=False)(*xs)
    for result, x in zip(results, xs, strict=True):
        torch.testing.assert_close(result, x.sin() + 1)
    assert len(list(tmp_path.glob("*/icpu_*.cpp"))) == 1
