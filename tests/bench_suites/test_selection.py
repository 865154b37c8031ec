"""Tiny models of all suites, inference and training, against eager: many architectures in little time."""

from __future__ import annotations

from typing import Literal

import pytest
import torch

from bench_suites.execute import build_case, run_job
from bench_suites.job import Job
from bench_suites.suites.table import NAMES, load
from tests.cases import cases

#: BERT and Swin are two of tests/e2e/test_models.py.
INFERENCE = cases(
    [("huggingface", "Llama_generate"), ("torchbench", "basic_gnn_gcn")],
    [
        ("huggingface", "XLNetLMHeadModel"),
        ("huggingface", "DebertaV2ForMaskedLM"),
        ("huggingface", "GoogleFnet"),
        ("huggingface", "Qwen"),
        ("timm", "lcnet_050"),
        ("timm", "swin_base_patch4_window7_224"),
    ],
)

#: Every run trains ResNet in tests/e2e/test_training.py.
TRAINING = cases(
    [("huggingface", "T5Small")],
    [
        ("timm", "convnextv2_nano"),
        ("huggingface", "DistillGPT2"),
        ("huggingface", "YituTechConvBert"),
        ("timm", "resnet18"),
        ("torchbench", "squeezenet1_1"),
    ],
)

#: tests/e2e/test_models.py has a vision transformer in bf16.
LOW_PRECISION = cases(
    [("huggingface", "BertForMaskedLM", "amp-bf16")],
    [("timm", "deit_tiny_patch16_224", "bfloat16"), ("timm", "resnet18", "bfloat16")],
)


def check(suite: str, model: str, mode: Literal["inference", "training"], dtype: str = "float32") -> None:
    """Run eager and icpu once, and demand a pass with every graph compiled."""
    torch._dynamo.reset()
    result = run_job(Job(suite, model, ("eager", "icpu"), dtype=dtype, mode=mode, tiny=True, repeat=1))
    assert result["status"] == "pass", result.get("error") or result["backends"]["icpu"]["error"]
    reports = result["backends"]["icpu"]["reports"]
    assert reports["graphs"] >= (2 if mode == "training" else 1)
    assert not reports["eager_graphs"]


@pytest.mark.parametrize("model", ["resmlp_12_224", "inception_v3"])
def test_small_images_are_as_large_as_the_model_needs(model: str) -> None:
    """One whose size is fixed, and one that halves what it sees too often for 64 pixels."""
    case = build_case(Job("timm", model, (), tiny=True))
    with torch.no_grad():
        assert case.module(*case.args).shape == (2, 1000)


@pytest.mark.parametrize(("suite", "model"), INFERENCE)
def test_inference_of_a_tiny_model_is_the_same_as_eager(suite: str, model: str) -> None:
    check(suite, model, "inference")


@pytest.mark.parametrize(("suite", "model"), TRAINING)
def test_a_training_step_of_a_tiny_model_is_the_same_as_eager(suite: str, model: str) -> None:
    check(suite, model, "training")


@pytest.mark.parametrize(("suite", "model", "dtype"), LOW_PRECISION)
def test_low_precision_of_a_tiny_model_is_the_same_as_eager(suite: str, model: str, dtype: str) -> None:
    check(suite, model, "inference", dtype)


def test_a_quantized_model_is_judged_by_the_model_before_quantization() -> None:
    result = run_job(Job("huggingface", "DistilBertForMaskedLM", ("eager",), dtype="int8", tiny=True, repeat=1))
    assert result["status"] == "pass"
    assert 1e-4 < result["eager_error"] < 0.2  # of steps of 8 bits, not of a float


def test_the_lists_are_complete() -> None:
    sizes = {name: len(load(name).rows) for name in NAMES}
    assert sizes["torchbench"] >= 60
    assert sizes["huggingface"] >= 33
    assert sizes["timm"] >= 61
