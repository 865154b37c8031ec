"""What the tests of the graph passes share: run a model through the passes alone, with eager operators after them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import fx
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch._guards import TracingContext

from inductor_cpu.graph.decompositions import decompositions
from inductor_cpu.graph.passes import Prepared, no_micro_kernel, run_passes
from inductor_cpu.graph.per_call_convolution import TilingChoice
from inductor_cpu.graph.spelled_attention import recognize_attention
from inductor_cpu.lower.rules import RULES

aten = torch.ops.aten
mkldnn = torch.ops.mkldnn

CONV, CONV_ADD = mkldnn._convolution_pointwise.default, mkldnn._convolution_pointwise.binary
CONV_TRANSPOSE = mkldnn._convolution_transpose_pointwise.default
LINEAR, LINEAR_ADD = mkldnn._linear_pointwise.default, mkldnn._linear_pointwise.binary

TOLERANCES = {torch.float32: 2e-5, torch.bfloat16: 2e-2, torch.float16: 3e-3}


class _Eager(fx.Interpreter):
    """Eager operators. Strides of oneDNN's results must be those that the passes promised. Views become reshapes, as in
    the lowering."""

    def run_node(self, n: fx.Node) -> Any:
        result = super().run_node(n)
        if getattr(n.target, "namespace", "") == "mkldnn" and result.numel():
            promised = n.meta["val"].stride()
            for size, actual, stride in zip(result.shape, result.stride(), promised, strict=True):
                assert size == 1 or not isinstance(stride, int) or actual == stride, (n, result.stride(), promised)
        return result

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        if target in (aten.view.default, aten._unsafe_view.default):
            target = aten.reshape.default
        return super().call_function(target, args, kwargs)


@dataclass
class Passed:
    """The graphs after the passes."""

    prepared: list[Prepared] = field(default_factory=list)

    def calls(self, *targets: Any) -> list[fx.Node]:
        """The nodes that call these operators, or all calls of functions."""
        nodes = [n for p in self.prepared for n in p.gm.graph.nodes if n.op == "call_function"]
        return [n for n in nodes if not targets or n.target in targets]

    def names(self) -> list[str]:
        """The operators called, without views."""
        views = {aten.view.default, aten.reshape.default, aten.permute.default, aten.t.default, aten.slice.Tensor}
        return [str(n.target) for n in self.calls() if n.target not in views]

    @property
    def notes(self) -> str:
        """All notes."""
        return "\n".join(note for p in self.prepared for note in p.notes)


def compile_split(function: Callable[..., Any]) -> tuple[Callable[..., Any], list[str]]:
    """`function` as one that runs its forward and backward graphs with eager operators, split after attention was
    recognized; the names of the operators of both."""
    names: list[str] = []

    def compiler(gm: fx.GraphModule, inputs: Sequence[Any]) -> Callable[[list[Any]], Any]:
        names.extend(str(n.target) for n in gm.graph.nodes if n.op == "call_function")
        call = lambda args: list(_Eager(gm).run(*args))  # noqa: E731
        call._boxed_call = True  # type: ignore[attr-defined]
        return call

    def split(gm: fx.GraphModule, *args: Any, **kwargs: Any) -> tuple[fx.GraphModule, fx.GraphModule]:
        recognize_attention(gm, lambda dtype: ("vec_f32" if dtype in TOLERANCES else None, ""))
        return min_cut_rematerialization_partition(gm, *args, **kwargs)

    backend = aot_autograd(fw_compiler=compiler, partition_fn=split, decompositions=decompositions(RULES))
    return torch.compile(function, backend=backend), names


def compile_passed(
    model: Callable[..., Any], tiling: TilingChoice = no_micro_kernel, **options: Any
) -> tuple[Callable[..., Any], Passed]:
    """`model` as a function that runs the graphs after the passes with eager operators. tiling: who would compute
    convolutions by tiles."""
    passed = Passed()

    def compiler(gm: fx.GraphModule, inputs: Sequence[Any]) -> Callable[[list[Any]], Any]:
        context = TracingContext.get()
        assert context.fw_metadata is not None
        prepared = run_passes(gm, frozenset(context.fw_metadata.static_input_indices), True, tiling_kernel=tiling)
        passed.prepared.append(prepared)

        def call(args: list[Any]) -> Any:
            recipe, values = prepared.recipe, list(args)
            if recipe is not None:
                values += recipe.graph(*[args[k] for k in recipe.sources])
            args.clear()
            return _Eager(prepared.gm).run(*values)

        call._boxed_call = True  # type: ignore[attr-defined]
        return call

    backend = aot_autograd(
        fw_compiler=compiler,
        inference_compiler=compiler,
        decompositions=decompositions(RULES),
        keep_inference_input_mutations=True,
    )
    return torch.compile(model, backend=backend, **options), passed


@torch.no_grad()
def check(
    model: torch.nn.Module, *args: Any, dtype: torch.dtype = torch.float32, dynamic: bool | None = None, **options: Any
) -> Passed:
    """Run `model` through the passes in this dtype, and compare values, dtypes and strides with eager mode, and values
    with float64. Returns the graphs."""
    skip_unless_supported(dtype)
    model = model.eval()
    exact = run_as(model, args, torch.float64)
    expected = run_as(model, args, dtype)
    compiled, passed = compile_passed(model.to(dtype), dynamic=dynamic, **options)
    actual = compiled(*[to(a, dtype) for a in args])
    for a, e, x in zip(leaves(actual), leaves(expected), leaves(exact), strict=True):
        assert a.dtype == e.dtype
        assert a.shape == e.shape
        tolerance = TOLERANCES[dtype]
        scale = max(1.0, float(x.abs().max())) if x.numel() else 1.0
        torch.testing.assert_close(a.double(), x.double(), atol=tolerance * scale, rtol=tolerance)
    return passed


def skip_unless_supported(dtype: torch.dtype) -> None:
    """Skip where oneDNN cannot compute in this dtype."""
    if dtype == torch.float16 and not mkldnn._is_mkldnn_fp16_supported():
        pytest.skip("this CPU has no f16 matrix products (avx512_fp16)")
    if dtype == torch.bfloat16 and not mkldnn._is_mkldnn_bf16_supported():
        pytest.skip("this CPU has no bf16 matrix products")


def run_as(model: torch.nn.Module, args: Sequence[Any], dtype: torch.dtype) -> Any:
    """Eager results in another dtype; the model is left in it."""
    return model.to(dtype)(*[to(a, dtype) for a in args])


def to(value: Any, dtype: torch.dtype) -> Any:
    """A floating-point tensor in this dtype; anything else as it is."""
    return value.to(dtype) if isinstance(value, torch.Tensor) and value.dtype.is_floating_point else value


def leaves(value: Any) -> list[torch.Tensor]:
    """The tensors of a result."""
    return [v for v in torch.utils._pytree.tree_leaves(value) if isinstance(v, torch.Tensor)]


def randomize(model: torch.nn.Module) -> torch.nn.Module:
    """Statistics and affine parameters of norms that are not those of a new model."""
    for module in model.modules():
        if isinstance(module, torch.nn.modules.batchnorm._BatchNorm):
            torch.nn.init.uniform_(module.weight, 0.5, 1.5)
            torch.nn.init.uniform_(module.bias, -0.5, 0.5)
            if module.running_mean is None or module.running_var is None:
                continue
            module.running_mean.uniform_(-0.5, 0.5)
            module.running_var.uniform_(0.5, 1.5)
    return model
