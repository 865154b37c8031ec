"""Packed weights: made once from the weights, shared between graphs, made again when a weight changes.

A native guard compares storage, address and version of every weight at each call (about 10 ns a weight). Equal
recipes on the same weights share one copy. The copies go when the weights go.
"""

from __future__ import annotations

import logging
import os
import threading
import weakref
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import _disable_current_modes

from inductor_cpu.errors import UserError
from inductor_cpu.runtime.huge_pages import Shelf
from inductor_cpu.runtime.originals import DROPPED, ORIGINALS

log = logging.getLogger("inductor_cpu.runtime")

#: What torch and oneDNN say when an allocation fails.
_NO_MEMORY = ("allocate memory", "could not create a memory", "not enough memory", "out of memory")

#: Live sets of packed weights, for `repack` and for reports.
_LIVE: weakref.WeakSet[PackedWeights] = weakref.WeakSet()


class _Shared:
    """Packed tensors by what they were made from. An entry lives as long as some graph holds the tensor."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.tensors: weakref.WeakValueDictionary[tuple[Any, ...], torch.Tensor] = weakref.WeakValueDictionary()

    def discard(self, keys: Iterable[tuple[Any, ...]]) -> None:
        """Offer these no longer."""
        for key in keys:
            self.tensors.pop(key, None)


_SHARED = _Shared()


@dataclass(frozen=True)
class Dropping:
    """That the memory of weights is given back. reads: positions of the weights that the graph reads unpacked, which
    keep theirs; native: the executor's module."""

    reads: tuple[int, ...]
    native: Any


class PackedWeights:
    """The packed weights of one graph and the way to make them.

    graph: makes them from the inputs at `sources`; uses: for each, the input positions that it depends on; texts: for
    each, its computation as text; guard_type: the executor's `WeightGuard`; dropping: None to keep all weights."""

    def __init__(
        self,
        graph: fx.GraphModule,
        sources: Sequence[int],
        uses: Sequence[Sequence[int]],
        texts: Sequence[str],
        guard_type: Callable[[Sequence[int]], Any],
        dropping: Dropping | None = None,
    ) -> None:
        self._makers = _makers(graph)
        self._sources, self._uses, self._texts = tuple(sources), tuple(map(tuple, uses)), tuple(texts)
        self._dropping, self._drop_next = dropping, False
        reads = () if dropping is None else dropping.reads
        self._guard = guard_type(tuple(dict.fromkeys((*self._sources, *reads))))
        self._lock = threading.Lock()
        self._packed: list[torch.Tensor] | None = None
        self._keys: tuple[tuple[Any, ...], ...] = ()
        self._owners: list[weakref.ref[torch.UntypedStorage]] = []
        _LIVE.add(self)

    def extend(self, inputs: list[Any]) -> None:
        """Append the packed weights to a graph's inputs, made again first if a weight has changed."""
        # The check comes before the read: another thread withdraws the old copies before it records the new state.
        packed = self._packed if self._guard.check(inputs) else None
        if packed is None:
            packed = self._refresh(inputs)
        elif self._drop_next:
            self._drop_originals(inputs)
        inputs.extend(packed)

    def measure(self) -> Callable[[], int]:
        """A function that gives the memory of the packed copies in bytes: 0 before the first call and after the end of
        the model, which it does not keep alive."""
        me = weakref.ref(self)

        def size() -> int:
            owner = me()
            return 0 if owner is None else sum(map(_bytes, owner._packed or ()))

        return size

    def forget(self) -> None:
        """Make every copy again at the next call, whatever the guard says, but for those of dropped weights alone,
        which nobody can have edited."""
        with self._lock, _SHARED.lock:
            _SHARED.discard(key for key in self._keys if not all(map(ORIGINALS.stood_for, key[1:])))
            self._drop()

    def depends_on(self, storages: frozenset[StorageWeakRef]) -> bool:
        """Whether the copies were made from one of these storages."""
        return any(storage in storages for _, *states in self._keys for _, storage, *_ in states)

    def _drop(self) -> None:
        self._packed = None
        self._guard.forget()

    def _refresh(self, inputs: list[Any]) -> list[torch.Tensor]:
        with self._lock, torch.no_grad(), _disable_current_modes():
            if self._dropping is not None:
                ORIGINALS.read(self, [inputs[p] for p in self._dropping.reads])
            changed = frozenset(self._guard.changed(inputs))
            previous, packed, keys, shelf = self._packed, [], [], Shelf()
            # What another thread changes from here on differs from the record. Until then nobody finds the old copies.
            self._packed = None
            self._guard.record(inputs)
            for number, (uses, text) in enumerate(zip(self._uses, self._texts, strict=True)):
                if previous is not None and not changed & set(uses):
                    packed.append(previous[number])
                    keys.append(self._keys[number])
                    continue
                weights = [inputs[p] for p in uses]
                keys.append((text, *map(_state, weights)))
                packed.append(self._make(number, keys[-1], weights, shelf))
            self._watch([inputs[p] for p in self._sources])
            changed = frozenset(self._guard.changed(inputs))
            self._packed, self._keys = packed, tuple(keys)
            self._drop_next = self._dropping is not None
            if changed:
                _SHARED.discard(key for key, uses in zip(keys, self._uses, strict=True) if changed & set(uses))
                self._drop()
            return packed

    def _drop_originals(self, inputs: list[Any]) -> None:
        """Give back the memory of the weights that are read in packed copies only. Not at the first call: the other
        graphs of the model, which come after this one, must have said first what they read."""
        assert self._dropping is not None
        with self._lock, torch.no_grad(), _disable_current_modes():
            packed = self._packed
            if packed is None or not self._guard.check(inputs):
                return  # another thread was here
            dropped = self._droppable(inputs)
            self._owners = []
            for position in dropped:
                weight = inputs[position]
                copies = [packed[k] for k, uses in enumerate(self._uses) if position in uses]
                ORIGINALS.drop(weight, _state(weight), copies, self._dropping.native)
            self._drop_next = False
            self._watch([inputs[p] for p in self._sources])
            if dropped.issuperset(self._guard.changed(inputs)):
                self._guard.record(inputs)
            else:
                self._drop()

    def _droppable(self, inputs: list[Any]) -> set[int]:
        """Positions of the weights that can be dropped. All that a copy was made from, or nothing of it: it can be made
        again then, or never has to be."""
        assert self._dropping is not None
        kept: set[int] = set()
        for position in self._sources:
            reason = ORIGINALS.why_kept(inputs[position], self._dropping.native)
            if reason is not None:
                log.info("a weight of shape %s keeps its memory: %s", tuple(inputs[position].shape), reason)
                kept.add(position)
        while more := {p for uses in self._uses if kept & set(uses) for p in uses} - kept:
            kept |= more
        return set(self._sources) - kept

    def _make(self, number: int, key: tuple[Any, ...], weights: list[torch.Tensor], shelf: Shelf) -> torch.Tensor:
        with _SHARED.lock:
            found = _SHARED.tensors.get(key)
            if found is None:
                if any(ORIGINALS.find(weight) is not None for weight in weights):
                    raise UserError(DROPPED)
                found = _made(self._makers[number], weights, shelf)
                _SHARED.tensors[key] = found
            return found

    def _watch(self, weights: list[torch.Tensor]) -> None:
        """Free the copies when the memory of a parameter goes. (Buffers may be passed as temporary objects.) The
        parameters themselves have no weak references: `torch.utils.swap_tensors` would refuse them."""
        me = weakref.ref(self)

        def gone(_ref: object) -> None:
            owner = me()
            if owner is not None:
                owner._drop()

        watched = [w for w in weights if isinstance(w, torch.nn.Parameter) and w.layout is torch.strided]
        self._owners = [weakref.ref(w.untyped_storage(), gone) for w in watched]


def _after_fork() -> None:
    """In the child: threads that no longer exist may hold the locks."""
    _SHARED.lock = threading.RLock()
    for packed in list(_LIVE):
        packed._lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)


def _made(maker: Callable[..., torch.Tensor], weights: list[torch.Tensor], shelf: Shelf) -> torch.Tensor:
    try:
        return shelf.place(maker(*weights))
    except (RuntimeError, MemoryError, OSError) as error:
        if not isinstance(error, MemoryError) and not any(text in str(error) for text in _NO_MEMORY):
            raise
        size = sum(map(_bytes, weights)) >> 20
        raise UserError(
            f"there is no memory for the packed copy of a weight of {size} MiB. Set cpp.weight_prepack=False "
            "(ICPU_CPP_WEIGHT_PREPACK=0) to compute with the weights as they are, or give the process more memory."
        ) from error


def _makers(graph: fx.GraphModule) -> list[Callable[..., torch.Tensor]]:
    """One function per packed weight, of the weights that it depends on in input order."""
    results = graph.graph.output_node().args[0]
    assert isinstance(results, tuple)
    return [_maker(graph, result) for result in results if isinstance(result, fx.Node)]


def _maker(graph: fx.GraphModule, result: fx.Node) -> Callable[..., torch.Tensor]:
    part = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    needed: set[fx.Node] = set()
    stack = [result]
    while stack:
        node = stack.pop()
        if node not in needed:
            needed.add(node)
            stack.extend(node.all_input_nodes)
    for node in graph.graph.nodes:
        if node in needed:
            copies[node] = part.node_copy(node, copies.__getitem__)
    part.output(copies[result])
    compute, wanted = fx.GraphModule(graph, part).forward, result.meta["val"]
    return lambda *weights: _laid_out_as(wanted, compute(*weights))


def _laid_out_as(wanted: torch.Tensor, made: torch.Tensor) -> torch.Tensor:
    """A tensor with the strides that the main graph was told of: an operator of ours may lay out its result otherwise
    than the one in whose place it is."""
    if made.is_mkldnn or wanted.is_mkldnn or made.shape != wanted.shape:
        return made
    strides = zip(made.shape, made.stride(), wanted.stride(), strict=True)
    if all(size < 2 or stride == other for size, stride, other in strides):
        return made
    return torch.empty_strided(made.shape, wanted.stride(), dtype=made.dtype).copy_(made)


def _bytes(tensor: torch.Tensor) -> int:
    """Memory of a tensor; a packed one may be padded."""
    return int(torch.ops.mkldnn._nbytes(tensor)) if tensor.is_mkldnn else tensor.numel() * tensor.element_size()


def _address(tensor: torch.Tensor) -> int:
    return 0 if tensor.layout is not torch.strided else tensor.data_ptr()


def _state(tensor: torch.Tensor) -> tuple[Any, ...]:
    """What a weight is like; a dropped one as it was before. The weak reference keeps the storage's identity from being
    used again. Raises UserError for a dropped weight that was given another shape."""
    look = (tensor.dtype, tuple(tensor.shape), tensor.stride())
    dropped = ORIGINALS.find(tensor)
    if dropped is not None:
        if dropped.state[-3:] != look:
            raise UserError(DROPPED)
        return dropped.state
    version = -1 if tensor.is_inference() else tensor._version
    storage = StorageWeakRef(tensor.untyped_storage())
    return (id(tensor), storage, _address(tensor), version, *look)


def memory_of_packed_weights() -> int:
    """Bytes of all packed copies that are alive; a copy that several graphs share counts once."""
    return sum(_bytes(t) for t in {id(t): t for packed in list(_LIVE) for t in packed._packed or ()}.values())


def repack(model: torch.nn.Module) -> int:
    """Make the packed copies of a model's weights again at its next call, for edits that no version counter sees
    (`weight.data.add_(1)`, a write through a NumPy view, any edit of an inference tensor). Returns how many compiled
    graphs were told."""
    storages = frozenset(StorageWeakRef(t.untyped_storage()) for t in (*model.parameters(), *model.buffers()))
    told = [packed for packed in list(_LIVE) if packed.depends_on(storages)]
    for packed in told:
        packed.forget()
    return len(told)
