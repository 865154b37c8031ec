"""The calls of a case: a function and its arguments, from the samples of the database."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.testing._internal.opinfo.core import OpInfo
from torch.utils._pytree import tree_leaves, tree_map

from tests.sweep.cases import entry_of
from tests.sweep.rows import Case
from tests.sweep.special import special_samples


@dataclass(frozen=True)
class Call:
    """One call to compare. `process` is applied to its result before anything is compared (it removes what a
    decomposition leaves free, such as a sign); `fresh` makes the function for one run (a module with its buffers)."""

    label: str
    fresh: Callable[[], Callable[..., Any]]
    args: tuple[Any, ...]
    kwargs: dict[str, Any] = field(default_factory=dict)
    process: Callable[[Any], Any] = lambda result: result


def calls_of(case: Case) -> list[Call]:
    """All calls of a case, in the order of the database; contiguous before not contiguous."""
    torch.manual_seed(0)
    entry = entry_of(case)
    if not isinstance(entry, OpInfo):
        return list(_module_calls(case, entry))
    if case.kind == "errors":
        return [_call(f"error {i}", entry.op, e.sample_input) for i, e in enumerate(entry.error_inputs("cpu"))]
    if case.kind == "special":
        return [_call(label, entry.op, sample) for label, sample in special_samples(entry, case.torch_dtype)]
    if case.kind == "layouts":
        return list(_layout_calls(case, entry))
    calls = list(_op_calls(case, entry))
    if case.kind == "out":
        return [with_out for call in calls for with_out in _with_out(call)]
    return calls


def _op_calls(case: Case, entry: OpInfo) -> Iterator[Call]:
    """The samples of an operator as they are and with gaps between their elements."""
    function = entry.get_inplace() if case.kind == "inplace" else entry.op
    gradients = case.kind == "gradients"
    samples = list(entry.sample_inputs("cpu", case.torch_dtype, requires_grad=gradients))
    for number, sample in enumerate(samples):
        if case.kind == "inplace" and sample.broadcasts_input:
            continue
        yield _call(f"sample {number}", function, sample)
    for number, sample in enumerate(samples):
        if case.kind == "inplace" or not any(_can_be_strided(t) for t in _tensors(sample)):
            continue
        torch.manual_seed(0)
        yield _call(f"sample {number}, not contiguous", function, sample.noncontiguous())


def _call(label: str, function: Callable[..., Any], sample: Any) -> Call:
    process = getattr(sample, "output_process_fn_grad", None) or (lambda result: result)
    return Call(label, lambda: function, (sample.input, *sample.args), dict(sample.kwargs), process)


def _tensors(sample: Any) -> list[torch.Tensor]:
    leaves = tree_leaves((sample.input, sample.args, sample.kwargs))
    return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]


def _can_be_strided(tensor: torch.Tensor) -> bool:
    return tensor.layout is torch.strided and tensor.numel() > 1


# -- layouts -----------------------------------------------------------------------------------------------------------
def _layout_calls(case: Case, entry: OpInfo) -> Iterator[Call]:
    """The samples with dimensions of their tensors in other orders in memory."""
    for number, sample in enumerate(entry.sample_inputs("cpu", case.torch_dtype)):
        if not any(_can_be_laid_out(t) for t in _tensors(sample)):
            continue
        plain = _call("", entry.op, sample)
        for how, lay_out in LAYOUTS.items():
            args, kwargs = tree_map(
                lambda leaf, lay_out=lay_out: lay_out(leaf.detach()) if _can_be_laid_out(leaf) else leaf,
                (plain.args, plain.kwargs),
            )
            yield Call(f"sample {number}, {how}", plain.fresh, args, kwargs, plain.process)


def _can_be_laid_out(leaf: object) -> bool:
    return isinstance(leaf, torch.Tensor) and leaf.dim() > 1 and _can_be_strided(leaf)


def _reversed(tensor: torch.Tensor) -> torch.Tensor:
    """The first dimension is the innermost in memory, the last the outermost."""
    back = tuple(range(tensor.dim()))[::-1]
    return tensor.permute(back).contiguous().permute(back)


def _channels_last(tensor: torch.Tensor) -> torch.Tensor:
    """The second dimension is the innermost in memory, as channels are."""
    return tensor.movedim(1, -1).contiguous().movedim(-1, 1)


def _channels_last_with_gaps(tensor: torch.Tensor) -> torch.Tensor:
    packed = _channels_last(tensor)
    wide = torch.empty_strided(packed.shape, [2 * stride for stride in packed.stride()], dtype=packed.dtype)
    return wide.copy_(packed)


LAYOUTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "reversed": _reversed,
    "channels last": _channels_last,
    "channels last, with gaps": _channels_last_with_gaps,
}


# -- out= --------------------------------------------------------------------------------------------------------------
def _with_out(call: Call) -> Iterator[Call]:
    """The call with `out=`: of the right size, and the same with gaps between the elements."""
    try:
        with torch.no_grad():
            result = call.fresh()(*clone_tree(call.args), **clone_tree(call.kwargs))
    except Exception:  # the comparison counts the calls that eager refuses
        return
    if not all(isinstance(leaf, torch.Tensor) for leaf in tree_leaves(result)) or "out" in call.kwargs:
        return
    for how, make in (("out", _filled), ("strided out", _strided)):
        out = tree_map(make, tuple(result) if isinstance(result, tuple) else result)
        yield Call(f"{call.label}, {how}", call.fresh, call.args, {**call.kwargs, "out": out}, call.process)


def _filled(like: torch.Tensor) -> torch.Tensor:
    """Ones in the shape of `like`, so that an element which is not written shows."""
    return torch.ones_like(like, memory_format=torch.contiguous_format)


def _strided(like: torch.Tensor) -> torch.Tensor:
    wide = torch.ones([*like.shape, 2], dtype=like.dtype)
    return wide[..., 0]


# -- modules -----------------------------------------------------------------------------------------------------------
def _module_calls(case: Case, info: Any) -> Iterator[Call]:
    training = case.kind == "gradients"
    inputs = info.module_inputs_func(
        info, device="cpu", dtype=case.torch_dtype, requires_grad=training, training=training
    )
    for number, given in enumerate(inputs):
        if given.forward_input is None:
            continue

        def fresh(given: Any = given) -> Callable[..., Any]:
            torch.manual_seed(1)
            built = info.module_cls(*given.constructor_input.args, **given.constructor_input.kwargs)
            module = built.to(case.torch_dtype).train(training)
            assert isinstance(module, torch.nn.Module)
            return module

        label = f"input {number} {given.desc}".strip()
        yield Call(label, fresh, given.forward_input.args, given.forward_input.kwargs)


# -- copies ------------------------------------------------------------------------------------------------------------
def clone_tree(tree: Any) -> Any:
    """A copy of all tensors of a tree, with their strides, gaps and `requires_grad`."""
    return tree_map(lambda leaf: _clone(leaf) if isinstance(leaf, torch.Tensor) else leaf, tree)


def _clone(tensor: torch.Tensor) -> torch.Tensor:
    plain = tensor.layout is torch.strided and not tensor.is_conj() and not tensor.is_neg() and not tensor.is_quantized
    if not plain or type(tensor) not in (torch.Tensor, torch.nn.Parameter):
        return tensor.detach().clone().requires_grad_(tensor.requires_grad)
    storage = tensor.untyped_storage().clone()
    copy = torch.empty(0, dtype=tensor.dtype)
    copy.set_(storage, tensor.storage_offset(), tensor.shape, tensor.stride())  # type: ignore[call-overload]
    return copy.requires_grad_(tensor.requires_grad)


def spread(calls: list[Call], most: int) -> list[Call]:
    """At most `most` of the calls, evenly taken; the first and the last among them. 0: all."""
    if most <= 0 or len(calls) <= most:
        return calls
    if most == 1:
        return calls[:1]
    picked = sorted({round(i * (len(calls) - 1) / (most - 1)) for i in range(most)})
    return [calls[i] for i in picked]


def batches(calls: list[Call], size: int) -> Iterator[list[Call]]:
    """The calls in groups of `size`: one compile each."""
    rest = iter(calls)
    while batch := list(itertools.islice(rest, size)):
        yield batch
