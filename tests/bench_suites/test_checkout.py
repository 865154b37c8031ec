"""What models of a TorchBench checkout find in place of what they would download, or of what packages have dropped."""

from __future__ import annotations

import importlib
import sys

import torch

from bench_suites.suites.torchbench_checkout import offline


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
