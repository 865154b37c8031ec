"""Which programs become one kernel, and which must not. Every schedule is also run and compared (see harness)."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from inductor_cpu.ir.index import Expr, loop_var, of, size_symbol
from inductor_cpu.ir.kernel import Kernel, Schedule
from inductor_cpu.ir.loop_nest import Load, Store
from inductor_cpu.schedule.beside import are_beside
from tests.schedule.harness import kernels, only_kernel, scheduled

Tensor = torch.Tensor
SIZE = size_symbol("n")
I, J, K = loop_var("i", of(SIZE)), loop_var("j", 10), loop_var("k", 2)


def randn(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*shape).to(dtype)


def image(*shape: int) -> Tensor:
    return randn(*shape).contiguous(memory_format=torch.channels_last)


def stored(kernel: Kernel) -> list[str]:
    return [store.buffer for store in kernel.stores]


def buffers_read(schedule: Schedule) -> list[int]:
    """How many buffers each kernel reads."""
    return [len({i.buffer for i in kernel.body if isinstance(i, Load)}) for kernel in kernels(schedule)]


# -- normalization and softmax ---------------------------------------------------------------------------------------
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_layer_norm_is_one_kernel_of_three_phases(dtype: torch.dtype, dynamic: bool) -> None:
    inputs = (randn(4, 16, 32, dtype=dtype), randn(32, dtype=dtype), randn(32, dtype=dtype))
    kernel = only_kernel(scheduled(lambda x, w, b: F.layer_norm(x, (32,), w, b), *inputs, dynamic=dynamic))
    assert len(kernel.phases) == 3
    assert len(kernel.outer) == 1
    assert len(kernel.stores) == 1


def test_residual_add_and_layer_norm_with_both_results_is_one_kernel() -> None:
    def fn(x: Tensor, y: Tensor, w: Tensor, b: Tensor) -> Any:
        h = x + y
        return h, F.layer_norm(h, (32,), w, b)

    kernel = only_kernel(scheduled(fn, randn(4, 16, 32), randn(4, 16, 32), randn(32), randn(32)))
    assert len(kernel.stores) == 2


def test_embedding_and_layer_norm_is_one_kernel() -> None:
    def fn(i: Tensor, table: Tensor, position: Tensor, w: Tensor) -> Tensor:
        return F.layer_norm(F.embedding(i, table) + position, (32,), w)

    only_kernel(scheduled(fn, torch.randint(0, 50, (4, 16)), randn(50, 32), randn(16, 32), randn(32)))


def test_layer_norm_and_split_into_transposed_heads_is_one_kernel() -> None:
    def fn(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
        return F.layer_norm(x, (32,), w, b).view(4, 16, 4, 8).transpose(1, 2).contiguous()

    only_kernel(scheduled(fn, randn(4, 16, 32), randn(32), randn(32)))


def test_softmax_with_scale_and_broadcast_mask_is_one_kernel() -> None:
    def fn(x: Tensor, mask: Tensor) -> Tensor:
        return torch.softmax((x * 0.3).masked_fill(mask, float("-inf")), -1)

    kernel = only_kernel(scheduled(fn, randn(2, 3, 8, 8), torch.ones(8, 8).triu(1).bool()))
    assert len(kernel.phases) == 3


def test_softmax_over_an_outer_dimension_vectorizes_the_contiguous_one() -> None:
    kernel = only_kernel(scheduled(lambda x: torch.softmax(x, 1), randn(4, 16, 32)))
    assert kernel.vector.loop == kernel.outer[-1]


def test_softmax_and_its_backward_is_one_kernel() -> None:
    def fn(x: Tensor, grad: Tensor) -> Any:
        return torch.func.vjp(lambda value: torch.softmax(value * 0.5, -1), x)[1](grad)

    only_kernel(scheduled(fn, randn(2, 3, 8, 8), randn(2, 3, 8, 8)))


def test_rms_norm_in_bfloat16_is_one_kernel() -> None:
    def fn(x: Tensor, w: Tensor) -> Tensor:
        wide = x.float()
        return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype) * w

    inputs = (randn(4, 16, 32, dtype=torch.bfloat16), randn(32, dtype=torch.bfloat16))
    assert len(only_kernel(scheduled(fn, *inputs)).phases) == 2


def test_cosine_similarity_takes_both_lengths_in_one_pass() -> None:
    """The product reads two reductions; it joins the later one, and the earlier one joins both."""

    def fn(x: Tensor, y: Tensor) -> Tensor:
        lengths = (x * x).sum(1, keepdim=True).sqrt(), (y * y).sum(1, keepdim=True).sqrt()
        return ((x / lengths[0]) * (y / lengths[1])).sum(1)

    kernel = only_kernel(scheduled(fn, randn(8, 48), randn(8, 48)))
    assert len(kernel.phases) == 2
    assert len(kernel.phases[0].reduces) == 2


def test_long_columns_are_folded_by_kernels_of_their_own() -> None:
    """Every pass over them comes from memory; kernels that do one thing each read whole rows of them at a time."""

    def fn(x: Tensor, y: Tensor) -> Tensor:
        lengths = (x * x).sum(0, keepdim=True).sqrt(), (y * y).sum(0, keepdim=True).sqrt()
        return ((x / lengths[0]) * (y / lengths[1])).sum(0)

    assert len(kernels(scheduled(fn, randn(96, 48), randn(96, 48)))) == 2


def test_a_producer_stays_apart_where_a_step_between_changes_what_it_reads() -> None:
    def run(x: Tensor, y: Tensor) -> Tensor:
        length = x.sum(1)
        flipped = x.flip(1).cumsum(1)
        x.copy_(flipped)
        return (x * length[:, None] + y * y.sum(1)[:, None]).sum(1)

    scheduled(run, randn(6, 32), randn(6, 32))


@pytest.mark.parametrize(("results", "operands"), [(4, [4]), (12, [5, 5, 4])])
def test_results_of_many_calls_are_added_as_they_come(results: int, operands: list[int]) -> None:
    def fn(x: Tensor) -> Tensor:
        total = torch.special.bessel_j0(x)
        for k in range(1, results):
            total = total + torch.special.bessel_j0(x + k)
        return total

    assert [count for count in buffers_read(scheduled(fn, torch.randn(8))) if count > 1] == operands


def test_many_operands_are_added_at_once_where_no_call_lies_between() -> None:
    def fn(x: Tensor) -> Tensor:
        parts = [torch.special.bessel_j0(x + k) for k in range(12)]
        return sum(parts[1:], parts[0])

    assert max(buffers_read(scheduled(fn, torch.randn(8)))) == 12


@pytest.mark.parametrize("training", [False, True])
def test_batch_norm_and_relu_in_channels_last_has_lanes_over_channels(training: bool) -> None:
    """With given statistics the root and the division of each channel are a kernel of their own, not done per pixel."""

    def fn(x: Tensor, w: Tensor, b: Tensor, mean: Tensor, var: Tensor) -> Tensor:
        stats = (None, None) if training else (mean, var)
        return torch.relu(F.batch_norm(x, *stats, w, b, training))

    inputs = (image(2, 96, 7, 7), randn(96), randn(96), randn(96), randn(96).abs())
    *before, kernel = kernels(scheduled(fn, *inputs))
    assert len(before) == (0 if training else 1)
    assert kernel.vector.loop is not None
    assert kernel.vector.loop.size == 96


@pytest.mark.parametrize("channels_last", [False, True])
def test_group_norm_and_silu_is_one_kernel(channels_last: bool) -> None:
    x = image(2, 16, 7, 7)
    kernel = only_kernel(
        scheduled(
            lambda x, w, b: F.silu(F.group_norm(x, 4, w, b)),
            x if channels_last else x.contiguous(),
            randn(16),
            randn(16),
        )
    )
    assert len(kernel.phases) == 3


def test_mean_over_space_in_channels_last_vectorizes_channels() -> None:
    kernel = only_kernel(scheduled(lambda x: F.relu6(x).mean((2, 3)), image(2, 16, 7, 7)))
    assert kernel.vector.loop == kernel.outer[-1]


def test_cross_entropy_is_one_kernel_over_classes_and_one_over_rows() -> None:
    found = kernels(scheduled(F.cross_entropy, randn(32, 100), torch.randint(0, 100, (32,))))
    assert [len(kernel.phases) for kernel in found] == [2, 1]


def test_mean_and_variance_share_one_kernel() -> None:
    only_kernel(scheduled(lambda x: torch.var_mean(x, -1), randn(4, 16, 32)))


def test_independent_updates_of_one_tensor_share_a_kernel() -> None:
    def fn(p: Tensor, g: Tensor, m: Tensor, v: Tensor) -> Any:
        m, v = m * 0.9 + g * 0.1, v * 0.99 + g * g * 0.01
        return p - 0.1 * m / (v.sqrt() + 1e-8), m, v

    only_kernel(scheduled(fn, *[randn(50, 20).abs() for _ in range(4)]))


def test_in_place_normalization_stores_after_the_last_read() -> None:
    def fn(x: Tensor) -> None:
        x.copy_(x - x.mean(-1, keepdim=True))

    kernel = only_kernel(scheduled(fn, randn(8, 32)))
    (last,) = [number for number, phase in enumerate(kernel.phases) if phase.stores]
    assert last == len(kernel.phases) - 1


# -- what must stay apart --------------------------------------------------------------------------------------------
def twice(x: Tensor) -> tuple[Tensor, Tensor]:
    """A value that two readers keep from being inlined."""
    y = torch.exp(x)
    return y, y * 2


def test_a_reader_of_shifted_elements_is_a_kernel_of_its_own() -> None:
    def fn(x: Tensor) -> Any:
        y, z = twice(x)
        return y, z, y[1:] + y[:-1]

    assert len(kernels(scheduled(fn, randn(64)))) == 2


def test_a_reader_of_the_transposed_square_is_a_kernel_of_its_own() -> None:
    def fn(x: Tensor) -> Any:
        y, z = twice(x)
        return y, z, y + y.t()

    assert len(kernels(scheduled(fn, randn(16, 16)))) == 2


def test_a_reader_of_flipped_elements_is_a_kernel_of_its_own() -> None:
    def fn(x: Tensor) -> Any:
        y, z = twice(x)
        return y, z, y + y.flip(0)

    assert len(kernels(scheduled(fn, randn(64)))) == 2


def test_reductions_over_rows_and_over_columns_are_two_kernels() -> None:
    found = kernels(scheduled(lambda x: (x.sum(0), x.sum(1)), randn(24, 24)))
    assert len(found) == 2


def test_a_reader_of_half_of_the_points_is_a_kernel_of_its_own() -> None:
    def fn(x: Tensor) -> Any:
        y, z = twice(x)
        return y, z, torch.tanh(y[:32])

    assert len(kernels(scheduled(fn, randn(64)))) == 2


def test_argmax_joins_only_rows_in_its_own_order() -> None:
    def fn(x: Tensor) -> Any:
        return x.amax((1, 2)), x.transpose(1, 2).reshape(4, -1).argmax(1)

    scheduled(fn, randn(4, 8, 8))


def test_a_scatter_stays_alone() -> None:
    def fn(x: Tensor, index: Tensor) -> Any:
        y = torch.zeros_like(x).index_add(0, index, x)
        return y * 2

    found = kernels(scheduled(fn, randn(16, 8), torch.randint(0, 16, (16,))))
    scatters = [kernel for kernel in found if any(store.mode == "add" for store in kernel.stores)]
    assert [len(kernel.stores) for kernel in scatters] == [1]


def test_an_input_is_overwritten_after_its_last_shifted_reader() -> None:
    def fn(x: Tensor) -> Tensor:
        y = x.flip(0) * 2
        x.copy_(x + 1)
        return y

    scheduled(fn, randn(64))


# -- what is stored --------------------------------------------------------------------------------------------------
def test_a_value_used_only_inside_its_kernel_is_not_stored() -> None:
    kernel = only_kernel(scheduled(lambda x: torch.softmax(torch.exp(x), -1), randn(8, 32)))
    (store,) = kernel.stores
    assert isinstance(store, Store)
    assert [arg.buffer for arg in kernel.args if arg.writes] == [store.buffer]


def test_written_buffers_come_first_among_the_arguments() -> None:
    kernel = only_kernel(scheduled(lambda x, y: (x + y, x - y), randn(64), randn(64)))
    assert [arg.writes for arg in kernel.args] == [True, True, False, False]


@pytest.mark.parametrize("dynamic", [False, True])
def test_scheduling_twice_gives_equal_schedules(dynamic: bool) -> None:
    def fn(x: Tensor, w: Tensor) -> Any:
        h = F.gelu(F.layer_norm(x, (32,), w) + x)
        return h, torch.softmax(h, -1).sum(0)

    first, second = (scheduled(fn, randn(4, 16, 32), randn(32), dynamic=dynamic) for _ in range(2))
    assert first.steps == second.steps
    assert first.places == second.places


def test_repeated_layers_have_kernels_that_differ_in_buffers_only() -> None:
    def fn(x: Tensor, a: Tensor, b: Tensor) -> Tensor:
        for weight in (a, b):
            x = F.layer_norm(torch.special.bessel_j0(x), (32,), weight)
        return x

    first, second = kernels(scheduled(fn, randn(16, 32), randn(32), randn(32)))
    assert (first.outer, first.inner, first.phases, first.vector) == (
        second.outer,
        second.inner,
        second.phases,
        second.vector,
    )


# -- records -----------------------------------------------------------------------------------------------------------
def test_values_side_by_side_are_one_kernel() -> None:
    def corners(boxes: Tensor) -> Tensor:
        x, y, w, h = boxes.unbind(-1)
        return torch.stack([x - w / 2, y - h / 2, x + w / 2, y + h / 2], -1)

    kernel = only_kernel(scheduled(corners, randn(30, 4)))
    assert stored(kernel) == [kernel.stores[0].buffer] * 4


def test_parts_of_a_record_that_share_nothing_else_are_one_kernel() -> None:
    only_kernel(scheduled(lambda a, b, c: torch.stack([a.exp(), b, c], -1), randn(3, 20), randn(3, 20), randn(3, 20)))


def test_halves_of_a_record_are_one_kernel() -> None:
    clamp = lambda b: torch.cat([b[:, :2].clamp(0, 640), b[:, 2:].clamp(0, 480)], -1)  # noqa: E731
    only_kernel(scheduled(clamp, randn(50, 4)))


def test_reductions_side_by_side_read_their_rows_once() -> None:
    schedule = scheduled(lambda x: torch.stack([x.sum(-1), x.amax(-1), x.square().sum(-1)], -1), randn(20, 64))
    assert buffers_read(schedule) == [1]


def test_parts_of_a_record_that_read_what_another_has_written_wait() -> None:
    def update(x: Tensor, y: Tensor) -> Tensor:
        x[:, 0] = y * 2
        x[:, 1] = x[:, 0].flip(0) + 1
        return x

    scheduled(update, randn(40, 3), randn(40))


def test_parts_that_overlap_are_two_kernels() -> None:
    def write(x: Tensor, a: Tensor, b: Tensor) -> Tensor:
        flat = x.clone()
        flat.as_strided((10, 3), (4, 1), 0).copy_(a)
        flat.as_strided((10, 3), (4, 1), 2).copy_(b)
        return flat

    scheduled(write, randn(60), randn(10, 3), randn(10, 3))


@pytest.mark.parametrize(
    ("first", "second", "beside"),
    [
        (of(I) * 4, of(I) * 4 + 3, True),
        (of(I) * 4, of(I) * 4 + 4, False),
        (of(I) * 4, of(I) * 4, False),
        (of(I) * 4 + of(K), of(I) * 4 + of(K) + 2, True),
        (of(I) * 4 + of(K), of(I) * 4 + of(K) + 1, False),
        (of(I) * 4 + of(K), of(I) * 4 + of(K) + 3, False),
        (of(I) * 6 + of(J) * 4, of(I) * 6 + of(J) * 4 + 1, True),  # both go even ways
        (of(I) * 6 + of(J) * 4, of(I) * 6 + of(J) * 4 + 2, False),
        (of(I) * -4, of(I) * -4 + 1, True),
        (of(I) * 4, of(J) * 4 + 1, False),  # no number says how far
        (of(I) * of(SIZE), of(I) * of(SIZE) + 1, False),
    ],
)
def test_places_are_beside_each_other_if_no_steps_lead_from_one_to_the_other(
    first: Expr, second: Expr, beside: bool
) -> None:
    assert are_beside(first, second) == beside
