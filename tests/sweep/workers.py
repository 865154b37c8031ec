"""Cases in processes of their own: a crash or a hang of one case is its row and costs a process."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import time
import traceback
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess

from tests.sweep.check import check
from tests.sweep.rows import Case, Row

#: Cases after which a process is replaced: loaded kernels and Dynamo's caches only grow.
CASES_PER_PROCESS = 300


@dataclass
class _Worker:
    process: BaseProcess
    pipe: Connection
    served: int = 0
    case: Case | None = None
    since: float = 0.0


class Workers:
    """Processes that check cases, each limited to `seconds` a case and `most` calls (0: all)."""

    def __init__(self, processes: int, seconds: float, most: int, backend: str) -> None:
        self.processes, self.seconds, self.most, self.backend = processes, seconds, most, backend
        # The server imports the database once; what it forks starts at once, and it never runs a kernel itself.
        self.context = multiprocessing.get_context("forkserver")
        self.context.set_forkserver_preload(["tests.sweep.check"])

    def rows(self, cases: Iterable[Case], deadline: float) -> Iterator[Row]:
        """One row a case, as they are done; no case starts after `deadline` (time.monotonic)."""
        todo = iter(cases)
        workers = [self._start() for _ in range(self.processes)]
        try:
            while True:
                for number, worker in enumerate(workers):
                    if worker.case is None and time.monotonic() < deadline and (case := next(todo, None)) is not None:
                        workers[number] = self._give(worker, case)
                busy = [worker for worker in workers if worker.case is not None]
                if not busy:
                    return
                wait([worker.pipe for worker in busy], timeout=1.0)
                for number, worker in enumerate(workers):
                    if worker.case is not None and (row := self._row(worker)) is not None:
                        yield row
                        worker.case = None
                        if row.status in ("crash", "timeout"):
                            _kill(worker)
                            workers[number] = self._start()
        finally:
            for worker in workers:
                _kill(worker)

    def _start(self) -> _Worker:
        ours, theirs = self.context.Pipe()
        process = self.context.Process(target=_serve, args=(theirs, self.most, self.backend), daemon=True)
        process.start()
        theirs.close()
        return _Worker(process, ours)

    def _give(self, worker: _Worker, case: Case) -> _Worker:
        if worker.served >= CASES_PER_PROCESS:
            _kill(worker)
            worker = self._start()
        worker.case, worker.since, worker.served = case, time.monotonic(), worker.served + 1
        with contextlib.suppress(BrokenPipeError):  # seen as a crash
            worker.pipe.send(case)
        return worker

    def _row(self, worker: _Worker) -> Row | None:
        """The row of a worker's case if it is done, crashed or late."""
        assert worker.case is not None
        spent = time.monotonic() - worker.since
        try:
            if worker.pipe.poll():
                row = worker.pipe.recv()
                assert isinstance(row, Row)
                return row
        except (EOFError, ConnectionResetError):
            worker.process.join()
            return Row(worker.case, "crash", seconds=spent, detail=_how_it_ended(worker.process.exitcode))
        if spent > self.seconds:
            return Row(worker.case, "timeout", seconds=spent, detail=f"longer than {self.seconds:.0f} s")
        return None


def _how_it_ended(code: int | None) -> str:
    if code is not None and code < 0:
        return f"killed by {signal.Signals(-code).name}"
    return f"ended with code {code}"


def _kill(worker: _Worker) -> None:
    """End the process and the compilers that it runs."""
    worker.pipe.close()
    if worker.process.pid is not None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(worker.process.pid, signal.SIGKILL)
    worker.process.kill()
    worker.process.join()


def _serve(pipe: Connection, most: int, backend: str) -> None:
    os.setsid()
    while True:
        try:
            case = pipe.recv()
        except EOFError:
            return
        try:
            row = check(case, most, backend)
        except Exception:
            row = Row(case, "error", detail=f"the sweep itself: {traceback.format_exc(limit=-3)[-500:]}")
        pipe.send(row)
