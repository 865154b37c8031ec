"""Which tensors share memory after a call, and what a write to one of them does to the others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.cases import cases
from tests.semantics.support import Tensor, check


def two_overlapping() -> tuple[Tensor, Tensor]:
    base = torch.randn(12)
    return base[:8], base[4:]


def view_and_base() -> tuple[Tensor, Tensor]:
    base = torch.randn(3, 4)
    return base, base.t()


def twice_the_same() -> tuple[Tensor, Tensor]:
    x = torch.randn(3, 4)
    return x, x


def apart() -> tuple[Tensor, Tensor]:
    base = torch.randn(12)
    return base[:4], base[8:]


def interleaved() -> tuple[Tensor, Tensor]:
    base = torch.randn(12)
    return base[::2], base[1::2]


def write_first(a: Tensor, b: Tensor) -> Tensor:
    a.mul_(2)
    return b + 1


def write_second(a: Tensor, b: Tensor) -> Tensor:
    b.add_(1)
    return a * 2


def write_both(a: Tensor, b: Tensor) -> Tensor:
    a.mul_(2)
    b.add_(1)
    return a.sum() + b.sum()


def write_view_of_first(a: Tensor, b: Tensor) -> Tensor:
    a[1:].mul_(3)
    return b * 1


def return_views_of_both(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return a[1:], b[:2], a[:3] * 2


def copy_into_the_other(a: Tensor, b: Tensor) -> Tensor:
    a[:2].copy_(b[-2:].clone())
    return b.clone()


WRITERS = [write_first, write_second, write_both, write_view_of_first]


def all_in_turn(a: Tensor, b: Tensor) -> list[Any]:
    return [function(a, b) for function in WRITERS]


@pytest.mark.parametrize("function", cases([return_views_of_both, copy_into_the_other], WRITERS))
def test_two_inputs_that_overlap(function: Callable[..., Any]) -> None:
    check(function, two_overlapping, calls=2)


@pytest.mark.parametrize("make", cases([two_overlapping, twice_the_same], [view_and_base, apart, interleaved]))
def test_two_inputs_in_one_storage(make: Callable[[], Any]) -> None:
    check(all_in_turn, make, calls=2)


def one(*shape: int) -> Callable[[], tuple[Tensor]]:
    return lambda: (torch.randn(*shape),)


def view_of_view(x: Tensor) -> Tensor:
    return x.t()[1:].unsqueeze(0)[..., ::2]


def results_of_one_value(x: Tensor) -> tuple[Tensor, ...]:
    y = x * 2
    return y, y[1], y.view(-1)[3:], y.t(), y.detach(), y


def views_of_input_and_a_value(x: Tensor) -> tuple[Tensor, ...]:
    return x, x.view(-1), x[0], x * 2, x.unsqueeze(0).squeeze(0)


def write_then_return(x: Tensor) -> tuple[Tensor, Tensor]:
    x.mul_(2)
    return x, x[1:]


def write_through_a_view_of_a_view(x: Tensor) -> Tensor:
    x.t()[1:].view(3, -1)[0].zero_()
    return x * 2


def write_result_then_input(x: Tensor) -> Tensor:
    y = x[1:]
    y.add_(1)
    x.mul_(2)
    return y


def write_by_index(x: Tensor) -> Tensor:
    x[0, 1] = 5.0
    x[:, 0] = x[:, 1]
    x[torch.tensor([0, 2])] *= 2
    x[x > 1] = 0.0
    return x.sum()


def overlapping_copy_within(x: Tensor) -> Tensor:
    flat = x.view(-1)
    flat[1:].copy_(flat[:-1].clone())
    return flat


def swap_halves(x: Tensor) -> None:
    a, b = x[0].clone(), x[1].clone()
    x[0], x[1] = b, a


def a_chunk_and_a_split(x: Tensor) -> list[Tensor]:
    return [*x.chunk(2, 1), *x.split(1), *x.unbind(1)]


def resized_value(x: Tensor) -> Tensor:
    y = x * 2
    y.unsqueeze_(0)
    y.transpose_(1, 2)
    y.squeeze_(0)
    return y


def real_view(x: Tensor) -> tuple[Tensor, Tensor]:
    z = torch.view_as_complex(x.view(3, 2, 2) * 2)
    return z, z.real


def reinterpreted(x: Tensor) -> tuple[Tensor, Tensor]:
    return x.view(torch.int32), (x * 2).view(torch.int32)


def diagonal_written(x: Tensor) -> Tensor:
    x.diagonal().fill_(7.0)
    return x.diagonal(1)


def as_strided_of_input(x: Tensor) -> tuple[Tensor, Tensor]:
    y = x.as_strided((2, 2), (1, 2), 1)
    y.mul_(3)
    return y, x * 2


def set_data_of_a_value(x: Tensor) -> Tensor:
    y = x * 2
    y.data = x + 1
    return y * 2


@pytest.mark.parametrize(
    "function",
    cases(
        [results_of_one_value, write_then_return, write_by_index, resized_value, as_strided_of_input, reinterpreted],
        [
            view_of_view,
            views_of_input_and_a_value,
            write_result_then_input,
            overlapping_copy_within,
            swap_halves,
            a_chunk_and_a_split,
            real_view,
            diagonal_written,
            set_data_of_a_value,
        ],
    ),
)
def test_one_input(function: Callable[..., Any]) -> None:
    check(function, one(3, 4), calls=2, compiled=function not in (view_of_view, a_chunk_and_a_split))


def rows_of_input(x: Tensor) -> Tensor:
    return x[:, 1:].reshape(-1, 2, 2, 16)


def part_of_rows_of_input(x: Tensor) -> Tensor:
    return x[:, 1:].reshape(-1, 2, 2, 16).transpose(0, 1)[..., 2:]


def value_and_its_rows(x: Tensor) -> tuple[Tensor, Tensor]:
    y = x * 2
    return y, y[:, 1:].reshape(-1, 2, 2, 16)


def rows_of_written_input(x: Tensor) -> Tensor:
    v = x[:, 1:].reshape(-1, 2, 2, 16)
    v.mul_(2)
    return v[1:]


def rows_and_their_copies(x: Tensor) -> tuple[Tensor, ...]:
    v = x[:, 1:].reshape(-1, 2, 2, 16)
    return v.clone(), v.reshape(-1), v * 2


@pytest.mark.parametrize(
    "function",
    [rows_of_input, part_of_rows_of_input, value_and_its_rows, rows_of_written_input, rows_and_their_copies],
)
def test_view_at_an_offset_whose_strides_are_known_at_run_time_only(function: Callable[..., Any]) -> None:
    check(function, one(32, 17), calls=2, dynamic=True)


@pytest.mark.parametrize("whole", [False, True])
def test_parts_of_a_convolution_whose_layout_was_changed(whole: bool) -> None:
    layer = torch.nn.Conv2d(3, 8, 3).requires_grad_(False)

    def parts(x: Tensor) -> tuple[Tensor, ...]:
        y = layer(x)
        return (y[0, 1, 1, 1], y[1, 2, 3, 3], y[1:], y[:, 2:]) + ((y,) if whole else ())

    with torch.no_grad():
        check(parts, one(2, 3, 6, 6), dynamic=True)


def test_view_of_a_value_that_a_graph_pass_laid_out_otherwise() -> None:
    # Attention over these strides is traced as products; its kernel gives heads between the rows.
    def function(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return torch.nn.functional.scaled_dot_product_attention(q, k, v)

    check(function, lambda: (torch.randn(1, 2, 3, 4), torch.randn(1, 2, 3, 4), torch.randn(1, 2, 3, 8)[..., ::2]))


@pytest.mark.parametrize("function", cases([write_by_index], [results_of_one_value, write_through_a_view_of_a_view]))
def test_one_input_under_dynamic_shapes(function: Callable[..., Any]) -> None:
    check(function, one(3, 4), calls=2, dynamic=True)


def test_write_through_a_view_of_a_view() -> None:
    check(write_through_a_view_of_a_view, one(3, 4), calls=2)


def test_write_to_an_expanded_input_is_the_error_of_eager_mode() -> None:
    check(lambda x: x.add_(1), lambda: (torch.randn(1).expand(4),), compiled=False)


def test_write_to_a_row_of_which_the_input_is_an_expanded_view() -> None:
    def make() -> tuple[Tensor, Tensor]:
        row = torch.randn(4)
        return row, row.expand(3, 4)

    def function(row: Tensor, expanded: Tensor) -> Tensor:
        row.mul_(2)
        return expanded + 1

    check(function, make, calls=2)


def test_out_argument_that_is_an_input() -> None:
    def function(x: Tensor, out: Tensor) -> Tensor:
        torch.add(x, 1, out=out)
        return torch.mul(out, 2, out=out[:])

    check(function, lambda: (torch.randn(3, 4), torch.empty(3, 4)))


def test_out_argument_of_the_wrong_size_is_resized() -> None:
    def function(x: Tensor) -> Tensor:
        out = torch.empty(0)
        torch.add(x, 1, out=out)
        return out

    check(function, one(3, 4))


def test_global_and_closure_tensors_are_written() -> None:
    def make() -> tuple[dict[str, Tensor]]:
        return ({"state": torch.zeros(4), "other": torch.ones(4)},)

    def function(box: dict[str, Tensor]) -> Tensor:
        box["state"].add_(1)
        box["new"] = box["state"] * 2
        box["other"] = box["other"] + 1
        return box["new"]

    check(function, make, calls=3)


@pytest.mark.parametrize("where", ["leaf", "value"])
def test_write_to_an_input_that_needs_gradients(where: str) -> None:
    def make() -> tuple[Tensor]:
        x = torch.randn(3, 4, requires_grad=True)
        return (x if where == "leaf" else (x * 1),)

    check(lambda x: x.mul_(2) + 1, make, compiled=where == "value")


def changed_beside_one_with_gradients(x: Tensor, y: Tensor, w: Tensor) -> Tensor:
    y.copy_(w)
    return x.add_(1)


def both_changed(x: Tensor, y: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    changed = y.copy_(w)
    return x.index_fill_(0, torch.tensor([1]), 2), changed


@pytest.mark.parametrize("function", [changed_beside_one_with_gradients, both_changed])
def test_result_that_is_a_changed_input_beside_another_changed_input(function: Callable[..., Any]) -> None:
    check(function, lambda: (torch.zeros(3, 3), torch.randn(3, 3), torch.full((3, 3), 5.0, requires_grad=True)))


def test_write_to_a_leaf_under_no_grad() -> None:
    def function(x: Tensor) -> Tensor:
        y = x * 3
        with torch.no_grad():
            x.add_(1)
        return y

    check(function, lambda: (torch.randn(3, 4, requires_grad=True),), calls=2)


def test_write_to_a_view_of_a_leaf_is_the_error_of_eager_mode() -> None:
    check(lambda x: x[0].zero_() + 1, lambda: (torch.randn(3, 4, requires_grad=True),), compiled=False)


def test_write_to_a_view_input_whose_base_needs_gradients() -> None:
    def function(base: Tensor, view: Tensor) -> Tensor:
        view.mul_(2)
        return base.sum() + view

    def make() -> tuple[Tensor, Tensor]:
        base = torch.randn(3, 4, requires_grad=True) * 1
        return base, base[1:]

    check(function, make)


def test_write_to_a_tensor_saved_for_backward_is_the_error_of_eager_mode() -> None:
    def function(x: Tensor) -> Tensor:
        y = x.exp()
        z = y * 2
        y.add_(1)
        return z

    check(function, lambda: (torch.randn(4, requires_grad=True),), backward=True, compiled=False)


def test_detach_shares_memory_and_drops_gradients() -> None:
    def function(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        y = x * 2
        return y, y.detach(), x.detach()

    check(function, lambda: (torch.randn(3, 4, requires_grad=True),), backward=True)


def test_results_of_a_call_survive_the_next_one() -> None:
    compiled = torch.compile(lambda x: ((x * 2)[1:], x.sum(0)), backend="icpu")
    x = torch.randn(64, 64)
    first = compiled(x)
    kept = [t.clone() for t in first]
    for _ in range(3):
        compiled(torch.randn(64, 64))
    torch.testing.assert_close(list(first), kept, rtol=0, atol=0)


def test_graph_break_between_writes_to_a_view_and_to_its_base_that_need_gradients() -> None:
    def function(x: Tensor) -> Tensor:
        base = x * 1
        view = base[1:]
        view.mul_(2)
        torch._dynamo.graph_break()
        base.add_(1)
        return view

    check(function, lambda: (torch.randn(6).requires_grad_(),), backward=True)


@pytest.mark.parametrize("storage_offset", [0, 2])
def test_strided_view_counts_from_the_start_of_the_storage(storage_offset: int) -> None:
    def function(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        value = torch.cumsum(x * 2, 0) + 1
        part = torch.as_strided_scatter(value, y[:2], (2,), (2,), storage_offset)
        return part, torch.as_strided_copy(value, (2, 2), (1, 2), storage_offset), part.sort().values

    check(function, lambda: (torch.randn(7), torch.randn(7)), calls=2)


# -- results are the caller's own --------------------------------------------------------------------------------------
def test_constant_result_is_new_in_every_call() -> None:
    compiled = torch.compile(
        lambda x: (torch.tensor([1.0, 2.0]), x + TABLE[:2], torch.ones(2), TABLE[1:]), backend="icpu"
    )
    for _ in range(3):
        constant, total, ones, view = compiled(torch.zeros(2))
        assert (constant.tolist(), total.tolist(), ones.tolist(), view.tolist()) == ([1, 2], [5, 6], [1, 1], [6, 7])
        for result in (constant, total, ones):
            result.zero_()


TABLE = torch.tensor([5.0, 6.0, 7.0])


@torch.no_grad()
def test_result_made_of_weights_alone_is_new_in_every_call() -> None:
    class Net(torch.nn.Linear):
        def forward(self, x: Tensor) -> tuple[Tensor, ...]:
            return super().forward(x), self.weight * 2, self.weight.t(), self.weight, (self.weight + 1).t()[:2]

    net = Net(3, 4).eval()
    compiled = torch.compile(net, backend="icpu")
    x = torch.randn(2, 3)
    want = [result.clone() for result in net(x)]
    for _ in range(3):
        have = compiled(x)
        torch.testing.assert_close(list(have), want)
        assert have[3] is net.weight
        have[1].zero_()
        have[4].zero_()


# -- changes of the shape and memory of an input -----------------------------------------------------------------------
def transposed_in_place(x: Tensor) -> Tensor:
    x.t_()
    return x * 2


def unsqueezed_in_place(x: Tensor) -> Tensor:
    y = x + 1
    x.unsqueeze_(0)
    return y


def data_replaced(x: Tensor) -> Tensor:
    x.data = x.data * 2
    return x + 1


def resized(x: Tensor) -> Tensor:
    y = torch.empty(0)
    y.resize_(3, 4).copy_(x)
    return y * 2


def memory_replaced(x: Tensor) -> Tensor:
    y = x * 2
    x.set_(y)
    return x + 1


@pytest.mark.parametrize(
    "function", [transposed_in_place, unsqueezed_in_place, data_replaced, resized, memory_replaced]
)
def test_shape_or_memory_of_an_input_changed(function: Callable[..., Any]) -> None:
    check(function, one(3, 4), compiled=False)


def test_gradient_of_an_input_read_and_changed() -> None:
    def make() -> tuple[Tensor]:
        x = torch.randn(3, requires_grad=True)
        x.grad = torch.ones(3)
        return (x,)

    def function(x: Tensor) -> Tensor:
        assert x.grad is not None
        x.grad.mul_(3)
        return x * x.grad

    check(function, make, compiled=False)


WRITTEN: dict[str, Callable[[], tuple[Tensor]]] = {
    "transposed": lambda: (torch.randn(4, 6).t(),),
    "strided": lambda: (torch.randn(4, 12)[:, ::3],),
    "empty": lambda: (torch.empty(0, 4),),
    "channels_last": lambda: (torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),),
    "bool": lambda: (torch.randn(6, 4) > 0,),
    "complex": lambda: (torch.randn(6, 4, dtype=torch.complex64),),
    "0-dim": lambda: (torch.randn(()),),
    "offset": lambda: (torch.randn(9)[2:],),
}  # fmt: skip


@pytest.mark.parametrize(
    "name", cases(["strided", "bool", "complex"], sorted(WRITTEN.keys() - {"strided", "bool", "complex"}))
)
def test_inputs_of_every_layout_are_written_in_place(name: str) -> None:
    def function(x: Tensor) -> Tensor:
        y = x.clone()
        x.copy_(~x if x.dtype == torch.bool else x * 2)
        return y

    check(function, WRITTEN[name], calls=2)


def test_hundreds_of_inputs_and_results() -> None:
    function = lambda *xs: [x * 2 for x in xs]  # noqa: E731
    check(function, lambda: tuple(torch.randn(3) for _ in range(128)))


def test_result_that_is_copied_into_itself_is_one_tensor() -> None:
    """The graph ends with views of the copy, there and back, that no strides describe."""

    def function(x: Tensor) -> tuple[Tensor, Tensor]:
        y = (x + 1).transpose(1, 2).flatten(2).reshape(16, 1, 3, -1)
        z = y.copy_(y)
        return y, z

    check(function, lambda: (torch.randn(2, 1, 3, 8),))
