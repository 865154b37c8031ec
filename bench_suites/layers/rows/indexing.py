"""Views, joins, gathers and scatters."""

from __future__ import annotations

import torch

from bench_suites.layers.row import flags, function, integers

_SHAPE = (256, 1024)


def _scatter_add(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
    return torch.zeros(64, x.shape[1], dtype=x.dtype).scatter_add(0, i, x)


def _index_add(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
    return torch.zeros(64, x.shape[1], dtype=x.dtype).index_add(0, i, x)


def _assign_slice(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    y[:, 10:20] = 0
    return y


def _windows(x: torch.Tensor) -> torch.Tensor:
    return x.unfold(-1, 400, 160) * torch.hann_window(400, dtype=x.dtype)


ROWS = (
    function("transpose", lambda x: x.t().contiguous(), (512, 512)),
    function("permute", lambda x: x.permute(0, 2, 1, 3).contiguous(), (2, 128, 12, 64)),
    function("permute_nhwc", lambda x: x.permute(0, 2, 3, 1).contiguous(), (1, 64, 56, 56)),
    function("cat_last", lambda x, y: torch.cat((x, y), -1), _SHAPE, _SHAPE),
    function("cat_first", lambda x, y: torch.cat((x, y)), _SHAPE, _SHAPE),
    function("cat_channels", lambda *x: torch.cat(x, 1), *((1, 32, 56, 56),) * 6),
    function("stack_last", lambda x, y: torch.stack((x, y), -1), _SHAPE, _SHAPE),
    function("chunk_and_multiply", lambda x: torch.mul(*x.chunk(2, -1)), _SHAPE),
    function("split_and_cat", lambda x: torch.cat(x.split(256, -1)[::-1], -1), _SHAPE),
    function("repeat", lambda x: x.repeat(2, 3), _SHAPE),
    function("repeat_interleave", lambda x: x.repeat_interleave(4, 1), (256, 256)),
    function("expand_and_copy", lambda x: x[:, None].expand(256, 8, 256).contiguous(), (256, 256)),
    function("tile", lambda x: torch.tile(x, (1, 4)), (256, 256)),
    function("tril", torch.tril, (512, 512)),
    function("triu_mask", lambda x: x.masked_fill(torch.ones_like(x, dtype=torch.bool).triu(1), -1e4), (512, 512)),
    function("diag", torch.diag, (512, 512)),
    function("diag_embed", torch.diag_embed, (64, 64)),
    function("rot90", lambda x: torch.rot90(x, 1, (-2, -1)), (3, 224, 224)),
    function("every_second", lambda x: x[:, ::2] * 2, _SHAPE),
    function("every_second_row", lambda x: x[::2] * 2, _SHAPE),
    function(
        "space_to_depth",
        lambda x: torch.cat((x[..., ::2, ::2], x[..., 1::2, ::2], x[..., ::2, 1::2], x[..., 1::2, 1::2]), 1),
        (1, 3, 224, 224),
    ),
    function(
        "window_partition",
        lambda x: x.view(1, 8, 7, 8, 7, 96).permute(0, 1, 3, 2, 4, 5).reshape(-1, 49, 96),
        (1, 56, 56, 96),
    ),
    function("index_select_rows", lambda x, i: x.index_select(0, i), _SHAPE, integers(256, 512)),
    function("index_select_columns", lambda x, i: x.index_select(1, i), _SHAPE, integers(1024, 512)),
    function("gather_columns", lambda x, i: x.gather(1, i), _SHAPE, integers(1024, 256, 512)),
    function("gather_rows", lambda x, i: x.gather(0, i), _SHAPE, integers(256, 256, 1024)),
    function("take_along_dim", lambda x: x.take_along_dim(x.argsort(dim=-1, stable=True), -1), (256, 64)),
    function("take", torch.take, _SHAPE, integers(262144, 20000)),
    function("advanced_pairs", lambda x, i, j: x[i, j], _SHAPE, integers(256, 20000), integers(1024, 20000)),
    function("advanced_rows", lambda x, i: x[i], _SHAPE, integers(256, 64, 8)),
    function("boolean_mask", lambda x, m: x[m].sum(), _SHAPE, flags(*_SHAPE)),
    function("scatter", lambda x, i: torch.zeros_like(x).scatter(1, i, x), _SHAPE, integers(1024, 256, 1024)),
    function("scatter_add_rows", _scatter_add, _SHAPE, integers(64, 256, 1024)),
    function("index_add", _index_add, (4096, 64), integers(64, 4096)),
    function(
        "scatter_reduce_amax",
        lambda x, i: torch.zeros(64, 1024, dtype=x.dtype).scatter_reduce(0, i, x, "amax"),
        _SHAPE,
        integers(64, 256, 1024),
    ),
    function("index_put", lambda x, i, v: x.index_put((i,), v), _SHAPE, lambda: torch.randperm(256)[:64], (64, 1024)),
    function("index_copy", lambda x, v: x.index_copy(0, torch.arange(64), v), _SHAPE, (64, 1024)),
    function("masked_scatter", lambda x, m, v: x.masked_scatter(m, v), _SHAPE, flags(*_SHAPE), _SHAPE),
    function("assign_slice", _assign_slice, _SHAPE),
    function("select_scatter", lambda x, v: x.select_scatter(v, 0, 5), _SHAPE, (1024,)),
    function("frames", _windows, (4, 16000)),
    function("meshgrid", lambda x: torch.stack(torch.meshgrid(x, x * 2, indexing="ij")), (256,)),
    function("as_strided", lambda x: x.as_strided((250, 1000), (1024, 1), 5) + 1, _SHAPE),
    function("nonzero", lambda m: torch.nonzero(m).sum(), flags(256, 256), trained=False, low_precision=False),
    function("broadcast_add", lambda x, y: x[:, None] + y[None], (512, 64), (64, 64)),
    function("broadcast_column", lambda x, y: x * y[:, None], _SHAPE, (256,)),
    function("movedim", lambda x: x.movedim(1, -1).contiguous() * 2, (8, 16, 32, 32)),
    function("cross", lambda x, y: torch.cross(x, y, dim=-1), (20000, 3), (20000, 3)),
    function("vander", lambda x: torch.linalg.vander(x, N=8), (4096,)),
    function("cartesian_prod", lambda x, y: torch.cartesian_prod(x, y), (256,), (256,)),
)
