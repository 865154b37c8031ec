"""`python -m bench_suites.weights`: how much memory weights and their packed copies take, by three settings.

Each case has a process of its own: it builds a model, compiles it for three batch sizes and for any size, calls each
graph three times and looks at icpu's counters and at the resident memory.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Mapping

import torch

import inductor_cpu
from bench_suites import measure
from bench_suites.memory import settle
from bench_suites.models import RECIPES, build
from inductor_cpu.runtime.originals import memory_of_weights
from inductor_cpu.runtime.weights import memory_of_packed_weights

SETTINGS: Mapping[str, Mapping[str, object]] = {
    "default": {},
    "drop_original_weights": {"cpp.drop_original_weights": True},
    "weight_prepack off": {"cpp.weight_prepack": False},
}
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
HEADERS = ("model", "setting", "weights MiB", "left MiB", "packed MiB", "together", "process grew by MiB")


@torch.no_grad()
def case(name: str, dtype: str, setting: str, tiny: bool) -> dict[str, int]:
    """Bytes of one case: weights before, those that have memory after, packed copies, growth of the process."""
    torch.compile(torch.relu, backend="icpu")(torch.randn(8))  # loads what every graph needs
    model = build(name, DTYPES[dtype], tiny=tiny)
    weights, before = memory_of_weights(model.module), settle()
    with inductor_cpu.config.patch(SETTINGS[setting]):
        for batch, dynamic in ((1, False), (2, False), (4, False), (3, True)):
            inputs = build(name, DTYPES[dtype], batch=batch, tiny=tiny)
            compiled = torch.compile(model.module, backend="icpu", dynamic=dynamic)
            for _ in range(3):
                compiled(*inputs.args, **inputs.kwargs)
    del inputs
    return {
        "weights": weights,
        "left": memory_of_weights(model.module),
        "packed": memory_of_packed_weights(),
        "grew": settle() - before,
    }


def measured(name: str, dtype: str, setting: str, tiny: bool) -> dict[str, int]:
    """`case` in a process of its own. Raises CalledProcessError."""
    command = [sys.executable, "-m", "bench_suites.weights", "--case", name, dtype, setting]
    done = subprocess.run(command + ["--tiny"] * tiny, check=True, stdout=subprocess.PIPE, text=True)
    found: dict[str, int] = json.loads(done.stdout.splitlines()[-1])
    return found


def row(name: str, dtype: str, setting: str, tiny: bool) -> list[object]:
    """One line of the table."""
    found = measured(name, dtype, setting, tiny)
    total = (found["left"] + found["packed"]) / found["weights"]
    sizes = [f"{found[key] / 2**20:.1f}" for key in ("weights", "left", "packed")]
    return [f"{name} {dtype}", setting, *sizes, f"{total:.2f}x", f"{found['grew'] / 2**20:.0f}"]


def main() -> None:
    """Parse the arguments, run, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="+", default=["resnet50", "bert-base"], choices=list(RECIPES))
    parser.add_argument("--dtypes", nargs="+", default=list(DTYPES), choices=list(DTYPES))
    parser.add_argument("--tiny", action="store_true", help="a few narrow layers of each model")
    parser.add_argument("--case", nargs=3, metavar=("MODEL", "DTYPE", "SETTING"), help="one case, as JSON")
    args = parser.parse_args()
    if args.case:
        name, dtype, setting = args.case
        print(json.dumps(case(name, dtype, setting, args.tiny)))
        return
    names = [(name, dtype, setting) for name in args.models for dtype in args.dtypes for setting in SETTINGS]
    print(measure.table(HEADERS, [row(*one, args.tiny) for one in names]))


if __name__ == "__main__":
    main()
