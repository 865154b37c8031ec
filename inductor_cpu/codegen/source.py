"""What every kernel's C++ has in common: its signature, and a name made from its text."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from inductor_cpu.ir.plan import Instance, KernelSource

_PLACEHOLDER = "icpu_kernel"

#: The signature of a kernel without a name yet: pointers of its buffers, and its ints.
HEAD = f'extern "C" int64_t {_PLACEHOLDER}(void* const* buffers, const int64_t* sizes)'


def named(text: str, label: str, instances: Iterable[Instance] = ()) -> KernelSource:
    """A kernel under the hash of its text, which has `HEAD` in it: equal texts share a symbol. label: for people."""
    symbol = "icpu_" + hashlib.sha256(text.encode()).hexdigest()[:24]
    return KernelSource(symbol, label, text.replace(_PLACEHOLDER, symbol), tuple(dict.fromkeys(instances)))


def unnamed(source: KernelSource) -> str:
    """The text that a kernel was named by."""
    return source.code.replace(source.symbol, _PLACEHOLDER)
