"""The architectures of TorchBench that PyPI packages have too, for a run without a checkout."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any

import timm
import torch
import torchvision
import transformers

from bench_suites.suites.case import Case, Request, Unavailable
from bench_suites.suites.hugging_face import NARROW
from bench_suites.suites.torchbench_checkout import CONFIGURATIONS, case_of, random_graph
from bench_suites.suites.torchbench_networks import stable_diffusion_text_encoder, stable_diffusion_unet

Build = Callable[[int, Request], Case]

TORCHVISION = """
    alexnet densenet121 mnasnet1_0 mobilenet_v2 mobilenet_v3_large resnet18 resnet50 resnet152 resnext50_32x4d
    shufflenet_v2_x1_0 squeezenet1_1 vgg16
""".split()

TIMM = {
    "timm_efficientnet": "efficientnet_b0",
    "timm_nfnet": "dm_nfnet_f0",
    "timm_regnet": "regnety_120",
    "timm_resnest": "resnest14d",
    "timm_vision_transformer": "vit_small_patch16_224",
    "timm_vovnet": "ese_vovnet39b",
}

HUGGING_FACE: Mapping[str, tuple[str, Callable[[], Any], int]] = {
    "hf_Albert": ("AutoModelForMaskedLM", CONFIGURATIONS["albert-base-v2"], 512),
    "hf_Bart": ("AutoModelForSeq2SeqLM", CONFIGURATIONS["facebook/bart-base"], 512),
    "hf_Bert": ("AutoModelForMaskedLM", transformers.BertConfig, 512),
    "hf_Bert_large": (
        "AutoModelForMaskedLM",
        lambda: transformers.BertConfig(hidden_size=1024, num_hidden_layers=24, num_attention_heads=16),
        512,
    ),
    "hf_BigBird": (
        "AutoModelForMaskedLM",
        lambda: transformers.BigBirdConfig(attention_type="block_sparse"),
        1024,
    ),
    "hf_DistilBert": ("AutoModelForMaskedLM", CONFIGURATIONS["distilbert-base-uncased"], 512),
    "hf_GPT2": ("AutoModelForCausalLM", CONFIGURATIONS["gpt2"], 256),
    "hf_Longformer": ("AutoModelForMaskedLM", CONFIGURATIONS["allenai/longformer-base-4096"], 512),
    "hf_Reformer": ("AutoModelForMaskedLM", lambda: transformers.ReformerConfig(num_buckets=128), 4096),
    "hf_Roberta_base": ("AutoModelForMaskedLM", CONFIGURATIONS["xlm-roberta-base"], 512),
    "hf_T5": ("AutoModelForSeq2SeqLM", CONFIGURATIONS["t5-small"], 512),
    "hf_T5_base": ("AutoModelForSeq2SeqLM", CONFIGURATIONS["t5-base"], 512),
}
"""Model class, configuration and number of tokens."""

GRAPH_NETWORKS = {
    "basic_gnn_edgecnn": "EdgeCNN",
    "basic_gnn_gcn": "GCN",
    "basic_gnn_gin": "GIN",
    "basic_gnn_sage": "GraphSAGE",
}


def _torchvision(name: str) -> Build:
    def build(batch: int, request: Request) -> Case:
        size = 64 if request.tiny else 224
        return case_of(getattr(torchvision.models, name)(weights=None), (torch.randn(batch, 3, size, size),))

    return build


def _timm(name: str) -> Build:
    def build(batch: int, request: Request) -> Case:
        options = {"img_size": 64, "depth": 2} if request.tiny and name.startswith("vit") else {}
        module = timm.create_model(name, pretrained=False, **options)
        channels, height, width = module.default_cfg["input_size"]
        if request.tiny:
            height = width = 64
        return case_of(module, (torch.randn(batch, channels, height, width),))

    return build


def _hugging_face(kind: str, configuration: Callable[[], Any], tokens: int) -> Build:
    def build(batch: int, request: Request) -> Case:
        config = configuration()
        config.use_cache = False
        if request.tiny:
            config = type(config)(**{k: v for k, v in NARROW.items() if hasattr(config, k)}, use_cache=False)
        length = 16 if request.tiny else tokens
        ids = torch.randint(4, config.vocab_size, (batch, length))
        inputs = {"input_ids": ids}
        if request.training:
            inputs["labels"] = torch.randint(4, config.vocab_size, (batch, length))
        elif "Seq2Seq" in kind:
            inputs["decoder_input_ids"] = ids
        return case_of(getattr(transformers, kind).from_config(config), inputs)

    return build


def _clip(batch: int, request: Request) -> Case:
    size, tokens = (32, 8) if request.tiny else (224, 16)
    layers = {"num_hidden_layers": 2} if request.tiny else {}
    config = transformers.CLIPConfig(
        text_config=dict(layers),
        vision_config={"image_size": size, **({"patch_size": 16} if request.tiny else {}), **layers},
    )
    inputs = {"input_ids": torch.randint(0, 40000, (batch, tokens)), "pixel_values": torch.randn(batch, 3, size, size)}
    return case_of(transformers.CLIPModel(config), inputs)


def _graph_network(name: str) -> Build:
    def build(batch: int, request: Request) -> Case:
        try:
            networks = importlib.import_module("torch_geometric.nn")
        except ImportError as error:
            raise Unavailable("needs torch_geometric") from error
        graph = random_graph(50, 200, 16) if request.tiny else random_graph()
        network = getattr(networks, name)(graph.num_features, 64, 1, 41)
        return case_of(network, {"x": graph.x, "edge_index": graph.edge_index}, "a random graph")

    return build


PACKAGES: Mapping[str, Build] = {
    **{name: _torchvision(name) for name in TORCHVISION},
    **{name: _timm(architecture) for name, architecture in TIMM.items()},
    **{name: _hugging_face(*row) for name, row in HUGGING_FACE.items()},
    **{name: _graph_network(network) for name, network in GRAPH_NETWORKS.items()},
    "hf_clip": _clip,
    "stable_diffusion_text_encoder": stable_diffusion_text_encoder,
    "stable_diffusion_unet": stable_diffusion_unet,
}
