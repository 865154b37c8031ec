"""Blocks of networks on inputs of their own, in the sizes that choose between kernels: chains of linears, attention."""

from __future__ import annotations

from collections.abc import Callable

from tests.fuzz.graph import Attr
from tests.fuzz.rows.row import Accept, Choice, Chooser, Row, floats

DTYPES = (("float32", "bfloat16", "float16"), (5, 5, 1))
#: Inner and outer sizes of linears: around the blocks of the kernels (16, 32, 48, 64) and far from them.
WIDTHS = (1, 2, 5, 15, 16, 17, 31, 32, 33, 47, 48, 49, 63, 64, 65, 80, 96, 100, 127, 128, 130)
MOST_ROWS = 70
HEAD_SIZES = (1, 3, 8, 16, 17, 32, 40, 64)
MOST_ELEMENTS = 12_000

Sizes = tuple[int, ...]


def _dtype(c: Chooser) -> str:
    return c.random.choices(*DTYPES)[0]


def _linears(*widths: str, norm: bool = False) -> Callable[[Chooser, Accept], Choice]:
    """An input of (rows, k), and per entry "kn" a weight of (n, k) and a bias, "kn-" a weight alone. The letters are
    widths."""

    def choose(c: Chooser, accept: Accept) -> Choice:
        dtype = _dtype(c)
        sizes = {letter: c.random.choice(WIDTHS) for letter in sorted({x for pair in widths for x in pair[:2]})}
        rows, second = c.size(MOST_ROWS)
        batch = (2,) if c.random.random() < 0.3 else ()
        k = sizes[widths[0][0]]
        args = [c.make((*batch, rows, k), (*batch, second, k), dtype)]
        shapes: list[Sizes] = [(k,), (k,)] if norm else []
        for pair in widths:
            shapes.append((sizes[pair[1]], sizes[pair[0]]))
            shapes += [] if pair.endswith("-") else [(sizes[pair[1]],)]
        args += [c.make(shape, shape, dtype, weight=True) for shape in shapes]
        return Choice(tuple(args), {"k": k})

    return choose


def _attention(mask: str = "", by_head: bool = False, groups: bool = False) -> Callable[[Chooser, Accept], Choice]:
    """Query, key and value of (batch, heads, length, size), with `by_head` (batch, length, heads, size); with `groups`
    fewer heads of key and value. mask: "", "bool" or "float", of (length, length) or with batch and heads."""

    def choose(c: Chooser, accept: Accept) -> Choice:
        dtype, random = _dtype(c), c.random
        batch, heads, size = random.choice([1, 2]), random.choice([1, 2, 4]), random.choice(HEAD_SIZES)
        most = min(MOST_ROWS, MOST_ELEMENTS // (batch * heads * size))
        queries, keys = c.size(most), c.size(most)
        if random.random() < 0.4:
            keys = queries
        fewer = heads // 2 if groups and heads > 1 else heads
        value_size = size if random.random() < 0.8 else random.choice(HEAD_SIZES[:5])
        args = []
        for length, count, width in ((queries, heads, size), (keys, fewer, size), (keys, fewer, value_size)):
            shapes = [(batch, n, count, width) if by_head else (batch, count, n, width) for n in length]
            args.append(c.make(shapes[0], shapes[1], dtype))
        if mask:
            lead = random.choice([(), (1, 1), (batch, 1), (batch, heads)])
            shapes = [(*lead, q, k) for q, k in zip(queries, keys, strict=True)]
            fill = "integers" if mask == "bool" else "normal"
            args.append(c.make(shapes[0], shapes[1], "bool" if mask == "bool" else dtype, fill))
        attrs: dict[str, Attr] = {"causal": random.random() < 0.5, "scale": random.choice([None, 0.3])}
        return Choice(tuple(args), attrs)

    return choose


def _joint(c: Chooser, accept: Accept) -> Choice:
    """An input of (batch, length, width), and the weight and bias of the joint projection."""
    dtype, random = _dtype(c), c.random
    heads, size, width = random.choice([1, 2, 3]), random.choice(HEAD_SIZES[1:6]), random.choice(WIDTHS)
    length, second = c.size(40)
    out = 3 * heads * size
    args = (
        c.make((2, length, width), (2, second, width), dtype),
        c.make((out, width), (out, width), dtype, weight=True),
        c.make((out,), (out,), dtype, weight=True),
    )
    return Choice(args, {"heads": (3, heads, size), "causal": random.random() < 0.5})


def _row(name: str, text: str, choose: object, weight: float = 1.0) -> Row:
    return Row(name, text, choose, floats, reorders=True, weight=weight)  # type: ignore[arg-type]


_ATTENTION = "F.scaled_dot_product_attention("
_HEADS = ", ".join(f"{{{k}}}.transpose(1, 2)" for k in range(3))
_JOINT = "*F.linear({0}, {1}, {2}).unflatten(-1, {heads}).permute(2, 0, 3, 1, 4).unbind(0)"
_NORMED = "F.layer_norm({0}, ({k},), {1}, {2}, eps=0.01)"

ROWS: tuple[Row, ...] = (
    _row("one_linear", "F.linear({0}, {1}, {2})", _linears("kn"), 2),
    _row("linear_silu", "F.silu(F.linear({0}, {1}, {2}))", _linears("kn")),
    _row("linear_chain", "F.linear(F.relu(F.linear({0}, {1}, {2})), {3}, {4})", _linears("kn", "nm"), 2),
    _row("linear_chain_gelu", "F.linear(F.gelu(F.linear({0}, {1})), {2}, {3})", _linears("kn-", "nm"), 2),
    _row("linear_residual", "{0} + F.linear(F.gelu(F.linear({0}, {1}, {2})), {3}, {4})", _linears("kn", "nk"), 2),
    _row("linear_gated", "F.linear(F.silu(F.linear({0}, {1})) * F.linear({0}, {2}), {3})", _linears("kn-", "kn-", "nm-")),  # noqa: E501
    _row("linear_two", "F.linear({0}, {1}, {2}) * F.linear({0}, {3}, {4}).sigmoid()", _linears("kn", "kn")),
    _row("linear_normed", f"F.linear({_NORMED}, {{3}}, {{4}})", _linears("kn", norm=True)),
    _row("linear_normed_after", "F.rms_norm({0} + F.linear({0}, {1}, {2}), ({k},), eps=0.01)", _linears("kk")),
    _row("linear_softmax", "F.softmax(F.linear({0}, {1}, {2}), -1)", _linears("kn")),
    _row("attention_plain", _ATTENTION + "{0}, {1}, {2}, scale={scale})", _attention(), 2),
    _row("attention_causal", _ATTENTION + "{0}, {1}, {2}, is_causal={causal}, scale={scale})", _attention(), 2),
    _row("attention_mask", _ATTENTION + "{0}, {1}, {2}, attn_mask={3}, scale={scale})", _attention("float"), 2),
    _row("attention_choice", _ATTENTION + "{0}, {1}, {2}, attn_mask={3}, scale={scale})", _attention("bool"), 2),
    _row("attention_groups", _ATTENTION + "{0}, {1}, {2}, enable_gqa=True)", _attention(groups=True)),
    _row("attention_heads", _ATTENTION + _HEADS + ", is_causal={causal}).transpose(1, 2).flatten(2)",
         _attention(by_head=True), 2),
    _row("attention_joint", _ATTENTION + _JOINT + ", is_causal={causal}).transpose(1, 2).flatten(2)", _joint, 2),
)  # fmt: skip
