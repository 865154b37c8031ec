"""Losses and distances."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from bench_suites.layers.row import Layer, function, integers, layer, positive

_ROWS = (256, 1000)


def _pair(name: str, make: type[nn.Module]) -> Layer:
    return layer(name, make, _ROWS, _ROWS)


def _signs() -> torch.Tensor:
    return torch.randint(2, (256,)).float() * 2 - 1


ROWS = (
    _pair("mse", nn.MSELoss),
    _pair("l1", nn.L1Loss),
    _pair("smooth_l1", nn.SmoothL1Loss),
    _pair("huber", nn.HuberLoss),
    layer("cross_entropy", nn.CrossEntropyLoss, _ROWS, integers(1000, 256)),
    layer("cross_entropy_smoothed", lambda: nn.CrossEntropyLoss(label_smoothing=0.1), _ROWS, integers(1000, 256)),
    layer("cross_entropy_images", nn.CrossEntropyLoss, (2, 21, 64, 64), integers(21, 2, 64, 64)),
    layer("cross_entropy_probabilities", nn.CrossEntropyLoss, _ROWS, positive(*_ROWS)),
    layer("nll", nn.NLLLoss, _ROWS, integers(1000, 256)),
    layer("bce", nn.BCELoss, positive(*_ROWS), positive(*_ROWS)),
    layer("bce_with_logits", nn.BCEWithLogitsLoss, _ROWS, positive(*_ROWS)),
    layer("kl_div", lambda: nn.KLDivLoss(reduction="batchmean"), _ROWS, positive(*_ROWS)),
    layer("poisson_nll", nn.PoissonNLLLoss, _ROWS, positive(*_ROWS)),
    layer("gaussian_nll", nn.GaussianNLLLoss, _ROWS, _ROWS, positive(*_ROWS)),
    layer("margin_ranking", nn.MarginRankingLoss, (256,), (256,), _signs),
    layer("hinge_embedding", nn.HingeEmbeddingLoss, (256,), _signs),
    function("soft_margin", lambda x, y: F.soft_margin_loss(x, y.detach()), (256,), _signs),
    layer("multi_margin", nn.MultiMarginLoss, _ROWS, integers(1000, 256)),
    layer("multilabel_margin", nn.MultiLabelMarginLoss, (64, 100), integers(100, 64, 100)),
    layer("multilabel_soft_margin", nn.MultiLabelSoftMarginLoss, _ROWS, positive(*_ROWS)),
    layer("cosine_embedding", nn.CosineEmbeddingLoss, (256, 128), (256, 128), _signs),
    layer("triplet_margin", nn.TripletMarginLoss, (256, 128), (256, 128), (256, 128)),
    function(
        "ctc",
        lambda x, t: F.ctc_loss(x.log_softmax(-1), t, torch.full((8,), 50), torch.full((8,), 10)),
        (50, 8, 30),
        integers(29, 8, 10),
        low_precision=False,
    ),
    layer("cosine_similarity", nn.CosineSimilarity, (256, 768), (256, 768)),
    layer("pairwise_distance", nn.PairwiseDistance, (256, 768), (256, 768)),
    function("cdist", torch.cdist, (256, 64), (256, 64), low_precision=False),
    function("cdist_1", lambda a, b: torch.cdist(a, b, p=1.0), (128, 64), (128, 64), low_precision=False),
    function("pdist", F.pdist, (128, 64), low_precision=False),
    function("dice", lambda x, t: 1 - 2 * (x.sigmoid() * t).sum() / (x.sigmoid() + t).sum(), _ROWS, positive(*_ROWS)),
    function(
        "focal",
        lambda x, t: (
            (1 - torch.exp(-F.binary_cross_entropy_with_logits(x, t, reduction="none"))) ** 2
            * F.binary_cross_entropy_with_logits(x, t, reduction="none")
        ).mean(),
        _ROWS,
        positive(*_ROWS),
    ),
    function(
        "info_nce",
        lambda a, b: F.cross_entropy(F.normalize(a) @ F.normalize(b).t() / 0.07, torch.arange(256)),
        (256, 128),
        (256, 128),
    ),
)
