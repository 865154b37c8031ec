"""Other programs that run a model of PyTorch on CPUs: OpenVINO and ONNX Runtime.

They convert a whole model themselves, so they are no backends of torch.compile; `pip install -e '.[peers]'` brings
them. Each has torch's number of threads and is set to answer one call at a time. Inputs and results share memory with
torch where an interface allows that.
"""

from __future__ import annotations

import copy
import importlib
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType

import numpy
import torch
from torch import nn

from bench_suites.measure import tensors
from bench_suites.models import Model

Call = Callable[..., list[torch.Tensor]]


def openvino(model: Model) -> Call:
    """The model by OpenVINO's plugin for CPUs, which converts weights to bf16 itself. Raises ImportError without the
    package, and what the conversion raises."""
    ov = _package("openvino")
    example = _widened(model)
    converted = ov.convert_model(_Tensors(example), example_input=_arguments(example))
    settings = {
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_NUM_THREADS": torch.get_num_threads(),
        "INFERENCE_PRECISION_HINT": "bf16" if _dtype(model) is torch.bfloat16 else "f32",
    }
    request = ov.Core().compile_model(converted, "CPU", settings).create_infer_request()

    def run(inputs: list[numpy.ndarray]) -> list[numpy.ndarray]:
        results = request.infer(inputs, share_inputs=True, share_outputs=True)
        return [results[place] for place in range(len(results))]

    return _of_tensors(run, _dtype(model))


def onnxruntime(model: Model) -> Call:
    """The model in float32 by ONNX Runtime's provider for CPUs, exported by torch.onnx. Raises ImportError without the
    packages, ValueError for other dtypes, and what the export raises."""
    runtime, _ = _package("onnxruntime"), _package("onnxscript")
    if _dtype(model) is not torch.float32:
        raise ValueError("ONNX Runtime has few operators of other dtypes than float32 on CPUs")
    program = torch.onnx.export(_Tensors(model), _arguments(model), dynamo=True)
    assert program is not None
    options = runtime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "model.onnx"
        program.save(file)  # weights of more than 2 GB in a file beside it
        session = runtime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    names = [node.name for node in session.get_inputs()]
    return _of_tensors(lambda inputs: session.run(None, dict(zip(names, inputs, strict=True))), torch.float32)


PEERS: Mapping[str, Callable[[Model], Call]] = {"openvino": openvino, "onnxruntime": onnxruntime}
"""What makes a call of a model, by name. The call takes the model's arguments and gives the tensors of its result."""


class _Tensors(nn.Module):
    """A model as converters want it: a function of positional tensors whose result is a tuple of tensors."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.module, self.names = model.module, list(model.kwargs)

    def forward(self, *values: torch.Tensor) -> tuple[torch.Tensor, ...]:
        positional = len(values) - len(self.names)
        named = dict(zip(self.names, values[positional:], strict=True))
        return tuple(tensors(self.module(*values[:positional], **named)))


def _arguments(model: Model) -> tuple[torch.Tensor, ...]:
    return (*model.args, *model.kwargs.values())


def _package(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ImportError(f"{error}: `pip install -e '.[peers]'` brings the peers") from error


def _dtype(model: Model) -> torch.dtype:
    return next(parameter.dtype for parameter in model.module.parameters())


def _widened(model: Model) -> Model:
    """A copy in float32, for numpy has no bf16."""
    return Model(model.name, copy.deepcopy(model.module), model.args, model.kwargs).to(torch.float32)


def _of_tensors(run: Callable[[list[numpy.ndarray]], list[numpy.ndarray]], dtype: torch.dtype) -> Call:
    """The same function of tensors, whose floats have this dtype."""

    def call(*args: torch.Tensor, **kwargs: torch.Tensor) -> list[torch.Tensor]:
        values = (*args, *kwargs.values())
        inputs = [value.float().numpy() if value.is_floating_point() else value.numpy() for value in values]
        results = [torch.from_numpy(result) for result in run(inputs)]
        return [result.to(dtype) if result.is_floating_point() else result for result in results]

    return call
