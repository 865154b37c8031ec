"""What models of a TorchBench checkout find in place of what they would download, or of what packages have dropped."""

from __future__ import annotations

import importlib
import sys

import pytest
import torch
import transformers

from bench_suites.suites.torchbench_checkout import CONFIGURATIONS, offline


def test_graph_networks_find_the_rewriter_that_their_package_no_longer_has() -> None:
    name, module = "torch_geometric.compile", torch.nn.Linear(2, 2)
    with offline():
        assert sys.modules[name].to_jittable(module) is module
    assert name not in sys.modules


def test_what_is_imported_while_a_model_is_built_stays_imported() -> None:
    sys.modules.pop("colorsys", None)
    with offline():
        importlib.import_module("colorsys")
    assert "colorsys" in sys.modules


@pytest.mark.parametrize("name", ["t5-small", "t5-base"])
def test_t5_has_a_first_token_to_be_trained_with(name: str) -> None:
    config = CONFIGURATIONS[name]()
    config.update({"d_model": 8, "d_kv": 4, "d_ff": 8, "num_layers": 1, "num_decoder_layers": 1, "vocab_size": 16})
    tokens = torch.ones(1, 4, dtype=torch.int64)
    output = transformers.T5ForConditionalGeneration(config)(input_ids=tokens, labels=tokens)
    assert output.loss.isfinite()
