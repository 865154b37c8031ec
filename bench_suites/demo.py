"""`make demo`: ResNet-50 and BERT-base, compiled with icpu, against eager mode.

Both run in turn in this process. The errors are relative to the same model in double precision.
"""

from __future__ import annotations

import argparse

import torch

import inductor_cpu
from bench_suites import measure
from bench_suites.models import RECIPES, Model, build

HEADERS = (
    "model",
    "eager ms",
    "icpu ms",
    "speedup",
    "eager error",
    "icpu error",
    "same",
    "first call s",
    "vectorized",
    "extern calls",
)


def row(name: str, dtype: torch.dtype, seconds: float) -> list[object]:
    """One line of the table: compile, check and time one model."""
    model = build(name, dtype)
    reference = measure.fp64_reference(model)
    with torch.no_grad():
        compiled = torch.compile(model.module, backend="icpu")
        first, output = measure.first_call(lambda: model(compiled))
        accuracy = measure.check(model, model(), output, reference)
        times = measure.take_turns({"eager": model, "icpu": lambda: model(compiled)}, seconds)
        explained = inductor_cpu.explain(model.module, *model.args, **model.kwargs)
    return [
        label(model, dtype),
        times["eager"],
        times["icpu"],
        f"{times['eager'] / times['icpu']:.2f}x",
        accuracy.eager_error,
        accuracy.compiled_error,
        "yes" if accuracy.passes else "NO",
        first,
        f"{explained.vectorized}/{len(explained.kernels)}",
        explained.extern_calls,
    ]


def label(model: Model, dtype: torch.dtype) -> str:
    """`resnet50 float32`."""
    return f"{model.name} {str(dtype).removeprefix('torch.')}"


def main() -> None:
    """Parse the arguments, run, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="+", default=["resnet50", "bert-base"], choices=sorted(RECIPES))
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16"])
    parser.add_argument("--seconds", type=float, default=5.0, help="time to measure each model")
    args = parser.parse_args()
    print(f"{measure.machine()}; batch 1, random weights\n", flush=True)
    rows = [row(name, getattr(torch, args.dtype), args.seconds) for name in args.models]
    print(measure.table(HEADERS, rows))


if __name__ == "__main__":
    main()
