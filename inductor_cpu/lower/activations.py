"""Activation functions and their gradients, as formulas. Low precision is computed in f32 and rounded once."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import fx

from inductor_cpu.lower.body import Body, represent
from inductor_cpu.lower.context import Lowering
from inductor_cpu.lower.pointwise import KIND, aten, check_constants, compute_dtype, elementwise, formula
from inductor_cpu.lower.registry import rule
from inductor_cpu.lower.terms import Term, where
from inductor_cpu.lower.values import TensorValue

Number = int | float

_SQRT_HALF = math.sqrt(0.5)
_TANH_SCALE = math.sqrt(2 / math.pi)
_TANH_CUBIC = 0.044715


# -- smooth gates ----------------------------------------------------------------------------------------------------
def _twice_inner_of_gelu_tanh(x: Term) -> Term:
    """2 y of gelu's approximation, in which (1 + tanh(y)) / 2 is sigmoid(2 y): with AVX2 that takes two thirds of the
    time, and no digits are lost where tanh is near -1."""
    return 2 * _TANH_SCALE * (x + _TANH_CUBIC * (x * x * x))


@formula(aten.gelu.default)
def gelu(x: Term, approximate: str = "none") -> Term:
    if (narrow := x.before_widening()) is not None:  # few bits are asked for
        return narrow.op("gelu_tanh" if approximate == "tanh" else "gelu")
    if approximate == "tanh":
        return x * _twice_inner_of_gelu_tanh(x).op("sigmoid")
    return x * 0.5 * (1 + (x * _SQRT_HALF).op("erf"))


@formula(aten.gelu_backward.default, tensors=2)
def gelu_backward(grad: Term, x: Term, approximate: str = "none") -> Term:
    if approximate == "tanh":
        power = (-_twice_inner_of_gelu_tanh(x)).op("exp")
        gate, slope = 1 / (1 + power), 2 * _TANH_SCALE * (1 + 3 * _TANH_CUBIC * (x * x))
        rest = where(gate > 0.5, power * gate, 1 - gate)  # 1 - gate, without cancellation
        return grad * (gate + x * gate * rest * slope)
    if x.before_widening() is not None:
        return grad * x.op("low_gelu_slope")
    if x.dtype == torch.float32:
        return grad * x.op("gelu_slope")
    cdf = 0.5 * (1 + (x * _SQRT_HALF).op("erf"))
    pdf = (x * x * -0.5).op("exp") * (1 / math.sqrt(2 * math.pi))
    return grad * (cdf + x * pdf)


@formula(aten.silu.default)
def silu(x: Term) -> Term:
    if (narrow := x.before_widening()) is not None:
        return narrow.op("silu")
    return x / (1 + (-x).op("exp"))


@formula(aten.silu_backward.default, tensors=2)
def silu_backward(grad: Term, x: Term) -> Term:
    gate = 1 / (1 + (-x).op("exp"))
    return grad * gate * (1 + x * (1 - gate))


@formula(aten.sigmoid_backward.default, tensors=2)
def sigmoid_backward(grad: Term, y: Term) -> Term:
    return grad * (1 - y) * y


@formula(aten.tanh_backward.default, tensors=2)
def tanh_backward(grad: Term, y: Term) -> Term:
    return grad * (1 - y * y)


def _powers_of_mish(x: Term) -> tuple[Term, Term]:
    """p = exp(x) and n = p (p + 2), so that tanh(log(1 + p)) = n / (n + 2): one function in the place of three. It is 1
    from 20 on in double precision, too; beyond 40, n could be infinite."""
    power = x.minimum(40).op("exp")
    return power, power * (power + 2)


@formula(aten.mish.default)
def mish(x: Term) -> Term:
    n = _powers_of_mish(x)[1]
    return x * (n / (n + 2))


@formula(aten.mish_backward.default, tensors=2)
def mish_backward(grad: Term, x: Term) -> Term:
    power, n = _powers_of_mish(x)
    soft, rest = n / (n + 2), 2 / (n + 2)  # rest: 1 - soft
    return grad * (soft + x * (power / (power + 1)) * rest * (1 + soft))


@formula(aten.softplus.default)
def softplus(x: Term, beta: Number = 1, threshold: Number = 20) -> Term:
    scaled = x * beta
    return where(scaled > threshold, x, scaled.op("exp").op("log1p") / beta)


@formula(aten.softplus_backward.default, tensors=2)
def softplus_backward(grad: Term, x: Term, beta: Number, threshold: Number) -> Term:
    scaled = x * beta
    power = scaled.op("exp")
    return where(scaled > threshold, grad, grad * power / (power + 1))


@formula(aten.log_sigmoid_backward.default, tensors=3)
def log_sigmoid_backward(grad: Term, x: Term, power: Term) -> Term:
    """power: exp(-abs(x)), kept from the forward direction."""
    share = power / (1 + power)
    return grad * where(x < 0, 1 - share, share)


# -- piecewise linear ------------------------------------------------------------------------------------------------
def _sixth(value: Term, x: Term) -> Term:
    """value / 6. Of a low-precision argument few bits are asked for: a product will do."""
    return value / 6 if x.before_widening() is None else value * (1 / 6)


@formula(aten.hardswish.default)
def hardswish(x: Term) -> Term:
    return _sixth(x * (x + 3).maximum(0).minimum(6), x)


@formula(aten.hardswish_backward.default, tensors=2)
def hardswish_backward(grad: Term, x: Term) -> Term:
    return where(x <= -3, 0, where(x >= 3, grad, grad * (x / 3 + 0.5)))  # NaN for NaN, as in eager's vectors


@formula(aten.hardsigmoid.default)
def hardsigmoid(x: Term) -> Term:
    return _sixth((x + 3).maximum(0).minimum(6), x)


@formula(aten.hardsigmoid_backward.default, tensors=2)
def hardsigmoid_backward(grad: Term, x: Term) -> Term:
    return where((x > -3) & (x < 3), grad * represent(1 / 6, torch.float32), 0)  # eager's constant is f32


@formula(aten.hardtanh.default, wide=False, floating=False)
def hardtanh(x: Term, min_val: Number = -1, max_val: Number = 1) -> Term:
    return x.clamped(min_val, max_val)


@formula(aten.relu6.default, wide=False, floating=False)
def relu6(x: Term) -> Term:
    return x.clamped(0, 6)


@formula(aten.hardtanh_backward.default, tensors=2)
def hardtanh_backward(grad: Term, x: Term, min_val: Number, max_val: Number) -> Term:
    return where((x > min_val) & (x < max_val), grad, 0)  # also for NaN, as in eager's vectors


@formula(aten.leaky_relu.default)
def leaky_relu(x: Term, negative_slope: Number = 0.01) -> Term:
    return where(x > 0, x, x * negative_slope)


@formula(aten.leaky_relu_backward.default, tensors=2)
def leaky_relu_backward(grad: Term, x: Term, negative_slope: Number, self_is_result: bool) -> Term:
    return where(x > 0, grad, grad * negative_slope)


@formula(aten.threshold.default, wide=False, floating=False)
def threshold(x: Term, threshold: Number, value: Number) -> Term:
    return where(x <= threshold, value, x)


@formula(aten.threshold_backward.default, tensors=2, wide=False, floating=False)
def threshold_backward(grad: Term, x: Term, threshold: Number) -> Term:
    return where(x <= threshold, 0, grad)


@formula(aten._prelu_kernel.default, tensors=2)
def prelu(x: Term, weight: Term) -> Term:
    return where(x > 0, x, x * weight)


@formula(aten.softshrink.default)
def softshrink(x: Term, lambd: Number = 0.5) -> Term:
    inside = where(x.op("isnan"), x, x * 0)
    return where(x > lambd, x - lambd, where(x < -lambd, x + lambd, inside))


@formula(aten.hardshrink.default)
def hardshrink(x: Term, lambd: Number = 0.5) -> Term:
    return where((x >= -lambd) & (x <= lambd), 0, x)


# -- exponential -----------------------------------------------------------------------------------------------------
@formula(aten.elu.default)
def elu(x: Term, alpha: Number = 1, scale: Number = 1, input_scale: Number = 1) -> Term:
    return where(x <= 0, (x * input_scale).op("expm1") * (alpha * scale), x * scale)


@formula(aten.celu.default)
def celu(x: Term, alpha: Number = 1) -> Term:
    return elu(x, alpha, 1, 1 / alpha)


@formula(aten.selu.default)
def selu(x: Term) -> Term:
    return elu(x, 1.6732632423543772848170429916717, 1.0507009873554804934193349852946)


@rule(aten.elu_backward.default)
def elu_backward(
    ctx: Lowering, node: fx.Node, grad: Any, alpha: Number, scale: Number, input_scale: Number, is_result: bool, x: Any
) -> TensorValue:
    check_constants(node, (alpha, scale, input_scale))
    negative, dtype = alpha * scale, compute_dtype(node, (node.args[0], node.args[5]), KIND.DEFAULT)

    def compute(body: Body, grad_value: int, value: int) -> int:
        g, y = Term(body, grad_value), Term(body, value)
        slope = (y + negative) if is_result else (y * input_scale).op("exp") * negative
        return where(y > 0, g * scale, g * input_scale * slope).value  # NaN for NaN, as in eager's vectors

    return elementwise(ctx, node, compute, (grad, x), dtype, wide=True)
