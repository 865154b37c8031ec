"""Operations that fold dimensions, softmax and scans."""

from __future__ import annotations

from tests.fuzz.rows.row import Row, along, anything, both, floats, integers, numbers, one, over, whole

KEEP = {"keep": (False, True)}
LARGEST = {"largest": (False, True)}


def _filled(v: object) -> bool:
    return v.tensor.numel() > 0 and min(v.second, default=1) > 0  # type: ignore[attr-defined]


ROWS: tuple[Row, ...] = (
    Row("sum", "{0}.sum({dims}, keepdim={keep})", over, anything, KEEP, keeps=True, reorders=True, weight=5),
    Row("sum_all", "{0}.sum()", one, anything, keeps=True, reorders=True),
    Row(
        "sum_dtype",
        "{0}.sum({dims}, dtype={dtype})",
        over,
        anything,
        {"dtype": ("float32", "float64")},
        keeps=True,
        reorders=True,
    ),
    Row("mean", "{0}.mean({dims}, keepdim={keep})", over, floats, KEEP, reorders=True, weight=4),
    Row("mean_all", "{0}.mean()", one, both(floats, _filled), reorders=True),
    Row("amax", "{0}.amax({dims}, keepdim={keep})", over, numbers, KEEP, keeps=True, weight=3),
    Row("amin", "{0}.amin({dims}, keepdim={keep})", over, numbers, KEEP, keeps=True, weight=2),
    Row("prod", "({0} * 0.5 + 1).prod({dim}, keepdim={keep})", along, floats, KEEP, reorders=True),
    Row("prod_int", "{0}.prod({dim})", along, whole, keeps=True),
    Row("argmax", "{0}.argmax({dim}, keepdim={keep})", along, numbers, KEEP, keeps=True, needs_exact=True, weight=2),
    Row("argmin", "{0}.argmin({dim}, keepdim={keep})", along, numbers, KEEP, keeps=True, needs_exact=True),
    Row("argmax_all", "{0}.argmax()", one, both(numbers, _filled), keeps=True, needs_exact=True),
    Row("max_values", "{0}.max({dim}, keepdim={keep})[0]", along, numbers, KEEP, keeps=True, needs_exact=True),
    Row("max_indices", "{0}.max({dim}, keepdim={keep})[1]", along, numbers, KEEP, keeps=True, needs_exact=True),
    Row("min_indices", "{0}.min({dim}, keepdim={keep})[1]", along, numbers, KEEP, keeps=True, needs_exact=True),
    Row("max_all", "{0}.max()", one, both(numbers, _filled), keeps=True),
    Row("aminmax", "torch.aminmax({0}, dim={dim})[{k}]", along, numbers, {"k": (0, 1)}, keeps=True),
    Row(
        "var",
        "{0}.var({dims}, correction={correction}, keepdim={keep})",
        over,
        floats,
        {**KEEP, "correction": (0, 0, 1)},
        reorders=True,
        weight=2,
    ),
    Row("std", "({0}.var({dims}, correction=0, keepdim={keep}) + 0.1).sqrt()", over, floats, KEEP, reorders=True),
    Row("var_mean", "torch.var_mean({0}, {dims}, correction=0)[{k}]", over, floats, {"k": (0, 1)}, reorders=True),
    Row("any", "{0}.any({dim}, keepdim={keep})", along, anything, KEEP, keeps=True, needs_exact=True),
    Row("all", "{0}.all({dim}, keepdim={keep})", along, anything, KEEP, keeps=True, needs_exact=True),
    Row("any_all", "{0}.any()", one, anything, keeps=True, needs_exact=True),
    Row("count", "torch.count_nonzero({0}, {dim})", along, anything, keeps=True, needs_exact=True),
    Row("logsumexp", "torch.logsumexp({0}, {dims}, keepdim={keep})", over, floats, KEEP, reorders=True, weight=2),
    Row(
        "vector_norm",
        "torch.linalg.vector_norm({0}, {ord}, dim={dims}, keepdim={keep})",
        over,
        floats,
        {**KEEP, "ord": (1, 2, 3)},
        reorders=True,
    ),
    Row("nansum", "{0}.nansum({dims})", over, floats, keeps=True, reorders=True),
    Row("softmax", "torch.softmax({0}, {dim})", along, floats, reorders=True, weight=4),
    Row(
        "softmax_f32", "torch.softmax({0}, {dim}, dtype={dtype})", along, floats, {"dtype": ("float32",)}, reorders=True
    ),
    Row("log_softmax", "torch.log_softmax({0}, {dim})", along, floats, reorders=True, weight=2),
    Row("softmin", "F.softmin({0}, {dim})", along, floats, reorders=True),
    Row("center", "{0} - {0}.mean({dim}, keepdim=True)", along, floats, reorders=True, weight=2),
    Row("scale_by_max", "{0} / ({0}.abs().amax({dim}, keepdim=True) + 1)", along, floats, weight=2),
    Row("cumsum", "{0}.cumsum({dim})", along, numbers, keeps=True, reorders=True, weight=3),
    Row("cumsum_int", "{0}.cumsum({dim})", along, whole, keeps=True, weight=2),
    Row("cumsum_from_end", "{0}.flip({dim}).cumsum({dim}).flip({dim})", along, numbers, keeps=True, reorders=True),
    Row("cumprod", "({0} * 0.1 + 1).cumprod({dim})", along, floats, reorders=True, weight=2),
    Row("cumprod_int", "({0} % 3 - 1).cumprod({dim})", along, integers, keeps=True),
    Row("cummax", "{0}.cummax({dim})[{k}]", along, numbers, {"k": (0, 1)}, keeps=True, needs_exact=True, weight=2),
    Row("cummin", "{0}.cummin({dim})[{k}]", along, numbers, {"k": (0, 1)}, keeps=True, needs_exact=True, weight=2),
    Row("logcumsumexp", "{0}.logcumsumexp({dim})", along, floats, reorders=True),
    Row("sort", "{0}.sort(dim={dim}, stable=True)[{k}]", along, numbers, {"k": (0, 1)}, keeps=True, needs_exact=True),
    Row(
        "sort_down",
        "{0}.sort(dim={dim}, descending=True, stable=True)[{k}]",
        along,
        numbers,
        {"k": (0, 1)},
        keeps=True,
        needs_exact=True,
    ),
    Row("msort", "torch.msort({0})", one, both(numbers, lambda v: v.rank > 0), keeps=True),
    Row("topk", "{0}.topk(1 + {0}.shape[{dim}] // 3, {dim}, {largest})[0]", along, numbers, LARGEST, keeps=True),
    Row("kthvalue", "{0}.kthvalue(1, {dim}, keepdim={keep})[0]", along, numbers, KEEP, keeps=True, weight=0.5),
    Row("median", "{0}.median({dim}, keepdim={keep})[0]", along, numbers, KEEP, keeps=True, weight=0.5),
    Row("trapezoid", "torch.trapezoid({0}, dim={dim})", along, floats, reorders=True, weight=0.5),
    Row("diff", "torch.diff({0}, dim={dim})", along, numbers, keeps=True, weight=0.5),
    Row("renorm", "torch.renorm({0}, 2, {dim}, 1.5)", along, both(floats, lambda v: v.rank > 1), reorders=True),
    Row("normalize", "F.normalize({0}, dim={dim}, eps=0.1)", along, floats, reorders=True),
    Row("dist", "torch.dist({0}, {0}.flip(0) + 0.5)", one, both(floats, lambda v: v.rank > 0), reorders=True),
    Row("glu", "F.glu({0}.repeat_interleave(2, {dim}), {dim})", along, floats),
)
