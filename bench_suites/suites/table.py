"""All suites by name."""

from __future__ import annotations

from collections.abc import Mapping

from bench_suites.suites.case import Row, Suite
from bench_suites.suites.gemm import GEMM
from bench_suites.suites.hugging_face import HUGGING_FACE
from bench_suites.suites.kernels import KERNELS
from bench_suites.suites.odd import ODD
from bench_suites.suites.timm_models import TIMM
from bench_suites.suites.torchbench import TORCHBENCH

SUITES: Mapping[str, Suite] = {s.name: s for s in (TORCHBENCH, HUGGING_FACE, TIMM, KERNELS, GEMM)}

ALL = tuple(SUITES)


def find(suite: str, model: str) -> tuple[Suite, Row]:
    """A suite and one of its rows. Raises KeyError."""
    found = ODD if suite == ODD.name else SUITES[suite]
    for row in found.rows:
        if row.name == model:
            return found, row
    raise KeyError(f"{suite} has no model {model!r}")
