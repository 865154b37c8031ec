"""Builds that run beside the program: the native executor while Dynamo traces; afterwards the precompiled prelude, and
the executor's operators library.

They cost nothing if the cache has them. The prelude waits until this process has compiled its first kernels, and some
seconds more, in which the first call packs weights and runs: to precompile it takes longer than to read it in every
unit of one graph, and would take the cores from all of these. In training it does not wait: AOTAutograd takes seconds
to differentiate and to split the graph, and two graphs of kernels follow. The operators library waits as long and comes
after it: the next graph gains seconds by the prelude, a call of an operator microseconds by the library. A build that
fails here is only noted: who needs its result builds it again in the foreground and gets the error. Nobody needs the
operators library: operators are called as Python without it.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Callable, Hashable
from concurrent.futures import Future, wait
from pathlib import Path

from inductor_cpu.runtime.cache import KernelCache, log
from inductor_cpu.runtime.executor import build_executor, complete_executor, lacks_operators
from inductor_cpu.runtime.prebuilt import Builder, prebuild
from inductor_cpu.runtime.process import ProcessGroup
from inductor_cpu.runtime.toolchain import Toolchain
from inductor_cpu.targets.cpu import Target

_DELAY = 4.0
"""Seconds between the first kernels and the builds that no call waits for."""

_PATIENCE = 5.0
"""Seconds that the end of the program waits for a build that was stopped."""


class BackgroundBuilds:
    """Named pieces of work, one after another, each started once. Their compilers die with the process."""

    def __init__(self) -> None:
        self.forget()
        os.register_at_fork(after_in_child=self.forget)

    def forget(self) -> None:
        """Start anew. After a fork the child has none of the threads that would end the builds of its parent."""
        self._lock = threading.Lock()
        self._builds: dict[Hashable, Future[None]] = {}
        self._threads: list[threading.Thread] = []
        self._processes = ProcessGroup()
        self._stopping = False
        self._hurry = threading.Event()

    def start(
        self, name: Hashable, title: str, work: Callable[[ProcessGroup], object], delay: float = 0.0
    ) -> Future[None]:
        """Run `work` once per `name`, `delay` seconds from now or when somebody waits for it. The future is done, and
        has no exception, when it has ended."""
        with self._lock:
            if name in self._builds:
                return self._builds[name]
            earlier, done = list(self._builds.values()), Future[None]()
            work_args = (earlier, done, title, work, delay)
            thread = threading.Thread(target=self._run, args=work_args, name=f"icpu {title}", daemon=True)
            # At the end before what was registered earlier, such as the removal of a temporary cache.
            atexit.unregister(self.stop)
            atexit.register(self.stop)
            thread.start()
            self._builds[name] = done
            self._threads.append(thread)
            return done

    def wait(self) -> None:
        """Wait for everything that was started."""
        with self._lock:
            builds = list(self._builds.values())
        self._hurry.set()
        for build in builds:
            build.result()
        self._hurry.clear()

    def stop(self) -> None:
        """Kill the compilers that run for this process, and let the threads delete their temporary files."""
        self._stopping = True
        self._hurry.set()
        self._processes.cancel()
        for thread in self._threads:
            thread.join(_PATIENCE)

    def _run(
        self,
        earlier: list[Future[None]],
        done: Future[None],
        title: str,
        work: Callable[[ProcessGroup], object],
        delay: float,
    ) -> None:
        try:
            self._hurry.wait(delay)
            wait(earlier)
            if not self._stopping:
                work(self._processes)
        except Exception as error:
            if not self._stopping:
                log.warning("%s was not built in the background: %s", title, error)
        finally:
            done.set_result(None)


_BUILDS = BackgroundBuilds()


def start_executor_build(cache: KernelCache, toolchain: Toolchain) -> None:
    """Start building the executor if the cache lacks it; returns at once."""
    name = (str(cache.root), "executor", toolchain)
    _BUILDS.start(name, "the native executor", lambda ps: build_executor(cache, toolchain, ps))


def start_header_build(
    target: Target, prelude: Path, cache: KernelCache, toolchain: Toolchain, delay: float = _DELAY
) -> None:
    """Start precompiling the prelude, in so many seconds, if the cache lacks that; returns at once."""
    builder = Builder(target, prelude, cache, toolchain)
    name = (str(cache.root), "header", builder.key)
    _BUILDS.start(name, "the precompiled header", lambda ps: prebuild(builder, ps), delay)


def start_operators_build() -> None:
    """Start building the operators library if the executor that is loaded lacks it; returns at once."""
    if lacks_operators():
        _BUILDS.start("operators", "the native operators library", complete_executor, _DELAY)


def wait_for_background_builds() -> None:
    """Wait until every background build of this process has ended."""
    _BUILDS.wait()
