"""Function transforms and higher-order operators inside a compiled function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch._higher_order_ops.associative_scan import associative_scan
from torch._higher_order_ops.map import map as map_over
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop
from torch.func import functional_call, grad, hessian, jacfwd, jacrev, jvp, vjp, vmap
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from tests.cases import cases
from tests.e2e.support import compile_counted
from tests.semantics.support import Tensor, check


def loss(x: Tensor) -> Tensor:
    return (x.sin() * x).sum()


def matrix() -> tuple[Tensor]:
    return (torch.randn(4, 5),)


MODULE = torch.nn.Linear(5, 2)

TRANSFORMS: dict[str, Callable[[Tensor], Any]] = {
    "vmap": lambda x: vmap(lambda row: row.softmax(0) * 2)(x),
    "vmap_of_dims": lambda x: vmap(lambda a, b: (a * b).sum(), in_dims=(1, None))(x, x[:, 0]),
    "vmap_out_dim": lambda x: vmap(lambda row: row + 1, out_dims=1)(x),
    "nested_vmap": lambda x: vmap(vmap(lambda a: a * a + 1))(x),
    "vmap_of_matmul": lambda x: vmap(lambda row: x @ row)(x),
    "grad": lambda x: grad(loss)(x),
    "grad_of_grad": lambda x: grad(lambda y: grad(loss)(y).sum())(x),
    "vmap_of_grad": lambda x: vmap(grad(lambda row: (row**3).sum()))(x),
    "vjp": lambda x: vjp(torch.sin, x)[1](x),
    "jvp": lambda x: jvp(torch.sin, (x,), (x + 1,)),
    "jacrev": lambda x: jacrev(lambda row: row * row.sum())(x[0]),
    "jacfwd": lambda x: jacfwd(lambda row: row * row.sum())(x[0]),
    "hessian": lambda x: hessian(lambda row: (row**3).sum())(x[0]),
    "functional_call": lambda x: functional_call(MODULE, {"weight": x[:2], "bias": x[0, :2]}, (x,)),
    "per_sample_gradients": lambda x: vmap(
        grad(lambda p, row: functional_call(MODULE, p, (row,)).square().sum()), in_dims=(None, 0)
    )(dict(MODULE.named_parameters()), x),
}  # fmt: skip


@pytest.mark.full
@pytest.mark.parametrize("name", TRANSFORMS)
def test_transform_inside(name: str) -> None:
    with torch.no_grad():
        check(TRANSFORMS[name], matrix, tolerance=1e-5)


def test_all_transforms_in_one_graph() -> None:
    with torch.no_grad():
        check(lambda x: {name: function(x) for name, function in TRANSFORMS.items()}, matrix, tolerance=1e-5)


def test_transforms_inside_are_differentiable() -> None:
    names = ["vmap", "vmap_of_matmul", "grad", "nested_vmap"]
    make = lambda: (torch.randn(4, 5).requires_grad_(),)  # noqa: E731
    check(lambda x: [TRANSFORMS[name](x) for name in names], make, backward=True, tolerance=1e-5)


@pytest.mark.full
def test_random_numbers_under_vmap() -> None:
    check(lambda x: vmap(lambda r: r + torch.rand_like(r), randomness="different")(x), matrix, compiled=False)


@pytest.mark.full
@pytest.mark.parametrize("transform", [vmap, lambda f: vmap(grad(lambda r: f(r).sum()))])
def test_transform_over_a_compiled_function(transform: Callable[..., Any]) -> None:
    function = lambda row: row.sin() * row + 1  # noqa: E731
    x = torch.randn(4, 5)
    torch.testing.assert_close(transform(compile_counted(function)[0])(x), transform(function)(x))


# -- higher-order operators --------------------------------------------------------------------------------------------
def branches(x: Tensor) -> Tensor:
    def deep(y: Tensor) -> Tensor:
        return torch.cond(y.max() > 1, lambda z: z * 2, lambda z: z - 2, (y,))

    return torch.cond(x.sum() > 0, deep, lambda y: y.cos(), (x,)) + 1


def branch_of_several(x: Tensor) -> tuple[Tensor, Tensor]:
    scale = x.abs().max()  # captured by a branch
    return torch.cond(x.sum() > 0, lambda y: (y * scale, y + 1), lambda y: (y - 1, y / scale), (x,))


@pytest.mark.parametrize("gradients", cases([True], [False]))
def test_cond_takes_each_branch(gradients: bool) -> None:
    def function(x: Tensor) -> list[Any]:
        return [chosen(x + shift) for chosen in (branches, branch_of_several) for shift in (2.0, -2.0)]

    check(function, lambda: (torch.randn(4, 5).requires_grad_(gradients),), backward=gradients)


def test_cond_on_a_symbolic_size() -> None:
    function = lambda x: torch.cond(x.shape[0] > 4, lambda y: y.sin() + 1, lambda y: y.cos() - 1, (x,))  # noqa: E731
    compiled, _ = compile_counted(function, dynamic=True)
    for rows in (3, 6, 4, 9):
        x = torch.randn(rows, 2)
        torch.testing.assert_close(compiled(x), function(x))


@pytest.mark.full
def test_cond_on_a_python_bool() -> None:
    function = lambda x, flag: torch.cond(flag, lambda y: y + 1, lambda y: y - 1, (x,))  # noqa: E731
    compiled, _ = compile_counted(function)
    for flag in (True, False):
        torch.testing.assert_close(compiled(torch.ones(3), flag), function(torch.ones(3), flag))


def test_while_loop() -> None:
    def function(x: Tensor) -> Any:
        return while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, y * 2 + i), (torch.tensor(0), x))

    check(function, matrix)


def test_map() -> None:
    check(lambda x: map_over(lambda row, y: row * 2 + y, x, x[0] * 2), matrix)


@pytest.mark.full
def test_map_gradient() -> None:
    make = lambda: (torch.randn(4, 5).requires_grad_(),)  # noqa: E731
    check(lambda x: map_over(lambda row, y: row.sin() + y, x, x[0] * 2), make, backward=True)


def test_scan() -> None:
    def step(carry: Tensor, row: Tensor) -> tuple[Tensor, Tensor]:
        following = carry * 0.5 + row
        return following, following * 2

    check(lambda x: scan(step, x[0] * 0, x), matrix)


@pytest.mark.full
def test_associative_scan() -> None:
    function = lambda x: associative_scan(lambda a, b: a + b, x, 0, combine_mode="generic")  # noqa: E731
    compiled, _ = compile_counted(function)
    x = torch.randn(5, 3)
    torch.testing.assert_close(compiled(x), x.cumsum(0))


def causal(b: Any, h: Any, q: Any, k: Any) -> Any:
    return q >= k


def biased(score: Any, b: Any, h: Any, q: Any, k: Any) -> Any:
    return score + 0.1 * (q - k)


def test_flex_attention() -> None:
    mask = create_block_mask(causal, None, None, 64, 64, device="cpu")

    def function(q: Tensor, k: Tensor, v: Tensor) -> tuple[Any, Any]:
        return flex_attention(q, k, v, score_mod=biased, block_mask=mask), flex_attention(q, k, v)

    check(function, lambda: tuple(torch.randn(1, 2, 64, 16) for _ in range(3)), tolerance=1e-4)
