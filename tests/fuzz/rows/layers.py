"""Operations of neural networks: products, convolutions, norms, pooling, attention, losses."""

from __future__ import annotations

from tests.fuzz.graph import Attr
from tests.fuzz.rows.row import Accept, Choice, Chooser, Row, Value, both, dtype_name, filled, floats, rank

WIDTHS = (1, 3, 7, 8, 15, 16, 17, 31, 33)

#: What scores are made of. Where they are in the hundreds, a rounding of them is worth many of the result, and noise
#: does not show it in a row that one key dominates.
_SCORED = "{0}.clamp(-4, 4)"


def _fixed(v: Value, *dims: int) -> bool:
    """Dimensions that have the same size at both calls, as weights need."""
    return all(v.tensor.shape[d] == v.second[d] for d in dims)


def _weight(c: Chooser, a: Value, *shape: int) -> str:
    return c.make(shape, shape, dtype_name(a), weight=True)


def _layout(c: Chooser, channels: int) -> tuple[int, dict[str, Attr]]:
    """The length of a bias, and what `_BIAS` makes of it: all of it, every other element, or one for all channels."""
    length, step = c.random.choice([(channels, 1)] * 4 + [(2 * channels, 2), (1, 1)])
    return length, {"step": step, "channels": channels}


_BIAS = "{2}[::{step}].expand({channels})"
_LINEAR = "F.linear({0}, {1}[:, ::{gap}], " + _BIAS


def _linear(bias: bool):  # type: ignore[no-untyped-def]
    def choose(c: Chooser, accept: Accept) -> Choice | None:
        a = c.value(both(accept, rank(1, 4), lambda v: _fixed(v, -1)))
        if a is None:
            return None
        n = c.random.choice(WIDTHS)
        gap = c.random.choice([1, 1, 1, 2])
        names, attrs = (a.name, _weight(c, a, n, a.tensor.shape[-1] * gap)), {"gap": gap}
        if not bias:
            return Choice(names, attrs)
        length, layout = _layout(c, n)
        return Choice((*names, _weight(c, a, length)), {**attrs, **layout})

    return choose


def _product(low: int, high: int, vector: bool = False):  # type: ignore[no-untyped-def]
    """Two matrices (or stacks of them, or a matrix and a vector) that can be multiplied."""

    def choose(c: Chooser, accept: Accept) -> Choice | None:
        a = c.value(both(accept, rank(low, high)))
        if a is None:
            return None

        def accept_right(b: Value) -> bool:
            return (
                b.rank == (1 if vector else a.rank)
                and b.tensor.dtype == a.tensor.dtype
                and (b.tensor.shape[-1 if vector else -2], b.second[-1 if vector else -2])
                == (a.tensor.shape[-1], a.second[-1])
                and b.tensor.shape[:-2] == (() if vector else a.tensor.shape[:-2])
                and b.second[:-2] == (() if vector else a.second[:-2])
            )

        b = c.value(accept_right)
        if b is not None and c.random.random() < 0.7:
            return Choice((a.name, b.name))
        n = [] if vector else [c.random.choice(WIDTHS)]
        lead = () if vector else tuple(a.tensor.shape[:-2])
        lead_second = () if vector else a.second[:-2]
        other = c.make(
            (*lead, a.tensor.shape[-1], *n), (*lead_second, a.second[-1], *n), dtype_name(a), weight=a.rank == 2
        )
        return Choice((a.name, other))

    return choose


def _addmm(c: Chooser, accept: Accept) -> Choice | None:
    a = c.value(both(accept, rank(2, 2), lambda v: _fixed(v, -1)))
    if a is None:
        return None
    n = c.random.choice(WIDTHS)
    start = (
        _weight(c, a, n) if c.random.random() < 0.6 else c.make((a.tensor.shape[0], n), (a.second[0], n), dtype_name(a))
    )
    return Choice((a.name, _weight(c, a, a.tensor.shape[1], n), start))


def _square(c: Chooser, accept: Accept) -> Choice | None:
    a = c.value(both(accept, rank(2, 4)))
    return None if a is None else Choice((a.name,))


def _conv(  # type: ignore[no-untyped-def]
    dims: int, transposed: bool = False, depthwise: bool = False, residual: bool = False
):
    def choose(c: Chooser, accept: Accept) -> Choice | None:
        a = c.value(both(accept, rank(dims + 2, dims + 2), filled, lambda v: _fixed(v, 1)))
        if a is None:
            if c.random.random() < 0.6:
                return None
            sizes = tuple(c.random.choice([3, 5, 8, 9]) for _ in range(dims))
            channels = c.random.choice([17, 20, 24] if residual else [1, 3, 4, 16])
            shape = (c.random.choice([1, 2]), channels, *sizes)
            second = shape
            name, channels, dtype, least = c.make(shape, second, "float32"), shape[1], "float32", min(sizes)
        else:
            name, channels, dtype = a.name, a.tensor.shape[1], dtype_name(a)
            least = min(a.least(d) for d in range(2, dims + 2))
        out = c.random.choice([1, 4, 7, 16, 17])
        groups = c.random.choice([g for g in (1, 1, 2, 4) if channels % g == 0])
        if depthwise:
            out, groups = channels, channels
        elif residual:
            out, groups = channels, 1
        elif out % groups:
            groups = 1
        kernel = c.random.choice([1, 3])
        attrs: dict[str, Attr] = {
            "stride": c.random.choice([1, 1, 2]),
            "padding": c.random.choice([0, 1]) if least >= kernel else 1,
            "groups": groups,
            "dilation": 2 if least > 4 and c.random.random() < 0.2 else 1,
        }
        if residual:
            attrs |= {"stride": 1, "padding": kernel // 2, "dilation": 1}
        grouped = (channels, out // groups) if transposed else (out, channels // groups)
        weight = c.make((*grouped, *[kernel] * dims), (*grouped, *[kernel] * dims), dtype, weight=True)
        length, layout = _layout(c, out)
        return Choice((name, weight, c.make((length,), (length,), dtype, weight=True)), {**attrs, **layout})

    return choose


_CONV = "{0}, {1}, " + _BIAS + ", stride={stride}, padding={padding}, groups={groups}, dilation={dilation})"
_LAST = "torch.tanh({0}.contiguous(memory_format=torch.channels_last))"


def _layer_norm(weights: int):  # type: ignore[no-untyped-def]
    def choose(c: Chooser, accept: Accept) -> Choice | None:
        a = c.value(both(accept, rank(1), filled, lambda v: _fixed(v, -1)))
        if a is None:
            return None
        n = a.tensor.shape[-1]
        return Choice((a.name, *(_weight(c, a, n) for _ in range(weights))), {"sizes": (n,)})

    return choose


def _group_norm(c: Chooser, accept: Accept) -> Choice | None:
    a = c.value(both(accept, rank(2, 4), filled, lambda v: _fixed(v, 1)))
    if a is None:
        return None
    n = a.tensor.shape[1]
    groups = c.random.choice([g for g in (1, 2, 3, 4, n) if n % g == 0])
    return Choice((a.name, _weight(c, a, n), _weight(c, a, n)), {"groups": groups})


def _batch_norm(c: Chooser, accept: Accept) -> Choice | None:
    a = c.value(both(accept, rank(2, 4), filled, lambda v: _fixed(v, 1)))
    if a is None or a.tensor.numel() // a.tensor.shape[1] < 2:
        return None
    n = a.tensor.shape[1]
    return Choice((a.name, *(_weight(c, a, n) for _ in range(4))))


def _pool(dims: int):  # type: ignore[no-untyped-def]
    def choose(c: Chooser, accept: Accept) -> Choice | None:
        a = c.value(both(accept, rank(dims + 1, dims + 2), filled))
        if a is None:
            return None
        least = min(a.least(d) for d in range(a.rank - dims, a.rank))
        size = c.random.randint(1, min(3, least))
        padding = c.random.randint(0, size // 2)
        return Choice((a.name,), {"size": size, "stride": c.random.randint(1, 2), "padding": padding})

    return choose


def _image(c: Chooser, accept: Accept) -> Choice | None:
    a = c.value(both(accept, rank(4, 4), filled))
    return None if a is None else Choice((a.name,))


def _sequence(c: Chooser, accept: Accept) -> Choice | None:
    a = c.value(both(accept, rank(3, 3), filled))
    return None if a is None else Choice((a.name,))


def _stack(c: Chooser, accept: Accept) -> Choice | None:
    a = c.value(both(accept, rank(3, 3)))
    return None if a is None else Choice((a.name,))


def _recurrent(gates: int):  # type: ignore[no-untyped-def]
    """A batch of sequences, the weights and biases of one layer, and where it starts."""

    def choose(c: Chooser, accept: Accept) -> Choice | None:
        a = c.value(both(accept, rank(3, 3), filled, lambda v: _fixed(v, -1)))
        if a is None:
            return None
        n = c.random.choice([3, 8])
        weights = [_weight(c, a, gates * n, k) for k in (a.tensor.shape[-1], n)]
        biases = [_weight(c, a, gates * n) for _ in range(2)]
        return Choice(
            (a.name, *weights, *biases, c.make((1, a.tensor.shape[0], n), (1, a.second[0], n), dtype_name(a)))
        )

    return choose


def _classes(c: Chooser, accept: Accept) -> Choice | None:
    a = c.value(both(accept, rank(2, 2), filled))
    if a is None:
        return None
    return Choice((a.name, c.make((a.tensor.shape[0],), (a.second[0],), "int64", "index", a.least(1))))


def _same(c: Chooser, accept: Accept) -> Choice | None:
    a = c.value(both(accept, filled))
    if a is None:
        return None
    return Choice((a.name, c.make(a.tensor.shape, a.second, dtype_name(a))))


def _row(name: str, text: str, choose: object, weight: float = 1.0, **more: object) -> Row:
    return Row(name, text, choose, floats, reorders=True, weight=weight, **more)  # type: ignore[arg-type]


_BATCH = "F.batch_norm({0}, "

ROWS: tuple[Row, ...] = (
    _row("mm", "{0} @ {1}", _product(2, 2), 3),
    _row("bmm", "torch.matmul({0}, {1})", _product(3, 4), 3),
    _row("mv", "{0} @ {1}", _product(2, 2, vector=True)),
    _row("matmul_self", "{0} @ {0}.mT", _square, 1.5),
    _row("einsum", "torch.einsum('...ij,...kj->...ik', {0}, {0})", _square),
    _row("addmm", "torch.addmm({2}, {0}, {1})", _addmm, 2),
    _row("addmm_scaled", "torch.addmm({2}, {0}, {1}, beta=0.5, alpha=2)", _addmm),
    _row("baddbmm", "torch.baddbmm({0} * 0.5, {0}, {0}.mT @ {0}, beta=0.5)", _stack, 0.7),
    _row("tensordot", "torch.tensordot({0}, {0}, dims=([-1], [-1]))", _square, 0.5),
    _row("cdist", "torch.cdist({0}.float(), {0}.float().flip(-2) + 3)", _square, 0.5),
    _row("linear", "F.linear({0}, {1}[:, ::{gap}])", _linear(bias=False), 2),
    _row("linear_bias", _LINEAR + ")", _linear(bias=True), 3),
    _row("linear_relu", _LINEAR + ").relu()", _linear(bias=True), 1.5),
    _row("linear_gelu", "F.gelu(" + _LINEAR + "))", _linear(bias=True), 1.5),
    _row("outer", "torch.outer({0}.flatten(), {0}.flatten()[:5])", _square, 0.5),
    _row("conv1d", "F.conv1d(" + _CONV, _conv(1), 1.5),
    _row("conv2d", "F.conv2d(" + _CONV, _conv(2), 3),
    _row("conv2d_relu", "F.conv2d(" + _CONV + ".relu()", _conv(2), 1.5),
    _row("depthwise", "F.conv2d(" + _CONV, _conv(2, depthwise=True)),
    _row("conv2d_beside", "(F.conv2d((y := " + _LAST + ")" + _CONV[3:] + " + y).relu()", _conv(2, residual=True), 1.5),
    _row("conv_transpose2d", "F.conv_transpose2d(" + _CONV, _conv(2, transposed=True)),
    _row("conv_transpose1d", "F.conv_transpose1d(" + _CONV, _conv(1, transposed=True)),
    _row("conv3d", "F.conv3d(" + _CONV, _conv(3), 1.5),
    _row("conv3d_relu", "F.conv3d(" + _CONV + ".relu()", _conv(3)),
    _row("conv_transpose3d", "F.conv_transpose3d(" + _CONV, _conv(3, transposed=True), 0.5),
    _row("layer_norm", "F.layer_norm({0}, {sizes}, {1}, {2}, eps=0.01)", _layer_norm(2), 3),
    _row("layer_norm_plain", "F.layer_norm({0}, {sizes}, eps=0.01)", _layer_norm(0)),
    _row("rms_norm", "F.rms_norm({0}, {sizes}, {1}, eps=0.01)", _layer_norm(1), 2),
    _row("group_norm", "F.group_norm({0}, {groups}, {1}, {2}, eps=0.01)", _group_norm, 2),
    _row("instance_norm", "F.instance_norm({0}, eps=0.01)", _sequence),
    _row("batch_norm", _BATCH + "{1}, {2}.abs() + 0.5, {3}, {4}, eps=0.01)", _batch_norm, 2),
    _row("batch_norm_train", _BATCH + "None, None, {3}, {4}, training=True, eps=0.1)", _batch_norm, 1.5),
    _row(
        "batch_norm_update",
        _BATCH + "{1}.clone(), {2}.abs() + 0.5, {3}, {4}, training=True, momentum=0.3, eps=0.1)",
        _batch_norm,
    ),
    _row("avg_pool2d", "F.avg_pool2d({0}, {size}, {stride}, {padding})", _pool(2), 1.5),
    _row("avg_pool2d_ceil", "F.avg_pool2d({0}, {size}, {stride}, {padding}, True, False)", _pool(2)),
    _row("avg_pool1d", "F.avg_pool1d({0}, {size}, {stride}, {padding})", _pool(1)),
    _row("max_pool2d", "F.max_pool2d({0}, {size}, {stride}, {padding})", _pool(2), 1.5, keeps=True),
    _row("max_pool2d_ceil", "F.max_pool2d({0}, {size}, {stride}, {padding}, ceil_mode=True)", _pool(2), keeps=True),
    _row("max_pool1d", "F.max_pool1d({0}, {size}, {stride}, {padding})", _pool(1), keeps=True),
    _row("adaptive_avg_pool2d", "F.adaptive_avg_pool2d({0}, (2, 3))", _image),
    _row("global_pool", "F.adaptive_avg_pool2d({0}, 1).flatten(1)", _image),
    _row("adaptive_max_pool2d", "F.adaptive_max_pool2d({0}, 2)", _image, keeps=True),
    _row("upsample_nearest", "F.interpolate({0}, scale_factor=2)", _image, keeps=True),
    _row("upsample_bilinear", "F.interpolate({0}, scale_factor=2, mode='bilinear')", _image),
    _row("upsample_linear", "F.interpolate({0}, size=11, mode='linear', align_corners=True)", _sequence),
    _row("pixel_shuffle", "F.pixel_shuffle({0}.repeat(1, 4, 1, 1), 2)", _image, keeps=True),
    _row("attention", f"F.scaled_dot_product_attention({_SCORED}, {_SCORED}.flip(-2), {{0}} * 0.5)", _square, 1.5),
    _row("causal_attention", f"F.scaled_dot_product_attention({_SCORED}, {_SCORED}, {{0}}, is_causal=True)", _square),
    _row(
        "lstm", "torch.lstm({0}, ({5}, {5}), [{1}, {2}, {3}, {4}], True, 1, 0.0, False, False, True)[0]", _recurrent(4)
    ),
    _row("gru", "torch.gru({0}, {5}, [{1}, {2}, {3}, {4}], True, 1, 0.0, False, False, True)[0]", _recurrent(3), 0.5),
    _row("cross_entropy", "F.cross_entropy({0}, {1})", _classes, 1.5),
    _row("cross_entropy_smooth", "F.cross_entropy({0}, {1}, reduction='none', label_smoothing=0.1)", _classes),
    _row("nll", "F.nll_loss(torch.log_softmax({0}, 1), {1}, ignore_index=0, reduction='sum')", _classes),
    _row("mse_loss", "F.mse_loss({0}, {1})", _same),
    _row("huber", "F.huber_loss({0}, {1})", _same),
    _row("bce", "F.binary_cross_entropy_with_logits({0}, {1}.sigmoid())", _same),
    _row("cosine", "F.cosine_similarity({0}.float(), {1}.float() + 2, -1)", _same),
)
