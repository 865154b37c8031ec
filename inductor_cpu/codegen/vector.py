"""The vector C++ of ops, with the same kinds of rows as `codegen/scalar.py`.

A missing row, or kind, means that the op runs lane by lane through its scalar row. {T} is the type of a lane, {E} that
of an element in memory, {lanes} the lanes that take part, {status} where errors go. Narrow integers are held in 32-bit
lanes and wrapped after the ops in `LEAVES_RANGE`.
"""

from __future__ import annotations

from inductor_cpu.codegen.scalar import Row, calls


def _call2(names: str) -> dict[str, Row]:
    return {name: Row(float=f"icpu::{name}({{0}}, {{1}})") for name in names.split()}


def _infix(name: str, operator: str, *, floats: bool = True, bools: bool = False) -> dict[str, Row]:
    text = f"{{0}} {operator} {{1}}"
    return {name: Row(float=text if floats else None, int=text, bool=text if bools else None)}


def _division(names: str, *, floats: bool) -> dict[str, Row]:
    def row(name: str) -> Row:
        of_floats = f"icpu::{name}({{0}}, {{1}})" if floats else None
        return Row(float=of_floats, int=f"icpu::{name}({{0}}, {{1}}, {{lanes}}, {{status}})")

    return {name: row(name) for name in names.split()}


VECTOR: dict[str, Row] = {
    "neg": Row(float="-{0}", int="-{0}"),
    "abs": Row(float="icpu::abs({0})", int="icpu::abs({0})"),
    "sign": Row(float="icpu::sign({0})", int="icpu::sign({0})"),
    "relu": Row(float="icpu::relu({0})", int="icpu::relu({0})"),
    **calls(
        "floor ceil trunc sqrt rsqrt reciprocal low_exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan"
    ),
    **calls("sinh cosh asinh acosh atanh erf erfc erfinv lgamma isnan isinf signbit"),
    **calls("i0 i0e i1 i1e digamma trigamma erfcx log_ndtr ndtri"),
    **calls("exp_of_nonpositive gelu_slope low_gelu_slope"),
    "exp": Row(float="icpu::exp({0})", low="icpu::low_exp({0})"),
    "tanh": Row(float="icpu::tanh({0})", low="icpu::low_tanh({0})"),
    "sigmoid": Row(float="icpu::sigmoid({0})", low="icpu::low_sigmoid<{E}>({0})"),
    "silu": Row(low="icpu::low_silu<{E}>({0})"),
    "gelu": Row(low="icpu::gelu({0})"),
    "gelu_tanh": Row(low="icpu::gelu_tanh({0})"),
    "round": Row(float="icpu::rint({0})"),
    "logical_not": Row(bool="!{0}"),
    "bitwise_not": Row(int="~{0}", bool="!{0}"),
    **_infix("add", "+"),
    **_infix("sub", "-"),
    **_infix("mul", "*"),
    "div": Row(float="{0} / {1}"),
    **_call2("pow atan2 hypot copysign fmax fmin"),
    **_division("fmod remainder", floats=True),
    **_division("floordiv truncdiv", floats=False),
    "nextafter": Row(float="icpu::nextafter({0}, {1})", low=""),  # bf16 and f16: lane by lane
    "maximum": Row(*["icpu::maximum({0}, {1})"] * 3),
    "minimum": Row(*["icpu::minimum({0}, {1})"] * 3),
    **_infix("eq", "==", bools=True),
    **_infix("ne", "!=", bools=True),
    **_infix("lt", "<", bools=True),
    **_infix("le", "<=", bools=True),
    **_infix("gt", ">", bools=True),
    **_infix("ge", ">=", bools=True),
    "logical_and": Row(bool="{0} & {1}"),
    "logical_or": Row(bool="{0} | {1}"),
    "logical_xor": Row(bool="{0} ^ {1}"),
    **_infix("bitwise_and", "&", floats=False, bools=True),
    **_infix("bitwise_or", "|", floats=False, bools=True),
    **_infix("bitwise_xor", "^", floats=False, bools=True),
    "lshift": Row(int="icpu::lshift<{T}>({0}, {1})"),
    "rshift": Row(int="icpu::rshift<{T}>({0}, {1})"),
    "where": Row(*["icpu::select({0}, {1}, {2})"] * 3),
    "fma": Row(float="icpu::fma({0}, {1}, {2})"),
    "quotient": Row(float="icpu::quotient({0}, {1}, {2})"),
    "philox": Row(int="icpu::philox<0>({0}, {1}, {2})"),
    "philox_second": Row(int="icpu::philox<1>({0}, {1}, {2})"),
    "check_index": Row(int="icpu::check_index({0}, {1}, {lanes}, status)"),
    "check_element": Row(int="icpu::check_element({0}, {1}, {lanes}, status)"),
    "check_true": Row(bool="icpu::check_true({0}, {lanes}, status)"),
}

#: Ops of floats whose second argument is a constant other than NaN: one instruction does.
BOUNDS: dict[str, str] = {"maximum": "icpu::at_least({0}, {1})", "minimum": "icpu::at_most({0}, {1})"}

#: Ops that run lane by lane for every dtype, because there are no vector instructions for them.
LANE_BY_LANE: frozenset[str] = frozenset({"ipow"})

#: Ops whose result can leave the range of a narrow integer.
LEAVES_RANGE: frozenset[str] = frozenset(
    {"neg", "abs", "add", "sub", "mul", "bitwise_not", "lshift", "floordiv", "truncdiv"}
)
