"""Kernels with all points of a loop in their bodies, and without the loop."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from inductor_cpu.ir.index import Expr, Sym
from inductor_cpu.ir.kernel import Kernel
from inductor_cpu.ir.loop_nest import Store
from inductor_cpu.ir.rewrite import Copier, Editor, store_operands


def without_loop(kernel: Kernel, loop: Sym) -> Kernel:
    """The same kernel without one of its outer loops, which the body no longer mentions."""
    return replace(
        kernel,
        outer=tuple(other for other in kernel.outer if other != loop),
        parallel=kernel.parallel - (kernel.outer.index(loop) < kernel.parallel),
    )


class Unrolled:
    """A growing kernel with copies of another one's body, one for each place, and the stores that are asked for."""

    def __init__(self, kernel: Kernel, places: Iterable[Mapping[Sym, Expr]]) -> None:
        """places: what takes the place of loops."""
        self._source, self._stores = kernel, list[Store]()
        self._kinds = dict(kernel.vector.access)
        self._access: dict[int, str] = {}
        self.editor = Editor()
        self.copiers = [Copier(self.editor, kernel.body, place) for place in places]

    def store(self, number: int, copier: Copier) -> None:
        """Add a store at a place."""
        store = self._source.stores[number]
        copier.run(store_operands(store))
        if -1 - number in self._kinds:  # scalar code has no plan
            self._access[-1 - len(self._stores)] = self._kinds[-1 - number]
        self._stores.append(copier.store(store))

    def kernel(self) -> Kernel:
        """The kernel so far, with the loops of the other one."""
        for copier in self.copiers:
            self._access.update({copier.values[k]: kind for k, kind in self._kinds.items() if k in copier.values})
        return replace(
            self._source,
            body=tuple(self.editor.instructions),
            stores=tuple(self._stores),
            vector=replace(self._source.vector, access=tuple(self._access.items())),
        )
