"""The memory of weights themselves, beside that of their packed copies: who reads it, and giving it back.

With `cpp.drop_original_weights`, a weight that graphs read only in its packed copy loses its own memory. The parameter
stays, with its shape, strides and dtype, and owns the packed copies from then on, so that graphs compiled later find
them. Whoever reads the parameter gets an error that says what to do; loading a state dict gives it memory again.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils.weak import WeakTensorKeyDictionary

from inductor_cpu.errors import UserError

DROPPED = (
    "the memory of this weight was given back (cpp.drop_original_weights): only its packed copy is left, which compiled"
    " graphs read. To read the weight itself - in eager mode, from state_dict, in training or in a graph that does not"
    " use the packed copy - set cpp.drop_original_weights=False (ICPU_CPP_DROP_ORIGINAL_WEIGHTS=0), load the weights"
    " again with model.load_state_dict, and call torch._dynamo.reset()."
)


@dataclass(frozen=True)
class Dropped:
    """A weight without memory. storage: what stands for its memory; state: what it was like before, as the keys of
    packed copies have it; copies: those made from it."""

    storage: StorageWeakRef
    state: tuple[Any, ...]
    copies: tuple[torch.Tensor, ...]


class Originals:
    """Which graphs read which weights unpacked, and which weights are dropped. Both by tensor object, held weakly."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._readers = WeakTensorKeyDictionary()
        self._dropped = WeakTensorKeyDictionary()

    def read(self, reader: object, weights: Sequence[torch.Tensor]) -> None:
        """Say that a graph reads these weights themselves as long as it lives. Raises UserError for a dropped one."""
        with self._lock:
            for weight in weights:
                if self.find(weight) is not None:
                    raise UserError(DROPPED)
                self._readers.setdefault(weight, weakref.WeakSet()).add(reader)

    def find(self, weight: torch.Tensor) -> Dropped | None:
        """The record of a dropped weight; None for a weight with memory."""
        with self._lock:
            found: Dropped | None = self._dropped.get(weight)
            if found is not None and found.storage != StorageWeakRef(weight.untyped_storage()):
                del self._dropped[weight]  # it was given new memory, and nobody needs the copies for its sake
                return None
            return found

    def stood_for(self, state: tuple[Any, ...]) -> bool:
        """Whether a weight that was in this state (as keys of packed copies have it) is dropped."""
        with self._lock:
            return any(self.find(w) is not None and d.state == state for w, d in list(self._dropped.items()))

    def why_kept(self, weight: torch.Tensor, native: Any) -> str | None:
        """Why a weight cannot be dropped; None when it can, or is already. native: the executor's module."""
        with self._lock:
            if self.find(weight) is not None:
                return None
            if len(self._readers.get(weight, ())) > 0:
                return "a graph reads it unpacked"
            if weight.is_inference() or type(weight) not in (torch.nn.Parameter, torch.Tensor, torch.nn.Buffer):
                return "it is an inference tensor or of a class of its own"
            return None if native.owns_memory_alone(weight) else "other tensors use its memory"

    def drop(self, weight: torch.Tensor, state: tuple[Any, ...], copies: Sequence[torch.Tensor], native: Any) -> None:
        """Give back the memory of a weight that nothing keeps. state: what it is like; copies: made from it."""
        with self._lock:
            known = self.find(weight)
            if known is not None:
                more = [copy for copy in copies if not any(copy is other for other in known.copies)]
                self._dropped[weight] = replace(known, copies=(*known.copies, *more))
                return
            weight.data = native.without_memory(weight, DROPPED)
            self._dropped[weight] = Dropped(StorageWeakRef(weight.untyped_storage()), state, tuple(copies))
            weight.copy_ = _loader(weight)  # type: ignore[method-assign]

    def after_fork(self) -> None:
        """In the child: a thread that no longer exists may hold the lock."""
        self._lock = threading.RLock()


ORIGINALS = Originals()


def memory_of_weights(model: torch.nn.Module) -> int:
    """Bytes of the parameters and buffers of a model that have memory, each storage counted once."""
    kept = [w for w in (*model.parameters(), *model.buffers()) if ORIGINALS.find(w) is None]
    storages = {StorageWeakRef(w.untyped_storage()): w.untyped_storage().nbytes() for w in kept}
    return sum(storages.values())


os.register_at_fork(after_in_child=ORIGINALS.after_fork)


def _loader(weight: torch.Tensor) -> Callable[..., torch.Tensor]:
    """`copy_` of a dropped weight, as `load_state_dict` calls it: it gets memory first."""
    me = weakref.ref(weight)

    def copy_(source: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
        target = me()
        assert target is not None, "a method was called on a tensor that is gone"
        if ORIGINALS.find(target) is not None:
            target.data = torch.empty_strided(target.shape, target.stride(), dtype=target.dtype).copy_(source.detach())
        vars(target).pop("copy_", None)
        return target.copy_(source, non_blocking)

    return copy_
