"""Several Python threads, and many models, in one process."""

from __future__ import annotations

import ctypes
import gc
import threading
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from tests.e2e.support import compile_counted
from tests.semantics.support import Tensor


def at_once(jobs: list[Callable[[], Any]]) -> list[Any]:
    """What the jobs return, each in a thread of its own, all started together."""
    barrier = threading.Barrier(len(jobs))
    results: list[Any] = [None] * len(jobs)

    def work(number: int) -> None:
        barrier.wait()
        try:
            results[number] = jobs[number]()
        except BaseException as error:
            results[number] = error

    threads = [threading.Thread(target=work, args=(n,)) for n in range(len(jobs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=300)
    assert not any(thread.is_alive() for thread in threads)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return results


def test_the_first_call_of_one_function_from_several_threads() -> None:
    function = lambda x: (x * 2 + 1).softmax(-1)  # noqa: E731
    compiled, _ = compile_counted(function)
    inputs = [torch.randn(5, 7) for _ in range(4)]
    results = at_once([lambda x=x: compiled(x) for x in inputs])
    torch.testing.assert_close(results, [function(x) for x in inputs])


def test_the_first_call_in_inference_packs_weights_once_for_all_threads() -> None:
    module = nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 8)).eval()
    compiled, _ = compile_counted(module)
    inputs = [torch.randn(5, 32) for _ in range(4)]

    def call(x: Tensor) -> Tensor:
        with torch.no_grad():
            return compiled(x)

    results = at_once([lambda x=x: [call(x) for _ in range(5)][-1] for x in inputs])
    with torch.no_grad():
        torch.testing.assert_close(results, [module(x) for x in inputs], atol=1e-5, rtol=1e-5)


def test_weights_that_change_while_threads_call_are_old_or_new_but_never_mixed() -> None:
    module = nn.Linear(16, 16, bias=False).eval()
    with torch.no_grad():
        module.weight.fill_(1.0)
    compiled, _ = compile_counted(module)
    x = torch.ones(4, 16)
    with torch.no_grad():
        compiled(x)
    done = threading.Event()

    def call() -> set[float]:
        seen: set[float] = set()
        with torch.no_grad():
            while not done.is_set():
                seen.update(compiled(x).unique().tolist())
        return seen

    def change() -> set[float]:
        for value in (2.0, 3.0, 4.0):
            with torch.no_grad():
                module.weight = nn.Parameter(torch.full((16, 16), value))
                torch.testing.assert_close(compiled(x), torch.full((4, 16), 16 * value))
        done.set()
        return set()

    seen = set().union(*at_once([call, call, change]))
    assert seen <= {16.0, 32.0, 48.0, 64.0}


def test_two_models_forward_and_backward_at_once() -> None:
    modules = [nn.Sequential(nn.Linear(8, 8), nn.Tanh()), nn.Sequential(nn.Linear(8, 4), nn.Sigmoid())]
    compiled = [compile_counted(m)[0] for m in modules]
    x = torch.randn(6, 8)

    def train(number: int) -> list[Tensor]:
        for _ in range(3):
            modules[number].zero_grad()
            compiled[number](x).sum().backward()
        return [p.grad.clone() for p in modules[number].parameters() if p.grad is not None]

    results = at_once([lambda: train(0), lambda: train(1)])
    for module, have in zip(modules, results, strict=True):
        module.zero_grad()
        module(x).sum().backward()
        torch.testing.assert_close(have, [p.grad for p in module.parameters()], atol=1e-5, rtol=1e-5)


def test_backward_on_another_thread_than_forward() -> None:
    compiled, _ = compile_counted(lambda x: (x * x).sin())
    x = torch.randn(5).requires_grad_()
    y = compiled(x).sum()
    at_once([y.backward])
    torch.testing.assert_close(x.grad, 2 * x.detach() * (x * x).cos().detach())


def test_each_thread_has_its_own_grad_mode() -> None:
    compiled, _ = compile_counted(lambda x: x * 2 + 1)
    x = torch.randn(4).requires_grad_()

    def under(mode: Any) -> bool:
        with mode():
            return compiled(x).requires_grad

    assert at_once([lambda: under(torch.no_grad), lambda: under(torch.enable_grad)]) == [False, True]


def test_number_of_threads_changes_between_calls() -> None:
    compiled, _ = compile_counted(lambda x: (x * 2).sum(-1) + x.sum())
    x = torch.randn(200, 300)
    before = torch.get_num_threads()
    try:
        for threads in (1, 3, 2, 1):
            torch.set_num_threads(threads)
            torch.testing.assert_close(compiled(x), (x * 2).sum(-1) + x.sum(), atol=1e-3, rtol=1e-5)
            assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)


def test_many_models_in_one_process_give_their_memory_back() -> None:
    def resident() -> int:
        ctypes.CDLL(None).malloc_trim(0)  # what is free between live blocks, which new ones may not fit in
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * 4096

    def use() -> None:
        module = nn.Linear(1024, 1024).eval()  # 4 MiB of weights, and as much again packed
        compiled, _ = compile_counted(module)
        with torch.no_grad():
            compiled(torch.randn(1, 1024))
        del compiled, module
        torch._dynamo.reset()
        gc.collect()

    for _ in range(2):
        use()
    before = resident()
    for _ in range(5):  # 40 MiB, if they stayed
        use()
    assert resident() - before < 20 << 20
