"""Blocks of networks on inputs of their own, in the sizes that choose kernels: linears, convolutions, attention."""

from __future__ import annotations

from collections.abc import Callable

from tests.fuzz.graph import Attr
from tests.fuzz.rows.row import Accept, Choice, Chooser, Row, floats

DTYPES = (("float32", "bfloat16", "float16"), (5, 5, 1))
#: Inner and outer sizes of linears: around the blocks of the kernels (16, 32, 48, 64) and far from them.
WIDTHS = (1, 2, 5, 15, 16, 17, 31, 32, 33, 47, 48, 49, 63, 64, 65, 80, 96, 100, 127, 128, 130)
MOST_ROWS = 70
#: Most rows, and widths, of linears whose weight is several panels that threads share.
FEW_ROWS = 34
LONG_WIDTHS = (256, 257, 320, 480, 511, 513)
#: Channels of convolutions around those that are computed by tiles.
CHANNELS = (8, 31, 32, 33, 48, 64)
FILTERS = (5, 16, 32, 100, 127, 128, 130)
#: Factors of an input that a weight takes back. The parts of a float have its exponent minus 8 and 16.
SCALES = (1e-37, 1e-34, 1e-30, 1e-10, 1e10, 1e30, 1e34)
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


def _large(c: Chooser, accept: Accept) -> Choice:
    """Few rows and a weight of many columns or much depth, with a bias."""
    dtype = _dtype(c)
    n, k = c.random.choice(WIDTHS[3:] + LONG_WIDTHS), c.random.choice(LONG_WIDTHS)
    if c.random.random() < 0.5:
        n, k = k, n
    rows, second = c.size(FEW_ROWS)
    args = (
        c.make((rows, k), (second, k), dtype),
        c.make((n, k), (n, k), dtype, weight=True),
        c.make((n,), (n,), dtype, weight=True),
    )
    return Choice(args)


def _scaled(c: Chooser, accept: Accept) -> Choice:
    """Floats and a weight of a linear, and factors whose product is 1: exponents near both ends."""
    k, n = c.random.choice(WIDTHS[3:]), c.random.choice(WIDTHS[3:])
    rows, second = c.size(MOST_ROWS)
    up = c.random.choice(SCALES)
    args = (c.make((rows, k), (second, k), "float32"), c.make((n, k), (n, k), "float32", weight=True))
    return Choice(args, {"up": up, "down": 1 / up})


def _image(groups: bool = False) -> Callable[[Chooser, Accept], Choice]:
    """An image, the weight and bias of a convolution, and two vectors for a batch norm after it."""

    def choose(c: Chooser, accept: Accept) -> Choice:
        dtype, random = _dtype(c), c.random
        count = random.choice([1, 2])
        channels, filters = random.choice(CHANNELS), random.choice(FILTERS)
        parts = random.choice([2, 4, 8]) if groups else 1
        channels, filters = channels // parts * parts, -(-filters // parts) * parts
        kernel = random.choice([1, 3])
        size, second = c.size(9 if kernel == 1 else 7)
        shapes = [(count, channels, n, n) for n in (size, second)]
        weight = (filters, channels // parts, kernel, kernel)
        args = [c.make(shapes[0], shapes[1], dtype), c.make(weight, weight, dtype, weight=True)]
        args += [c.make((filters,), (filters,), dtype, weight=True) for _ in range(3)]
        attrs: dict[str, Attr] = {"stride": random.choice([1, 1, 2]), "padding": kernel // 2, "groups": parts}
        return Choice(tuple(args), attrs)

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
    """An input of (batch, length, width), and the weight and bias of the joint projection. The scale keeps scores to a
    few units: of those in the hundreds the rounding alone changes gradients by more than noise shows."""
    dtype, random = _dtype(c), c.random
    heads, size, width = random.choice([1, 2, 3]), random.choice(HEAD_SIZES[1:6]), random.choice(WIDTHS)
    length, second = c.size(40)
    out = 3 * heads * size
    args = (
        c.make((2, length, width), (2, second, width), dtype),
        c.make((out, width), (out, width), dtype, weight=True),
        c.make((out,), (out,), dtype, weight=True),
    )
    return Choice(args, {"heads": (3, heads, size), "causal": random.random() < 0.5, "scale": 1 / width})


def _row(name: str, text: str, choose: object, weight: float = 1.0) -> Row:
    return Row(name, text, choose, floats, reorders=True, weight=weight)  # type: ignore[arg-type]


_ATTENTION = "F.scaled_dot_product_attention("
_HEADS = ", ".join(f"{{{k}}}.transpose(1, 2)" for k in range(3))
_JOINT = "*F.linear({0}, {1}, {2}).unflatten(-1, {heads}).permute(2, 0, 3, 1, 4).unbind(0), scale={scale}"
_CONV = "F.conv2d({0}, {1}, {2}, stride={stride}, padding={padding}, groups={groups})"
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
    _row("linear_large", "F.linear({0}, {1}, {2})", _large, 2),
    _row("linear_large_gelu", "F.gelu(F.linear({0}, {1}, {2}))", _large),
    _row("linear_scaled", "F.linear({0} * {up}, {1} * {down})", _scaled, 2),
    _row("mm_scaled", "({0} * {up}) @ ({1} * {down}).mT", _scaled),
    _row("conv_tiles", _CONV, _image(), 2),
    _row("conv_tiles_relu", f"F.relu({_CONV})", _image()),
    _row("conv_tiles_groups", _CONV, _image(groups=True)),
    _row("conv_tiles_norm", f"F.batch_norm({_CONV}, {{3}}, {{4}}.abs() + 0.5).relu()", _image(), 2),
    _row("attention_plain", _ATTENTION + "{0}, {1}, {2}, scale={scale})", _attention(), 2),
    _row("attention_causal", _ATTENTION + "{0}, {1}, {2}, is_causal={causal}, scale={scale})", _attention(), 2),
    _row("attention_mask", _ATTENTION + "{0}, {1}, {2}, attn_mask={3}, scale={scale})", _attention("float"), 2),
    _row("attention_choice", _ATTENTION + "{0}, {1}, {2}, attn_mask={3}, scale={scale})", _attention("bool"), 2),
    _row("attention_groups", _ATTENTION + "{0}, {1}, {2}, enable_gqa=True)", _attention(groups=True)),
    _row("attention_heads", _ATTENTION + _HEADS + ", is_causal={causal}).transpose(1, 2).flatten(2)",
         _attention(by_head=True), 2),
    _row("attention_joint", _ATTENTION + _JOINT + ", is_causal={causal}).transpose(1, 2).flatten(2)", _joint, 2),
)  # fmt: skip
