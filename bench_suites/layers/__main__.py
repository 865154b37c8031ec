"""python -m bench_suites.layers: compile single layers and time each against eager mode, what loses most first."""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path

import torch
from tabulate import tabulate
from tqdm import tqdm

from bench_suites import machine
from bench_suites.layers.measure import Measured, measure
from bench_suites.layers.table import LAYERS
from bench_suites.timing import geometric_mean

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def main(arguments: list[str]) -> int:
    """Times the layers that are asked for; 1 where one failed or differs."""
    parser = argparse.ArgumentParser(prog="python -m bench_suites.layers", description=__doc__)
    parser.add_argument("--dtype", choices=list(DTYPES), default="float32")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--mode", choices=["inference", "training"], default="inference")
    parser.add_argument("--filter", type=re.compile, help="only layers whose name matches this expression")
    parser.add_argument("--out", type=Path, help="also write the figures to this file, a line of JSON for each layer")
    chosen = parser.parse_args(arguments)
    torch.set_num_threads(chosen.threads)
    torch._dynamo.config.recompile_limit = 10**6  # all functions share a code object
    training = chosen.mode == "training"
    layers = [
        layer
        for layer in LAYERS
        if (layer.trained or not training)
        and (layer.low_precision or chosen.dtype == "float32")
        and (not chosen.filter or chosen.filter.search(layer.name))
    ]
    found = [measure(layer, DTYPES[chosen.dtype], training) for layer in tqdm(layers, unit="layer", disable=None)]
    if chosen.out:
        chosen.out.write_text("".join(json.dumps(vars(m)) + "\n" for m in found))
    print(f"{machine.sentence(machine.describe())}; {chosen.dtype}, {chosen.mode}, {chosen.threads} threads\n")
    print(page(found))
    return 1 if any(m.error for m in found) else 0


def page(found: list[Measured]) -> str:
    """The table, what loses most time first, and after it what failed."""
    timed = sorted((m for m in found if not m.error), key=lambda m: -m.lost)
    rows = [
        (m.name, f"{m.eager:.0f}", f"{m.compiled:.0f}", f"{m.eager / m.compiled:.2f}", f"{m.lost:+.0f}") for m in timed
    ]
    table = tabulate(rows, ("layer", "eager us", "icpu us", "times eager", "lost us"), disable_numparse=True)
    mean = f"{len(timed)} layers, {geometric_mean(m.eager / m.compiled for m in timed):.2f} times eager in the mean"
    failed = [f"{m.name}: {m.error}" for m in found if m.error]
    return "\n".join([table, "", mean, *failed])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
