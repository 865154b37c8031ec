"""The choice of who computes a linear."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import inductor_cpu
from inductor_cpu.graph.convolution import unsupported_dtype
from inductor_cpu.ir.micro_kernels import BY_LOOPS, MICRO_KERNELS
from inductor_cpu.ir.windows import Windows
from inductor_cpu.kernels.choice import ProductChoice
from inductor_cpu.kernels.linear import (
    PerCall,
    Shape,
    candidates,
    choose,
    choose_per_call,
    is_narrow,
    is_small,
    loops_pay,
    operands_per_call,
    own_kernels,
    pays_per_call,
    pixels_pay_per_call,
    wins_convolution,
)
from inductor_cpu.kernels.usable import usable_micro_kernels
from inductor_cpu.runtime.cache import KernelCache
from inductor_cpu.runtime.measurements import Measurements
from inductor_cpu.targets.blocking import Blocking, blocking_for
from inductor_cpu.targets.cpu import ISAS, LEVELS, best_isa, detect
from tests.cases import cases


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("rows", [1, 16, 4096, None])
def test_table_prefers_packed_weights_and_says_the_rates(rows: int | None, dtype: torch.dtype) -> None:
    decision = choose(Shape(rows, 768, 768, dtype, dtype))
    assert decision.implementation == "onednn"
    assert "GFLOP/s" in decision.reason


def test_dtype_without_a_packed_kernel_goes_to_the_blas() -> None:
    assert choose(Shape(1, 8, 8, torch.float64, torch.float64)).implementation == "blas"


@pytest.mark.parametrize(("blas", "expected"), [(0.5, "blas"), (0.99, "onednn"), (2.0, "onednn")])
def test_measurement_decides_when_the_difference_is_clear(blas: float, expected: str) -> None:
    decision = choose(Shape(1, 8, 8, torch.float32, torch.float32), {"onednn": 1.0, "blas": blas})
    assert decision.implementation == expected
    assert "measured" in decision.reason


def test_candidates_compute_one_product() -> None:
    a, b = (call() for call in candidates(Shape(None, 16, 8, torch.float32, torch.float32), onednn=True).values())
    assert isinstance(a, torch.Tensor)
    torch.testing.assert_close(a, b)


def test_candidates_leave_the_random_numbers_of_the_program_alone() -> None:
    before = torch.get_rng_state()
    candidates(Shape(4, 16, 8, torch.float32, torch.float32), onednn=True)
    assert torch.equal(torch.get_rng_state(), before)


def test_measurement_is_made_once_and_remembered(tmp_path: Path) -> None:
    calls: list[str] = []

    def ask() -> dict[str, object]:
        calls.append("asked")
        return {"a": lambda: None}

    first = Measurements(KernelCache(tmp_path), "cpu").seconds("q", ask)  # type: ignore[arg-type]
    again = Measurements(KernelCache(tmp_path), "cpu").seconds("q", ask)  # type: ignore[arg-type]
    assert first == again
    assert calls == ["asked"]
    (file,) = tmp_path.glob("measured-*.json")
    assert json.loads(file.read_text()) == {"q": dict(first)}


def test_damaged_file_is_measured_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    measurements = Measurements(KernelCache(tmp_path), "cpu")
    measurements.seconds("q", lambda: {"a": lambda: None})
    (file,) = tmp_path.glob("measured-*.json")
    file.write_text("{")
    assert "a" in measurements.seconds("q", lambda: {"a": lambda: None})
    assert "made again" in caplog.text


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        ({"onednn": 1.0, "blas": 2.0, "fma_f32": 0.9}, "fma_f32"),
        ({"onednn": 1.0, "blas": 2.0, "fma_f32": 1.1}, "onednn"),
        ({"onednn": 1.0, "blas": 0.89, "fma_f32": 0.9}, "fma_f32"),
    ],
)
def test_measured_kernels_of_ours_take_part(times: dict[str, float], expected: str) -> None:
    assert choose(Shape(64, 64, 64, torch.float32, torch.float32), times).implementation == expected


@torch.no_grad()
@pytest.mark.parametrize("dtype", cases([torch.float16], [torch.float32, torch.bfloat16]), ids=str)
def test_max_autotune_measures_kernels_of_ours_for_the_same_numbers(dtype: torch.dtype) -> None:
    linear, x = nn.Linear(64, 48).to(dtype), torch.randn(20, 64).to(dtype)
    usable = own_kernels(Shape(20, 64, 48, dtype, dtype), usable_micro_kernels(detect()), blocking_for(detect()))[:2]
    with inductor_cpu.config.patch(max_autotune=True):
        explanation = str(inductor_cpu.explain(linear, x))
        torch._dynamo.reset()
        torch.testing.assert_close(torch.compile(linear, backend="icpu")(x), linear(x))
    measured = explanation[explanation.index("measured ") :]
    assert all(f"{name} " in measured for name in ("blas", *usable))
    assert ("onednn " in measured) == (unsupported_dtype(dtype, "linear") is None)


@torch.no_grad()
def test_max_autotune_measures_and_the_report_says_so() -> None:
    with inductor_cpu.config.patch(max_autotune=True):
        explanation = inductor_cpu.explain(nn.Linear(16, 8), torch.randn(4, 16))
    assert "linear 4x16x8 float32" in str(explanation)
    assert "measured blas" in str(explanation)
    assert ", loops " in str(explanation)


@pytest.mark.parametrize("dtype", cases([torch.float32], [torch.bfloat16, torch.float16]), ids=str)
def test_max_autotune_measures_packing_at_each_call_once(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is known is read from the cache; the fastest computes."""
    shape = Shape(20, 64, 48, dtype, dtype)
    own = own_kernels(shape, usable_micro_kernels(detect()) - {"split_f32"}, blocking_for(detect()))[:2]
    a, b = torch.randn(3, 20, 64).to(dtype), torch.randn(3, 64, 48).to(dtype)
    with inductor_cpu.config.patch(max_autotune=True):
        for second in (b, b.mT.contiguous().mT):
            explanation = str(inductor_cpu.explain(torch.bmm, a, second))
            of = f"product {PerCall(shape, 3, second is not b)}: "
            measured = explanation[explanation.index(of) :].splitlines()[0]
            assert all(f"{name} " in measured for name in ("measured", "blas", *own))
        monkeypatch.setattr("inductor_cpu.pipeline._Trials.own_product", None)
        torch._dynamo.reset()
        torch.testing.assert_close(torch.compile(torch.bmm, backend="icpu")(a, b), torch.bmm(a, b))


@pytest.mark.parametrize(
    ("name", "rows", "batch", "transposed", "features", "pay"),
    [
        ("fma_f16", 1, 1, False, (), True),
        ("fma_f16", 1, 1, True, (), False),
        ("fma_f16", 1, 4, True, (), True),
        ("fma_f16", 3, 1, True, (), True),
        ("fma_f16", 4, 1, False, (), False),
        ("fma_f16", None, 1, False, (), False),
        ("fma_f16", 1, 1, False, ("avx512_fp16",), False),
        ("fma_f16_avx2", 2, 1, False, (), True),
        ("fma_f16_avx2", 1, 1, True, (), False),
        ("fma_bf16", 1, 1, False, (), False),
        ("fma_bf16_avx2", 3, 1, False, (), True),
        ("fma_bf16_avx2", 1, 1, True, (), True),
        ("fma_bf16_avx2", 4, 1, False, (), False),
        ("fma_bf16_avx2", 3, 1, False, ("avx_ne_convert",), False),
        ("fma_f32", 1, 1, False, (), False),
    ],
)
def test_loops_multiply_few_rows_of_a_type_without_instructions(
    name: str, rows: int | None, batch: int, transposed: bool, features: tuple[str, ...], pay: bool
) -> None:
    micro = MICRO_KERNELS[name]
    product = PerCall(Shape(rows, 768, 768, micro.dtype, micro.weight), batch, transposed)
    assert loops_pay(name, product, features) == pay


@pytest.mark.parametrize(
    ("batch", "sizes", "transposed", "small"),
    [
        (1, (1000, 1, 64), False, True),  # a depth of one is no sum
        (None, (None, 1, None), True, True),
        (1, (32, 32, 32), False, True),
        (1, (32, 33, 32), False, False),
        (1, (16, 16, 16), True, True),
        (1, (16, 17, 16), True, False),
        (1, (1, 256, 256), True, True),
        (1, (1, 257, 256), True, False),
        (10000, (8, 8, 8), False, True),  # a library takes long for each
        (10000, (8, 8, 9), False, False),
        (10000, (4, 4, 4), True, True),
        (None, (4, 4, 4), True, True),
        (64, (8, 8, 8), True, False),
        (1, (None, 4, 4), False, False),
    ],
)
def test_small_products_are_loops(
    batch: int | None, sizes: tuple[int | None, int | None, int | None], transposed: bool, small: bool
) -> None:
    assert is_small(PerCall(Shape(*sizes, torch.float32, torch.float32), batch, transposed)) == small


@pytest.mark.parametrize(
    ("sizes", "dtype", "narrow"),
    [
        ((10**6, 1, 256), torch.float32, True),
        ((None, 1, 256), torch.bfloat16, True),
        ((10**6, 64, 1), torch.float32, True),
        ((10**6, 63, 1), torch.float32, False),
        ((None, 63, 1), torch.float32, False),
        ((1000, 63, 1), torch.float32, True),
        ((127, 64, 15), torch.float16, True),
        ((140, 64, 15), torch.float16, False),
        ((1, 64, 16), torch.float32, False),  # a micro kernel has enough to do
        ((1, 64, 8), torch.int8, False),
    ],
)
def test_linears_too_narrow_for_a_tile_are_loops(
    sizes: tuple[int | None, int, int], dtype: torch.dtype, narrow: bool
) -> None:
    assert is_narrow(Shape(*sizes, dtype, dtype), Blocking(packed_bytes=0, least_size=16)) == narrow


def test_max_autotune_measures_loops_for_few_rows() -> None:
    a, b = torch.randn(3, 2, 64), torch.randn(3, 64, 48)
    with inductor_cpu.config.patch(max_autotune=True):
        explanation = str(inductor_cpu.explain(torch.bmm, a, b))
    assert "loops " in explanation[explanation.index("product 3 x 2x64x48 float32: ") :].splitlines()[0]


def test_max_autotune_splits_no_floats_of_training(monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[str] = []

    def seconds(_: Measurements, question: str, __: object) -> dict[str, float]:
        measured.append(question)
        return {"blas": 1.0}

    monkeypatch.setattr(Measurements, "seconds", seconds)
    linear, x = nn.Linear(64, 48), torch.randn(20, 64)
    with inductor_cpu.config.patch(max_autotune=True):
        torch.compile(linear, backend="icpu")(x).sum().backward()
    assert len(measured) == 2  # the result, and the gradient of the weight
    assert all(question.startswith("product 1 x ") and "split_f32" not in question for question in measured)


@pytest.mark.parametrize(("transposed", "by_depth"), [(False, False), (True, False), (False, True)])
@pytest.mark.parametrize("batch", [1, 3, None])
def test_random_operands_lie_as_those_of_the_program(batch: int | None, transposed: bool, by_depth: bool) -> None:
    shape = Shape(None, 40, 50, torch.float32, torch.float32)
    x, weight = operands_per_call(PerCall(shape, batch, transposed, by_depth))
    matrices = () if batch == 1 else (batch or 8,)
    assert (x.shape, weight.shape) == ((*matrices, 128, 40), (*matrices, 40, 50))
    assert weight.stride()[-2:] == ((1, 40) if transposed else (50, 1))
    assert x.stride()[-2:] == ((1, 128) if by_depth else (40, 1))


@pytest.mark.parametrize(
    ("name", "rows", "features", "pays"),
    [
        ("fma_f16", 64, (), True),
        ("fma_f16", None, (), True),
        ("fma_f16", 1, (), False),
        ("fma_f16", 64, ("avx512_fp16",), False),
        ("fma_bf16", 64, (), True),
        ("fma_bf16", 64, ("avx512_bf16",), False),
        ("dot_bf16", 64, (), False),
        ("dot_bf16", 512, (), True),
        ("fma_f32", 16, (), False),
        ("fma_f32", 64, (), True),
        ("split_f32", 512, (), False),
    ],
)
def test_packing_at_each_call_pays_without_instructions_for_a_type_and_in_large_products(
    name: str, rows: int | None, features: tuple[str, ...], pays: bool
) -> None:
    micro = MICRO_KERNELS[name]
    assert pays_per_call(name, Shape(rows, 768, 768, micro.dtype, micro.weight), Blocking(1 << 19), features) == pays


@pytest.mark.parametrize(
    ("rows", "inner", "columns", "pays"),
    [
        (None, 64, 128, False),
        (197, 64, 197, True),
        (128, 64, 128, True),
        (77, 64, 77, False),
        (32, 3000, 64, False),
        (4, 1024, 4096, True),
    ],
)
def test_smaller_products_of_floats_are_packed_at_each_call_where_that_was_seen_to_pay(
    rows: int | None, inner: int, columns: int, pays: bool
) -> None:
    shape = Shape(rows, inner, columns, torch.float32, torch.float32)
    assert pays_per_call("fma_f32", shape, Blocking(1 << 19, small_work_per_call=1 << 20), ()) == pays
    assert not pays_per_call("fma_f32", shape, Blocking(1 << 19), ())
    assert not pays_per_call("fma_f32_avx2", shape, Blocking(1 << 19, small_work_per_call=1 << 20), ())


@pytest.mark.parametrize(
    ("name", "features", "pays"),
    [
        ("fma_f32_avx2", (), True),
        ("fma_f32", (), False),
        ("dot_bf16", (), False),
        ("amx_bf16", (), False),
        ("fma_bf16", (), True),
        ("fma_bf16", ("avx512_bf16",), False),
        ("fma_f16_avx2", (), True),
        ("fma_f16_avx2", ("avx_ne_convert",), False),
    ],
)
def test_single_pixels_are_products_where_that_was_seen_to_pay_or_no_instructions_are_for_their_type(
    name: str, features: tuple[str, ...], pays: bool
) -> None:
    assert pixels_pay_per_call(name, features) == pays


@pytest.mark.parametrize(
    ("columns", "by_depth", "name"),
    [(1023, True, "blas"), (1024, True, "fma_f32_avx2"), (1023, False, "fma_f32_avx2")],
)
def test_a_small_gradient_of_weights_is_the_blas_s(columns: int, by_depth: bool, name: str) -> None:
    """Its first operand would be turned over."""
    product = PerCall(Shape(1024, 800, columns, torch.float32, torch.float32), 1, False, by_depth)
    chosen = choose_per_call(product, {"fma_f32_avx2"}, Blocking(1 << 19), ())
    assert chosen.implementation == name


@pytest.mark.parametrize(
    ("micro_kernel", "inner", "columns", "features", "chosen"),
    [
        ("fma_bf16_avx2", 15, 512, (), BY_LOOPS),
        ("fma_f16", 512, 15, (), BY_LOOPS),
        ("fma_f16", 512, 15, ("avx512_fp16",), "blas"),
        ("fma_bf16", 15, 512, (), "blas"),
        ("fma_f32_avx2", 15, 512, (), "blas"),
        ("fma_bf16_avx2", 16, 512, (), "fma_bf16_avx2"),
    ],
)
def test_narrow_products_of_a_type_without_instructions_are_loops(
    micro_kernel: str, inner: int, columns: int, features: tuple[str, ...], chosen: str
) -> None:
    row = MICRO_KERNELS[micro_kernel]
    product = PerCall(Shape(1000, inner, columns, row.dtype, row.dtype), 1, False)
    assert choose_per_call(product, {micro_kernel}, Blocking(1 << 19), features).implementation == chosen


@pytest.mark.parametrize("name", ["fma_f32", "fma_f32_avx2", "dot_bf16"])
def test_a_matrix_is_never_packed_for_one_row(name: str) -> None:
    """To pack it takes three times as long as to multiply it."""
    micro = MICRO_KERNELS[name]
    for rows, pays in ((1, False), (2, False), (16, True)):
        shape = Shape(rows, 4096, 16384, micro.dtype, micro.weight)
        assert pays_per_call(name, shape, Blocking(1 << 19), ()) == pays


@pytest.mark.parametrize(
    ("isa", "name", "small"),
    [("avx512", "AMD EPYC", True), ("avx2", "AMD EPYC", False), ("avx512", "Intel(R) Xeon(R)", False)],
)
def test_small_products_were_seen_to_pay_with_avx512_on_cpus_of_amd(isa: str, name: str, small: bool) -> None:
    (level,) = (level for level in ISAS if level.name == isa)
    assert (blocking_for(replace(detect(), isa=level, cpu_name=name)).small_work_per_call is not None) == small


def test_dilated_windows_that_lie_outside_of_the_image_are_left_to_a_library_that_skips_them() -> None:
    blocking = blocking_for(detect())
    inside, outside = (Windows(4225, 9, 512, 256, share) for share in (1.0, 0.77))
    assert wins_convolution("dot_bf16", inside, blocking, ())
    assert not wins_convolution("dot_bf16", outside, blocking, ())
    assert wins_convolution("fma_f16", outside, blocking, ())


@pytest.mark.parametrize(
    ("channels", "columns", "pays"),
    [(32, 16, True), (512, 512, True), (16, 64, False), (64, 8, False), (40, 64, False)],
)
def test_windows_of_neighbours_are_tiled_where_channels_and_columns_pay_for_it(
    channels: int, columns: int, pays: bool
) -> None:
    def wins(name: str, neighbours: bool) -> bool:
        windows = Windows(3136, 9, channels, columns, neighbours=neighbours)
        return wins_convolution(name, windows, blocking_for(detect()), ())

    for name in ("fma_f32_avx2", "fma_f32"):
        assert wins(name, True) == (pays or channels == 16)  # which are read where they lie
        assert wins(name, False) == (channels == 16)


@pytest.mark.parametrize(
    ("name", "rows", "channels", "wins"),
    [
        ("fma_f32_avx2", 800, 512, True),
        ("fma_f32_avx2", 3136, 128, True),
        ("fma_f32_avx2", 3136, 256, False),
        ("fma_f32", 3136, 256, True),
    ],
)
def test_single_pixels_are_ours_on_avx2_where_they_or_their_channels_are_few(
    name: str, rows: int, channels: int, wins: bool
) -> None:
    windows = Windows(rows, 1, channels, 64)
    assert wins_convolution(name, windows, blocking_for(detect()), ()) == wins


@pytest.mark.parametrize(
    ("isa", "dtype", "uses", "kernel"),
    [
        ("avx2", torch.float32, 9.0, "channels_f32_avx2"),
        ("avx2", torch.bfloat16, 9.0, "channels_bf16_avx2"),
        ("avx2", torch.float32, 2.25, BY_LOOPS),
        ("avx2", torch.float64, 9.0, None),
        ("avx512", torch.float32, 9.0, "channels_f32"),
        ("avx512", torch.float16, 9.0, "channels_f16"),
        ("avx512", torch.bfloat16, 2.25, BY_LOOPS),
    ],
)
def test_channels_are_convolved_by_themselves_in_loops_where_pixels_are_in_few_windows(
    isa: str, dtype: torch.dtype, uses: float, kernel: str | None
) -> None:
    level = next(level for level in ISAS if level.name == isa)
    if not level.needs <= detect().features:
        pytest.skip(f"this CPU has no {isa}")
    choice = ProductChoice(replace(detect(), isa=level), split_float32=True, winograd=True, prepack=True, trials=None)
    assert choice.depthwise_kernel(dtype, uses) == kernel


@pytest.mark.parametrize(
    ("level", "dtype", "inputs", "kernel"),
    [
        ("avx2", torch.float32, 8, "groups_f32_avx2"),
        ("avx2", torch.float16, 8, "groups_f16_avx2"),
        ("avx512", torch.bfloat16, 8, "groups_bf16"),
        ("avx512_bf16", torch.bfloat16, 8, "groups_dot_bf16"),
        ("avx512_bf16", torch.bfloat16, 7, "groups_bf16"),  # it takes pairs of channels
        ("avx512_bf16", torch.float64, 8, None),
        ("amx", torch.float32, 8, "groups_f32"),
        ("amx", torch.bfloat16, 8, None),  # not measured there
        ("amx", torch.float16, 8, None),
    ],
)
def test_groups_of_channels_are_convolved_by_the_first_kernel_that_takes_them(
    level: str, dtype: torch.dtype, inputs: int, kernel: str | None
) -> None:
    features = LEVELS[level]
    target = replace(detect(), isa=best_isa(features), features=features)
    choice = ProductChoice(target, split_float32=True, winograd=True, prepack=True, trials=None)
    assert choice.grouped_kernel(dtype, inputs, outputs=16, groups=4) == kernel


def test_convolutions_by_tiles_are_chosen_without_trials_of_linears() -> None:
    """Trials, of `max_autotune`, would measure a linear layer of that shape."""

    class NoTrials:
        def __getattr__(self, name: str) -> object:
            raise AssertionError(name)

    machine = replace(detect(), isa=next(isa for isa in ISAS if isa.name == "avx2"))
    if "fma_f32_avx2" not in usable_micro_kernels(machine):
        pytest.skip("this CPU has no AVX2")
    trials: Any = NoTrials()
    choice = ProductChoice(machine, split_float32=True, winograd=True, prepack=True, trials=trials)
    assert choice.convolution_kernel(Windows(3136, 9, 64, 64, neighbours=True), torch.float32) == "fma_f32_avx2"


def test_floats_of_windows_are_split_where_that_pays_and_else_read_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("inductor_cpu.kernels.usable._amx_permitted", lambda: True)
    level = next(isa for isa in ISAS if isa.name == "avx512")
    features = detect().features | level.needs | {"avx512f", "amx_tile", "amx_bf16"}
    machine = replace(detect(), isa=level, features=features)
    choice = ProductChoice(machine, split_float32=True, winograd=True, prepack=True, trials=None)
    kernels = {
        windows: choice.convolution_kernel(windows, torch.float32)
        for windows in (
            Windows(784, 3, 64, 64),
            Windows(784, 3, 64, 48),
            Windows(12544, 49, 3, 64),
            Windows(784, 25, 64, 48),
        )
    }
    assert list(kernels.values()) == ["split_f32", "fma_f32", "fma_f32", None]


def test_patches_of_images_are_ours_and_windows_that_overlap_a_library_s() -> None:
    for name in ("fma_f32", "fma_f32_avx2"):
        for apart in (True, False):
            windows = Windows(784, 4, 192, 384, apart=apart)
            assert wins_convolution(name, windows, blocking_for(detect()), ()) == apart


def test_the_choice_for_a_graph_knows_how_much_of_its_windows_lies_inside() -> None:
    choice = ProductChoice(detect(), split_float32=True, winograd=True, prepack=True, trials=None)
    kernels = [choice.convolution_kernel(Windows(4225, 9, 512, 256, share), torch.bfloat16) for share in (1.0, 0.5)]
    if kernels[0] != "dot_bf16":
        pytest.skip("another kernel, or a library, multiplies bf16 on this CPU")
    assert kernels == ["dot_bf16", None]
