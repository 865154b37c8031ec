"""flex_attention that returns the logarithms of its sums, too, by a kernel of our own."""

from __future__ import annotations

import math
import warnings
from typing import Any

import pytest
import torch
from torch.nn.attention.flex_attention import AuxRequest, create_block_mask, flex_attention

import inductor_cpu
from inductor_cpu.kernels.attention import choose
from inductor_cpu.targets.cpu import detect
from tests.cases import cases, in_turns
from tests.e2e.support import compile_counted
from tests.e2e.test_flex import HEADS, block_mask, call, operands

Tensor = torch.Tensor

pytestmark = [
    pytest.mark.skipif(
        choose(torch.float32, detect()).kernel is None,
        reason="this CPU has no instruction set with an attention kernel",
    ),
    pytest.mark.usefixtures("flex_by_operators"),
]


def both(score: str, q: Tensor, k: Tensor, v: Tensor, **kwargs: Any) -> tuple[Tensor, Tensor]:
    """The result and its sums; that the argument's name is an old one is no matter."""
    out, sums = call(score, q, k, v, return_lse=True, **kwargs)
    return out, sums


def check(score: str, q: Tensor, k: Tensor, v: Tensor, kernels: int = 2, **kwargs: Any) -> None:
    """Two kernels, one of them for the base of the logarithms, no call, and both results as near to fp64 as eager's."""
    run, reports = compile_counted(lambda *args: both(score, *args, **kwargs))
    results, eager = run(q, k, v), both(score, q, k, v, **kwargs)
    assert [(len(report.kernels), len(report.externs)) for report in reports] == [(kernels, 0)]
    for result, other, exact in zip(
        results, eager, both(score, q.double(), k.double(), v.double(), **kwargs), strict=True
    ):
        assert (result.dtype, result.shape, result.stride()) == (other.dtype, other.shape, other.stride())
        finite = exact.isfinite()
        assert torch.equal(result[~finite].double(), exact[~finite])
        scale = exact[finite].square().mean().sqrt()
        error, allowed = ((x - exact)[finite].square().mean().sqrt() / scale for x in (result, other))
        assert error <= 1.5 * allowed + 2e-7


FORMS = [("unchanged", "all keys"), ("infinities", "all keys"), ("bias in memory", "documents")]


@pytest.mark.parametrize(("score", "mask"), FORMS)
def test_sums_of_changed_and_masked_scores_are_as_in_eager_mode(score: str, mask: str) -> None:
    check(score, *operands(), block_mask=block_mask(mask))


@pytest.mark.parametrize("options", [{"cpp.simdlen": 256}, {"debug_interpret": True}, {"cpp.threads": 2}], ids=str)
def test_other_vectors_threads_and_the_interpreter_agree(options: dict[str, Any]) -> None:
    with inductor_cpu.config.patch(options):
        kernels = 0 if "debug_interpret" in options else 2
        check("infinities", *operands(), kernels=kernels, block_mask=block_mask("documents"))


@pytest.mark.parametrize(
    ("score", "dtype"), cases([("slopes of heads", torch.bfloat16)], [("infinities", torch.float16)]), ids=str
)
def test_sums_of_low_precision_are_floats(dtype: torch.dtype, score: str) -> None:
    """Also where the weights that meet the values are rounded, and one key has nearly all of the weight."""
    for factor in (1, 20):
        q, k, v = operands(dtype)
        check(score, q * factor, k, v, block_mask=block_mask("causal"))


@pytest.mark.parametrize(("rows", "threads"), in_turns([1, 2], [3, 1]))
def test_few_rows_read_a_long_cache_of_keys(rows: int, threads: int) -> None:
    """Threads share the keys of a head, of which some see nothing; one head sees no key at all."""
    keys, before = 1100, torch.get_num_threads()
    q, k, v = operands(rows=rows, keys=keys)
    blocks = create_block_mask(lambda b, h, q, k: (k > 600) & (h != 1), None, HEADS, rows, keys, device="cpu")
    torch.set_num_threads(threads)
    try:
        # Each of these for one row and for two, with one thread and with three; not in all combinations.
        if (threads == 1) == (rows == 1):
            check("batch", q, k, v, block_mask=blocks)
            check("soft cap", *operands(torch.bfloat16, rows=rows, keys=keys))
        else:
            check("batch", q, k[:, ::4], v[:, ::4], block_mask=blocks, enable_gqa=True)
    finally:
        torch.set_num_threads(before)


def test_rows_that_see_no_key_have_the_logarithm_of_zero() -> None:
    """Rows of whole blocks that no list has, rows that the function hides, and both beside others."""
    rows = 700
    for mask in (lambda b, h, q, k: (q // 256 == k // 256) & (q < 500), lambda b, h, q, k: (q % 3 > 0) & (k > 300)):
        blocks = create_block_mask(mask, None, None, rows, rows, device="cpu", BLOCK_SIZE=(64, 57))
        check("soft cap", *(x[:1, :2] for x in operands(rows=rows, keys=rows)), block_mask=blocks)


def test_infinite_and_undefined_scores_spread_to_their_row_alone() -> None:
    q, k, v = operands()
    q[0, 1, 5, 3], q[0, 2, 7, 3] = math.inf, math.nan
    k[0, 1:3, :, 3] = 1
    run, _ = compile_counted(lambda *args: both("unchanged", *args))
    for result, eager in zip(run(q, k, v), both("unchanged", q, k, v), strict=True):
        torch.testing.assert_close(result, eager, rtol=1e-4, atol=1e-5, equal_nan=True)


def test_one_compile_serves_all_sizes() -> None:
    compiled = torch.compile(lambda *args: both("slopes of heads", *args), backend="icpu", dynamic=True)
    for rows, keys in ((40, 50), (64, 70), (17, 129), (2, 300)):
        q, k, v = operands(rows=rows, keys=keys)
        torch.testing.assert_close(compiled(q, k, v), both("slopes of heads", q, k, v), rtol=1e-4, atol=1e-5)


def test_parts_of_the_keys_are_put_together_by_their_sums() -> None:
    """What sums are for: attention to keys in two places, added up in the same graph."""

    def function(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        parts = [
            flex_attention(q, k[:, :, some], v[:, :, some], return_aux=AuxRequest(lse=True))
            for some in (slice(0, 90), slice(90, None))
        ]
        weights = torch.stack([aux.lse for _, aux in parts]).softmax(0).unsqueeze(-1)
        return sum(out * weight for (out, _), weight in zip(parts, weights, strict=True))

    q, k, v = operands()
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run, reports = compile_counted(function)
        torch.testing.assert_close(run(q, k, v), call("unchanged", q, k, v), rtol=1e-4, atol=1e-5)
    assert [len(report.externs) for report in reports] == [0]


def test_largest_scores_are_refused_by_torch_itself() -> None:
    def function(q: Tensor, k: Tensor, v: Tensor) -> Any:
        return call("unchanged", q, k, v, return_aux=AuxRequest(max_scores=True))

    q, k, v = operands(rows=20, keys=30)
    with pytest.raises(NotImplementedError):
        function(q, k, v)
    with pytest.raises(Exception, match="max scores is not supported"):
        torch.compile(function, backend="icpu")(q, k, v)
