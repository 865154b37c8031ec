"""Processes that judge graphs, so that a crash or a hang is the result of one graph and not the end of the run."""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import os
import time
import warnings
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any

from tests.emulation.machine import VARIABLE, take_for_emulated
from tests.fuzz.check import Outcome, evaluate
from tests.fuzz.generate import generate
from tests.fuzz.graph import Graph

#: A graph that takes longer hangs: on an idle machine most take a few seconds.
SECONDS = 150.0
#: A process is replaced after so many graphs: libraries are never unloaded.
GRAPHS_PER_PROCESS = 120


@dataclass(frozen=True)
class Job:
    """A seed to generate from, or a graph. variants: None for those of the seed."""

    seed: int
    graph: Graph | None = None
    variants: tuple[str, ...] | None = None


def _serve(connection: Connection) -> None:
    if os.environ.get(VARIABLE):
        take_for_emulated()
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    while True:
        job: Job | None = connection.recv()
        if job is None:
            return
        try:
            graph = job.graph if job.graph is not None else generate(job.seed)
        except RuntimeError as error:
            connection.send(("outcome", Outcome("invalid", f"no graph: {error}")))
            continue
        connection.send(("graph", graph))
        connection.send(("outcome", evaluate(graph, job.variants)))


class Worker:
    """One process, made when there is a job for it and again when it died."""

    def __init__(self, patience: float = SECONDS) -> None:
        self.patience = patience
        self.process: Any = None
        self.connection: Connection | None = None
        self.job: Job | None = None
        self.graph: Graph | None = None
        self.polled = self.waited = 0.0
        self.count = 0

    def start(self, job: Job) -> None:
        """Give the process a job."""
        if self.process is None or not self.process.is_alive() or self.count >= GRAPHS_PER_PROCESS:
            self.stop()
            context = multiprocessing.get_context("spawn")
            self.connection, theirs = context.Pipe()
            self.process = context.Process(target=_serve, args=(theirs,), daemon=True)
            self.process.start()
            theirs.close()
            self.count = 0
        assert self.connection is not None
        self.job, self.graph, self.polled, self.waited = job, job.graph, time.monotonic(), 0.0
        self.count += 1
        self.connection.send(job)

    def poll(self) -> Outcome | None:
        """The outcome of the job, if there is one by now."""
        assert self.connection is not None
        try:
            while self.connection.poll():
                kind, value = self.connection.recv()
                if kind == "outcome":
                    return value
                self.graph = value
        except (EOFError, ConnectionResetError):
            self.process.join(5)
            code = self.process.exitcode
            self.stop()
            return Outcome("crash", f"the process ended with code {code}", f"crash: code {code}")
        # What passed while the whole run was stopped does not count.
        now = time.monotonic()
        self.waited += min(now - self.polled, 2.0)
        self.polled = now
        if self.waited > self.patience:
            self.stop()
            return Outcome("hang", f"no answer in {self.patience:.0f} s", "hang")
        return None

    def stop(self) -> None:
        """End the process: by asking, then by force."""
        if self.process is not None:
            with contextlib.suppress(OSError):
                assert self.connection is not None
                self.connection.send(None)
            self.process.join(0.5)
            self.process.kill()
            self.process.join()
        if self.connection is not None:
            self.connection.close()
        self.process = self.connection = None


class Pool:
    """A few workers. patience: seconds until a graph hangs. Use as a context manager: it ends its processes."""

    def __init__(self, count: int, patience: float = SECONDS) -> None:
        self.workers = [Worker(patience) for _ in range(count)]

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self.workers:
            worker.stop()

    def run(self, jobs: Iterator[Job]) -> Iterator[tuple[Job, Graph | None, Outcome]]:
        """Outcomes of all jobs, as they come. The graph is None if the process died while it was made."""
        busy: deque[Worker] = deque()
        free = deque(self.workers)
        exhausted = False
        while busy or not exhausted:
            while free and not exhausted:
                job = next(jobs, None)
                if job is None:
                    exhausted = True
                    break
                worker = free.popleft()
                worker.start(job)
                busy.append(worker)
            wait([w.connection for w in busy if w.connection is not None], timeout=1.0)
            for worker in list(busy):
                outcome = worker.poll()
                if outcome is not None:
                    busy.remove(worker)
                    free.append(worker)
                    assert worker.job is not None
                    yield worker.job, worker.graph, outcome

    def judge(self, graph: Graph, variants: tuple[str, ...] | None = None) -> Outcome:
        """The outcome of one graph."""
        for _, _, outcome in self.run(iter([Job(graph.seed, graph, variants)])):
            return outcome
        raise AssertionError("no outcome")
