"""Pooling of volumes, and images and sequences that are sampled, cut into windows or put together from them."""

from __future__ import annotations

from tests.fuzz.graph import Attr
from tests.fuzz.rows.row import Accept, Choice, Choose, Chooser, Row, Value, both, dtype_name, filled, floats, rank


def _grid_of(c: Chooser, accept: Accept, dims: int) -> Value | None:
    """A value with a batch, channels and `dims` more dimensions."""
    return c.value(both(accept, rank(dims + 2, dims + 2), filled))


def _fresh(c: Chooser, dims: int) -> tuple[str, tuple[int, ...]]:
    """A new input of that kind, of one shape at both calls; its name and shape."""
    shape = (
        c.random.choice([1, 2]),
        c.random.choice([1, 3, 4, 16]),
        *(c.random.choice([3, 4, 7]) for _ in range(dims)),
    )
    return c.make(shape, shape, c.random.choice(["float32", "bfloat16"])), shape


def _sampled(dims: int) -> Choose:
    """One value with `dims` dimensions of space, or a new input."""

    def choose(c: Chooser, accept: Accept) -> Choice | None:
        a = _grid_of(c, accept, dims)
        return Choice((a.name if a is not None else _fresh(c, dims)[0],))

    return choose


def _windows(dims: int) -> Choose:
    """One value, and windows that fit into it."""

    def choose(c: Chooser, accept: Accept) -> Choice | None:
        a = _grid_of(c, accept, dims)
        name, shape = (a.name, tuple(map(a.least, range(dims + 2)))) if a is not None else _fresh(c, dims)
        size = c.random.randint(1, min(3, *shape[2:]))
        attrs: dict[str, Attr] = {
            "size": size,
            "stride": c.random.randint(1, 2),
            "padding": c.random.randint(0, size // 2),
        }
        return Choice((name,), attrs)

    return choose


def _placed(c: Chooser, accept: Accept) -> Choice | None:
    """An image, and for each of 5 x 6 pixels of the result a place in it, some beyond its edges."""
    a = _grid_of(c, accept, 2)
    if a is None:
        return None
    shape, second = (a.tensor.shape[0], 5, 6, 2), (a.second[0], 5, 6, 2)
    return Choice((a.name, c.make(shape, second, dtype_name(a))))


def _row(name: str, text: str, choose: Choose, weight: float = 1.0, **more: object) -> Row:
    return Row(name, text, choose, floats, reorders=True, weight=weight, **more)  # type: ignore[arg-type]


_POOL = "{0}, {size}, {stride}, {padding}"

ROWS: tuple[Row, ...] = (
    _row("avg_pool3d", f"F.avg_pool3d({_POOL})", _windows(3)),
    _row("avg_pool3d_ceil", f"F.avg_pool3d({_POOL}, True, False)", _windows(3)),
    _row("max_pool3d", f"F.max_pool3d({_POOL})", _windows(3), keeps=True),
    _row("adaptive_avg_pool3d", "F.adaptive_avg_pool3d({0}, (2, 1, 3))", _sampled(3)),
    _row("adaptive_max_pool3d", "F.adaptive_max_pool3d({0}, 2)", _sampled(3), keeps=True),
    _row("adaptive_avg_pool1d", "F.adaptive_avg_pool1d({0}, 3)", _sampled(1)),
    _row("lp_pool2d", "F.lp_pool2d({0}.abs() + 0.1, 2, {size}, {stride})", _windows(2)),
    _row("upsample_nearest3d", "F.interpolate({0}, scale_factor=(1, 2, 2))", _sampled(3), keeps=True),
    _row("upsample_trilinear", "F.interpolate({0}, size=(4, 5, 3), mode='trilinear')", _sampled(3)),
    _row("upsample_exact", "F.interpolate({0}, size=(5, 9), mode='nearest-exact')", _sampled(2), keeps=True),
    _row("upsample_down", "F.interpolate({0}, size=(2, 3), mode='bilinear', align_corners=True)", _sampled(2)),
    _row("upsample_bicubic", "F.interpolate({0}, size=(7, 5), mode='bicubic')", _sampled(2)),
    _row("upsample_antialias", "F.interpolate({0}, size=(2, 5), mode='bilinear', antialias=True)", _sampled(2), 0.5),
    _row("grid_sample", "F.grid_sample({0}, {1}, align_corners={corners})", _placed, attrs={"corners": (False, True)}),
    _row(
        "grid_sample_border",
        "F.grid_sample({0}, {1}, padding_mode={mode}, align_corners=False)",
        _placed,
        attrs={"mode": ("border", "reflection")},
    ),
    _row("windows", "F.unfold({0}, {size}, 1, {padding}, {stride})", _windows(2), keeps=True),
    _row("windows_back", "F.fold(F.unfold({0}, 2, 1, 1), {0}.shape[2:], 2, 1, 1)", _sampled(2), keeps=True),
    _row("pixel_unshuffle", "F.pixel_unshuffle({0}.repeat(1, 1, 2, 2), 2)", _sampled(2), keeps=True),
    _row("channel_shuffle", "F.channel_shuffle({0}.repeat(1, 2, 1, 1), 2)", _sampled(2), keeps=True),
    _row("local_response_norm", "F.local_response_norm({0}, 3)", _sampled(2)),
    _row("pad_reflect2d", "F.pad({0}, (1, 2, 2, 0), mode='reflect')", _sampled(2), keeps=True),
    _row("pad_replicate3d", "F.pad({0}, (1, 0, 2, 1, 0, 1), mode='replicate')", _sampled(3), keeps=True),
)
