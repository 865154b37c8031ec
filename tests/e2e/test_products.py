"""Matrix products by kernels of our own: numbers against eager with an fp64 reference, and what is fused into them."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import inductor_cpu
from inductor_cpu.ir.micro_kernels import MICRO_KERNELS
from inductor_cpu.ir.windows import Windows
from inductor_cpu.kernels import linear
from inductor_cpu.kernels.usable import usable_micro_kernels
from inductor_cpu.targets.blocking import blocking_for
from inductor_cpu.targets.cpu import detect
from tests.cases import cases, in_turns
from tests.e2e.support import Layers, compile_counted

needs_amx = pytest.mark.skipif(
    "amx_bf16" not in usable_micro_kernels(detect()), reason="this CPU, or its system, has no AMX tiles of bf16"
)

needs_avx512 = pytest.mark.skipif("fma_f32" not in usable_micro_kernels(detect()), reason="this CPU has no AVX-512")

#: Sizes around tiles and blocks (8, 16, 32), panels (32, 48), steps (16, 32) and the part of the depth in the L1 cache
#: (192, 512).
ROWS = (1, 2, 8, 9, 15, 16, 17, 31, 32, 33, 64, 71)
SIZES = ((32, 32), (16, 16), (33, 31), (48, 100), (384, 64), (417, 40), (800, 96))


def error(value: torch.Tensor, exact: torch.Tensor) -> float:
    """RMSE over the RMS of the exact value."""
    return ((value.double() - exact).square().mean().sqrt() / exact.square().mean().sqrt()).item()


@torch.no_grad()
def check(module: nn.Module, compiled: object, x: torch.Tensor) -> None:
    """The compiled result is at least about as near to fp64 as eager's, with eager's strides."""
    eager, result = module(x), compiled(x)  # type: ignore[operator]
    exact = module.double()(x.double())
    module.to(x.dtype)
    compare(result, eager, exact)


def compare(result: torch.Tensor, eager: torch.Tensor, exact: torch.Tensor) -> None:
    assert result.dtype == eager.dtype
    assert result.stride() == eager.stride()
    assert error(result, exact) <= 1.2 * error(eager, exact) + 1e-7


@torch.no_grad()
def check_each(layers: Layers, compiled: object, inputs: list[torch.Tensor]) -> None:
    """`check` for layers that are one graph."""
    eager, results = layers(inputs), compiled(inputs)  # type: ignore[operator]
    exact = layers.double()([x.double() for x in inputs])
    layers.to(inputs[0].dtype)
    for three in zip(results, eager, exact, strict=True):
        compare(*three)


def prepare(module: nn.Module) -> nn.Module:
    """In evaluation, in bf16, with statistics that hide nothing."""
    for part in module.modules():
        if isinstance(part, nn.BatchNorm2d):
            nn.init.normal_(part.running_mean, 0, 0.1)
            nn.init.uniform_(part.running_var, 0.5, 1.5)
            nn.init.uniform_(part.weight, 0.5, 1.5)
            nn.init.normal_(part.bias)
    return module.eval().bfloat16().requires_grad_(False)


def test_linears_of_any_number_of_rows_are_right() -> None:
    layers = Layers([prepare(nn.Sequential(nn.Linear(depth, columns), nn.GELU())) for depth, columns in SIZES])
    compiled = torch.compile(layers, backend="icpu", dynamic=True)
    for rows in ROWS:
        check_each(layers, compiled, [torch.randn(rows, depth).bfloat16() for depth, _ in SIZES])


#: Both micro kernels of floats: parts in AMX tiles, and vectors.
FLOATS = [pytest.param(True, marks=needs_amx, id="split"), pytest.param(False, marks=needs_avx512, id="fma")]


@pytest.mark.parametrize("split", FLOATS)
@pytest.mark.parametrize(("depth", "columns"), SIZES)
def test_a_linear_of_floats_is_right(depth: int, columns: int, split: bool) -> None:
    torch.manual_seed(depth)
    module = prepare(nn.Sequential(nn.Linear(depth, columns), nn.GELU())).float()
    compiled, reports = compile_counted(module, dynamic=True, options={"cpp.split_float32": split})
    x = torch.randn(71, depth)
    with torch.no_grad():
        exact = module.double()(x.double())
        module.float()
        # Of a row of the whole matrix: for one alone eager takes dot products of many short sums, which err less.
        eager = max(error(y, row) for y, row in zip(module(x), exact, strict=True))
        for rows in (*ROWS, 13, 14, 28, 29):
            assert error(compiled(x[:rows]), exact[:rows]) <= 1.2 * eager
    assert reports
    assert not any(report.extern_calls for report in reports)


#: rows, depth, columns: parts of the rows (few columns), of the depth (many of them, which are kept), and of both
LARGE = {"rows": (500, 3072, 40), "depth": (320, 2000, 100), "both": (1100, 2000, 400)}


@pytest.mark.parametrize("size", LARGE.values(), ids=LARGE)
@pytest.mark.parametrize(
    ("dtype", "split"),
    [
        pytest.param(torch.bfloat16, True, id="bf16"),
        pytest.param(torch.float32, True, marks=needs_amx, id="split"),
        pytest.param(torch.float32, False, marks=needs_avx512, id="fma"),
    ],
)
def test_what_the_cache_does_not_hold_comes_in_parts(
    dtype: torch.dtype, split: bool, size: tuple[int, int, int]
) -> None:
    torch.manual_seed(0)
    rows, depth, columns = size
    module = prepare(nn.Sequential(nn.Linear(depth, columns), nn.ReLU())).to(dtype)
    compiled = torch.compile(module, backend="icpu", options={"cpp.split_float32": split})
    check(module, compiled, torch.randn(rows, depth).to(dtype))


@pytest.mark.parametrize("size", [(70, 64, 700), (1100, 64, 30), (330, 700, 200)], ids=str)
@pytest.mark.parametrize(
    ("dtype", "split"),
    [
        pytest.param(torch.bfloat16, True, id="bf16"),
        pytest.param(torch.float32, True, marks=needs_amx, id="split"),
        pytest.param(torch.float32, False, marks=needs_avx512, id="fma"),
    ],
)
def test_threads_share_rows_and_columns(dtype: torch.dtype, split: bool, size: tuple[int, int, int]) -> None:
    """Few rows are shared by columns, few columns by rows, and with four threads both by both."""
    torch.manual_seed(0)
    rows, depth, columns = size
    module = prepare(nn.Sequential(nn.Linear(depth, columns), nn.GELU())).to(dtype)
    compiled = torch.compile(module, backend="icpu", options={"cpp.split_float32": split})
    x = torch.randn(rows, depth).to(dtype)
    before = torch.get_num_threads()
    try:
        for threads in (1, 2, 3, 4, 7):
            torch.set_num_threads(threads)
            check(module, compiled, x)
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize(("threads", "dtype"), in_turns([1, 2, 3, 5], [torch.bfloat16, torch.float32]), ids=str)
def test_threads_meet_inside_panels_when_rows_are_few(threads: int, dtype: torch.dtype) -> None:
    """Each thread takes an equal part of the weight, whatever the number of panels: 3 here, and 1."""
    torch.manual_seed(0)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        for depth, columns in ((3990, 81), (12000, 30)):
            module = prepare(nn.Sequential(nn.Linear(depth, columns), nn.GELU())).to(dtype)
            compiled = torch.compile(module, backend="icpu", dynamic=True)
            for rows in (1, 3, 4, 5, 16, 17, 32):
                check(module, compiled, torch.randn(rows, depth).to(dtype))
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
def test_a_linear_takes_rows_that_are_far_apart(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    module = prepare(nn.Linear(40, 48)).to(dtype)
    check(module, torch.compile(module, backend="icpu"), torch.randn(20, 3, 64).to(dtype)[:, 1, 3:43])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
def test_numbers_beyond_the_depth_are_not_read(dtype: torch.dtype) -> None:
    """A tail of the depth must not meet what lies behind it in memory: nan times 0 is nan."""
    torch.manual_seed(0)
    module = prepare(nn.Linear(33, 32)).to(dtype)
    x = torch.full((9, 64), torch.nan, dtype=dtype)
    x[:, :33] = torch.randn(9, 33)
    check(module, torch.compile(module, backend="icpu"), x[:, :33])


class Block(nn.Module):
    """Two convolutions with batch norms, and a residual addition."""

    def __init__(self, channels: int, columns: int, *window: object) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, columns, *window, bias=False)  # type: ignore[arg-type]
        self.second = nn.Conv2d(columns, columns, 1)
        self.norms = nn.ModuleList(nn.BatchNorm2d(columns) for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.relu(self.norms[0](self.first(x)))
        return F.relu(y + self.norms[1](self.second(y)))


#: channels, columns, (kernel, stride, padding, dilation), input (batch, height, width)
CONVOLUTIONS = {
    "1x1": (64, 32, (1, 1, 0), (2, 7, 9)),
    "1x1 with a stride": (64, 48, (1, 2, 0), (1, 14, 13)),
    "3x3": (32, 64, (3, 1, 1), (1, 14, 14)),
    "3x3 with a stride": (40, 24, (3, 2, 1), (2, 15, 17)),
    "dilated": (24, 32, (3, 1, 2, 2), (3, 12, 9)),
    "7x7 of an image": (3, 64, (7, 2, 3), (1, 30, 40)),
    "a line": (16, 96, ((1, 3), 1, (0, 1)), (1, 5, 8)),
    "larger than the image": (32, 32, (5, 1, 2), (1, 2, 3)),
    "in parts of the depth": (300, 64, (3, 1, 1), (1, 20, 20)),
    "lines of few channels": (16, 48, (3, 1, 1), (2, 12, 13)),
    "lines of pixels apart": (3, 32, (5, 1, 4, 2), (1, 9, 11)),
    "small images": (64, 64, (3, 1, 1), (9, 4, 4)),
    "two pixels": (32, 32, (3, 1, 1), (5, 1, 2)),
    "padding beyond the window": (32, 32, (3, 1, 3), (2, 10, 10)),
    "no padding": (32, 32, (2, 1), (2, 12, 12)),
    "other numbers down than across": (32, 48, ((5, 3), (2, 1), (1, 3), (2, 1)), (2, 30, 30)),
    "windows that reach far": (96, 32, (3, 1, 20, 20), (2, 45, 43)),
    "a stride and a dilation": (64, 32, (4, 3, 2, 2), (2, 19, 22)),
}


def skip_unless_own(dtype: torch.dtype) -> None:
    """Skip where oneDNN computes the convolutions of a dtype whose windows have several pixels."""
    target = detect()
    names = [name for name in usable_micro_kernels(target) if MICRO_KERNELS[name].dtype == dtype]
    windows = Windows(100, 9, 64, 128)
    if not any(linear.wins_convolution(name, windows, blocking_for(target), target.features) for name in names):
        pytest.skip(f"oneDNN computes convolutions of {dtype} on this CPU")


#: float16 differs from bfloat16 in its micro kernel alone, so it has one window of each way to read pixels.
OF_HALVES = (
    "1x1",
    "3x3",
    "7x7 of an image",
    "in parts of the depth",
    "lines of few channels",
    "windows that reach far",
)


EVEN, ODD = tuple(CONVOLUTIONS)[::2], tuple(CONVOLUTIONS)[1::2]


@pytest.mark.parametrize(
    ("names", "dtype"),
    cases(
        [(EVEN, torch.bfloat16), (ODD, torch.float32), (OF_HALVES, torch.float16)],
        [(EVEN, torch.float32), (ODD, torch.bfloat16)],
    ),
    ids=lambda value: {EVEN: "even", ODD: "odd", OF_HALVES: "few"}.get(value, str(value)),
)
def test_convolutions_with_batch_norm_and_residual_are_one_kernel_each(
    names: tuple[str, ...], dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    skip_unless_own(dtype)
    monkeypatch.setattr("inductor_cpu.kernels.linear.splitting_pays", lambda *_: True)
    monkeypatch.setattr("inductor_cpu.kernels.linear._LEAST_INSIDE", {})
    torch.manual_seed(0)
    blocks, images = Layers(Block(*CONVOLUTIONS[name][:2], *CONVOLUTIONS[name][2]) for name in names), []
    prepare(blocks).to(dtype)
    for name in names:
        channels, _, _, (batch, *sizes) = CONVOLUTIONS[name]
        image = torch.randn(batch, channels, *sizes).to(dtype)
        images.append(image.contiguous(memory_format=torch.channels_last))
    compiled, reports = compile_counted(blocks)
    check_each(blocks, compiled, images)
    assert [(len(report.kernels), len(report.externs)) for report in reports] == [(2 * len(names), 0)]


@pytest.mark.parametrize("dtype", cases([torch.bfloat16, torch.float32], [torch.float16]), ids=str)
def test_a_convolution_serves_any_batch_and_image(dtype: torch.dtype) -> None:
    skip_unless_own(dtype)
    torch.manual_seed(0)
    module = prepare(Block(32, 128, 3, 1, 1)).to(dtype)
    compiled = torch.compile(module, backend="icpu", dynamic=True)
    for batch, height in ((2, 8), (1, 9), (3, 16)):
        check(module, compiled, torch.randn(batch, 32, height, height + 1).to(dtype))


#: channels, columns, kernel, stride, padding: those that the first layers of models have, and others of few channels.
OF_FEW_CHANNELS = [(3, 16, 3, 2, 1), (3, 64, 7, 2, 3), (3, 96, 4, 4, 0), (16, 48, 3, 1, 1), (12, 20, (1, 5), 1, (0, 2))]


@pytest.mark.parametrize("dtype", cases([torch.float32], [torch.bfloat16]), ids=str)
def test_convolutions_over_few_channels_are_one_kernel_with_what_follows(dtype: torch.dtype) -> None:
    if dtype == torch.bfloat16:
        skip_unless_own(dtype)
    torch.manual_seed(0)
    blocks = Layers(Block(channels, *rest) for channels, *rest in OF_FEW_CHANNELS)
    prepare(blocks).to(dtype)
    images = [torch.randn(2, channels, 30, 21).to(dtype) for channels, *_ in OF_FEW_CHANNELS]
    images[-1] = torch.randn(2, 40, 30, 21).to(dtype)[:, 3:15]  # whose pixels are apart
    compiled, reports = compile_counted(blocks)
    check_each(blocks, compiled, images)
    splits = dtype == torch.float32 and "split_f32" in usable_micro_kernels(detect())
    assert [len(report.externs) for report in reports] == [1 if splits else 0]  # 20 channels of one pixel are too few


def test_a_convolution_over_few_channels_serves_any_batch_and_image() -> None:
    torch.manual_seed(0)
    module = prepare(Block(3, 32, 3, 2, 1)).float()
    compiled = torch.compile(module, backend="icpu", dynamic=True)
    for batch, height in ((2, 8), (1, 9), (3, 16), (1, 97)):
        check(module, compiled, torch.randn(batch, 3, height, height + 1))


def test_rows_of_matrices_with_gaps_are_read_in_place() -> None:
    """Of products with few columns, packed ones for more; the rows of a part of a wider matrix."""
    torch.manual_seed(0)
    layers = Layers(nn.Linear(64, columns) for columns in (20, 48, 192, 193))
    prepare(layers).float()
    whole = torch.randn(50, 96)
    compiled, _ = compile_counted(layers)
    check_each(layers, compiled, [whole[:, 8:72]] * 4)


@needs_amx
@pytest.mark.parametrize(
    ("channels", "columns", "kernel", "own"),
    [(3, 64, 7, True), (64, 48, 3, False), (64, 64, 3, True), (64, 48, 1, True), (16, 64, 1, False)],
)
def test_convolutions_of_floats_are_split_where_that_is_faster(
    channels: int, columns: int, kernel: int, own: bool
) -> None:
    conv = nn.Conv2d(channels, columns, kernel).requires_grad_(False)
    with torch.no_grad():
        explained = inductor_cpu.explain(conv, torch.randn(1, channels, 9, 9))
    assert (explained.extern_calls == 0) == own


def test_an_epilogue_may_not_overwrite_the_product_s_operand() -> None:
    """x + linear(x) has one shape and dies with the addition: every panel of the product still reads all of x."""
    torch.manual_seed(0)

    class Residual(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(96, 96), nn.Linear(96, 96)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = x * 2
            z = y + self.first(y)
            return z + self.second(z)

    module = prepare(Residual())
    check(module, torch.compile(module, backend="icpu"), torch.randn(50, 96).bfloat16())


def test_a_reduction_over_a_product_s_rows_stays_a_kernel_of_its_own() -> None:
    torch.manual_seed(0)
    module = prepare(nn.Sequential(nn.Linear(64, 64), nn.LayerNorm(64)))
    x = torch.randn(10, 64).bfloat16()
    check(module, torch.compile(module, backend="icpu"), x)
    with torch.no_grad():
        assert len(inductor_cpu.explain(module, x).kernels) == 2


def test_an_edited_weight_is_packed_again() -> None:
    torch.manual_seed(0)
    module = prepare(nn.Linear(64, 64))
    compiled = torch.compile(module, backend="icpu")
    x = torch.randn(4, 64).bfloat16()
    check(module, compiled, x)
    module.weight.mul_(2)
    check(module, compiled, x)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
def test_a_product_that_overwrites_its_argument_reads_it_first(dtype: torch.dtype) -> None:
    """Threads pack rows while others already write results: these must not be in the same memory."""
    torch.manual_seed(0)
    linear = nn.Linear(256, 256).to(dtype).requires_grad_(False)

    def step(x: torch.Tensor) -> torch.Tensor:
        return x.copy_(linear(x).relu())

    x = torch.randn(700, 256).to(dtype)
    changed = x.clone()
    with torch.no_grad():
        torch.compile(step, backend="icpu")(changed)
        torch.testing.assert_close(changed, step(x))


class OfImage(nn.Module):
    """A linear over windows of 2 x 3 pixels, which are put back into images, and a residual."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(32, 48)

    def forward(self, x: torch.Tensor, image: torch.Tensor) -> torch.Tensor:
        parts = self.linear(x).view(-1, 4, 5, 2, 3, 48)
        return image + parts.permute(0, 1, 3, 2, 4, 5).reshape(-1, 8, 15, 48)


@pytest.mark.parametrize(("dynamic", "dtype"), in_turns([False, True], [torch.bfloat16, torch.float32]), ids=str)
def test_what_permutes_the_rows_of_a_product_is_its_epilogue(dynamic: bool, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    module = prepare(OfImage()).to(dtype)
    compiled, reports = compile_counted(module, dynamic=dynamic)
    exact = OfImage().double().requires_grad_(False)
    exact.load_state_dict(module.state_dict())
    for batch in (1, 3):
        x, image = torch.randn(batch * 20, 6, 32).to(dtype), torch.randn(batch, 8, 15, 48).to(dtype)
        with torch.no_grad():
            eager, result, right = module(x, image), compiled(x, image), exact(x.double(), image.double())
        assert result.stride() == eager.stride()
        assert error(result, right) <= 1.2 * error(eager, right) + 1e-7
    # The batches of the two inputs are two symbols. What torch knows of them is a guard, which says nothing to loops:
    # two kernels, the same numbers.
    assert dynamic or all((len(report.kernels), len(report.externs)) == (1, 0) for report in reports)


def test_rows_that_come_from_what_they_are_added_to_are_permuted_for_any_batch() -> None:
    torch.manual_seed(0)
    windows = prepare(nn.Linear(48, 48)).float()

    def layer(image: torch.Tensor) -> torch.Tensor:
        rows = image.view(-1, 4, 2, 5, 3, 48).permute(0, 1, 3, 2, 4, 5).reshape(-1, 6, 48)
        parts = windows(rows).view(-1, 4, 5, 2, 3, 48)
        return image + parts.permute(0, 1, 3, 2, 4, 5).reshape(-1, 8, 15, 48)

    compiled, reports = compile_counted(layer)
    for batch in (2, 3):
        image = torch.randn(batch, 8, 15, 48)
        torch._dynamo.mark_dynamic(image, 0)
        with torch.no_grad():
            torch.testing.assert_close(compiled(image), layer(image))
    # One makes the windows, one multiplies and puts them back.
    assert [(len(report.kernels), len(report.externs)) for report in reports] == [(2, 0)]


def test_what_cuts_the_columns_of_a_product_is_a_kernel_of_its_own() -> None:
    torch.manual_seed(0)
    module = prepare(nn.Sequential(nn.Linear(32, 48), nn.Unflatten(-1, (3, 16))))

    def heads(x: torch.Tensor) -> torch.Tensor:
        return module(x).transpose(1, 2).contiguous() * 2

    compiled, reports = compile_counted(heads)
    x = torch.randn(4, 17, 32).bfloat16()
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), heads(x))
    assert [len(report.kernels) for report in reports] == [2]
