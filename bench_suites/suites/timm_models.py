"""TIMM: `timm.create_model(name, pretrained=False)`, the dashboards' present list and their older list of 61."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import timm
import torch

from bench_suites.suites.case import Case, Request, Row, Suite

PRESENT = """
    adv_inception_v3 beit_base_patch16_224 convnextv2_nano deit_base_distilled_patch16_224 deit_tiny_patch16_224
    ghostnet_100 inception_v3 mixnet_l mobilenetv2_100 mobilenetv3_large_100 mobilevit_s nfnet_l0 repvgg_a2
    swin_base_patch4_window7_224 tf_efficientnet_b0 visformer_small vit_base_patch14_dinov2
    vit_base_patch16_siglip_256
""".split()

OLDER = """
    botnet26t_256 cait_m36_384 coat_lite_mini convit_base convmixer_768_32 convnext_base crossvit_9_240 cspdarknet53
    dla102 dm_nfnet_f0 dpn107 eca_botnext26ts_256 eca_halonext26ts ese_vovnet19b_dw fbnetc_100 fbnetv3_b gernet_l
    gluon_inception_v3 gmixer_24_224 gmlp_s16_224 hrnet_w18 jx_nest_base lcnet_050 levit_128 mixer_b16_224 mnasnet_100
    pit_b_224 pnasnet5large poolformer_m36 regnety_002 res2net101_26w_4s res2net50_14w_8s res2next50 resmlp_12_224
    resnest101e resnet18 rexnet_100 sebotnet33ts_256 selecsls42b spnasnet_100 swsl_resnext101_32x16d tf_mixnet_l
    tinynet_a tnt_s_patch16_224 twins_pcpvt_base vit_base_patch16_224 volo_d1_224 xcit_large_24_p8_224
""".split()

QUICK = {"mobilenetv3_large_100", "deit_tiny_patch16_224", "repvgg_a2", "convnextv2_nano", "resnet18", "levit_128"}

RENAMED = {
    "gluon_inception_v3": "inception_v3.gluon_in1k",
    "swsl_resnext101_32x16d": "resnext101_32x16d.fb_swsl_ig1b_ft_in1k",
    "deit_tiny_patch16_224": "deit_tiny_patch16_224.fb_in1k",
}
"""Names of the dashboards that timm has under another name now."""

_NARROW_VIT = {"img_size": 64, "embed_dim": 48, "depth": 2, "num_heads": 3}

TINY: Mapping[str, dict[str, Any]] = {
    "beit_base_patch16_224": _NARROW_VIT,
    "convnextv2_nano": {"depths": (1, 1, 1, 1), "dims": (16, 24, 32, 48)},
    "deit_tiny_patch16_224": _NARROW_VIT,
    "levit_128": {"img_size": 64, "embed_dim": (32, 48, 64), "depth": (1, 1, 1), "key_dim": 8, "num_heads": (2, 3, 4)},
    "resnet18": {"layers": (1, 1, 1, 1)},
    "swin_base_patch4_window7_224": {"img_size": 56, "embed_dim": 32, "depths": (2, 2), "num_heads": (2, 4)},
    "vit_base_patch16_siglip_256": _NARROW_VIT,
}
"""Options that make a row small, for tests. Rows without options are as small as their images, of 64 pixels where the
model takes any size."""

LEAST_PIXELS: Mapping[str, int] = {
    "adv_inception_v3": 96,
    "eca_halonext26ts": 256,  # windows of eight, of what is left after five halvings
    "gluon_inception_v3": 96,
    "inception_v3": 96,
}
"""More pixels of a small image, for models that have too few left of 64."""


def _build(name: str, request: Request) -> Case:
    options: dict[str, Any] = dict(TINY.get(name, {})) if request.tiny else {}
    module = timm.create_model(RENAMED.get(name, name), pretrained=False, **options)
    channels, height, width = module.default_cfg["input_size"]
    if request.tiny and ("img_size" in options or not module.default_cfg.get("fixed_input_size", False)):
        height = width = options.get("img_size", LEAST_PIXELS.get(name, 64))
    batch = request.batch or 2
    images = torch.randn(batch, channels, height, width)
    target = torch.randint(0, max(module.num_classes, 1), (batch,))
    return Case(module, (images,), loss=functools.partial(_cross_entropy, target))


def _cross_entropy(target: torch.Tensor, output: Any) -> torch.Tensor:
    """The dashboards' loss. A model that gives several heads is trained by the first; one without a classifier by its
    features."""
    logits = output[0] if isinstance(output, tuple) else output
    return torch.nn.functional.cross_entropy(logits.float() if logits.dtype != torch.float64 else logits, target)


ROWS = tuple(
    Row(name, functools.partial(_build, name), batch=2, quick=name in QUICK) for name in sorted({*PRESENT, *OLDER})
)

TIMM = Suite("timm", ROWS, inference=1e-3, training=1e-2, low_precision=1e-3)
