"""Linear and bilinear layers, products, attention, recurrent layers, embeddings."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from bench_suites.layers.row import Make, flags, function, integers, layer

_HEADS = (1, 12, 197, 64)


def _first(module: nn.Module) -> nn.Module:
    class First(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.module = module

        def forward(self, *args: Any) -> Any:
            return self.module(*args)[0]

    return First()


def _self_attention() -> nn.Module:
    attention = nn.MultiheadAttention(512, 8, batch_first=True)

    class Self(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention = attention

        def forward(self, x: torch.Tensor) -> Any:
            return self.attention(x, x, x, need_weights=False)[0]

    return Self()


def _encoder() -> nn.Module:
    return nn.TransformerEncoderLayer(512, 8, 2048, dropout=0.0, batch_first=True)


def _offsets(bags: int, of: int) -> Make:
    return lambda: torch.arange(0, bags * of, of)


ROWS = (
    layer("linear", lambda: nn.Linear(768, 3072), (197, 768)),
    layer("linear_one_row", lambda: nn.Linear(2048, 2048), (1, 2048)),
    layer("linear_small", lambda: nn.Linear(13, 7), (1000, 13)),
    layer("linear_one_output", lambda: nn.Linear(512, 1), (1024, 512)),
    layer("linear_no_bias_3d", lambda: nn.Linear(512, 512, bias=False), (8, 64, 512)),
    layer("bilinear", lambda: nn.Bilinear(32, 32, 16), (256, 32), (256, 32)),
    function("mm", torch.mm, (256, 256), (256, 256)),
    function("mm_odd", torch.mm, (127, 333), (333, 211)),
    function("mm_transposed", lambda a, b: a.t() @ b.t(), (256, 128), (512, 256)),
    function("bmm", torch.bmm, (32, 64, 64), (32, 64, 64)),
    function("bmm_small", torch.bmm, (512, 8, 16), (512, 16, 8)),
    function("mv", torch.mv, (1024, 1024), (1024,)),
    function("dot", torch.dot, (65536,), (65536,)),
    function("outer", torch.outer, (512,), (512,)),
    function("addmm", torch.addmm, (256,), (128, 512), (512, 256)),
    function("baddbmm", torch.baddbmm, (16, 64, 64), (16, 64, 32), (16, 32, 64)),
    function("einsum_bhid", lambda q, k: torch.einsum("bhid,bhjd->bhij", q, k), _HEADS, _HEADS),
    function("einsum_three", lambda a, b, c: torch.einsum("bi,ij,bj->b", a, b, c), (256, 64), (64, 64), (256, 64)),
    function("kron", torch.kron, (32, 32), (16, 16)),
    function("tensordot", lambda a, b: torch.tensordot(a, b, dims=([1, 2], [0, 1])), (64, 16, 32), (16, 32, 64)),
    function("matrix_power", lambda a: torch.linalg.matrix_power(a, 3), (128, 128)),
    function("attention", F.scaled_dot_product_attention, _HEADS, _HEADS, _HEADS),
    function(
        "attention_causal",
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
        (1, 8, 512, 64),
        (1, 8, 512, 64),
        (1, 8, 512, 64),
    ),
    function("attention_mask", F.scaled_dot_product_attention, _HEADS, _HEADS, _HEADS, flags(1, 1, 197, 197)),
    function("attention_decode", F.scaled_dot_product_attention, (1, 16, 1, 64), (1, 16, 1024, 64), (1, 16, 1024, 64)),
    function(
        "attention_grouped",
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, enable_gqa=True),
        (1, 16, 128, 64),
        (1, 4, 128, 64),
        (1, 4, 128, 64),
    ),
    layer("multihead_attention", _self_attention, (2, 128, 512)),
    layer("transformer_encoder_layer", _encoder, (2, 128, 512)),
    layer("lstm", lambda: _first(nn.LSTM(128, 128, batch_first=True)), (8, 32, 128)),
    layer("lstm_2_layers", lambda: _first(nn.LSTM(64, 128, num_layers=2)), (32, 4, 64)),
    layer("lstm_bidirectional", lambda: _first(nn.LSTM(64, 64, bidirectional=True)), (32, 4, 64)),
    layer("gru", lambda: _first(nn.GRU(128, 128, batch_first=True)), (8, 32, 128)),
    layer("rnn_tanh", lambda: _first(nn.RNN(128, 128, batch_first=True)), (8, 32, 128)),
    layer("lstm_cell", lambda: _first(nn.LSTMCell(256, 256)), (16, 256)),
    layer("gru_cell", lambda: nn.GRUCell(256, 256), (16, 256)),
    layer("embedding", lambda: nn.Embedding(30000, 512), integers(30000, 8, 128)),
    layer("embedding_max_norm", lambda: nn.Embedding(1000, 64, max_norm=1.0), integers(1000, 8, 128), trained=False),
    layer("embedding_bag_mean", lambda: nn.EmbeddingBag(10000, 64), integers(10000, 4096), _offsets(256, 16)),
    layer("embedding_bag_sum", lambda: nn.EmbeddingBag(10000, 64, mode="sum"), integers(10000, 256, 16)),
    layer("embedding_bag_max", lambda: nn.EmbeddingBag(10000, 64, mode="max"), integers(10000, 256, 16)),
    function("one_hot", lambda i: F.one_hot(i, 100), integers(100, 4096), trained=False, low_precision=False),
)
