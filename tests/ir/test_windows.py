"""The windows of convolutions: their pieces, packed weights with zeros between these, and what is outside of images."""

from __future__ import annotations

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from inductor_cpu.graph.products import pack_windows
from inductor_cpu.ir import interpret
from inductor_cpu.ir.depthwise import PACKED_DEPTHWISE_CONVOLUTION
from inductor_cpu.ir.grouped import PACKED_GROUPED_CONVOLUTION
from inductor_cpu.ir.micro_kernels import MICRO_KERNELS, pack
from inductor_cpu.ir.operators import PACKED_CONVOLUTION, PACKED_INT_CONVOLUTION
from inductor_cpu.ir.printer import show
from inductor_cpu.ir.verify import verify_program
from inductor_cpu.ir.windows import Groups, Pieces, of_groups, pieces_of, unpack_windows, with_panels
from inductor_cpu.lower.graph import lower_graph
from inductor_cpu.lower.rules import RULES

BF16, TILING = MICRO_KERNELS["amx_bf16"], MICRO_KERNELS["fma_f32_avx2"]


def packed_by_the_pass(weight: torch.Tensor, name: str) -> torch.Tensor:
    """A weight of 3 x 3 neighbours as the graph's pass packs it for a micro kernel."""
    graph, ones = torch.fx.Graph(), (1, 1)
    given = graph.placeholder("weight")
    given.meta["val"] = FakeTensorMode().from_tensor(weight)
    output = graph.output(given)
    with graph.inserting_before(output):
        output.args = (pack_windows(graph, given, ones, ones, name),)
    packed: torch.Tensor = torch.fx.GraphModule({}, graph)(weight)
    return packed


@pytest.mark.parametrize(
    ("kernel", "stride", "channels", "pieces"),
    [
        ((3, 3), (1, 1), 64, Pieces(9, 64)),
        ((3, 3), (2, 2), 48, Pieces(9, 48)),  # 18 steps, 15 as lines: too few to pack three times as much
        ((3, 3), (1, 1), 16, Pieces(3, 48)),
        ((7, 7), (2, 2), 3, Pieces(7, 21)),
        ((1, 1), (2, 2), 64, Pieces(1, 64)),
        ((4, 4), (4, 4), 3, Pieces(1, 48)),
    ],
)
def test_windows_that_overlap_come_in_pixels_or_lines(
    kernel: tuple[int, int], stride: tuple[int, int], channels: int, pieces: Pieces
) -> None:
    assert pieces_of(BF16, kernel, stride, (1, 1), channels, 256) == pieces


@pytest.mark.parametrize(
    ("name", "columns", "in_place"), [("dot_bf16", 96, True), ("dot_bf16", 112, False), ("fma_f32", 16, False)]
)
def test_windows_of_any_size_are_read_in_place_for_few_columns(name: str, columns: int, in_place: bool) -> None:
    found = pieces_of(MICRO_KERNELS[name], (5, 5), (1, 1), (1, 1), 64, columns)
    assert found == (Pieces(5, 5 * 64, in_place=True) if in_place else Pieces(1, 25 * 64))


def test_a_kernel_that_reads_no_shifted_images_gets_whole_windows() -> None:
    assert pieces_of(MICRO_KERNELS["fma_f16"], (3, 3), (1, 1), (1, 1), 64, 64) == Pieces(1, 9 * 64)


@pytest.mark.parametrize(
    ("name", "kernel", "dilation", "channels", "pieces"),
    [
        ("dot_bf16", (3, 3), (2, 1), 64, Pieces(3, 192, in_place=True)),
        ("dot_bf16", (3, 3), (1, 1), 80, Pieces(1, 720)),  # so many values take as long when they are copied
        ("fma_f32", (7, 7), (1, 1), 3, Pieces(7, 21, in_place=True)),
        ("fma_f32", (3, 3), (1, 1), 40, Pieces(1, 360)),
        ("fma_f32", (3, 3), (1, 1), 16, Pieces(3, 48, in_place=True)),  # for tiles channels are too few
        ("fma_f32", (3, 3), (1, 2), 3, Pieces(1, 27)),  # the pixels of a line do not lie side by side
        ("fma_f32", (1, 1), (1, 1), 64, Pieces(1, 64)),
        ("fma_f32", (1, 3), (1, 1), 16, Pieces(1, 48, in_place=True)),
    ],
)
def test_lines_of_windows_with_few_values_are_read_in_place(
    name: str, kernel: tuple[int, int], dilation: tuple[int, int], channels: int, pieces: Pieces
) -> None:
    assert pieces_of(MICRO_KERNELS[name], kernel, (1, 1), dilation, channels, 256) == pieces


@pytest.mark.parametrize("name", ["dot_bf16", "fma_f32", "fma_f32_avx2"])
def test_a_convolution_in_place_is_the_one_of_its_windows(name: str) -> None:
    """Packed by the graph's pass, unpacked by the operator, and by the interpreter of programs: a zero follows 9 values
    where a micro kernel takes pairs."""
    row, ones = MICRO_KERNELS[name], (1, 1)
    x = torch.randn(2, 3, 5, 6).to(row.dtype).contiguous(memory_format=torch.channels_last)
    weight = torch.randn(20, 3, 3, 3).to(row.dtype)
    packed = packed_by_the_pass(weight, name)
    assert packed.shape == row.packed_shape(20, 3 * (10 if row.pair == 2 else 9))
    matrix = unpack_windows(row, packed, 20, Pieces(3, 9, in_place=True))
    assert torch.equal(matrix, weight.permute(0, 2, 3, 1).reshape(20, -1))

    def convolve(x: torch.Tensor, packed: torch.Tensor) -> tuple[torch.Tensor]:
        return (PACKED_CONVOLUTION(x, packed, None, None, 20, (3, 3), ones, ones, ones, name),)

    exact = torch.nn.functional.conv2d(x.double(), weight.double(), padding=1)
    program = lower_graph(make_fx(convolve, tracing_mode="fake")(x, packed), "windows")
    verify_program(program)
    assert "where they lie" in show(program)
    for result in (convolve(x, packed)[0], interpret.run(program, [x, packed])[0]):
        assert torch.allclose(result.double(), exact, rtol=torch.finfo(row.dtype).eps, atol=1e-5)


@pytest.mark.parametrize(
    ("kernel", "stride", "dilation", "channels"),
    [
        ((3, 3), (1, 1), (1, 1), 40),
        ((3, 3), (1, 2), (1, 1), 32),
        ((3, 3), (1, 1), (2, 1), 32),
        ((3, 1), (1, 1), (1, 1), 32),
    ],
)
def test_only_windows_of_neighbours_and_whole_steps_come_in_tiles(
    kernel: tuple[int, int], stride: tuple[int, int], dilation: tuple[int, int], channels: int
) -> None:
    assert pieces_of(TILING, (3, 3), (1, 1), (1, 1), 32, 64) == Pieces(16, 32, tiles=True)
    assert not pieces_of(TILING, kernel, stride, dilation, channels, 64).tiles


def test_a_convolution_by_tiles_is_the_one_of_its_windows() -> None:
    """Packed by the graph's pass, unpacked by the operator, and by the interpreter of programs."""
    x = torch.randn(2, 32, 5, 6).contiguous(memory_format=torch.channels_last)
    weight, ones = torch.randn(20, 32, 3, 3), (1, 1)
    packed = packed_by_the_pass(weight, TILING.name)
    assert packed.shape == TILING.packed_shape(20, 16 * 32)
    assert torch.allclose(
        unpack_windows(TILING, packed, 20, Pieces(16, 32, tiles=True)),
        weight.permute(0, 2, 3, 1).reshape(20, -1),
        atol=1e-6,
    )

    def convolve(x: torch.Tensor, packed: torch.Tensor) -> tuple[torch.Tensor]:
        return (PACKED_CONVOLUTION(x, packed, None, None, 20, (3, 3), ones, ones, ones, TILING.name),)

    exact = torch.nn.functional.conv2d(x, weight, padding=1)
    assert torch.allclose(convolve(x, packed)[0], exact, atol=1e-4)
    program = lower_graph(make_fx(convolve, tracing_mode="fake")(x, packed), "windows")
    verify_program(program)
    assert "by tiles" in show(program)
    assert torch.allclose(interpret.run(program, [x, packed])[0], exact, atol=1e-4)


def test_a_depthwise_convolution_meets_its_own_column_only() -> None:
    """By the operator, and by the interpreter of programs."""
    row, window, how = MICRO_KERNELS["channels_f32_avx2"], (3, 2), ((2, 1), (1, 2), (1, 1))
    x = torch.randn(2, 70, 5, 6).contiguous(memory_format=torch.channels_last)
    weight, scale, bias = torch.randn(70, 1, *window), torch.randn(70), torch.randn(70)
    inputs = [x, pack(row, weight.reshape(70, 6)), scale, bias]

    def convolve(*operands: torch.Tensor) -> tuple[torch.Tensor]:
        return (PACKED_DEPTHWISE_CONVOLUTION(*operands, window, *how, row.name),)

    exact = torch.nn.functional.conv2d(x, weight, None, *how, groups=70) * scale[:, None, None] + bias[:, None, None]
    assert torch.allclose(convolve(*inputs)[0], exact, atol=1e-5)
    program = lower_graph(make_fx(convolve, tracing_mode="fake")(*inputs), "windows")
    verify_program(program)
    assert "each channel by itself" in show(program)
    assert torch.allclose(interpret.run(program, inputs)[0], exact, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "inputs", "outputs", "groups", "together", "times"),
    [
        ("groups_f32", 4, 4, 32, 16, 4),  # permuted
        ("groups_f32", 1, 2, 32, 16, 4),
        ("groups_f32", 2, 6, 16, 48, 1),  # three groups and parts of two in the first vector
        ("groups_f32", 24, 24, 24, 48, 1),  # two groups in the middle one of three
        ("groups_f32", 24, 24, 9, 48, 1),  # the last half of them has no work
        ("groups_f32", 24, 24, 1, 24, 2),
        ("groups_f32", 8, 16, 5, 16, 4),
        ("groups_f32", 56, 56, 6, 112, 1),
        ("groups_f32", 112, 112, 5, 16, 1),  # seven parts
        ("groups_f32", 10, 128, 2, 64, 1),
        ("groups_f32", 168, 168, 8, 56, 1),
        ("groups_f32_avx2", 24, 24, 24, 8, 1),
        ("groups_f32_avx2", 4, 4, 32, 8, 8),
        ("groups_f32_avx2", 12, 12, 4, 24, 2),
        ("groups_dot_bf16", 4, 4, 32, 16, 4),
    ],
)
def test_panels_of_groups_leave_few_lanes_without_work(
    name: str, inputs: int, outputs: int, groups: int, together: int, times: int
) -> None:
    pieces = of_groups(MICRO_KERNELS[name], (3, 3), inputs, outputs, groups)
    assert pieces == Pieces(9, inputs, groups=Groups(inputs, outputs, together, times))


@pytest.mark.parametrize(
    ("name", "inputs", "outputs", "groups"),
    [
        ("groups_f32", 3, 3, 5),  # a vector for three results
        ("groups_f32", 16, 4, 8),  # the groups of a vector have more channels than one holds
        ("groups_f32", 6, 6, 16),
        ("groups_dot_bf16", 3, 16, 4),  # pairs of channels
        ("groups_f32", 8, 67, 2),
    ],
)
def test_other_groups_are_left_to_a_library(name: str, inputs: int, outputs: int, groups: int) -> None:
    assert of_groups(MICRO_KERNELS[name], (3, 3), inputs, outputs, groups) is None


def test_a_convolution_of_groups_meets_the_channels_of_its_group_only() -> None:
    """By the operator, and by the interpreter of programs."""
    row, window, how = MICRO_KERNELS["groups_f32_avx2"], (3, 2), ((2, 1), (1, 2), (1, 1))
    x = torch.randn(2, 24, 5, 6).contiguous(memory_format=torch.channels_last)
    weight, scale, bias = torch.randn(40, 3, *window), torch.randn(40), torch.randn(40)
    pieces = of_groups(row, window, 3, 5, 8)
    assert pieces is not None
    matrix = weight.permute(0, 2, 3, 1).reshape(40, -1)
    inputs = [x, pack(with_panels(row, pieces), matrix), scale, bias]

    def convolve(*operands: torch.Tensor) -> tuple[torch.Tensor]:
        return (PACKED_GROUPED_CONVOLUTION(*operands, 40, window, *how, 8, row.name),)

    exact = torch.nn.functional.conv2d(x, weight, None, *how, groups=8) * scale[:, None, None] + bias[:, None, None]
    assert torch.allclose(convolve(*inputs)[0], exact, atol=1e-5)
    program = lower_graph(make_fx(convolve, tracing_mode="fake")(*inputs), "windows")
    verify_program(program)
    assert "groups of 3 channels" in show(program)
    assert torch.allclose(interpret.run(program, inputs)[0], exact, atol=1e-5)


def test_zeros_between_pieces_do_not_come_back() -> None:
    pieces = Pieces(9, 40)
    weight = torch.randn(48, pieces.count, pieces.values).bfloat16()
    padded = torch.nn.functional.pad(weight, (0, 24)).reshape(48, -1)
    assert padded.shape[1] == pieces.depth(BF16)
    packed = pack(BF16, padded)
    assert torch.equal(unpack_windows(BF16, packed, 48, pieces), weight.reshape(48, -1))


@pytest.mark.parametrize("name", ["vnni_u8", "amx_u8"])
def test_windows_of_bytes_read_a_byte_outside_of_images(name: str) -> None:
    row, window, how = MICRO_KERNELS[name], (3, 2), ((2, 1), (1, 2), (1, 1))
    x = torch.randint(0, 256, (2, 8, 7, 5), dtype=torch.uint8).contiguous(memory_format=torch.channels_last)
    weight = torch.randint(-128, 128, (20, 8, *window), dtype=torch.int8)
    pieces = pieces_of(row, window, how[0], how[2], 8, 20)
    in_pieces = weight.permute(0, 2, 3, 1).reshape(20, pieces.count, pieces.values)
    zeros = pieces.depth(row) // pieces.count - pieces.values
    packed = pack(row, torch.nn.functional.pad(in_pieces, (0, zeros)).reshape(20, -1))

    def convolve(x: torch.Tensor, packed: torch.Tensor) -> tuple[torch.Tensor]:
        return (PACKED_INT_CONVOLUTION(x, packed, 20, window, *how, 100, name),)

    around = torch.nn.functional.pad(x.double(), (2, 2, 1, 1), value=100)
    exact = torch.nn.functional.conv2d(around, weight.double(), None, how[0]).int()
    assert torch.equal(convolve(x, packed)[0], exact)
    assert PACKED_INT_CONVOLUTION in RULES
    program = lower_graph(make_fx(convolve, tracing_mode="fake")(x, packed), "windows")
    verify_program(program)
    assert "100 outside" in show(program)
    (result,) = interpret.run(program, [x, packed])
    assert torch.equal(result, exact)
