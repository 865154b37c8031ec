"""TorchBench: the models of the public repository pytorch/benchmark, imported from a checkout of it.

Without a checkout, the rows that have the same architecture in a package are built from there. Nothing of the
repository is copied; what it would download is replaced by random weights and inputs.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

from bench_suites.suites import torchbench_checkout as checkout
from bench_suites.suites import torchbench_networks as networks
from bench_suites.suites import torchbench_packages as packages
from bench_suites.suites.case import Case, Mode, Request, Row, Suite, Unavailable

Build = Callable[[Request], Case]

BATCHES: dict[str, int | None] = {
    "BERT_pytorch": 2,
    "alexnet": 4,
    "basic_gnn_edgecnn": None,
    "basic_gnn_gcn": None,
    "basic_gnn_gin": None,
    "basic_gnn_sage": None,
    "dcgan": 8,
    "demucs": 1,
    "densenet121": 2,
    "dlrm": 64,
    "functorch_dp_cifar10": 8,
    "hf_Albert": 1,
    "hf_Bart": 1,
    "hf_Bert": 1,
    "hf_Bert_large": 1,
    "hf_BigBird": 1,
    "hf_DistilBert": 1,
    "hf_GPT2": 1,
    "hf_Longformer": 1,
    "hf_Reformer": 1,
    "hf_Roberta_base": 1,
    "hf_T5": 1,
    "hf_T5_base": 1,
    "hf_Whisper": 1,
    "hf_clip": 2,
    "hf_distil_whisper": 1,
    "lennard_jones": 100,
    "llama": 2,
    "maml": None,
    "microbench_unbacked_tolist_sum": 1,
    "mnasnet1_0": 4,
    "mobilenet_v2": 4,
    "mobilenet_v3_large": 4,
    "nanogpt": 1,
    "nvidia_deeprecommender": 4,
    "phlippe_densenet": 8,
    "phlippe_resnet": 8,
    "pyhpc_equation_of_state": 65536,
    "pyhpc_isoneutral_mixing": 65536,
    "pyhpc_turbulent_kinetic_energy": None,
    "pytorch_unet": 1,
    "resnet152": 2,
    "resnet18": 4,
    "resnet50": 4,
    "resnext50_32x4d": 4,
    "shufflenet_v2_x1_0": 4,
    "soft_actor_critic": None,
    "squeezenet1_1": 4,
    "timm_efficientnet": 2,
    "timm_nfnet": 2,
    "timm_regnet": 2,
    "timm_resnest": 2,
    "timm_vision_transformer": 2,
    "timm_vovnet": 2,
    "tts_angular": 8,
    "vgg16": 2,
}
"""The models that are built by their own classes, with reduced batch sizes; None where the model fixes its own."""

TRAINING_BATCHES = {"demucs": 4}
"""Where a training step needs another batch: demucs shuffles sources among four samples."""

INFERENCE_ONLY = {
    "hf_Whisper",
    "hf_distil_whisper",
    "llama",
    "maml",
    "microbench_unbacked_tolist_sum",
    "pyhpc_equation_of_state",
    "pyhpc_isoneutral_mixing",
    "pyhpc_turbulent_kinetic_energy",
    "stable_diffusion_unet",
    "stable_diffusion_text_encoder",
}

FROM_PACKAGES = {"hf_clip"}
"""Built from the package also with a checkout: their classes read downloaded data first."""

QUICK = {"resnet18", "squeezenet1_1", "pyhpc_equation_of_state", "hf_DistilBert", "lennard_jones", "nanogpt"}


def _build(name: str, batch: int | None, request: Request) -> Case:
    own = TRAINING_BATCHES.get(name, batch) if request.training else batch
    size = request.batch or own
    if request.torchbench_dir is not None:
        # Tiny is for tests; the repository's classes know no sizes but their own.
        if name in FROM_PACKAGES:
            return packages.PACKAGES[name](size or 2, request)
        if name in networks.NETWORKS:
            return networks.build(request.torchbench_dir, name, request)
        return checkout.build(request.torchbench_dir, name, size, request)
    if name in packages.PACKAGES:
        return packages.PACKAGES[name](size or 2, request)
    raise Unavailable("is only in the repository pytorch/benchmark: give --torchbench-dir")


def _modes(name: str) -> tuple[Mode, ...]:
    return ("inference",) if name in INFERENCE_ONLY else ("inference", "training")


NAMES = {**BATCHES, **dict.fromkeys([*networks.NETWORKS, *packages.PACKAGES]), **BATCHES}

ROWS = tuple(
    Row(name, functools.partial(_build, name, NAMES[name]), quick=name in QUICK, modes=_modes(name))
    for name in sorted(NAMES, key=str.lower)
)

TORCHBENCH = Suite("torchbench", ROWS, inference=1e-4, training=1e-4, low_precision=1e-3)
