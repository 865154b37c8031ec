"""The scalar C++ of every op: one row per op of `ir/ops.py`.

A row maps the kind of the arguments (float, int, bool) to an expression. {0}, {1}, {2} are the arguments, which are
names or literals; {T} is the C++ type of the arguments, {E} their element type; {status} is where errors go.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from inductor_cpu.ir.ops import LOW_PRECISION


@dataclass(frozen=True)
class Row:
    """C++ expressions by kind of argument; None where the op does not take the kind. low: for bf16 and f16, where they
    differ from the other floats; "" for none."""

    float: str | None = None
    int: str | None = None
    bool: str | None = None
    low: str | None = None

    def template(self, dtype: torch.dtype) -> str | None:
        """The expression for arguments of this dtype."""
        if dtype == torch.bool:
            return self.bool
        if self.low is not None and dtype in LOW_PRECISION:
            return self.low or None
        return self.float if dtype.is_floating_point else self.int


def _std(names: str) -> dict[str, Row]:
    return {name: Row(float=f"std::{name}({{0}})") for name in names.split()}


def calls(names: str) -> dict[str, Row]:
    """Rows of functions of floats in the namespace icpu."""
    return {name: Row(float=f"icpu::{name}({{0}})") for name in names.split()}


def _compare(name: str, operator: str) -> dict[str, Row]:
    text = f"{{0}} {operator} {{1}}"
    return {name: Row(float=text, int=text, bool=text)}


def _bits(name: str, operator: str) -> dict[str, Row]:
    return {name: Row(int=f"{{T}}({{0}} {operator} {{1}})", bool=f"bool({{0}} {operator} {{1}})")}


def _logic(name: str, operator: str) -> dict[str, Row]:
    return {name: Row(bool=f"{{0}} {operator} {{1}}")}


SCALAR: dict[str, Row] = {
    "neg": Row(float="-{0}", int="icpu::neg({0})"),
    "abs": Row(float="std::abs({0})", int="icpu::abs({0})"),
    "sign": Row(float="icpu::sign({0})", int="icpu::sign({0})"),
    "relu": Row(float="icpu::relu({0})", int="icpu::relu({0})"),
    **_std("floor ceil trunc sqrt exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan sinh cosh tanh"),
    **_std("asinh acosh atanh erf lgamma isnan isinf"),
    **calls("rsqrt erfinv sigmoid signbit i0 i0e i1 i1e digamma trigamma erfc erfcx log_ndtr ndtri"),
    "gelu": Row(low="icpu::gelu({0})"),
    "gelu_tanh": Row(low="icpu::gelu_tanh({0})"),
    "silu": Row(low="icpu::silu({0})"),
    "low_exp": Row(float="icpu::low_exp({0})"),
    "gelu_slope": Row(float="icpu::gelu_slope({0})"),
    "low_gelu_slope": Row(float="icpu::low_gelu_slope({0})"),
    "exp_of_nonpositive": Row(float="std::exp({0})"),
    "round": Row(float="std::nearbyint({0})"),
    "reciprocal": Row(float="{T}(1) / {0}"),
    "logical_not": Row(bool="!{0}"),
    "bitwise_not": Row(int="icpu::bitwise_not({0})", bool="!{0}"),
    "add": Row(float="{0} + {1}", int="icpu::add({0}, {1})"),
    "sub": Row(float="{0} - {1}", int="icpu::sub({0}, {1})"),
    "mul": Row(float="{0} * {1}", int="icpu::mul({0}, {1})"),
    "div": Row(float="{0} / {1}"),
    "fmod": Row(float="std::fmod({0}, {1})", int="icpu::fmod({0}, {1}, {status})"),
    "remainder": Row(float="icpu::remainder({0}, {1})", int="icpu::remainder({0}, {1}, {status})"),
    "floordiv": Row(int="icpu::floordiv({0}, {1}, {status})"),
    "truncdiv": Row(int="icpu::truncdiv({0}, {1}, {status})"),
    "pow": Row(float="std::pow({0}, {1})"),
    "atan2": Row(float="std::atan2({0}, {1})"),
    "hypot": Row(float="std::hypot({0}, {1})"),
    "nextafter": Row(float="icpu::nextafter<{E}>({0}, {1})"),
    "ipow": Row(int="icpu::ipow({0}, {1})"),
    "copysign": Row(float="std::copysign({0}, {1})"),
    "maximum": Row(*["icpu::maximum({0}, {1})"] * 3),
    "minimum": Row(*["icpu::minimum({0}, {1})"] * 3),
    "fmax": Row(float="std::fmax({0}, {1})"),
    "fmin": Row(float="std::fmin({0}, {1})"),
    **_compare("eq", "=="),
    **_compare("ne", "!="),
    **_compare("lt", "<"),
    **_compare("le", "<="),
    **_compare("gt", ">"),
    **_compare("ge", ">="),
    **_logic("logical_and", "&&"),
    **_logic("logical_or", "||"),
    **_logic("logical_xor", "!="),
    **_bits("bitwise_and", "&"),
    **_bits("bitwise_or", "|"),
    **_bits("bitwise_xor", "^"),
    "lshift": Row(int="icpu::lshift({0}, {1})"),
    "rshift": Row(int="icpu::rshift({0}, {1})"),
    "where": Row(*["{0} ? {1} : {2}"] * 3),
    "fma": Row(float="std::fma({0}, {1}, {2})"),
    "quotient": Row(float="{0} / {1}"),
    "philox": Row(int="icpu::philox<0>({0}, {1}, {2})"),
    "philox_second": Row(int="icpu::philox<1>({0}, {1}, {2})"),
    "check_index": Row(int="icpu::check_index({0}, {1}, status)"),
    "check_element": Row(int="icpu::check_element({0}, {1}, status)"),
    "check_true": Row(bool="icpu::check_true({0}, status)"),
}

#: Ops that need a header besides the prelude.
HEADERS: dict[str, str] = {"erfinv": "erfinv.h", "ndtri": "ndtri.h"}
HEADERS |= dict.fromkeys(("i0", "i0e", "i1", "i1e"), "bessel.h")
HEADERS |= dict.fromkeys(("digamma", "trigamma"), "polygamma.h")
HEADERS |= dict.fromkeys(("erfc", "erfcx", "log_ndtr"), "erfcx.h")
HEADERS |= dict.fromkeys(("gelu", "gelu_tanh"), "gelu.h")
HEADERS |= dict.fromkeys(("gelu_slope", "low_gelu_slope"), "gelu_slope.h")
HEADERS |= dict.fromkeys(("silu", "low_exp"), "low_math.h")
HEADERS |= dict.fromkeys(("philox", "philox_second"), "philox.h")

#: The same for vectors of bf16 and f16.
LOW_HEADERS: dict[str, str] = dict.fromkeys(("exp", "sigmoid", "tanh", "div"), "low_math.h")
