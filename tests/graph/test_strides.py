"""Strides of results where torch's fake tensors have others than its kernels."""

from __future__ import annotations

import contextlib
import functools
import itertools
import threading
from collections.abc import Callable, Sequence
from random import Random

import pytest
import torch
import torch.nn.functional as F
from torch._subclasses.fake_tensor import FakeTensorMode

from inductor_cpu.graph.fake_strides import strides_of_eager
from inductor_cpu.graph.orders import broadcast_order, order_of_result
from tests.e2e.support import assert_same

Tensor = torch.Tensor
aten = torch.ops.aten

RANDOM = torch.Generator().manual_seed(0)
X = torch.randn(3, 4, 5, generator=RANDOM).permute(2, 0, 1)
SMALL = torch.rand(4, 3, generator=RANDOM).t() + 0.5
IMAGE = torch.randn(2, 4, 5, 6, generator=RANDOM)
LAST = IMAGE.contiguous(memory_format=torch.channels_last)
PIXELS = torch.randn(2, 5, 6, 4, generator=RANDOM).permute(0, 3, 2, 1).transpose(2, 3)
VOLUME = torch.randn(2, 3, 4, 3, 4, generator=RANDOM).contiguous(memory_format=torch.channels_last_3d)
HEADS = torch.randn(1, 2, 18, 1, generator=RANDOM)
ROW = torch.randn(1, 7, generator=RANDOM).bfloat16()
SQUARE = torch.randn(7, 7, generator=RANDOM).bfloat16().t()
NUMBERS = torch.randn(16, 1, generator=RANDOM)
COLUMN, REPEATED = torch.randn(1, 1, 3, generator=RANDOM).permute(2, 1, 0), SMALL.reshape(1, 12, 1).expand(3, -1, 1)
GRID = torch.tensor([[0, 1, 2], [2, 1, 0]])

CASES: dict[str, Callable[[], Tensor]] = {
    "number to a power": lambda: 2.0**X + 1,
    "number to a power, flattened": lambda: (2.0**X).flatten(1).relu(),
    "elements in a single number": lambda: torch.isin(X, torch.tensor(0.5)),
    "elements in a python number": lambda: torch.isin(X, 0.5),
    "difference of a row and a column": lambda: torch.rsub(NUMBERS.t()[None], NUMBERS),
    "difference of two rows": lambda: torch.rsub(NUMBERS.t()[None, None], NUMBERS.t()[None].transpose(0, 1)),
    "product of a row and a column": lambda: NUMBERS.t()[None] * NUMBERS,
    "windows of one pixel": lambda: F.unfold(PIXELS.transpose(0, 1), 1),
    "channels of a channels-last image in turns": lambda: F.channel_shuffle(LAST, 2),
    "reflection around a channels-last image": lambda: F.pad(LAST, (1, 2, 1, 0), mode="reflect"),
    "edges repeated around a slice of a channels-last image": lambda: F.pad(
        LAST[:, 1:3], (1, 1, 1, 1), mode="replicate"
    ),
    "edges repeated around a channels-last volume": lambda: F.pad(VOLUME, (1, 1, 1, 1, 1, 1), mode="replicate"),
    "reflection around a channels-last volume without a batch": lambda: F.pad(LAST, (1, 1, 1, 1, 1, 1), mode="reflect"),
    "pooling of a channels-last image undone": lambda: F.max_unpool2d(*F.max_pool2d(LAST, 2, return_indices=True), 2),
    "angles of complex numbers": lambda: torch.complex(X, X).angle(),
    "angles of floats": lambda: X.angle(),
    "times a power of two in bf16": lambda: torch.ldexp(X[0].bfloat16(), X.bfloat16()),
    "times an integer's power of two": lambda: torch.ldexp(X[0].clone(), X.int()),
    "an integer times an integer's power of two": lambda: torch.ldexp(X[0].int(), X.int()),
    "times a power of two": lambda: torch.ldexp(X[0], X),
    "times a broadcast power of two": lambda: torch.ldexp(X, X[:, :, :1]),
    "gradient of what was dropped": lambda: torch.ops.aten.native_dropout_backward(X, X > 0, 1.25),
    "losses of pixels": lambda: F.nll_loss(PIXELS, torch.zeros(2, 5, 6, dtype=torch.int64), reduction="none"),
    "copy of what no view has": lambda: torch.view_copy(X, (20, 3)),
    "copy of a view": lambda: torch.view_copy(X, (5, 3, 2, 2)),
    "index of transposed positions": lambda: X[GRID.t()],
    "index of two transposed tensors": lambda: X[:, GRID.t(), GRID.t() + 1],
    "index behind a kept dimension": lambda: X.contiguous()[:, GRID.t()].sin(),
    "index with a dimension between": lambda: X[GRID.t(), :, GRID.t()],
    "index by a number for every dimension": lambda: X[GRID[0, 1], GRID[0, 0], GRID[0, 2]] + 1,
    "index of a small tensor": lambda: torch.zeros(1)[torch.zeros(2, 7, dtype=torch.int64).t()],
    "index of a tensor with a dimension of one element": lambda: torch.zeros(3, 8, 1)[GRID.t()].squeeze(),
    "index behind a dimension of one element": lambda: IMAGE[:, :1, :, 0][:, :, GRID.t()].squeeze(),
    "index of a result that has other strides": lambda: torch.copysign(X.permute(0, 2, 1), X[0, :, 0])[
        torch.tensor([1, 0])
    ],
    "index_fill of columns with gaps": lambda: SMALL.t()[..., ::2].t().index_fill(0, torch.tensor([1]), 1),
    "index_fill by a tensor": lambda: SMALL.t()[..., ::2].t().index_fill(1, torch.tensor([1]), SMALL[0, 0]),
    "copysign": lambda: torch.copysign(SMALL, torch.tensor(-1.0)),
    "logical_and": lambda: torch.logical_and(X, SMALL.t()[:, :3].t()[0, 0]),
    "logical_or of broadcast": lambda: torch.logical_or(torch.randn(10, 1, 5).permute(2, 1, 0), torch.randn(10, 5).t()),
    "lcm of integers of 16 bits": lambda: torch.lcm(
        torch.ones(5, 1, 10, dtype=torch.int16).permute(2, 1, 0),
        torch.ones(5, 10, 1, dtype=torch.int16).permute(2, 1, 0),
    ),
    "floor division": lambda: SMALL // torch.tensor(0.3),
    "repeated rows between two tensors": lambda: torch.clamp(
        SMALL[..., None].expand(3, 4, 2), NUMBERS[:2].t()[None], IMAGE[:1, :2, :4, 0].transpose(1, 2)
    ),
    "sum of losses": lambda: F.huber_loss(X, X.flip(0), reduction="sum") + F.mse_loss(NUMBERS, NUMBERS.t()[:, :1]),
    "logsigmoid": lambda: F.logsigmoid(X),
    "logsigmoid of a contiguous tensor": lambda: F.logsigmoid(IMAGE),
    "xlogy": lambda: torch.xlogy(X, SMALL[:, :1]),
    "pooling of heads of one element": lambda: F.avg_pool1d((HEADS + 1).transpose(1, 2).flatten(2), 2, 2, 1),
    "pooling of their attention": lambda: F.avg_pool1d(
        F.scaled_dot_product_attention(HEADS, HEADS, HEADS, is_causal=True).transpose(1, 2).flatten(2), 2, 2, 1
    ),
    "batch norm of three dimensions": lambda: F.batch_norm(X, None, None, training=True),
    "batch norm of an image": lambda: F.batch_norm(IMAGE.transpose(2, 3), None, None, training=True),
    "batch norm of an image, sliced": lambda: F.batch_norm(
        IMAGE.to(memory_format=torch.channels_last)[:, 1:3], None, None, training=True
    ),
    "batch norm of an image of one column, single elements apart": lambda: F.batch_norm(
        HEADS.view(1, 6, 6, 1).permute(3, 2, 1, 0), None, None, training=True
    ),
    "group norm of an index": lambda: F.group_norm(X[GRID.t()], 1),
    "rms norm of an index": lambda: F.rms_norm(X[GRID.t()], (4,)),
    "resize of an index": lambda: F.interpolate(X[GRID.t()], scale_factor=2),
    "contiguous copy of an index": lambda: X[GRID.t()].contiguous(),
    "attention of an index": lambda: F.scaled_dot_product_attention(X[GRID.t()], X[GRID.t()], X[GRID.t()]),
    "group norm, channels last": lambda: F.group_norm(IMAGE.to(memory_format=torch.channels_last), 1),
    "batch norm by given statistics": lambda: F.batch_norm(SMALL.t(), torch.zeros(3), torch.ones(3)),
    "batch norm by given statistics of an image": lambda: F.batch_norm(
        IMAGE.permute(3, 1, 2, 0), torch.zeros(4), torch.ones(4)
    ),
    "expanded tensor and a transposed one": lambda: ROW.expand_as(SQUARE) - SQUARE,
    "expanded tensor, scaled": lambda: torch.add(COLUMN, REPEATED, alpha=2),
    "expanded tensor, subtracted and scaled": lambda: torch.sub(COLUMN, REPEATED, alpha=2),
    "expanded tensor of another dtype": lambda: ROW.expand_as(SQUARE) * SQUARE.float(),
    "roll, channels last": lambda: torch.roll(IMAGE.to(memory_format=torch.channels_last), -1, 0),
    "roll of two dimensions, channels last": lambda: torch.roll(
        IMAGE.to(memory_format=torch.channels_last), (1, 2), (2, -1)
    ),
    "resize of a roll, channels last": lambda: F.interpolate(
        torch.roll(IMAGE.to(memory_format=torch.channels_last), 1, 1), scale_factor=2
    ),
    "contiguous copy of a roll, channels last": lambda: torch.roll(
        IMAGE.to(memory_format=torch.channels_last), 1, 1
    ).contiguous(),
    "roll by nothing, channels last": lambda: torch.roll(IMAGE.to(memory_format=torch.channels_last), 0, 1),
    "roll of all elements": lambda: torch.roll(X, 2),
    "roll of permuted dimensions": lambda: torch.roll(X, 1, 1),
    "join of an image, channels last, as a view with a dimension of one element": lambda: torch.cat(
        [IMAGE[:1].contiguous(memory_format=torch.channels_last).unflatten(2, (1, 5))] * 2, 2
    ),
    "batch norm, channels last": lambda: F.batch_norm(
        IMAGE.to(memory_format=torch.channels_last), None, None, training=True
    ),
}


def test_other_compilers_see_fake_tensors_as_torch_makes_them() -> None:
    before, seen = FakeTensorMode._dispatch_impl, []

    def use() -> None:
        with contextlib.suppress(ValueError), strides_of_eager(), strides_of_eager():
            seen.append(FakeTensorMode._dispatch_impl)
            raise ValueError

    threads = [threading.Thread(target=use) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(seen) == 4
    assert before not in seen
    assert FakeTensorMode._dispatch_impl is before


UNREDUCED = ("mse_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy")
OF_TWO = ("atan2", "clamp", "eq", "fmin", "fmod", "hypot", "lt", "maximum", "remainder", "rsub")


def test_results_of_an_expanded_operand_have_the_strides_of_eager() -> None:
    def results(pairs: list[tuple[Tensor, Tensor]]) -> list[dict[str, Tensor]]:
        of_losses = {name: functools.partial(getattr(F, name), reduction="none") for name in UNREDUCED}
        functions = {**of_losses, **{name: getattr(torch, name) for name in OF_TWO}}
        return [{name: function(x, y) for name, function in functions.items()} for x, y in pairs]

    pairs = []
    for dtype in (torch.bfloat16, torch.float32):
        row, square = torch.rand(1, 7, generator=RANDOM).to(dtype), torch.rand(7, 7, generator=RANDOM).to(dtype).t()
        pairs += [(row.expand_as(square), square), (square, row.expand_as(square))]
    with torch.no_grad():
        expected, actual = results(pairs), torch.compile(results, backend="icpu", dynamic=False)(pairs)
    torch.testing.assert_close(actual, expected)
    strides = [[{name: r.stride() for name, r in of_pair.items()} for of_pair in of] for of in (actual, expected)]
    assert strides[0] == strides[1]


MEAN = 1
OF_LOSSES: dict[str, Callable[..., Tensor]] = {
    "mse_loss": lambda given, x, y: aten.mse_loss_backward(given, x, y, MEAN),
    "smooth_l1_loss": lambda given, x, y: aten.smooth_l1_loss_backward(given, x, y, MEAN, 1.0),
    "huber_loss": lambda given, x, y: aten.huber_loss_backward(given, x, y, MEAN, 1.0),
    "binary_cross_entropy": lambda given, x, y: aten.binary_cross_entropy_backward(given, x, y, None, MEAN),
    "soft_margin_loss": lambda given, x, y: aten.soft_margin_loss_backward(given, x, y, MEAN),
    "log_softmax": lambda given, x, y: aten._log_softmax_backward_data(given, x, 1, torch.float32),
    "softmax": lambda given, x, y: aten._softmax_backward_data(given, x, 3, torch.float32),
    "glu": lambda given, x, y: aten.glu_backward(given[:, :3], x, 1),
}


def test_gradients_of_losses_have_the_strides_of_eager_whatever_their_operands_have() -> None:
    def gradients(pairs: list[tuple[Tensor, Tensor]], y: Tensor) -> list[dict[str, Tensor]]:
        return [{name: gradient(given, x, y) for name, gradient in OF_LOSSES.items()} for given, x in pairs]

    image = torch.rand(2, 6, 4, 8, generator=RANDOM)
    turned = image.permute(1, 2, 0, 3).contiguous().permute(2, 0, 1, 3)
    layouts = (image, image.contiguous(memory_format=torch.channels_last), turned)
    pairs = list(itertools.product(layouts, repeat=2))
    compiled = torch.compile(gradients, backend="icpu", dynamic=False, options={"debug_interpret": True})
    with torch.no_grad():
        results = zip(pairs, gradients(pairs, image), compiled(pairs, image), strict=True)
    for (given, x), expected, actual in results:
        for name in OF_LOSSES:
            torch.testing.assert_close(actual[name], expected[name])
            assert actual[name].stride() == expected[name].stride(), (name, given.stride(), x.stride())


@pytest.mark.parametrize("shape", [(), (0, 3)], ids=["no dimensions", "no elements"])
def test_gradients_of_a_loss_of_one_element_or_none(shape: tuple[int, ...]) -> None:
    def gradient(given: Tensor, x: Tensor) -> Tensor:
        return aten.binary_cross_entropy_backward(given, x, x, None, MEAN)

    given, x = torch.ones(()), torch.rand(shape, generator=RANDOM)
    with torch.no_grad():
        actual = torch.compile(gradient, backend="icpu", options={"debug_interpret": True})(given, x)
        assert_same(actual, gradient(given, x))


#: So many are one graph: most of the time of a small one goes by before anything of it is compiled.
TOGETHER = 8


@functools.cache
def compiled_cases(turn: int) -> dict[str, Tensor]:
    """The results of every so many cases, by name: neighbours, which are alike, are in different graphs."""
    names = list(CASES)[turn :: -(-len(CASES) // TOGETHER)]
    with torch.no_grad():
        return torch.compile(lambda: {name: CASES[name]() for name in names}, backend="icpu")()


@pytest.mark.parametrize("name", CASES)
def test_results_have_the_strides_of_eager(name: str) -> None:
    with torch.no_grad():
        expected = CASES[name]()
        actual = compiled_cases(list(CASES).index(name) % -(-len(CASES) // TOGETHER))[name]
    assert_same(actual, expected)


GRADIENTS: dict[str, Callable[[Tensor, Tensor], object]] = {
    "number to a power, which the backward reads": lambda x, index: 2.0**x,
    "what follows": lambda x, index: (2.0**x).sin() * 3,
    "result and what follows": lambda x, index: (2.0**x, (2.0**x).exp()),
    "index of transposed positions": lambda x, index: (x[index.t()], x.exp()),
    "an index taken apart": lambda x, index: F.rms_norm(x[index.t()], (4,)),
    "a view of an index": lambda x, index: (x[index.t()].transpose(0, 1), x.exp()),
    "an index and a view of it": lambda x, index: (y := x[index.t()], y.transpose(0, 1)),
    "a constant indexed": lambda x, index: (torch.arange(12.0).view(4, 3)[index.t()], x.exp()),
    "a view of the result beside it": lambda x, index: ((2.0**x), (2.0**x).transpose(0, 1)),
    "only a view of the result": lambda x, index: (2.0**x).transpose(0, 1),
    "a changed argument": lambda x, index: (2.0**x, index.add_(1)),
}


@pytest.mark.parametrize("name", GRADIENTS)
def test_results_with_gradients_have_the_strides_of_eager(name: str) -> None:
    function, found = GRADIENTS[name], []
    for call in (function, torch.compile(function, backend="icpu")):
        x = X.clone(memory_format=torch.preserve_format).requires_grad_()
        index = GRID.clone()
        results = call(x, index)
        results = results if isinstance(results, tuple) else (results,)
        ends = [r for r in results if r.requires_grad]
        marks = [torch.arange(float(r.numel())).view(r.shape) for r in ends]
        found.append((results, torch.autograd.grad(ends, x, marks), index))
    (expected, *others), (actual, *other) = found
    assert_same(actual, expected)
    torch.testing.assert_close(other, others)
    assert [r.stride() for r in actual] == [r.stride() for r in expected]


@pytest.mark.parametrize("mode", ["reflect", "replicate"])
def test_gradients_of_padding_have_the_strides_of_eager(mode: str) -> None:
    def slopes(images: list[Tensor]) -> tuple[Tensor, ...]:
        padded = [F.pad(x, (1, 2) * (x.dim() - 2), mode=mode) for x in images]
        total = torch.stack([(y * y.detach()).sum() for y in padded]).sum()
        return torch.autograd.grad(total, images)

    images = [x.detach().requires_grad_() for x in (LAST, LAST[:, 1:3], IMAGE, VOLUME)]
    for expected, actual in zip(slopes(images), torch.compile(slopes, backend="icpu")(images), strict=True):
        assert_same(actual, expected)
        assert actual.stride() == expected.stride()


@pytest.mark.parametrize(
    "x",
    [torch.ones(2, 5), torch.ones(5, 2).t(), torch.ones(2, 5, 3), torch.ones(2, 4, 3, 5).permute(0, 3, 1, 2)],
    ids=lambda x: str(x.stride()),
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_fake_batch_norm_by_given_statistics_is_as_eager_s(x: Tensor, dtype: torch.dtype) -> None:
    norm = torch.ops.aten._native_batch_norm_legit_no_training.default
    others = (torch.ones(5), torch.zeros(5), torch.zeros(5), torch.ones(5), 0.1, 1e-5)
    expected, *nothing = norm(x.to(dtype), *others)
    with FakeTensorMode(allow_non_fake_inputs=True) as mode, strides_of_eager():
        fake, *rest = norm(mode.from_tensor(x.to(dtype)), *others)
    assert (fake.shape, fake.dtype, fake.stride()) == (expected.shape, expected.dtype, expected.stride())
    assert [value.shape for value in rest] == [value.shape for value in nothing]


def test_torch_has_its_own_memory_of_fake_results_again_after_threads_called_operators_that_differ() -> None:
    def call() -> None:
        with FakeTensorMode() as mode:
            for size in range(2, 200):
                torch.pow(2.0, mode.from_tensor(torch.ones(3, size).t()))

    memory, threads = FakeTensorMode.cache, [threading.Thread(target=call) for _ in range(4)]
    with strides_of_eager():
        for thread in threads:
            thread.start()
        call()
    for thread in threads:
        thread.join()
    assert FakeTensorMode.cache is memory


def test_strides_of_symbolic_sizes() -> None:
    def both(x: Tensor, index: Tensor) -> tuple[Tensor, Tensor]:
        return 2.0**x, x[index] * 2

    compiled = torch.compile(both, backend="icpu", dynamic=True)
    with torch.no_grad():
        for sizes in ((3, 4, 5), (6, 2, 7)):
            x = torch.randn(sizes).permute(2, 0, 1)
            assert_same(compiled(x, GRID.t()), both(x, GRID.t()))


def test_pooling_of_a_view_with_a_symbolic_size() -> None:
    def function(x: Tensor) -> Tensor:
        x.reshape(-1).add_(1)  # the view of the sum gets the size as an argument
        return F.avg_pool2d(x, 1, 2)

    compiled = torch.compile(function, backend="icpu")
    for size in (1, 3, 5):
        assert_same(compiled(torch.ones(1, 1, size, 1)), function(torch.ones(1, 1, size, 1)))


def test_a_view_beside_its_base_is_still_a_view_of_it() -> None:
    def both(x: Tensor) -> tuple[Tensor, Tensor]:
        y = 2.0**x
        return y, y.transpose(0, 1)

    for grad in (False, True):
        x = torch.randn(3, 4, 5).permute(2, 0, 1).requires_grad_(grad)
        expected, actual = both(x), torch.compile(both, backend="icpu")(x)
        torch.testing.assert_close(actual, expected)
        assert actual[0].data_ptr() == actual[1].data_ptr()


def test_a_view_beside_a_base_whose_fake_strides_are_wrong() -> None:
    def both(x: Tensor, index: Tensor) -> tuple[Tensor, Tensor]:
        taken = x.sin()[index]
        return taken, taken[..., 1::3]

    index = torch.zeros(2, 3, dtype=torch.int64).t()
    for dynamic in (False, True):
        for grad in (False, True):
            torch._dynamo.reset()
            x = torch.randn(1, 4, 5).requires_grad_(grad)
            actual = torch.compile(both, backend="icpu", dynamic=dynamic)(x, index)
            torch.testing.assert_close(actual, both(x, index), check_stride=not (dynamic and grad))
            assert actual[0].data_ptr() + actual[0].element_size() == actual[1].data_ptr()


def test_logsigmoid_of_a_value_whose_fake_strides_are_wrong_is_contiguous() -> None:
    x, y = torch.randn(3, 4).t(), torch.rand(4, 3) + 0.5
    assert_same(
        torch.compile(lambda x, y: F.logsigmoid(torch.xlogy(x, y)), backend="icpu")(x, y), F.logsigmoid(x.xlogy(y))
    )


@pytest.mark.parametrize("seed", range(20))
def test_the_order_of_broadcast_operands_is_that_of_atens_iterator(seed: int) -> None:
    random = Random(seed)
    for number in range(50):
        shape = [random.choice([1, 1, 2, 3]) for _ in range(random.randint(1, 5))]
        operands = [_part_of(shape, random) for _ in range(random.choice([2, 2, 3]))]
        made = torch.addcmul(*operands) if len(operands) == 3 else torch.add(*operands)
        if len({x.shape for x in operands}) > 1:
            strides = tuple(_strides_in(broadcast_order(operands), made.shape))
            assert made.stride() == strides, (seed, number, [(x.shape, x.stride()) for x in operands])


#: Operator -> its operands' dtypes, and what follows them.
ELEMENTWISE: dict[str, tuple[tuple[torch.dtype | None, ...], tuple[object, ...]]] = {
    **dict.fromkeys(
        "add.Tensor atan2 clamp_max.Tensor clamp_min.Tensor div.Tensor eq.Tensor floor_divide igamma "
        "logaddexp maximum mul.Tensor pow.Tensor_Tensor rsub.Tensor sigmoid_backward silu_backward "
        "sub.Tensor tanh_backward".split(),
        ((None, None), ()),
    ),
    **dict.fromkeys(["complex", "nextafter", "polar"], ((torch.float32, torch.float32), ())),
    **dict.fromkeys(["bitwise_and.Tensor", "bitwise_left_shift.Tensor", "gcd"], ((torch.int64, torch.int64), ())),
    **dict.fromkeys(["addcdiv", "addcmul", "clamp.Tensor", "lerp.Tensor"], ((None, None, None), ())),
    "hardtanh_backward": ((None, None), (-1, 1)),
    **dict.fromkeys(["huber_loss", "mse_loss", "smooth_l1_loss"], ((None, None), (0,))),
    "lerp.Scalar": ((None, None), (0.5,)),
    "leaky_relu_backward": ((None, None), (0.1, False)),
    "masked_fill.Scalar": ((None, torch.bool), (0,)),
    "softplus_backward": ((None, None), (1, 20)),
    "threshold_backward": ((None, None), (0,)),
    "where.self": ((torch.bool, None, None), ()),
}


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_elementwise_results_are_laid_out_as_those_of_eager(name: str) -> None:
    packet, _, overload = name.partition(".")
    operator = getattr(getattr(aten, packet), overload or "default")
    dtypes, others = ELEMENTWISE[name]
    random = Random(name)
    for _ in range(60):
        shape = [random.choice([1, 1, 2, 3, 4]) for _ in range(random.randint(2, 5))]
        same = random.choice([torch.float32, torch.bfloat16])
        values = [_part_of(shape, random) for _ in dtypes]
        if random.random() < 0.3:
            values = [x.expand(shape) for x in values]
        values = [_as(x, dtype or same) for x, dtype in zip(values, dtypes, strict=True)]
        made = operator(*values, *others)
        with FakeTensorMode() as mode:
            fakes = [mode.from_tensor(x) for x in values]
            fake = operator(*fakes, *others)
        order = order_of_result(operator, (*fakes, *others), fake)
        strides = fake.stride() if order is None else _strides_in(order, fake.shape)
        known = [(n, step) for n, step in zip(made.shape, made.stride(), strict=True) if n != 1]
        assert known == [(n, step) for n, step in zip(fake.shape, strides, strict=True) if n != 1], [
            (x.shape, x.stride()) for x in values
        ]


def _as(x: Tensor, dtype: torch.dtype) -> Tensor:
    """Ones of a dtype that lie in memory as `x` does."""
    return torch.ones(x.untyped_storage().nbytes(), dtype=dtype).as_strided(x.shape, x.stride())


def _strides_in(order: Sequence[int], shape: Sequence[int]) -> list[int]:
    strides, step = [1] * len(shape), 1
    for d in reversed(order):
        strides[d], step = step, step * shape[d]
    return strides


def _part_of(shape: list[int], random: Random) -> Tensor:
    """An operand that can be broadcast to a shape, with its dimensions in any order, repeated or with gaps."""
    sizes = [random.choice([1, n]) for n in shape[random.randint(0, len(shape)) :]]
    strides, step = [0] * len(sizes), 1
    for d in random.sample(range(len(sizes)), len(sizes)):
        strides[d] = random.choice([step] * 6 + [0])
        step = step * sizes[d] + random.choice([0] * 6 + [1])
    return torch.empty_strided(sizes, strides)
