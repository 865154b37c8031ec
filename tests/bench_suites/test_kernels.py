"""The corpus of loop nests at tiny sizes, and the page of its figures."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from bench_suites.kernels import small, turns
from bench_suites.kernels.__main__ import HERE
from bench_suites.kernels.bandwidth import Traffic, probe, seconds
from bench_suites.kernels.check import difference, exact, outcome
from bench_suites.kernels.report import load, page
from bench_suites.kernels.row import Size, size_of
from bench_suites.kernels.table import FAMILIES, Variant, variants
from bench_suites.suites.case import tensors
from inductor_cpu.targets.cpu import detect
from tests.cases import cases


@pytest.fixture(autouse=True)
def _without_gradients() -> Iterator[None]:
    torch._dynamo.reset()
    with torch.no_grad():
        yield


def parts(family: str, count: int) -> list[Sequence[Variant]]:
    """Each row of the family in one of its dtypes, in `count` parts. Each part is compiled as one function: that takes
    a third of the time."""
    rows = [Variant(row, row.dtypes[number // 2 % len(row.dtypes)]) for number, row in enumerate(FAMILIES[family])]
    return [rows[start::count] for start in range(count)]


def together(functions: Sequence[Callable[..., Any]]) -> Callable[..., Any]:
    """A function of all arguments in one list, with the results of each function in a list."""

    def all_of_them(arguments: list[tuple[torch.Tensor, ...]]) -> list[list[torch.Tensor]]:
        return [tensors(function(*inputs)) for function, inputs in zip(functions, arguments, strict=True)]

    return all_of_them


#: Of every run: every other row, for neighbours are alike.
PARTS = [parts(family, 2) for family in FAMILIES]


@pytest.mark.parametrize(
    "part", cases((part for part, _ in PARTS), ((part,) for _, part in PARTS)), ids=lambda part: part[0].name
)
def test_kernels_at_tiny_sizes_are_as_accurate_as_eager(part: Sequence[Variant]) -> None:
    inputs = [variant.row.build(variant.dtype, Size.TINY) for variant in part]
    copies = [tuple(t.clone() for t in tensors_of) for tensors_of in inputs]
    compiled = torch.compile(together([variant.row.function for variant in part]), backend="icpu", dynamic=False)
    torch.manual_seed(1)
    results = compiled(copies)
    wrong = {}
    for variant, given, changed, result in zip(part, inputs, copies, results, strict=True):
        if variant.row.random:
            continue  # the order of draws differs from that of a row alone
        function = variant.row.function
        found = difference([*result, *changed], outcome(function, given), exact(function, given))
        if found is not None:
            wrong[variant.name] = found
    assert not wrong


def test_names_are_unique_and_there_are_enough() -> None:
    names = [variant.name for family in FAMILIES for variant in variants(family)]
    assert len(names) == len(set(names))
    assert sum(len(rows) for rows in FAMILIES.values()) >= 60


@pytest.mark.parametrize("family", FAMILIES)
def test_inputs_for_the_cache_fit_into_it_and_take_long_enough_to_time(family: str) -> None:
    sizes = {
        variant.name: size_of(variant.row.build(variant.dtype, Size.CACHED))
        for variant in variants(family)
        if variant.row.streaming
    }
    assert {name for name, size in sizes.items() if not 2**15 <= size <= 2**19} == set()


def test_a_wrong_number_is_a_difference() -> None:
    right = torch.tensor([1.0, 2.0])
    assert difference([right], [right], [right.double()]) is None
    assert difference([right + 1e-3], [right], [right.double()]) is not None
    assert difference([torch.tensor([1])], [torch.tensor([2])], [torch.tensor([2])]) is not None
    assert difference([torch.tensor([1.0, float("nan")])], [right], [right.double()]) is not None


@pytest.mark.skipif("avx2" not in detect().features, reason="the loop has vectors of AVX2 or AVX-512")
def test_the_bare_loop_reads_updates_and_writes_and_leaves_numbers_as_they_were() -> None:
    read, updated = torch.arange(1 << 16), torch.arange(1 << 16)
    move = probe(Traffic((read,), (updated,), gathered=4096, written=1 << 19))
    assert min(seconds(move.fastest) for _ in range(5)) > 1e-6
    assert min(seconds(move.plain) for _ in range(5)) > 1e-6
    assert torch.equal(updated, torch.arange(1 << 16))
    assert torch.equal(read, torch.arange(1 << 16))


def test_the_page_names_what_is_slow_and_what_leaves_bandwidth_unused(tmp_path: Path) -> None:
    path = tmp_path / "figures.json"
    base = {"moved": 10_000_000, "computing": 2e-4, "call": 1e-4}
    entries = [
        {
            "stats": {"min": 1e-3},
            "extra_info": {"name": "fast", "stock": 2e-3, "moving": 7.2e-4, "plain": 7.2e-4, **base},
        },
        {
            "stats": {"min": 2e-3},
            "extra_info": {"name": "lame", "stock": 1e-3, "moving": 1e-3, "plain": 1.6e-3, **base},
        },
        {
            "stats": {"min": 1e-3},
            "extra_info": {"name": "busy", "stock": 1e-3, "moving": 4e-4, "plain": 6e-4, **base, "computing": 8e-4},
        },
        {
            "stats": {"min": 1e-3},
            "extra_info": {"name": "once", "stock": 1e-3, "moving": 4e-4, "plain": 4e-4, **base, "computing": None},
        },
        {
            "stats": {"min": 1e-3},
            "extra_info": {"name": "idle", "stock": 1e-3, "moving": 4e-4, "plain": 5e-4, **base},
        },
    ]
    path.write_text(json.dumps({"benchmarks": entries}))
    text = page(load([path]))
    assert "5 kernels, geometric mean 1.00 times stock" in text
    assert "slower than 0.95 of stock: lame 0.50" in text
    assert "below 80% of bandwidth: 3 of 4\n  busy 44%, of plain 67%, in cache 89%\n  idle 44%, of plain 56%" in text
    assert "of these below 80% of plain stores' bandwidth and in cache, too: idle\n" in f"{text}\n"
    assert "stores to the cache" in text
    assert "11.1 |" in text  # GB/s of the fast one, without its call


def test_the_process_of_a_checkout_times_its_kernels_and_knows_no_others() -> None:
    with turns.Checkout(HERE, threads=1) as checkout:
        assert checkout.ask(prepare="write_key_cache") is True
        assert checkout.ask(time="write_key_cache") > 0
        assert checkout.ask(prepare="no such kernel") is False


def test_checkouts_take_turns_in_changing_order(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    class Fake(turns.Checkout):
        def __init__(self, folder: Path, threads: int) -> None:
            assert threads == 2
            self.folder = folder

        def __exit__(self, *_: object) -> None:
            pass

        def ask(self, **question: Any) -> Any:
            if "prepare" in question:
                return question["prepare"] == "softmax" or self.folder.name == "here"
            asked.append(self.folder.name)
            return float(len(asked))

    monkeypatch.setattr(turns, "Checkout", Fake)
    found = turns.compare(Path("here"), Path("there"), ["softmax", "new"], rounds=3, threads=2)
    assert found == [turns.Turns("softmax", here=(2.0, 3.0, 6.0), there=(1.0, 4.0, 5.0))]
    assert asked == ["there", "here", "here", "there", "there", "here"]


def test_a_folder_that_is_no_checkout_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no checkout"):
        turns.compare(HERE, tmp_path, ["softmax"], rounds=1)


def test_turns_are_compared_by_the_fastest_and_in_the_median_each_with_the_one_beside_it() -> None:
    found = turns.Turns("softmax", here=(2e-6, 1e-6, 4e-6), there=(6e-6, 2e-6, 4e-6))
    assert (found.fastest, found.median) == (2, 2)
    assert turns.page([found]).splitlines()[2].split() == "| softmax | 2 | 1 | 2.00 | 2.00 |".split()


def test_kernels_are_chosen_by_words_of_their_names() -> None:
    assert {"softmax", "softmax-bfloat16"} <= set(turns.chosen(["softmax"]))
    assert all("softmax" in name or "gelu" in name for name in turns.chosen(["softmax", "gelu"]))
    assert len(turns.chosen([])) > 200


def test_small_kernels_are_timed_in_turns_and_those_slower_than_stock_named() -> None:
    threads = torch.get_num_threads()
    try:
        (found,) = small.measure(["add_relu"])
    finally:
        torch.set_num_threads(threads)
    assert found.name == "add_relu"
    assert min(found.icpu, found.stock) > 0
    text = small.page([small.Small("fast", 1e-6, 2e-6), small.Small("slow", 2e-6, 1e-6)])
    assert text.splitlines()[2:4] == [
        "| slow     | 1.0        | 2.0       | 0.50    |",
        "| fast     | 2.0        | 1.0       | 2.00    |",
    ]
    assert text.endswith("2 kernels; slower than 0.95 of stock: slow 0.50")
