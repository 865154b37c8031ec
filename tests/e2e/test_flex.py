"""flex_attention by a kernel of our own: scores that a function changes, and another one masks."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention

import inductor_cpu
from inductor_cpu.kernels.attention import choose
from inductor_cpu.targets.cpu import detect
from tests.cases import cases, in_turns
from tests.e2e.support import compile_counted

Tensor = torch.Tensor

ROWS, HEADS = 200, 4
RANDOM = torch.Generator().manual_seed(0)
SLOPES = torch.rand(HEADS, generator=RANDOM)
BIAS = torch.randn(HEADS, ROWS, ROWS, generator=RANDOM)
TABLE = torch.randn(2 * ROWS, HEADS, generator=RANDOM)
DOCUMENT = torch.randint(0, 3, (ROWS,), generator=RANDOM).sort().values

pytestmark = [
    pytest.mark.skipif(
        choose(torch.float32, detect()).kernel is None,
        reason="this CPU has no instruction set with an attention kernel",
    ),
    pytest.mark.usefixtures("flex_by_operators"),
]

SCORES: dict[str, Callable[..., Any] | None] = {
    "unchanged": None,
    "slopes of heads": lambda s, b, h, q, k: s + SLOPES[h] * (k - q),
    "soft cap": lambda s, b, h, q, k: 20 * torch.tanh(s / 20),
    "bias in memory": lambda s, b, h, q, k: s + BIAS[h, q, k],
    "table of distances": lambda s, b, h, q, k: s + TABLE[q - k + ROWS, h],
    "condition": lambda s, b, h, q, k: torch.where(q >= k, s * 0.5, s - 1),
    "batch": lambda s, b, h, q, k: s * (b + 1) + h,
    "infinities": lambda s, b, h, q, k: torch.where(q % 3 == 0, -float("inf"), s),
}
MASKS: dict[str, Callable[..., Any] | None] = {
    "all keys": None,
    "causal": lambda b, h, q, k: q >= k,
    "window": lambda b, h, q, k: (q - k).abs() < 17,
    "documents": lambda b, h, q, k: (q >= k) & (DOCUMENT[q] == DOCUMENT[k]),
    "constant": lambda b, h, q, k: torch.ones((), dtype=torch.bool),
    "prefix of heads": lambda b, h, q, k: (k < 20 * h) | (q >= k),
}
FORMS = [(score, "all keys") for score in SCORES] + [("slopes of heads", mask) for mask in MASKS if mask != "all keys"]
#: Each way to change scores and each mask, together.
TOGETHER = [
    ("unchanged", "all keys"),
    ("infinities", "all keys"),
    ("slopes of heads", "causal"),
    ("soft cap", "window"),
    ("bias in memory", "documents"),
    ("table of distances", "constant"),
    ("condition", "prefix of heads"),
    ("batch", "causal"),
]


def block_mask(mask: str, rows: int = ROWS, keys: int = ROWS) -> BlockMask | None:
    function = MASKS[mask]
    return None if function is None else create_block_mask(function, None, HEADS, rows, keys, device="cpu")


def call(score: str, q: Tensor, k: Tensor, v: Tensor, **kwargs: Any) -> Any:
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")  # eager mode asks to compile it
        return flex_attention(q, k, v, score_mod=SCORES[score], **kwargs)


def operands(dtype: torch.dtype = torch.float32, rows: int = ROWS, keys: int = ROWS) -> tuple[Tensor, Tensor, Tensor]:
    shapes = (2, HEADS, rows, 32), (2, HEADS, keys, 32), (2, HEADS, keys, 48)
    q, k, v = (torch.randn(shape, generator=RANDOM).to(dtype) for shape in shapes)
    return q, k, v


def check(score: str, q: Tensor, k: Tensor, v: Tensor, kernels: int = 1, **kwargs: Any) -> None:
    """One kernel and no call, about as near to fp64 as eager, with its strides."""
    run, reports = compile_counted(lambda *args: call(score, *args, **kwargs))
    result, eager = run(q, k, v), call(score, q, k, v, **kwargs)
    assert [(len(report.kernels), len(report.externs)) for report in reports] == [(kernels, 0)]
    assert (result.dtype, result.stride()) == (eager.dtype, eager.stride())
    exact = call(score, q.double(), k.double(), v.double(), **kwargs)
    scale = exact.square().mean().sqrt()
    error, allowed = ((x - exact).square().mean().sqrt() / scale for x in (result, eager))
    assert error <= 1.5 * allowed + 2e-7
    if score == "infinities":  # rows without any key
        assert not result[:, :, ::3].any()


def test_the_reference_is_eager_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    given, blocks = operands(), block_mask("window")
    reference = call("slopes of heads", *given, block_mask=blocks)
    monkeypatch.undo()
    assert torch.equal(call("slopes of heads", *given, block_mask=blocks), reference)


@pytest.mark.parametrize(("score", "mask"), cases(TOGETHER, [form for form in FORMS if form not in TOGETHER]))
def test_scores_are_changed_and_masked_as_in_eager_mode(score: str, mask: str) -> None:
    check(score, *operands(), block_mask=block_mask(mask))


@pytest.mark.parametrize("options", [{"cpp.simdlen": 256}, {"debug_interpret": True}, {"cpp.threads": 2}], ids=str)
def test_other_vectors_threads_and_the_interpreter_agree(options: dict[str, Any]) -> None:
    with inductor_cpu.config.patch(options):
        for score, mask in (("table of distances", "documents"), ("soft cap", "window")):
            kernels = 0 if "debug_interpret" in options else 1
            check(score, *operands(), kernels=kernels, block_mask=block_mask(mask))


@pytest.mark.parametrize("dtype", cases([torch.bfloat16], [torch.float16]))
def test_scores_of_low_precision_are_floats(dtype: torch.dtype) -> None:
    check("slopes of heads", *operands(dtype), block_mask=block_mask("causal"))


@pytest.mark.parametrize(("size", "masked"), in_turns([(1, 200), (7, 33), (130, 1), (33, 200)], [False, True]), ids=str)
def test_remainders_of_rows_and_keys(size: tuple[int, int], masked: bool) -> None:
    rows, keys = size
    if masked:
        check("unchanged", *operands(rows=rows, keys=keys), block_mask=block_mask("window", rows, keys), scale=-0.7)
    else:
        check("bias in memory", *operands(rows=rows, keys=keys))


KEYS = 1100


@pytest.mark.parametrize(
    ("rows", "number", "shared"),
    # In every run each mask once with heads that share keys, for one row and for two.
    cases([(1, 0, 4), (2, 1, 2)], [(1, 1, 2), (2, 0, 2), (2, 1, 1), (1, 0, 1), (2, 1, 4)]),
)
def test_few_rows_read_a_long_cache_of_keys(rows: int, number: int, shared: int) -> None:
    """Rows at the end of the keys; those of the first blocks are outside of the window, and for one head all are."""
    masks: list[Callable[..., Any]] = [
        lambda b, h, q, k: (q + KEYS - rows >= k) & (q + KEYS - rows - k < 300),
        lambda b, h, q, k: (k > 600) & (h != 1),
    ]
    blocks = create_block_mask(masks[number], None, HEADS, rows, KEYS, device="cpu")
    q, k, v = operands(rows=rows, keys=KEYS)
    check("batch", q, k[:, ::shared], v[:, ::shared], block_mask=blocks, enable_gqa=True)


@pytest.mark.parametrize("rows", cases([1], [2]))
def test_few_rows_read_a_long_cache_of_keys_of_low_precision(rows: int) -> None:
    check("soft cap", *operands(torch.bfloat16, rows=rows, keys=KEYS))


def test_heads_and_batches_share_keys() -> None:
    q, k, v = operands()
    check("batch", q, k[:, :2], v[:, :2], enable_gqa=True)
    causal = create_block_mask(lambda b, h, q, k: q >= k + b, 2, None, ROWS, ROWS, device="cpu")
    check("batch", q, k[:1], v[:1], block_mask=causal)


def test_transposed_operands_are_read_where_they_lie() -> None:
    q, k, v = (x.transpose(1, 2).contiguous().transpose(1, 2) for x in operands())
    check("slopes of heads", q, k, v, block_mask=block_mask("causal"))


def test_one_compile_serves_all_sizes() -> None:
    compiled = torch.compile(lambda *args: call("slopes of heads", *args), backend="icpu", dynamic=True)
    for rows, keys in ((40, 50), (64, 70), (17, 129)):
        q, k, v = operands(rows=rows, keys=keys)
        torch.testing.assert_close(compiled(q, k, v), call("slopes of heads", q, k, v), rtol=1e-4, atol=1e-5)


def test_a_number_that_changes_from_call_to_call_is_an_argument_of_the_kernel() -> None:
    q, k, v = operands()

    def capped(q: Tensor, k: Tensor, v: Tensor, cap: float, width: int) -> Tensor:
        def score(s: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
            return torch.where((i - j).abs() < width, s * (cap * 2) + cap * (i - j), -cap)

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result: Tensor = flex_attention(q, k, v, score_mod=score)
        return result

    run, reports = compile_counted(capped)
    for cap, width in ((0.5, 7), (0.75, 9), (1.5, 11)):
        exact = capped(q.double(), k.double(), v.double(), cap, width)
        torch.testing.assert_close(run(q, k, v, cap, width).double(), exact, rtol=2e-5, atol=2e-5)
    # Dynamo takes each number for a constant first, and for one that changes from its second value on.
    assert [(len(report.kernels), len(report.externs)) for report in reports] == [(1, 0)] * 2


@pytest.mark.parametrize(("sizes", "number"), in_turns([128, (64, 256), (33, 57)], [0, 1]), ids=str)
def test_blocks_of_keys_that_no_list_has_are_left_out(sizes: int | tuple[int, int], number: int) -> None:
    """The keys of the first part may be among those left out, and a whole block of rows may see nothing."""
    masks: list[Callable[..., Any]] = [
        lambda b, h, q, k: (k >= q) | (q >= 600) & (k < 100),
        lambda b, h, q, k: (q // 256 == k // 256) & (q < 500),
    ]
    rows = 1100 if sizes == (64, 256) else 700
    q, k, v = (x[:1, :2] for x in operands(rows=rows, keys=rows))
    blocks = create_block_mask(masks[number], None, None, rows, rows, device="cpu", BLOCK_SIZE=sizes)
    check("soft cap", q, k, v, block_mask=blocks)


def test_lists_say_where_to_look() -> None:
    """A mask of blocks alone: torch's eager mode reads none of its lists, its kernels do."""
    q, k, v = operands(rows=256, keys=256)
    counts, numbers = torch.tensor([[[1, 2]]], dtype=torch.int32), torch.tensor([[[[1, 0], [1, 0]]]], dtype=torch.int32)
    blocks = BlockMask.from_kv_blocks(counts, numbers, BLOCK_SIZE=128)
    compiled = torch.compile(lambda *args: call("unchanged", *args, block_mask=blocks), backend="icpu")
    first = call("unchanged", q[:, :, :128], k[:, :, 128:], v[:, :, 128:])
    torch.testing.assert_close(compiled(q, k, v), torch.cat([first, call("unchanged", q[:, :, 128:], k, v)], 2))


def test_largest_scores_are_left_to_torch() -> None:
    """The operator has them; torch's function refuses to give them on CPUs."""
    q, k, v = operands(rows=20, keys=30)
    mask = create_block_mask(lambda b, h, q, k: q < k + 20, None, None, 20, 30, device="cpu").as_tuple()

    def function(q: Tensor, k: Tensor, v: Tensor) -> Any:
        return torch.ops.higher_order.flex_attention(q, k, v, lambda s, b, h, i, j: s - i, mask, 0.5, {})[::2]

    with torch.no_grad():
        compiled = torch.compile(function, backend="icpu")
        torch.testing.assert_close(compiled(q, k, v), function(q, k, v))
        assert "its largest scores are a result" in str(inductor_cpu.explain(compiled, q, k, v))


def test_a_function_that_needs_more_than_one_score_is_left_to_torch() -> None:
    def function(q: Tensor, k: Tensor, v: Tensor) -> Any:
        return flex_attention(q, k, v, score_mod=lambda s, b, h, i, j: s + BIAS[h, i].sum())

    q, k, v = operands(rows=20, keys=30)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compiled = torch.compile(function, backend="icpu")
        torch.testing.assert_close(compiled(q, k, v), function(q, k, v))
        assert "which is more than one element's value" in str(inductor_cpu.explain(compiled, q, k, v))


def test_a_function_with_a_tensor_of_its_own_is_right() -> None:
    def function(q: Tensor, k: Tensor, v: Tensor) -> Any:
        return flex_attention(q, k, v, score_mod=lambda s, b, h, i, j: s * torch.tensor([0.5, 2.0])[h % 2])

    q, k, v = operands(rows=20, keys=30)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.testing.assert_close(torch.compile(function, backend="icpu")(q, k, v), function(q, k, v))


def test_an_index_that_is_out_of_range_is_an_error() -> None:
    q, k, v = operands(rows=ROWS, keys=ROWS + 1)
    with pytest.raises(IndexError):
        torch.compile(lambda *args: call("bias in memory", *args), backend="icpu")(q, k, v)
