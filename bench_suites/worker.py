"""`python -m bench_suites.worker JOB.json RESULT.json`: one model in this process, for the supervisor.

The result goes to a file, because models print.
"""

from __future__ import annotations

import ctypes
import json
import signal
import sys
from pathlib import Path

import torch

from bench_suites.execute import run_job
from bench_suites.job import Job

PR_SET_PDEATHSIG = 1


def main(job_path: str, result_path: str) -> None:
    """Run the job and write its result, whole or not at all."""
    _end_with_parent()
    job = Job.of(json.loads(Path(job_path).read_text()))
    if job.threads:
        torch.set_num_threads(job.threads)
    result = run_job(job)
    partial = Path(result_path + ".partial")
    partial.write_text(json.dumps(result))
    partial.rename(result_path)


def _end_with_parent() -> None:
    """Let the kernel end this process when its supervisor is killed, where it can."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


if __name__ == "__main__":
    main(*sys.argv[1:3])
