"""Reductions, scans, sorting, searching."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from bench_suites.layers.row import Layer, function, integers, positive

_SHAPE = (256, 1024)


def _both(name: str, call: Callable[[torch.Tensor, int], Any], **options: bool) -> tuple[Layer, ...]:
    """Over rows and over columns."""
    return (
        function(f"{name}_rows", lambda x: call(x, -1), _SHAPE, **options),
        function(f"{name}_columns", lambda x: call(x, 0), _SHAPE, **options),
    )


_ROWS_OF_BOTH: tuple[tuple[str, Callable[[torch.Tensor, int], Any], bool], ...] = (
    ("sum", torch.sum, True),
    ("mean", torch.mean, True),
    ("prod", torch.prod, True),
    ("amax", torch.amax, True),
    ("max", lambda x, d: torch.max(x, d)[0], True),
    ("argmax", torch.argmax, False),
    ("var", torch.var, True),
    ("std", torch.std, True),
    ("norm", lambda x, d: torch.linalg.vector_norm(x, dim=d), True),
    ("norm_1", lambda x, d: torch.linalg.vector_norm(x, 1, dim=d), True),
    ("norm_3", lambda x, d: torch.linalg.vector_norm(x, 3, dim=d), True),
    ("logsumexp", torch.logsumexp, True),
    ("any", lambda x, d: (x > 3).any(d), False),
    ("count_nonzero", lambda x, d: torch.count_nonzero(x, d), False),
    ("cumsum", torch.cumsum, True),
    ("cumprod", torch.cumprod, True),
    ("cummax", lambda x, d: torch.cummax(x, d)[0], True),
    ("logcumsumexp", torch.logcumsumexp, True),
    ("sort", lambda x, d: torch.sort(x, dim=d, stable=True)[0], True),
    ("argsort", lambda x, d: torch.argsort(x, dim=d, stable=True), False),
    ("topk_8", lambda x, d: torch.topk(x, 8, d)[0], True),
    ("kthvalue", lambda x, d: torch.kthvalue(x, 5, d)[0], True),
    ("median", lambda x, d: torch.median(x, d)[0], True),
    ("mode", lambda x, d: torch.mode(x, d)[0], False),
    ("diff", lambda x, d: torch.diff(x, dim=d), True),
    ("flip", lambda x, d: torch.flip(x, (d,)), True),
    ("roll", lambda x, d: torch.roll(x, 7, d), True),
)

ROWS = (
    *(row for name, call, trained in _ROWS_OF_BOTH for row in _both(name, call, trained=trained)),
    function("sum_all", torch.sum, _SHAPE),
    function("mean_all", torch.mean, (64, 64, 56, 56)),
    function("max_all", torch.max, _SHAPE),
    function("argmax_all", torch.argmax, _SHAPE, trained=False),
    function("var_mean_channels", lambda x: torch.var_mean(x, (0, 2, 3)), (4, 64, 28, 28), trained=False),
    function("sum_middle", lambda x: x.sum(1), (64, 64, 64)),
    function("sum_outer", lambda x: x.sum((0, 2)), (64, 64, 64)),
    function("quantile", lambda x: torch.quantile(x, 0.9, dim=-1), _SHAPE, low_precision=False),
    function("trace", torch.trace, (512, 512)),
    function(
        "unique_consecutive", lambda i: (i[1:] != i[:-1]).sum(), integers(4, 100000), trained=False, low_precision=False
    ),
    function(
        "bincount", lambda i: torch.bincount(i, minlength=100), integers(100, 20000), trained=False, low_precision=False
    ),
    function("histc", lambda x: torch.histc(x, 64, -3, 3), (20000,), trained=False, low_precision=False),
    function("searchsorted", lambda s, x: torch.searchsorted(s.sort()[0], x), (1024,), (20000,), trained=False),
    function(
        "bucketize",
        lambda x: torch.bucketize(x, torch.linspace(-2, 2, 31)),
        (100000,),
        trained=False,
        low_precision=False,
    ),
    function("multinomial", lambda p: torch.multinomial(p, 1), positive(64, 1000), trained=False, random=True),
    function("isclose", lambda x, y: torch.isclose(x, y).all(), _SHAPE, _SHAPE, trained=False),
    function("cov", torch.cov, (64, 512), low_precision=False),
    function("corrcoef", torch.corrcoef, (64, 512), low_precision=False),
    function("trapezoid", torch.trapezoid, _SHAPE),
)
