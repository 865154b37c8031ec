"""How a program becomes graphs: breaks, recompiles, symbolic sizes, sizes from data, export."""

from __future__ import annotations

import copy
import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

import inductor_cpu
from tests.cases import cases
from tests.e2e.support import compile_counted
from tests.semantics.support import Tensor, check


@contextmanager
def capturing() -> Iterator[None]:
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True, capture_scalar_outputs=True):
        yield


def vector() -> tuple[Tensor]:
    return (torch.tensor([1.0, -1.0, 2.0, 0.0, 3.0, 2.0]),)


# -- sizes from data ---------------------------------------------------------------------------------------------------
DATA_DEPENDENT: dict[str, Callable[[Tensor], Any]] = {
    "nonzero": lambda x: x.nonzero() * 2,
    "nonzero_tuple": lambda x: x.nonzero(as_tuple=True)[0] + 1,
    "masked_select": lambda x: x.masked_select(x > 0) * 2,
    "unique": lambda x: x.unique(return_counts=True),
    "boolean_write": lambda x: x.clone().masked_fill_(x > 1, 0.0) * 2,
    "index_put_of_a_mask": lambda x: torch.where(x > 0, x, x.clone()[x > 5].sum()),
    "repeat_interleave": lambda x: x.repeat_interleave((x > 0).long() + 1) * 2,
    "where_of_one_argument": lambda x: torch.where(x > 0)[0] * 2,
    "item": lambda x: x * x.sum().item(),
    "item_branch": lambda x: x * 2 if x.sum().item() > 0 else x - 1,
    "tolist": lambda x: x[: int(x[2])] * 2,
    "int_of_a_value": lambda x: x + int(x.max()),
    "len_of_a_selection": lambda x: x * len(x[x > 0]),
    "bincount": lambda x: x.abs().long().bincount() + 1,
}  # fmt: skip


def test_all_sizes_and_numbers_from_data_in_one_graph() -> None:
    names = [name for name in DATA_DEPENDENT if name not in ("item_branch", "tolist")]
    with capturing():
        check(lambda x: [DATA_DEPENDENT[name](x) for name in names], vector)


@pytest.mark.full
@pytest.mark.parametrize("name", DATA_DEPENDENT)
def test_size_or_number_from_data_in_the_graph(name: str) -> None:
    with capturing():
        check(DATA_DEPENDENT[name], vector, compiled=name not in ("item_branch", "tolist"))


@pytest.mark.parametrize("name", cases(["masked_select"], ["unique", "item", "item_branch", "tolist"]))
def test_size_or_number_from_data_with_a_graph_break(name: str) -> None:
    check(DATA_DEPENDENT[name], vector, compiled=False)


def test_gradient_through_a_selection() -> None:
    with capturing():
        check(lambda x: x[x > 0].exp().sum(), lambda: (vector()[0].requires_grad_(),), backward=True)


# -- breaks ------------------------------------------------------------------------------------------------------------
@torch.compiler.disable
def outside(x: Tensor) -> Tensor:
    return x + torch.compiler.is_compiling()


def with_a_disabled_call(x: Tensor) -> Tensor:
    return outside(x * 2) * 3


def with_a_print(x: Tensor) -> Tensor:
    y = x * 2
    print("shape", y.shape)
    return y + 1


def with_a_caught_exception(x: Tensor) -> Tensor:
    try:
        raise ValueError("inside")
    except ValueError:
        x = x * 2
    return x + 1


def with_a_break_in_a_loop(x: Tensor) -> Tensor:
    for _ in range(3):
        x = x * 2
        torch._dynamo.graph_break()
    return x


def writes_before_and_after_a_break(x: Tensor) -> Tensor:
    view = x[1:]
    view.mul_(2)
    torch._dynamo.graph_break()
    x.add_(1)
    return view


def generator_of_values(x: Tensor) -> Any:
    yield x * 2
    yield x + 1


def with_a_generator(x: Tensor) -> Any:
    return sum(generator_of_values(x))


@pytest.mark.parametrize(
    "function",
    cases(
        [with_a_print, writes_before_and_after_a_break],
        [with_a_disabled_call, with_a_caught_exception, with_a_break_in_a_loop, with_a_generator],
    ),
)
def test_graph_break(function: Callable[[Tensor], Any]) -> None:
    check(function, vector, calls=2, compiled=function is not with_a_break_in_a_loop)


@pytest.mark.parametrize("function", [with_a_disabled_call, writes_before_and_after_a_break])
def test_graph_break_between_values_that_need_gradients(function: Callable[[Tensor], Any]) -> None:
    check(lambda x: function(x * 1), lambda: (vector()[0].requires_grad_(),), backward=True)


def test_error_of_an_operator_has_the_type_of_eager_mode() -> None:
    check(lambda x: x @ x.reshape(2, 3), vector, compiled=False)
    check(lambda x: x[torch.tensor([99])] * 2, vector, compiled=False)
    check(lambda x: torch.linalg.cholesky(-torch.eye(3) * x[0]) * 2, vector, compiled=False)
    check(lambda x: x.long() // (x * 0).long(), vector, compiled=False)


def test_exception_raised_after_a_write_leaves_the_write() -> None:
    def function(x: Tensor) -> Tensor:
        x.add_(1)
        raise ValueError("late")

    check(function, vector, compiled=False)


def test_fullgraph_refuses_a_break_with_dynamos_error() -> None:
    with pytest.raises(torch._dynamo.exc.Unsupported):
        torch.compile(with_a_disabled_call, backend="icpu", fullgraph=True)(torch.ones(3))


# -- recompiles --------------------------------------------------------------------------------------------------------
def test_past_the_recompile_limit_results_are_right_and_a_warning_says_so(caplog: pytest.LogCaptureFixture) -> None:
    function = lambda x, n: x * n  # noqa: E731
    compiled, reports = compile_counted(function, dynamic=False)
    with torch._dynamo.config.patch(recompile_limit=3), caplog.at_level("WARNING"):
        for n in range(2, 9):
            torch.testing.assert_close(compiled(torch.ones(4), n), torch.ones(4) * n)
    assert len(reports) == 3
    assert "recompile_limit" in caplog.text


def test_past_the_recompile_limit_fullgraph_raises() -> None:
    compiled, _ = compile_counted(lambda x, n: x * n, dynamic=False, fullgraph=True)
    with torch._dynamo.config.patch(recompile_limit=2):
        compiled(torch.ones(4), 2)
        compiled(torch.ones(4), 3)
        with pytest.raises(torch._dynamo.exc.FailOnRecompileLimitHit):
            compiled(torch.ones(4), 4)


def test_guards_see_dtype_layout_gradients_and_globals() -> None:
    compiled, _ = compile_counted(lambda x: x * 2 + SCALE["value"])
    for x in (
        torch.ones(3, 4),
        torch.ones(3, 4, dtype=torch.float64),
        torch.ones(4, 3).t(),
        torch.ones(3, 4).requires_grad_(),
        torch.ones(3, 4, 1),
        torch.ones(3, 4, dtype=torch.int64),
        nn.Parameter(torch.ones(3, 4)),
    ):
        for SCALE["value"] in (1.0, 2.5):
            have, want = compiled(x), x * 2 + SCALE["value"]
            torch.testing.assert_close(have, want)
            assert (have.stride(), have.requires_grad) == (want.stride(), want.requires_grad)


SCALE = {"value": 1.0}


def test_reset_and_compile_again() -> None:
    function = lambda x: x * 2 + 1  # noqa: E731
    x = torch.randn(5)
    for _ in range(3):
        compiled, reports = compile_counted(function)
        torch.testing.assert_close(compiled(x), function(x))
        torch._dynamo.reset()
        torch.testing.assert_close(compiled(x), function(x))
        assert len(reports) == 2


def test_reload_of_the_package_and_compile_again() -> None:
    function = lambda x: x * 2 + 1  # noqa: E731
    x = torch.randn(5)
    before = torch.compile(function, backend="icpu")
    torch.testing.assert_close(before(x), function(x))
    importlib.reload(inductor_cpu)
    torch.testing.assert_close(before(x), function(x))
    torch._dynamo.reset()
    torch.testing.assert_close(torch.compile(function, backend="icpu")(x), function(x))


# -- symbolic sizes ----------------------------------------------------------------------------------------------------
def sizes_out(x: Tensor) -> tuple[Any, ...]:
    n, m = x.shape
    return n, n * m, n // 2, n % 3, n / 2, n > 4, x.stride(), float(n), -n, max(n, m), n**2, (n == m) or n > 7


def conditions_out(x: Tensor) -> tuple[Any, ...]:
    return x * 2, x.shape[0] > 4, x.shape[0] == x.shape[1], x.is_contiguous()


def sizes_inside(x: Tensor) -> tuple[Tensor, ...]:
    n = x.shape[0]
    return x * n, x / n, x.new_ones(n + 1), torch.arange(n) * 2, x[: n // 2], x.sum() * n**0.5, x * (n * 0.5)


def interpolated(x: Tensor) -> Tensor:
    return functional.interpolate(x[None, None], scale_factor=1.5, mode="bilinear") * 2


def interpolated_nearest(x: Tensor) -> Tensor:
    return functional.interpolate(x[None, None], scale_factor=(2.0, 0.5), mode="nearest") + 1


def truncated(x: Tensor) -> Tensor:
    return x[: int(x.shape[0] * 0.7)] * 2


def rounded(x: Tensor) -> tuple[Tensor, Tensor]:
    return x[: round(x.shape[0] / 2)] + 1, x.new_zeros(int(x.shape[0] ** 0.5) + 1) + 2


def padded(x: Tensor) -> Tensor:
    n = x.shape[0]
    return functional.pad(x, (0, 0, 0, -n % 8)) * 2


def windows(x: Tensor) -> Tensor:
    return x.unfold(0, 2, 1).sum(-1) + x[1:].repeat(1, 1, x.shape[0])[..., :1].sum()


@pytest.mark.parametrize(
    "function",
    cases(
        [sizes_out, conditions_out, interpolated, rounded],
        [sizes_inside, interpolated_nearest, truncated, padded, windows],
    ),
)
def test_symbolic_sizes(function: Callable[[Tensor], Any]) -> None:
    compiled, reports = compile_counted(function, dynamic=True)
    for shape in ((6, 4), (9, 4), (4, 4), (17, 8), (2, 3)):
        x = torch.randn(*shape)
        have, want = compiled(x), function(x)
        for a, e in zip(*((r if isinstance(r, tuple) else (r,)) for r in (have, want)), strict=True):
            assert type(a) is type(e)
            if isinstance(e, Tensor):
                torch.testing.assert_close(a, e, check_stride=True)
            else:
                assert a == e
    whole = [note for report in reports for note in report.notes if "eager mode" in note]
    assert not whole, whole


def test_mark_dynamic_and_its_range() -> None:
    compiled, reports = compile_counted(lambda x: x.softmax(0) * x.shape[0])
    for rows in (8, 5, 12):
        x = torch.randn(rows, 3)
        torch._dynamo.mark_dynamic(x, 0, min=2, max=64)
        torch.testing.assert_close(compiled(x), x.softmax(0) * rows)
    assert len(reports) == 1


def test_mark_dynamic_of_a_size_that_the_program_fixes_is_dynamos_error() -> None:
    def function(x: Tensor) -> Tensor:
        return x * 2 if x.shape[0] == 5 else x

    x = torch.randn(5, 3)
    torch._dynamo.mark_dynamic(x, 0)
    with pytest.raises(Exception, match=r"marked as dynamic|specialized|Constraints violated"):
        compile_counted(function)[0](x)
    y = torch.randn(5, 3)
    torch._dynamo.maybe_mark_dynamic(y, 0)
    torch.testing.assert_close(compile_counted(function)[0](y), y * 2)


def test_sizes_zero_and_one_after_a_dynamic_compile() -> None:
    function = lambda x: (x * 2 + x.sum(0), x.shape[0])  # noqa: E731
    compiled, _ = compile_counted(function, dynamic=True)
    for rows in (5, 1, 0, 7, 1, 0):
        x = torch.randn(rows, 3)
        have, want = compiled(x), function(x)
        torch.testing.assert_close(have[0], want[0], check_stride=True)
        assert have[1] == want[1]


def test_check_of_a_size_holds_or_raises() -> None:
    def function(x: Tensor) -> Tensor:
        torch._check(x.shape[0] % 2 == 0, lambda: "odd")
        return x.view(2, -1) * 2

    compiled, _ = compile_counted(function, dynamic=True)
    torch.testing.assert_close(compiled(torch.ones(6)), torch.ones(2, 3) * 2)
    with pytest.raises(RuntimeError, match="odd"):
        function(torch.ones(5))
    with pytest.raises(RuntimeError):
        compiled(torch.ones(5))


def test_gradients_under_dynamic_shapes() -> None:
    function = lambda x: (x.view(-1, 2) * x.shape[0]).softmax(0)[: x.shape[0] // 2]  # noqa: E731
    compiled, reports = compile_counted(function, dynamic=True)
    for rows in (5, 9, 6):
        outcomes = []
        for call in (compiled, function):
            torch.manual_seed(0)
            x = torch.randn(rows, 4).requires_grad_()
            call(x).square().sum().backward()
            outcomes.append(x.grad)
        torch.testing.assert_close(outcomes[0], outcomes[1])
    assert len(reports) == 2


# -- ways to compile ---------------------------------------------------------------------------------------------------
def test_decorator_method_and_module_compile() -> None:
    @torch.compile(backend="icpu", fullgraph=True)
    def decorated(x: Tensor, *, scale: float = 2.0, bias: Tensor | None = None) -> Tensor:
        return x * scale if bias is None else x * scale + bias

    x = torch.randn(4)
    torch.testing.assert_close(decorated(x), x * 2)
    torch.testing.assert_close(decorated(x, bias=x, scale=3.0), x * 3 + x)

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.layer(x).relu()

        @torch.compile(backend="icpu")
        def other(self, x: Tensor) -> Tensor:
            return self.layer(x).tanh()

    net = Net()
    want, other = net(x), net.layer(x).tanh()
    torch.testing.assert_close(net.other(x), other)
    net.compile(backend="icpu")
    torch.testing.assert_close(net(x), want)
    assert list(net.state_dict()) == ["layer.weight", "layer.bias"]


def test_compiled_inside_compiled() -> None:
    inner = torch.compile(lambda x: x.sin() + 1, backend="icpu")
    check(lambda x: inner(x * 2) * 3, vector)


@torch.no_grad()
def test_exported_program() -> None:
    module = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.LazyLinear(5)).eval()
    module(torch.randn(2, 3, 8, 8))
    batch = torch.export.Dim("batch", min=2)
    exported = torch.export.export(module, (torch.randn(4, 3, 8, 8),), dynamic_shapes=({0: batch},))
    compiled, reports = compile_counted(exported.module(), dynamic=True)
    for n in (4, 7):
        x = torch.randn(n, 3, 8, 8)
        torch.testing.assert_close(compiled(x), module(x), atol=1e-5, rtol=1e-4)
    assert len(reports) == 1


def test_deep_copy_and_pickle_of_a_compiled_module() -> None:
    module = nn.Linear(3, 2)
    compiled = torch.compile(module, backend="icpu")
    x = torch.randn(4, 3)
    compiled(x)
    other = copy.deepcopy(compiled)
    with torch.no_grad():
        other.weight.zero_()
    torch.testing.assert_close(compiled(x), module(x))
    torch.testing.assert_close(other(x), module.bias.expand(4, 2))


def test_float_of_the_program_as_an_argument_of_a_library_call() -> None:
    def function(x: Tensor, f: float) -> tuple[Tensor, ...]:
        return x.sort().values.add(1, alpha=f), torch.renorm(x, f + 1, 0, f), torch.cdist(x, x, p=f + 0.5)

    compiled, _ = compile_counted(function)
    x = torch.randn(4, 3)
    for f in (0.5, 1.5, 2.25):
        torch.testing.assert_close(compiled(x, f), function(x, f))


def test_dynamic_shapes_with_layouts_that_change_from_call_to_call() -> None:
    function = lambda x: (x * 2 + x.shape[0], x.sum(0), x.t().contiguous(), torch.cat([x, x], 1)[:, 1:])  # noqa: E731
    compiled, _ = compile_counted(function, dynamic=True)
    for rows in (5, 8):
        for x in (
            torch.randn(rows, 6),
            torch.randn(6, rows).t(),
            torch.randn(rows, 12)[:, ::2],
            torch.randn(rows + 3, 6)[3:],
            torch.randn(1, 6).expand(rows, 6),
        ):
            for have, want in zip(compiled(x), function(x), strict=True):
                torch.testing.assert_close(have, want, check_stride=True)


@pytest.mark.parametrize("mode", cases(["reduce-overhead"], ["default", "max-autotune"]))
def test_modes(mode: str) -> None:
    x = torch.randn(4, 8)
    torch.testing.assert_close(torch.compile(lambda x: x * 2 + 1, backend="icpu", mode=mode)(x), x * 2 + 1)
