"""TorchBench models whose own classes read downloaded data: their networks from the checkout, on random inputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import nn

from bench_suites.suites.case import Case, Request, Unavailable
from bench_suites.suites.torchbench_checkout import case_of, network_module, offline

Build = Callable[[str, Request], Case]


def build(folder: str, name: str, request: Request) -> Case:
    """The network `name` of the checkout in `folder`, with random inputs."""
    return NETWORKS[name](folder, request)


def _super_slomo(folder: str, request: Request) -> Case:
    with offline():
        network = network_module(folder, "Super_SloMo", "model_wrapper").Model("cpu")
    frames = [torch.rand(request.batch or 1, 3, 352, 352) for _ in range(3)]
    return case_of(network, (torch.zeros(request.batch or 1, dtype=torch.long), *frames), "random inputs")


def _learning_to_paint(folder: str, request: Request) -> Case:
    network = network_module(folder, "LearningToPaint", "baseline.DRL.actor").ResNet(9, 18, 65)
    return case_of(network, (torch.rand(request.batch or 4, 9, 128, 128),), "the actor, random inputs")


def _drq(folder: str, request: Request) -> Case:
    module = network_module(folder, "drq", "drq")
    network = _DrqActor(module.Actor(((9, 84, 84), 50), (1,), 1024, 2, [-10, 2]))
    return case_of(network, (torch.rand(request.batch or 1, 9, 84, 84),), "mean of the actor, random inputs")


class _DrqActor(nn.Module):
    """The mean of the distribution that drq's actor gives."""

    def __init__(self, actor: nn.Module) -> None:
        super().__init__()
        self.actor = actor

    def forward(self, observation: torch.Tensor) -> Any:
        """The mean action, f[batch, 1], before it is squashed."""
        return self.actor(observation).loc


def _omniglot(track: bool) -> Build:
    def build_network(folder: str, request: Request) -> Case:
        def block(channels: int) -> list[nn.Module]:
            norm = nn.BatchNorm2d(64, momentum=1.0, track_running_stats=track)
            return [nn.Conv2d(channels, 64, 3), norm, nn.ReLU(inplace=True), nn.MaxPool2d(2, 2)]

        network = nn.Sequential(*block(1), *block(64), *block(64), nn.Flatten(), nn.Linear(64, 5))
        return case_of(network, (torch.rand(request.batch or 5, 1, 28, 28),), "random inputs")

    return build_network


def _speech_transformer(folder: str, request: Request) -> Case:
    def part(name: str) -> Any:
        return network_module(folder, "speech_transformer", f"speech_transformer.transformer.{name}")

    encoder = part("encoder").Encoder(320, 6, 8, 64, 64, 512, 2048, dropout=0.1, pe_maxlen=5000)
    decoder = part("decoder").Decoder(
        0, 1, 4230, 512, 6, 8, 64, 64, 512, 2048, dropout=0.1, tgt_emb_prj_weight_sharing=True, pe_maxlen=5000
    )
    batch = request.batch or 2
    inputs = (torch.randn(batch, 100, 320), torch.full((batch,), 100), torch.randint(2, 4230, (batch, 20)))
    return case_of(part("transformer").Transformer(encoder, decoder), inputs, "random inputs")


def _stargan(folder: str, request: Request) -> Case:
    network = network_module(folder, "pytorch_stargan", "model").Generator(64, 5, 6)
    batch = request.batch or 1
    return case_of(network, (torch.rand(batch, 3, 128, 128), torch.ones(batch, 5)), "random inputs")


def _cyclegan(folder: str, request: Request) -> Case:
    networks = network_module(folder, "pytorch_CycleGAN_and_pix2pix", "models.networks")
    network = networks.ResnetGenerator(3, 3, 64, norm_layer=networks.get_norm_layer("instance"), n_blocks=9)
    return case_of(network, (torch.rand(request.batch or 1, 3, 128, 128),), "random inputs of 128 x 128")


def _background_matting(folder: str, request: Request) -> Case:
    networks = network_module(folder, "Background_Matting", "networks")
    network = networks.ResnetConditionHR((3, 3, 1, 4), 4, n_blocks1=7, n_blocks2=3)
    batch, size = request.batch or 1, 128
    inputs = [torch.rand(batch, channels, size, size) for channels in (3, 3, 1, 4)]
    return case_of(network, inputs, "random inputs of 128 x 128")


def _yolov3(folder: str, request: Request) -> Case:
    models = network_module(folder, "yolov3", "yolo_models")
    assert models.__file__ is not None
    network = models.Darknet(str(Path(models.__file__).parent / "cfg" / "yolov3-spp.cfg"), 512)
    return case_of(network, (torch.rand(request.batch or 1, 3, 192, 256),), "random inputs of 192 x 256")


def stable_diffusion_text_encoder(batch: int, request: Request) -> Case:
    """The text encoder of Stable Diffusion 2 (23 layers of 1024), from `transformers`."""
    config = transformers.CLIPTextConfig(
        hidden_size=1024,
        intermediate_size=4096,
        num_hidden_layers=2 if request.tiny else 23,
        num_attention_heads=16,
        hidden_act="gelu",
    )
    return case_of(transformers.CLIPTextModel(config), (torch.randint(0, 32000, (batch, 10)),))


def stable_diffusion_unet(batch: int, request: Request) -> Case:
    """The denoiser of Stable Diffusion 2 with half its channels on a quarter of the size, from `diffusers`."""
    try:
        from diffusers import UNet2DConditionModel  # noqa: PLC0415 - optional
    except ImportError as error:
        raise Unavailable("needs diffusers") from error
    network = UNet2DConditionModel(
        sample_size=32,
        block_out_channels=(160, 320, 640, 640),
        attention_head_dim=(5, 10, 20, 20),
        cross_attention_dim=1024,
        use_linear_projection=True,
    )
    inputs = (torch.randn(batch, 4, 32, 32), torch.tensor([1.0]), torch.randn(batch, 1, 1024))
    return case_of(network, inputs, "half the channels, latents of 32 x 32")


NETWORKS: Mapping[str, Build] = {
    "Background_Matting": _background_matting,
    "LearningToPaint": _learning_to_paint,
    "Super_SloMo": _super_slomo,
    "drq": _drq,
    "functorch_maml_omniglot": _omniglot(track=False),
    "maml_omniglot": _omniglot(track=True),
    "pytorch_CycleGAN_and_pix2pix": _cyclegan,
    "pytorch_stargan": _stargan,
    "speech_transformer": _speech_transformer,
    "stable_diffusion_text_encoder": lambda folder, request: stable_diffusion_text_encoder(request.batch or 1, request),
    "stable_diffusion_unet": lambda folder, request: stable_diffusion_unet(request.batch or 1, request),
    "yolov3": _yolov3,
}
