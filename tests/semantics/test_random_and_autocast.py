"""Random numbers are eager's, in eager's order; autocast regions compute in eager's dtypes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from tests.cases import cases
from tests.e2e.support import compile_counted
from tests.semantics.support import Tensor, check


def data(*shape: int) -> Callable[[], tuple[Tensor]]:
    return lambda: (torch.randn(*shape).requires_grad_(),)


# -- random numbers ----------------------------------------------------------------------------------------------------
def seed_inside(x: Tensor) -> tuple[Tensor, Tensor]:
    a = torch.rand(3)
    torch.manual_seed(5)
    return a + x.sum(), torch.rand(3)


def state_inside(x: Tensor) -> tuple[Tensor, Tensor]:
    state = torch.get_rng_state()
    a = x + torch.rand(4)
    torch.set_rng_state(state)
    return a, torch.rand(4)


def forked(x: Tensor) -> tuple[Tensor, Tensor]:
    with torch.random.fork_rng(devices=[]):
        a = torch.rand(4) + x
    return a, torch.rand(4)


def with_a_generator(x: Tensor) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(3)
    return torch.rand(4, generator=generator) + x, torch.randn(4, generator=generator)


@pytest.mark.parametrize("function", [seed_inside, state_inside, forked, with_a_generator])
def test_generator_is_used_and_left_as_in_eager_mode(function: Callable[..., Any]) -> None:
    check(function, data(4), calls=2, compiled=False)


def many(x: Tensor) -> tuple[Tensor, ...]:
    return (
        torch.rand(3, 5),
        torch.empty(7).uniform_(-1, 1) * 2,
        torch.randn_like(x) + x,
        torch.normal(0.0, torch.ones(5)),
        torch.multinomial(torch.ones(8), 3),
        torch.empty(6).exponential_(),
        torch.randint_like(x, 10),
        functional.dropout(x, 0.3),
        torch.rand(4).sort().values,
    )


def same_shape_twice(x: Tensor) -> Tensor:
    return torch.rand(4) - torch.rand(4) + x


@pytest.mark.parametrize("function", cases([many], [same_shape_twice]))
@pytest.mark.parametrize("dynamic", cases([False], [True]))
def test_numbers_come_in_program_order(function: Callable[..., Any], dynamic: bool) -> None:
    check(function, data(4), calls=2, dynamic=dynamic)


def attention(x: Tensor) -> Tensor:
    return functional.scaled_dot_product_attention(x, x, x, dropout_p=0.4)


LAYERS: dict[str, Callable[[Tensor], Tensor]] = {
    "dropout": lambda x: functional.dropout(x, 0.5) * functional.dropout(x, 0.25),
    "alpha": lambda x: functional.alpha_dropout(x, 0.5),
    "feature_alpha": lambda x: functional.feature_alpha_dropout(x, 0.5),
    "dropout2d": lambda x: functional.dropout2d(x, 0.5),
    "rrelu": lambda x: functional.rrelu(x, training=True),
    "gumbel": lambda x: functional.gumbel_softmax(x, hard=True),
    "noise": lambda x: x + torch.randn_like(x) * x.std(),
    "attention": attention,
}  # fmt: skip


@pytest.mark.full
@pytest.mark.parametrize("name", LAYERS)
def test_random_layer_forward_and_backward(name: str) -> None:
    check(LAYERS[name], data(2, 3, 8, 8), backward=True, calls=2, tolerance=1e-5)


def test_all_random_layers_in_one_graph() -> None:
    function = lambda x: [layer(x) for layer in LAYERS.values()]  # noqa: E731
    check(function, data(2, 3, 8, 8), backward=True, calls=2, tolerance=1e-5)


def test_dropout_of_low_precision() -> None:
    check(
        lambda x: functional.dropout(x.bfloat16(), 0.5).float() + functional.dropout(x.half(), 0.5),
        data(6, 33),
        backward=True,
    )


def test_dropout_follows_train_and_eval() -> None:
    module = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5))
    compiled, _ = compile_counted(module)
    x = torch.randn(4, 8)
    for training in (True, False, True):
        module.train(training)
        outputs = []
        for call in (compiled, module):
            torch.manual_seed(1)
            outputs.append(call(x))
        torch.testing.assert_close(*outputs)


# -- autocast ----------------------------------------------------------------------------------------------------------
def layers(x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
    h = functional.linear(x, w)
    return h, h.softmax(-1), functional.layer_norm(h, (8,)), torch.matmul(h, w.t()), h.sum(), h + x


def layers_and_data(*_: Any) -> tuple[Tensor, Tensor]:
    return torch.randn(4, 8).requires_grad_(), torch.randn(8, 8).requires_grad_()


@pytest.mark.parametrize("dtype", cases([torch.bfloat16], [torch.float16]))
@pytest.mark.parametrize("where", cases(["inside"], ["around", "decorated"]))
def test_autocast(dtype: torch.dtype, where: str) -> None:
    def inside(x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
        with torch.autocast("cpu", dtype=dtype):
            return layers(x, w)

    if where == "inside":
        check(inside, layers_and_data, backward=True, tolerance=3e-2)
    elif where == "decorated":
        check(torch.autocast("cpu", dtype=dtype)(layers), layers_and_data, backward=True, tolerance=3e-2)
    else:
        with torch.autocast("cpu", dtype=dtype):
            check(layers, layers_and_data, backward=True, tolerance=3e-2)


def test_nested_autocast_and_a_region_without() -> None:
    def function(x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            a = x @ w
            with torch.autocast("cpu", enabled=False):
                b = a.float() @ w
            with torch.autocast("cpu", dtype=torch.float16):
                c = (x * 1) @ (w * 1)  # eager mode keeps casts of leaves, in the outer dtype
            d = b @ w
        return a, b, c, d, x @ w

    check(function, layers_and_data, backward=True, tolerance=3e-2)


def test_one_compiled_function_called_under_changing_autocast() -> None:
    compiled, _ = compile_counted(lambda x, w: x @ w)
    x, w = layers_and_data()
    for enabled, dtype in ((False, torch.bfloat16), (True, torch.bfloat16), (True, torch.float16), (False, None)):
        with torch.autocast("cpu", dtype=dtype, enabled=enabled):
            have, want = compiled(x, w), x @ w
        assert have.dtype == want.dtype
        torch.testing.assert_close(have, want, atol=2e-2, rtol=2e-2)


def test_autocast_of_a_convolutional_model_in_inference() -> None:
    module = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 4, 1)).eval()
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        x = torch.randn(2, 3, 8, 8)
        want = module(x)
        have = compile_counted(module)[0](x)
    assert have.dtype == want.dtype
    torch.testing.assert_close(have, want, atol=3e-2, rtol=3e-2)


def test_deterministic_algorithms() -> None:
    def function(x: Tensor, i: Tensor) -> tuple[Tensor, ...]:
        y = torch.zeros(4).index_add(0, i, x)
        z = torch.zeros(4).scatter_add_(0, i, x)
        return y, z, x[i], torch.empty(3).fill_(2)

    torch.use_deterministic_algorithms(True)
    try:
        check(function, lambda: (torch.randn(6).requires_grad_(), torch.tensor([0, 1, 1, 3, 0, 1])), backward=True)
    finally:
        torch.use_deterministic_algorithms(False)


def test_default_dtype_is_part_of_the_program() -> None:
    def function(x: Tensor) -> tuple[Tensor, ...]:
        return torch.ones(3) * 2, x / 2, torch.arange(3.0) + 1

    torch.set_default_dtype(torch.float64)
    try:
        check(function, lambda: (torch.arange(3),))
    finally:
        torch.set_default_dtype(torch.float32)
    check(function, lambda: (torch.arange(3),))
