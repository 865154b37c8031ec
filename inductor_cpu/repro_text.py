"""The text of a dump's `repro.py`: one graph as a script that runs it again with `inductor_cpu.repro`."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

import torch
from torch import fx
from torch.utils._python_dispatch import _disable_current_modes

from inductor_cpu.config import SETTINGS, Config, to_dict

#: Constants up to this many elements are written out; longer ones become random numbers.
MOST_VALUES = 64

#: Settings that belong to the run that was dumped, not to its graph.
_OF_THE_RUN = frozenset({"dump", "cache_dir", "verify", "debug_interpret"})

_HEAD = '''"""Graph {name}: run it in eager mode, with icpu and with icpu's interpreter, and compare.

The inputs are random numbers with the shapes, strides and dtypes of the dumped compile.
"""

import math
import operator

import torch
from torch import device, inf, nan

from inductor_cpu.repro import main, strided_tensor

'''

_TAIL = """
INPUTS = [
{inputs}
]

if __name__ == "__main__":
    raise SystemExit(main(Graph(), INPUTS, kind={kind!r}, static_inputs={static}, options={options!r}))
"""


def repro_text(gm: fx.GraphModule, name: str, kind: str, static_inputs: frozenset[int], config: Config) -> str:
    """The script for a graph whose placeholders carry fake values in meta["val"]. Unknown sizes become their hints."""
    values = [node.meta.get("val") for node in gm.graph.nodes if node.op == "placeholder"]
    inputs = "\n".join(f"    {_value(value)}," for value in values)
    changed = {k: v for k, v in to_dict(config).items() if v != SETTINGS[k].default and k not in _OF_THE_RUN}
    tail = _TAIL.format(inputs=inputs, kind=kind, static=sorted(static_inputs), options=changed)
    return _HEAD.format(name=name) + "\n".join(_module(gm, "Graph")) + "\n" + tail


def _module(gm: fx.GraphModule, name: str) -> Iterator[str]:
    """The classes of the subgraphs, then of the graph."""
    attributes: list[str] = []
    for target in dict.fromkeys(str(node.target) for node in gm.graph.nodes if node.op == "get_attr"):
        value = getattr(gm, target)
        if isinstance(value, fx.GraphModule):
            yield from _module(value, f"{name}_{target}")
            attributes.append(f"self.{target} = {name}_{target}()")
        else:
            attributes.append(f"self.{target} = {_constant(value)}")
    yield f"\nclass {name}(torch.nn.Module):"
    yield textwrap.indent("\n".join(["def __init__(self):", "    super().__init__()"]), "    ")
    yield from (f"        {line}" for line in attributes)
    yield textwrap.indent("\n" + gm.code.strip(), "    ") + "\n"


def _constant(value: object) -> str:
    if not isinstance(value, torch.Tensor) or value.numel() > MOST_VALUES:
        return _value(value)
    with _disable_current_modes():  # a compile runs under AOTAutograd's fake mode
        return f"torch.tensor({value.tolist()!r}, dtype={value.dtype})"


def _value(value: object) -> str:
    """An expression that makes such a value."""
    if isinstance(value, torch.Tensor):
        sizes, strides = (tuple(map(_number, numbers)) for numbers in (value.shape, value.stride()))
        return f"strided_tensor({sizes}, {strides}, {value.dtype})"
    return repr(_number(value)) if isinstance(value, int | torch.SymInt) else repr(value)


def _number(value: object) -> object:
    return value.node.hint if isinstance(value, torch.SymInt) else value
