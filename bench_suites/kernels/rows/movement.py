"""Data movement: windows, patches, shuffles, transposes, pooling, resizing, lookups, caches."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from bench_suites.kernels.row import BF16, F32, Inputs, KernelRow, Pick, size_of

BOTH = (F32, BF16)
randn = torch.randn


def _picture(pick: Pick) -> Inputs:
    """A batch of pictures by rows, columns and channels."""
    side = pick(56, 14, 14)
    return (randn(pick(16, 2, 2), side, side, pick(96, 20)),)


def _image(pick: Pick) -> Inputs:
    side = pick(112, 10, 28)
    return (randn(pick(4, 2, 1), pick(64, 12), side, side),)


def _nhwc(pick: Pick) -> Inputs:
    return (_image(pick)[0].to(memory_format=torch.channels_last),)


def _matrices(pick: Pick) -> Inputs:
    rows, columns = pick(1536, 33, 192), pick(1536, 40, 192)
    return randn(rows, columns), randn(columns, rows)


def _projected(pick: Pick) -> Inputs:
    """Queries, keys and values as one product gives them, and the number of heads."""
    return (randn(pick(8, 2, 1), pick(512, 9, 32), pick(3 * 768, 3 * 24)),)


def _pooled(images: Inputs) -> Inputs:
    """Images, the gradient of their max pooling, and the positions of the maxima."""
    x = images[0]
    values, positions = F.max_pool2d(x, 3, 2, 1, return_indices=True)
    return x, torch.randn_like(values), positions


def _max_pool_gradient(x: torch.Tensor, gradient: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    windows = [3, 3], [2, 2], [1, 1], [1, 1], False
    return torch.ops.aten.max_pool2d_with_indices_backward(gradient, x, *windows, positions)


def _averaged(pick: Pick) -> Inputs:
    """Images, and the gradient of their average pooling."""
    x = _image(pick)[0]
    return x, torch.randn_like(F.avg_pool2d(x, 3, 2, 1))


def _average_pool_gradient(x: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
    return torch.ops.aten.avg_pool2d_backward(gradient, x, [3, 3], [2, 2], [1, 1], False, True, None)


def _windows(x: torch.Tensor) -> torch.Tensor:
    batch, height, width, channels = x.shape
    x = torch.roll(x, (-3, -3), (1, 2)).view(batch, height // 7, 7, width // 7, 7, channels)
    return x.permute(0, 1, 3, 2, 4, 5).contiguous().view(-1, 49, channels)


def _unwindow(x: torch.Tensor) -> torch.Tensor:
    batch, height, width, channels = x.shape
    x = x.view(batch, height // 7, width // 7, 7, 7, channels).permute(0, 1, 3, 2, 4, 5)
    return torch.roll(x.reshape(batch, height, width, channels), (3, 3), (1, 2))


def _merge_patches(x: torch.Tensor) -> torch.Tensor:
    return torch.cat([x[:, 0::2, 0::2], x[:, 1::2, 0::2], x[:, 0::2, 1::2], x[:, 1::2, 1::2]], -1)


def _patches(x: torch.Tensor) -> torch.Tensor:
    batch, channels, height, width = x.shape
    x = x.reshape(batch, channels, height // 2, 2, width // 2, 2)
    return x.permute(0, 2, 4, 1, 3, 5).reshape(batch, -1, channels * 4)


def _shuffle_channels(x: torch.Tensor) -> torch.Tensor:
    batch, channels, height, width = x.shape
    return x.view(batch, 2, channels // 2, height, width).transpose(1, 2).reshape(x.shape)


def _split_heads(x: torch.Tensor) -> torch.Tensor:
    batch, length, width = x.shape
    heads = 12
    return x.view(batch, length, 3, heads, width // 3 // heads).permute(2, 0, 3, 1, 4).contiguous()


def _merge_heads(x: torch.Tensor) -> torch.Tensor:
    batch, length, width = x.shape
    heads = 12
    return x.view(batch, heads, length, width // heads).transpose(1, 2).reshape(x.shape)


def _repeat_heads(x: torch.Tensor) -> torch.Tensor:
    batch, heads, length, width = x.shape
    return x[:, :, None].expand(batch, heads, 4, length, width).reshape(batch, heads * 4, length, width)


def _lookup(pick: Pick) -> Inputs:
    words = pick(30000, 50, 64)
    return torch.randint(0, words, (pick(4096, 9, 64),)), randn(words, pick(768, 40))


def _looked_up(inputs: Inputs) -> int:
    """Bytes of the rows of a table, each once."""
    index, table = inputs[:2]
    return index.unique().numel() * table.shape[-1] * table.element_size()


def _embed(tokens: torch.Tensor, words: torch.Tensor, places: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    x = F.embedding(tokens, words) + places[: tokens.shape[1]]
    return F.layer_norm(x, weight.shape, weight)


def _text(pick: Pick) -> Inputs:
    width, words, length = pick(768, 40), pick(30000, 50, 64), pick(512, 9, 64)
    tokens = torch.randint(0, words, (pick(8, 2, 1), length))
    return tokens, randn(words, width), randn(length, width), randn(width)


def _relative_bias(scores: torch.Tensor, table: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    size = scores.shape[-1]
    bias = table[index.view(-1)].view(size, size, -1).permute(2, 0, 1)
    return torch.softmax(scores + bias, -1)


def _window_scores(pick: Pick) -> Inputs:
    heads, size = pick(6, 2), 49
    return randn(pick(128, 2), heads, size, size), randn(169, heads), torch.randint(0, 169, (size, size))


def _write_cache(cache: torch.Tensor, new: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
    cache[:, :, position] = new
    return new.sum()


def _cache(pick: Pick) -> Inputs:
    heads, width, length = pick(32, 2), pick(128, 16), pick(512, 5)
    position = torch.arange(3, 3 + length)
    return randn(1, heads, pick(2048, 12), width), randn(1, heads, length, width), position


def _written_part(inputs: Inputs) -> int:
    return size_of(inputs[1:2])


MOVEMENT = (
    KernelRow("window_partition", _windows, _picture, BOTH, streaming=True),
    KernelRow("window_reverse", _unwindow, _picture, BOTH, streaming=True),
    KernelRow("patch_merging", _merge_patches, _picture, BOTH, streaming=True),
    KernelRow("patches_of_image", _patches, _image, BOTH),
    KernelRow("pixel_shuffle", lambda x: F.pixel_shuffle(x, 2), _image, BOTH),
    KernelRow("channel_shuffle", _shuffle_channels, _image, BOTH, streaming=True),
    KernelRow("split_heads", _split_heads, _projected, BOTH, streaming=True),
    KernelRow("merge_heads", _merge_heads, _projected, BOTH, streaming=True),
    KernelRow(
        "repeat_key_heads",
        _repeat_heads,
        lambda p: (randn(1, p(8, 2, 2), p(1024, 9, 64), p(128, 16)),),
        BOTH,
        streaming=True,
    ),
    KernelRow("transposed_add", lambda x, y: x.t().contiguous() + y, _matrices, BOTH),
    KernelRow("nchw_to_nhwc", lambda x: x.permute(0, 2, 3, 1).contiguous(), _image, BOTH),
    KernelRow("nhwc_to_nchw", lambda x: x.contiguous() + 1, _nhwc, BOTH),
    KernelRow(
        "concatenate",
        lambda x, y: torch.cat([x * 2, y.t() + 1], -1),
        lambda p: (_matrices(p)[0], _matrices(p)[0].t()),
        BOTH,
        streaming=True,
    ),
    KernelRow(
        "concatenate_channels",
        lambda x, y: torch.cat([F.relu(x), y], 1),
        lambda p: (*_nhwc(p), *_nhwc(p)),
        BOTH,
        streaming=True,
    ),
    KernelRow("pad_image", lambda x: F.pad(x, (1, 1, 1, 1)), _image, BOTH, streaming=True),
    KernelRow("reflect_pad", lambda x: F.pad(x, (2, 2, 2, 2), mode="reflect"), _image),
    KernelRow("max_pool", lambda x: F.max_pool2d(x, 3, 2, 1), _image, BOTH),
    KernelRow("max_pool_nhwc", lambda x: F.max_pool2d(x, 3, 2, 1), _nhwc, BOTH),
    KernelRow("max_pool_gradient", _max_pool_gradient, lambda p: _pooled(_image(p)), BOTH),
    KernelRow("max_pool_gradient_nhwc", _max_pool_gradient, lambda p: _pooled(_nhwc(p)), BOTH),
    KernelRow("average_pool", lambda x: F.avg_pool2d(x, 2), _image),
    KernelRow("average_pool_gradient", _average_pool_gradient, _averaged, BOTH),
    KernelRow(
        "adaptive_pool",
        lambda x: F.adaptive_avg_pool2d(x, 7),
        lambda p: (randn(p(16, 2), p(256, 6), p(28, 14), p(28, 14)),),
    ),
    KernelRow(
        "adaptive_pool_uneven",
        lambda x: F.adaptive_avg_pool2d(x, 6),
        lambda p: (randn(p(16, 2), p(256, 6), p(13, 13), p(13, 13)),),
    ),
    KernelRow(
        "upsample_bilinear",
        lambda x: F.interpolate(x, scale_factor=2.0, mode="bilinear"),
        lambda p: (_image(p)[0][:1],),
    ),
    KernelRow("upsample_nearest", lambda x: F.interpolate(x, scale_factor=2.0), lambda p: (_image(p)[0][:1],)),
    KernelRow("embedding", F.embedding, _lookup, BOTH, streaming=True, unread=(1,), gathered=_looked_up),
    KernelRow("embedding_and_layer_norm", _embed, _text, BOTH, streaming=True, unread=(1,), gathered=_looked_up),
    KernelRow("relative_position_bias", _relative_bias, _window_scores, BOTH),
    KernelRow("write_key_cache", _write_cache, _cache, BOTH, unread=(0,), written=_written_part),
    KernelRow(
        "select_columns",
        lambda x, i: x[:, i] * 2,
        lambda p: (randn(p(4096, 8), p(1024, 40)), torch.randperm(p(1024, 40))),
    ),
    KernelRow(
        "gather_logits",
        lambda x, i: x.gather(-1, i),
        lambda p: (randn(p(4096, 8), p(1024, 40)), torch.randint(0, p(1024, 40), (p(4096, 8), p(128, 5)))),
    ),
)
