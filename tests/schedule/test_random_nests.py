"""Whatever the vectorization checker accepts gives what the points of the loops give one after another.

Random nests run as the checker plans them: by a model of lanes and threads, and compiled for each instruction set. A
failure of Hypothesis names the seed, and `random_cases(seed, ...)` makes the same nests again.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from inductor_cpu.ir.index import const, of
from inductor_cpu.ir.kernel import Kernel
from inductor_cpu.ir.loop_nest import Scalar, Store
from inductor_cpu.ir.printer import show
from inductor_cpu.ir.verify import verify_kernel
from inductor_cpu.schedule import divide
from inductor_cpu.schedule.build import build_kernel
from inductor_cpu.schedule.flat import flatten
from inductor_cpu.schedule.group import Group
from inductor_cpu.schedule.known import put_known_indices
from inductor_cpu.schedule.uses import reads_of, writes_of
from tests.codegen.harness import Library, available
from tests.ir.build import F32, at, load, loops, nest
from tests.schedule.nests import Case, random_cases, run_lanes, run_points

LANES = {"avx512": 16, "avx2": 8, "scalar": 0}

#: More examples for a long run: ICPU_NEST_EXAMPLES=100.
EXAMPLES = int(os.environ.get("ICPU_NEST_EXAMPLES", "1"))

SEEDS = st.integers(0, 2**32)
QUIET = tuple(HealthCheck)


@pytest.fixture(autouse=True)
def threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(4)
    yield
    torch.set_num_threads(before)


#: Bounds with which scatters of few points are divided among threads, into pieces or among owners.
SMALL = {"LEAST_POINTS": 16, "POINTS_PER_ELEMENT": 1, "LEAST_OUTERMOST": 2}
WAYS = (SMALL, SMALL | {"MOST_PIECES": 1})


def kernel_of(case: Case, lanes: int, cores: int, bounds: dict[str, int] = SMALL) -> Kernel:
    """The verified kernel of a case, whose work is enough for threads."""
    flat = flatten(put_known_indices(case.nest), case.buffers)
    group = Group(flat.dims, flat.reduce_dims, flat, [flat.name], reads_of(flat), writes_of(flat))
    with pytest.MonkeyPatch.context() as patch:
        for name, value in bounds.items():
            patch.setattr(divide, name, value)
        kernel = replace(build_kernel(group, case.buffers, lanes, cores, cache=0), work=const(10**7))
    verify_kernel(kernel)
    return kernel


def test_a_nest_that_reads_what_other_points_write_keeps_its_order() -> None:
    """Found by the property: loops were put in the order of the store's strides."""
    i, j = loops(40, 24)
    body = (load("x", at(of(i) + of(j) * 16)), load("y", at(of(i) * 24 + of(j))), Scalar("add", (0, 1), F32))
    x, y = torch.arange(500.0) % 7, torch.arange(960.0) % 5
    case = Case(nest((i, j), body, Store("y", at(of(i) + of(j) * 40), 2)), {"x": x, "y": y}, {})
    for lanes in (0, 16):
        kernel = kernel_of(case, lanes, cores=4)
        check(case, kernel, run_lanes(kernel, case)["y"], run_points(case)["y"])


def check(case: Case, kernel: Kernel, found: list[float], expected: list[float]) -> None:
    assert found == expected, f"{show(case.nest)}\n{show(kernel)}\nsizes {case.sizes}"


@settings(max_examples=20 * EXAMPLES, deadline=None, derandomize=EXAMPLES == 1, suppress_health_check=QUIET)
@given(seed=SEEDS)
def test_lanes_and_threads_of_random_nests_give_what_points_give_in_order(seed: int) -> None:
    for case in random_cases(seed, 6):
        expected = run_points(case)["y"]
        for lanes, bounds in product((0, 4, 16), WAYS):
            kernel = kernel_of(case, lanes, cores=4, bounds=bounds)
            if not kernel.inner:
                check(case, kernel, run_lanes(kernel, case)["y"], expected)


@pytest.mark.parametrize("isa", available())
@settings(max_examples=1 * EXAMPLES, deadline=None, derandomize=EXAMPLES == 1, suppress_health_check=QUIET)
@given(seed=SEEDS)
def test_compiled_random_nests_give_what_points_give_in_order(isa: str, seed: int) -> None:
    cases = random_cases(seed, 24)
    kernels = [kernel_of(case, LANES[isa], cores=4, bounds=WAYS[k % 2]) for k, case in enumerate(cases)]
    library = Library(isa, kernels)
    for case, kernel in zip(cases, kernels, strict=True):
        tensors = {name: tensor.clone() for name, tensor in case.tensors.items()}
        status = library.run(
            kernel, *(tensors[arg.buffer] for arg in kernel.args), sizes=[case.sizes[s] for s in kernel.sizes]
        )
        assert status == 0
        check(case, kernel, tensors["y"].tolist(), run_points(case)["y"])


def test_random_nests_have_scatters_scans_threads_and_reasons() -> None:
    """The property would hold for a checker that refuses everything, and for nests without anything to refuse."""
    kernels = [kernel_of(case, 16, cores=4) for case in random_cases(1, 120)]
    reasons = Counter(reason for kernel in kernels for reason in kernel.vector.reasons)
    vectorized = [kernel for kernel in kernels if kernel.vector.vectorized]
    adds = [kernel for kernel in vectorized if kernel.stores[0].mode == "add"]
    assert len(vectorized) > 80
    assert len(adds) > 20
    assert any(kernel.parallel for kernel in adds)
    ways = Counter(kernel.divided is not None and kernel.divided.pieces == 1 for kernel in kernels if kernel.divided)
    assert min(ways[True], ways[False]) > 5, ways
    assert any(kernel.across for kernel in kernels)
    assert any(dict(kernel.vector.access)[-1] == "contiguous" for kernel in adds)
    assert len(reasons) >= 3, reasons
