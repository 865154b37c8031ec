"""The C++ of a few kernels, as files to read. ICPU_UPDATE_GOLDEN=1 writes them again after a change that is meant."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from bench_suites.kernels.row import Size
from bench_suites.kernels.table import FAMILIES
from inductor_cpu.codegen.kernel import generate
from inductor_cpu.errors import InternalError
from inductor_cpu.ir.index import loop_var, of, size_symbol, value_symbol
from inductor_cpu.ir.kernel import Kernel, VectorPlan
from inductor_cpu.ir.micro_kernels import MICRO_KERNELS
from inductor_cpu.ir.operators import PACKED_INT_MM, PACKED_LINEAR
from inductor_cpu.targets.cpu import ISAS, Target
from tests.lower.harness import lower
from tests.schedule.harness import kernels, schedule_of

from .build import BF16, BOOL, F32, I64, Build
from .test_alternating import centred
from .test_divided import elements
from .test_reductions import horizontal, layer_norm, softmax, softmax_columns, vertical

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
N = size_symbol("n")


def machine(isa: str) -> Target:
    """A target that does not depend on this machine."""
    return Target(next(i for i in ISAS if i.name == isa), 4, 32 << 10, 1 << 20, 16 << 20, "any")


def gelu(isa: str) -> Kernel:
    """A gelu of bf16 over a flat array, shared among threads, with a tail."""
    i = loop_var("i", of(N))
    b = Build()
    x = b.cast(b.load("X", of(i), BF16), F32)
    tail = b.op("erf", b.op("mul", x, b.const(0.7071067811865476, F32)))
    b.store(
        "Y", of(i), b.cast(b.op("mul", b.op("mul", x, b.const(0.5, F32)), b.op("add", tail, b.const(1, F32))), BF16)
    )
    return b.kernel(isa, (i,), vector=i, parallel=1, work=30, sizes=(N,))


def embedding(isa: str) -> Kernel:
    """Rows chosen by checked indices, padded with zeros where the mask says so."""
    i, j = loop_var("i", of(N)), loop_var("j", 768)
    b = Build()
    k = b.op("check_index", b.load("K", of(i), I64, "uniform"), b.const(1000, I64))
    mask = b.load("M", of(i), BOOL, "uniform")
    row = b.load("W", of(value_symbol(k, 1000)) * 768 + of(j), F32, mask=mask)
    b.store("Y", of(i) * 768 + of(j), row)
    return b.kernel(isa, (i, j), vector=j, parallel=2, work=2, sizes=(N,))


KERNELS = {
    "gelu_bf16": (gelu, "avx512"),
    "embedding": (embedding, "avx2"),
    "softmax_rows": (lambda isa: softmax(isa, 77, True), "avx512"),
    "softmax_columns": (lambda isa: softmax_columns(isa, 19, False), "avx2"),
    "softmax_scalar": (lambda isa: softmax(isa, 77, False), "scalar"),
    "layer_norm_bf16": (lambda isa: layer_norm(isa, 67), "avx512"),
    "centred_rows_bf16": (lambda isa: centred(isa, 100), "avx2"),
    "sum_of_a_long_row": (lambda isa: horizontal(isa, "sum", F32, 50000), "avx2"),
    "sum_of_columns": (lambda isa: vertical(isa, "sum", F32), "avx512"),
    "scatter_of_owners": (lambda isa: elements(isa, F32, "add"), "avx512"),
}


#: Rows of the corpus, for the plans that the scheduler chooses for them: what each one shows.
FROM_MODELS = {
    "rotary_embedding": "a concatenation by masks",
    "window_partition": "rows at a place with quotients and remainders",
    "pixel_shuffle": "a gather with quotients of the lanes' positions",
    "transposed_add": "squares turned over in registers",
    "sum_columns": "a reduction with one result a lane",
    "layer_norm": "two passes over a row that is kept, then a third",
    "causal_mask": "indices compared in vectors, integer inputs",
    "masked_fill": "a mask of booleans that repeats",
    "normalize_photo": "a strided load of bytes",
    "quantize_rows": "a maximum of a row, narrow integers",
    "dequantize_rows_float8": "floats of 8 bits",
    "pad_image": "masked loads",
    "embedding_and_layer_norm": "rows by checked indices, then a reduction",
    "gather_logits": "a gather by indices from memory",
    "batch_norm_relu_nhwc": "vectors over the channels",
    "adamw_update": "updates in place",
    "clip_boxes": "neighbours from two kernels as records",
    "unit_vectors": "a fold of three points without a loop, stored as records",
}


def _linear_gelu(x: torch.Tensor, packed: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.gelu(PACKED_LINEAR(x, packed, None, bias, 40, "amx_bf16"))


def _quantized_linear(x: torch.Tensor, packed: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    y = (PACKED_INT_MM(x, packed, 40, "vnni_u8").float() * scale).relu()
    return (y * 20.0).round().add(3).clamp(0, 255).to(torch.uint8)


def _packed(name: str) -> torch.Tensor:
    row = MICRO_KERNELS[name]
    return torch.zeros(row.packed_shape(40, 64), dtype=row.weight)


#: Products with what is fused into them.
PRODUCTS = {
    "linear_gelu_bf16": (_linear_gelu, torch.zeros(9, 64).bfloat16(), _packed("amx_bf16"), torch.zeros(40).bfloat16()),
    "quantized_linear": (_quantized_linear, torch.zeros(9, 64).byte(), _packed("vnni_u8"), torch.zeros(40)),
}


def _update_short_rows(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    x = x.clone()
    x[1:-1, 3:, 1, 0] = y
    return x


def test_text_of_an_update_of_short_rows_is_the_golden_one() -> None:
    """Lanes along three loops, an order of lanes and masks that are the same in every vector."""
    inputs = torch.zeros(9, 26, 2, 2).double(), torch.zeros(7, 23).double()
    (kernel,) = kernels(schedule_of(lower(_update_short_rows, *inputs)))
    compare("update_short_rows", generate(kernel, machine("avx512")).code)


@pytest.mark.parametrize("name", PRODUCTS)
def test_text_of_a_product_is_the_golden_one(name: str) -> None:
    function, *inputs = PRODUCTS[name]
    (kernel,) = kernels(schedule_of(lower(function, *inputs)))
    compare(name, generate(kernel, machine("avx512")).code)


@pytest.mark.parametrize("name", KERNELS)
def test_generated_text_is_the_golden_one(name: str) -> None:
    build, isa = KERNELS[name]
    compare(name, generate(build(isa), machine(isa)).code)


def test_a_scatter_in_pieces_is_one_of_owners_but_for_the_call_around_its_loops() -> None:
    owners, pieces = (
        generate(elements("avx512", F32, "add", pieces=count), machine("avx512")).code.splitlines() for count in (1, 16)
    )
    head, call = (line for line, other in zip(pieces, owners, strict=True) if line != other)
    assert head.startswith('extern "C" ')
    assert "icpu::parallel_copies(p2, 300, 16, n0, icpu::kLanes, threads, " in call


@pytest.mark.parametrize("name", FROM_MODELS)
def test_text_of_a_kernel_from_models_is_the_golden_one(name: str) -> None:
    (row,) = (row for rows in FAMILIES.values() for row in rows if row.name == name)
    schedule = schedule_of(lower(row.function, *row.build(F32, Size.TINY)))
    compare(name, "\n".join(generate(kernel, machine("avx512")).code for kernel in kernels(schedule)))


def compare(name: str, text: str) -> None:
    """With the file, which is written first if the environment asks for it."""
    path = GOLDEN / f"{name}.cpp"
    if os.environ.get("ICPU_UPDATE_GOLDEN") == "1":
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    assert text == path.read_text(), f"{path} differs; ICPU_UPDATE_GOLDEN=1 writes it again"


def test_kernels_that_differ_in_names_share_a_symbol() -> None:
    kernel = gelu("avx512")
    renamed = replace(
        kernel,
        label="other",
        args=tuple(replace(arg, buffer="b" + arg.buffer) for arg in kernel.args),
        body=(replace(kernel.body[0], buffer="bX"), *kernel.body[1:]),  # type: ignore[call-arg]
        stores=tuple(replace(store, buffer="bY") for store in kernel.stores),
    )
    assert generate(kernel, machine("avx512")) == replace(generate(renamed, machine("avx512")), label=kernel.label)


def test_reasons_cannot_break_out_of_the_comment() -> None:
    plan = VectorPlan(None, 0, reasons=("first \\\nint x; */", "second"))
    code = generate(replace(gelu("scalar"), vector=plan), machine("scalar")).code
    comment = next(line for line in code.splitlines() if "Scalar code" in line)
    assert comment == "// Scalar code: first __int x; */; second."


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda k: replace(k, vector=replace(k.vector, lanes=8)), "8 lanes on avx512"),
        (lambda k: replace(k, vector=replace(k.vector, access=())), "no access for load %0"),
        (lambda k: replace(k, sizes=()), "neither a loop nor a size"),
        (lambda k: replace(k, args=k.args[1:]), "not an argument"),
        (lambda k: replace(k, stores=(replace(k.stores[0], value=1),)), "a store of torch.float32"),
        (lambda k: replace(k, vector=replace(k.vector, loop=loop_var("x", 4))), "is not one of its loops"),
    ],
)
def test_a_kernel_that_breaks_the_contract_is_an_internal_error(change: object, message: str) -> None:
    with pytest.raises(InternalError, match=message):
        generate(change(gelu("avx512")), machine("avx512"))  # type: ignore[operator]
