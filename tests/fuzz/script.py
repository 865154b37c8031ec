"""A graph as Python text: the function that eager and the compilers run, and a standalone script that shows a finding.

The same text is run three ways. "plain": as it is. "wide": every floating dtype is float64. "noisy": values that are
not exact are multiplied by a number near 1, as another order of operations would.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from typing import Any

import torch

from tests.fuzz.attention import NOISY, PLAIN, noisy_attention
from tests.fuzz.graph import Attr, Graph, Input, Step
from tests.fuzz.rows import ROWS

WIDENED = ("float16", "bfloat16", "float32", "float64")


def fill(shape: tuple[int, ...], dtype: str, kind: str, limit: int, seed: int) -> torch.Tensor:
    """Values of an input, from its seed."""
    generator = torch.Generator().manual_seed(seed)
    if kind == "index":
        return torch.randint(0, limit, shape, generator=generator).to(getattr(torch, dtype))
    if kind == "integers":
        low = 0 if dtype in ("uint8", "bool") else -limit
        values = torch.randint(low, limit + 1, shape, generator=generator)
        return (values > limit // 2 if dtype == "bool" else values).to(getattr(torch, dtype))
    return torch.randn(shape, generator=generator, dtype=torch.float64).to(getattr(torch, dtype))


def _longer(shape: tuple[int, ...], at: int, by: int, times: int = 1) -> tuple[int, ...]:
    sizes = list(shape)
    sizes[at] = sizes[at] * times + by
    return tuple(sizes)


#: layout -> (least rank, the shape that is filled, what is appended to the text).
LAYOUTS: Mapping[str, tuple[int, Callable[[tuple[int, ...]], tuple[int, ...]], str]] = {
    "contiguous": (0, lambda s: s, ""),
    "transposed": (2, lambda s: (*s[:-2], s[-1], s[-2]), ".transpose(-1, -2)"),
    "reversed": (3, lambda s: s[::-1], ".permute(*range({rank}))"),
    "sliced": (1, lambda s: _longer(s, -1, 1, 2), "[..., 1::2]"),
    "offset": (1, lambda s: _longer(s, 0, 1), "[1:]"),
    "wide_rows": (1, lambda s: _longer(s, -1, 3), "[..., :-3]"),
    "channels_last": (4, lambda s: s, ".contiguous(memory_format=torch.channels_last)"),
    "expanded": (1, lambda s: (1, *s[1:]), ".expand({size}, *[-1] * {rest})"),
}


def input_text(spec: Input, second: bool) -> str:
    """The expression that makes an input."""
    shape = spec.second if second else spec.shape
    _, filled, suffix = LAYOUTS[spec.layout]
    if spec.layout == "reversed":
        suffix = f".permute({', '.join(map(str, reversed(range(len(shape)))))})"
    seed = spec.seed + 1000003 * second
    made = f"fill({filled(shape)}, {spec.dtype!r}, {spec.fill!r}, {spec.limit}, {seed})"
    return made + suffix.format(rank=len(shape), rest=len(shape) - 1, size=shape[0] if shape else 0)


def make_inputs(graph: Graph, second: bool) -> dict[str, torch.Tensor]:
    """Fresh inputs by name, leaves that ask for gradients where the graph does."""
    made = {}
    for spec in graph.inputs:
        value = eval(input_text(spec, second), {"fill": fill, "torch": torch})
        made[spec.name] = value.detach().requires_grad_(spec.grad)
    return made


def widened(value: torch.Tensor) -> torch.Tensor:
    """A copy in float64 with the strides and offset of `value`; other dtypes keep theirs."""
    flat = torch.empty(0, dtype=value.dtype).set_(value.detach().untyped_storage())
    dtype = torch.float64 if value.is_floating_point() else value.dtype
    copied = flat.to(dtype, copy=True)
    return copied.as_strided(value.shape, value.stride(), value.storage_offset())


def _attr_text(key: str, value: Attr, wide: bool) -> str:
    if key.endswith("dtype"):
        return f"torch.{'float64' if wide and value in WIDENED else value}"
    return repr(value)


def step_text(step: Step, mode: str = "plain", exact: Collection[str] = ()) -> str:
    """The expression of a step. mode: "plain", "wide" or "noisy"; exact: names of values that noise leaves alone."""
    row = ROWS[step.op]
    args = list(step.args)
    if mode == "noisy":
        first = 1 if row.kind == "inplace" else 0
        for k in range(first, len(args)):
            if row.reorders and not (row.keeps and args[k] in exact):
                args[k] = f"noise({args[k]})"
    text = row.text.format(*args, **{k: _attr_text(k, v, mode == "wide") for k, v in step.attrs})
    text = text.replace(PLAIN, NOISY) if mode == "noisy" else text
    noisy = mode == "noisy" and row.kind == "plain" and step.name not in exact
    return f"noise({text})" if noisy else text


def in_order(graph: Graph) -> list[Input]:
    """The inputs as the function takes them: arguments of the call, then parameters."""
    return sorted(graph.inputs, key=lambda x: x.parameter)


def function_text(graph: Graph, mode: str = "plain", exact: Collection[str] = ()) -> str:
    """`def f(...)` of a graph; parameters come last."""
    lines = [f"def f({', '.join(x.name for x in in_order(graph))}):"]
    lines += [f"    {step.name} = {step_text(step, mode, exact)}" for step in graph.steps]
    return "\n".join([*lines, f"    return ({', '.join(graph.outputs)},)", ""])


def function_of(graph: Graph, mode: str = "plain", exact: Collection[str] = (), **names: Any) -> Callable[..., Any]:
    """The function, made from its text. names: more globals (`noise`)."""
    scope: dict[str, Any] = {"torch": torch, "F": torch.nn.functional, "noisy_attention": noisy_attention, **names}
    exec(compile(function_text(graph, mode, exact), f"<fuzz {graph.seed}>", "exec"), scope)
    return scope["f"]


class Model(torch.nn.Module):
    """A function whose last arguments are parameters."""

    def __init__(self, function: Callable[..., Any], parameters: list[torch.Tensor]) -> None:
        super().__init__()
        self.function = function
        self.weights = torch.nn.ParameterList([torch.nn.Parameter(p, p.requires_grad) for p in parameters])

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self.function(*inputs, *self.weights)


_MAIN = """
def inputs(second):
    if second:
        return [{second}]
    return [{first}]


def run(model, values):
    torch.manual_seed(0)
    values = [v.detach().requires_grad_(g) for v, g in zip(values, {grads})]
    calls, weights = values[:{count}], values[{count}:]
    with torch.no_grad():
        for own, new in zip(model.weights, weights):
            own.requires_grad_(new.requires_grad).copy_(new)
    with torch.set_grad_enabled({backward}):
        outputs = model(*calls)
    leaves = [v for v in [*calls, *model.weights] if v.requires_grad]
    ends = [o for o in outputs if o.requires_grad]
    marks = [fill(tuple(o.shape), "bfloat16", "normal", 4, k).to(o.dtype) for k, o in enumerate(ends)]
    grads = torch.autograd.grad(ends, leaves, marks, allow_unused=True) if leaves and ends else ()
    return [*outputs, *calls, *grads]


def main():
    eager = Model(f, inputs(False)[{count}:])
    module = Model(f, inputs(False)[{count}:])
    compiled = torch.compile(module, backend="icpu", dynamic={dynamic})
    for second in (False, True):
        arguments = inputs(second)
        if {mark}:
            for argument, dims in zip(arguments, {marked}):
                for dim in dims:
                    torch._dynamo.maybe_mark_dynamic(argument, dim)
        actual, expected = run(compiled, arguments), run(eager, inputs(second))
        for k, (a, e) in enumerate(zip(actual, expected)):
            if e is not None:
                where = f"call {{second + 1}}, value {{k}}: "
                torch.testing.assert_close(a, e, equal_nan=True, check_stride=k < {outputs}, msg=lambda m: where + m)


main()
"""


def dynamic_option(graph: Graph) -> bool | None:
    """`dynamic=` of torch.compile."""
    return {"static": False, "all": True, "mark": None, "auto": None}[graph.dynamic]


def marked_dims(spec: Input) -> list[int]:
    """Dimensions whose size differs at the second call."""
    return [d for d, (a, b) in enumerate(zip(spec.shape, spec.second, strict=True)) if a != b]


def standalone(graph: Graph, title: str) -> str:
    """A script that needs torch and inductor_cpu only, and fails while the finding is there. title: a comment."""
    calls = [x for x in graph.inputs if not x.parameter]
    main = _MAIN.format(
        first=", ".join(input_text(x, False) for x in in_order(graph)),
        second=", ".join(input_text(x, True) for x in in_order(graph)),
        count=len(calls),
        outputs=len(graph.outputs),
        grads=[x.grad for x in in_order(graph)],
        backward=graph.backward,
        dynamic=dynamic_option(graph),
        mark=graph.dynamic == "mark",
        marked=[marked_dims(x) for x in calls],
    )
    comment = "\n".join(f"# {line}" for line in title.splitlines())
    head = "import torch\nimport torch.nn.functional as F\n\n"
    return (
        "\n\n".join([comment + "\n" + head, inspect.getsource(fill), function_text(graph), inspect.getsource(Model)])
        .replace("Callable[..., Any]", "object")
        .replace("-> Any", "-> object")
        + main
    )
