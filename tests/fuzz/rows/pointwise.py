"""Elementwise operations: arithmetic, comparison, bits, activations, casts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tests.fuzz.graph import Attr
from tests.fuzz.rows.row import (
    Accept,
    Choice,
    Choose,
    Chooser,
    Row,
    Value,
    anything,
    bools,
    both,
    broadcasts,
    dtype_name,
    floats,
    integers,
    numbers,
    one,
    partner,
    rank,
    three,
    two,
    whole,
)

FLOAT_DTYPES = ("float32", "float64", "bfloat16", "float16")
SIGNED = ("int64", "int32", "int16", "int8")


def _table(
    choose: Choose,
    accepts: Accept,
    rows: Mapping[str, str],
    *,
    keeps: bool = False,
    needs_exact: bool = False,
    attrs: Mapping[str, Sequence[Attr]] | None = None,
    weight: float = 1.0,
) -> tuple[Row, ...]:
    return tuple(
        Row(name, text, choose, accepts, attrs or {}, keeps=keeps, needs_exact=needs_exact, weight=weight)
        for name, text in rows.items()
    )


def _condition(c: Chooser, accept: Accept) -> Choice | None:
    """A bool, and two values that broadcast with it."""
    cond = c.value(both(bools, lambda v: v.exact))
    if cond is None:
        return None
    a = c.value(both(accept, broadcasts(cond)))
    if a is None:
        return None
    b = c.value(both(accept, broadcasts(cond), broadcasts(a)))
    return None if b is None else Choice((cond.name, a.name, b.name))


def _masked(c: Chooser, accept: Accept) -> Choice | None:
    """A value and a bool that broadcasts with it."""
    a = c.value(accept)
    if a is None:
        return None
    return Choice((a.name, partner(c, a, bools) if c.value(both(bools, broadcasts(a))) else _mask(c, a)))


def _mask(c: Chooser, a: object) -> str:
    shape, second = a.tensor.shape, a.second  # type: ignore[attr-defined]
    return c.make(shape, second, "bool", "integers")


FLOAT_UNARY = {
    "exp": "torch.exp({0})",
    "exp2": "torch.exp2({0})",
    "expm1": "torch.expm1({0})",
    "log": "torch.log({0}.abs() + 0.5)",
    "log1p": "torch.log1p({0}.abs())",
    "log2": "torch.log2({0}.abs() + 0.5)",
    "sqrt": "torch.sqrt({0}.abs() + 0.125)",
    "rsqrt": "torch.rsqrt({0}.abs() + 0.25)",
    "reciprocal": "torch.reciprocal({0}.abs() + 0.5)",
    "sin": "torch.sin({0})",
    "cos": "torch.cos({0})",
    "tan": "torch.tan({0}.clamp(-1, 1))",
    "atan": "torch.atan({0})",
    "asin": "torch.asin({0}.clamp(-0.75, 0.75))",
    "sinh": "torch.sinh({0}.clamp(-4, 4))",
    "asinh": "torch.asinh({0})",
    "tanh": "torch.tanh({0})",
    "sigmoid": "torch.sigmoid({0})",
    "erf": "torch.erf({0})",
    "erfc": "torch.erfc({0})",
    "lgamma": "torch.lgamma({0}.abs() + 0.5)",
    "gelu": "F.gelu({0})",
    "gelu_tanh": "F.gelu({0}, approximate='tanh')",
    "silu": "F.silu({0})",
    "mish": "F.mish({0})",
    "softplus": "F.softplus({0})",
    "softplus_beta": "F.softplus({0}, beta=2.0, threshold=4.0)",
    "softsign": "F.softsign({0})",
    "tanhshrink": "F.tanhshrink({0}.abs() + 1)",  # near 0 two equal numbers are subtracted
    "elu": "F.elu({0}, alpha=0.5)",
    "selu": "F.selu({0})",
    "celu": "F.celu({0}, alpha=1.5)",
    "hardswish": "F.hardswish({0})",
    "hardsigmoid": "F.hardsigmoid({0})",
    "logsigmoid": "F.logsigmoid({0})",
    "leaky_relu": "F.leaky_relu({0}, 0.1)",
    "half": "{0} * 0.3",
    "add_scalar_float": "{0} + 0.7",
    "rsub_scalar": "1.3 - {0}",
    "div_scalar": "{0} / 3",
    "pow_half": "({0}.abs() + 0.5) ** 0.5",
    "pow_minus": "({0}.abs() + 0.5) ** -1.5",
    "scalar_pow": "2.0 ** {0}.clamp(-4, 4)",
    "sinc": "torch.sinc({0}.abs() + 0.5)",
    "logit": "torch.logit({0}.clamp(0.1, 0.9))",
}

FLOAT_BINARY = {
    "div": "{0} / ({1}.abs() + 1)",
    "true_divide": "torch.div({0}, 2 + {1} * {1})",
    "pow": "({0}.abs() + 0.5) ** {1}.clamp(-2, 2)",
    "atan2": "torch.atan2({0}.abs() + 0.5, {1})",
    "hypot": "torch.hypot({0}, {1} + 0.5)",
    "xlogy": "torch.xlogy({0}, {1}.abs() + 0.5)",
    "logaddexp": "torch.logaddexp({0}, {1})",
    "lerp_scalar": "torch.lerp({0}, {1}.to({0}.dtype), 0.3)",
    "mse": "F.mse_loss({0}.expand_as({0} + {1}), {1}.expand_as({0} + {1}), reduction='none')",
    "smooth_l1": "F.smooth_l1_loss({0}.expand_as({0} + {1}), {1}.expand_as({0} + {1}), reduction='none')",
}

KEEP_UNARY = {
    "neg": "-{0}",
    "abs": "{0}.abs()",
    "square": "{0}.square()",
    "relu": "torch.relu({0})",
    "clamp": "{0}.clamp(-2, 3)",
    "clamp_min": "{0}.clamp(min=0)",
    "clamp_max": "{0}.clamp(max=2)",
    "double": "{0} * 2",
    "increment": "{0} + 1",
    "decrement": "{0} - 2",
    "rsub": "3 - {0}",
    "pow2": "{0} ** 2",
    "pow3": "torch.pow({0}, 3)",
    "nan_to_num": "torch.nan_to_num({0})",
    "hardtanh": "F.hardtanh({0}, -2, 2)",
    "relu6": "F.relu6({0})",
}

KEEP_BINARY = {
    "add": "{0} + {1}",
    "sub": "{0} - {1}",
    "mul": "{0} * {1}",
    "add_alpha": "torch.add({0}, {1}, alpha=2)",
    "sub_alpha": "torch.sub({0}, {1}, alpha=3)",
    "rsub_tensor": "torch.rsub({0}, {1})",
    "maximum": "torch.maximum({0}, {1})",
    "minimum": "torch.minimum({0}, {1})",
    "fmax": "torch.fmax({0}, {1})",
    "fmin": "torch.fmin({0}, {1})",
    "clamp_tensor": "torch.clamp({0}, min={1})",
}

EXACT_UNARY = {
    "sign": "torch.sign({0})",
    "floor": "torch.floor({0} * 0.5)",
    "ceil": "torch.ceil({0} * 0.5)",
    "round": "torch.round({0} * 0.5)",
    "trunc": "torch.trunc({0} * 0.5)",
    "frac": "torch.frac({0} * 0.25)",
    "fmod_scalar": "torch.fmod({0}, 3)",
    "remainder_scalar": "torch.remainder({0}, 3)",
    "floordiv_scalar": "{0} // 2",
    "truncdiv_scalar": "torch.div({0}, 3, rounding_mode='trunc')",
    "relu_step": "({0} > 0).to({0}.dtype)",
    "is_zero": "{0} == 0",
    "not_one": "{0} != 1",
    "below": "{0} < 2",
    "at_least": "{0} >= 0",
    "logical_not": "torch.logical_not({0})",
    "isnan": "torch.isnan({0})",
    "signbit": "torch.signbit({0} - 1)",
    "threshold": "F.threshold({0}, 1, -1)",
    "hardshrink": "F.hardshrink({0}.float(), 0.5)",
}

EXACT_BINARY = {
    "eq": "{0} == {1}",
    "ne": "{0} != {1}",
    "lt": "{0} < {1}",
    "le": "{0} <= {1}",
    "gt": "{0} > {1}",
    "ge": "torch.ge({0}, {1})",
    "fmod": "torch.fmod({0}, {1}.abs().clamp(max=20) + 1)",
    "remainder": "torch.remainder({0}, {1}.abs().clamp(max=20) + 1)",
    "remainder_negative": "torch.remainder({0}, -1 - {1}.abs().clamp(max=20))",
    "floor_divide": "{0} // ({1}.abs().clamp(max=20) + 1)",
    "trunc_divide": "torch.div({0}, {1}.abs().clamp(max=20) + 1, rounding_mode='trunc')",
    "copysign": "torch.copysign({0}, {1} - 0.5)",
    "heaviside": "torch.heaviside({0}, {1}.to({0}.dtype))",
}


def _floats32(v: Value) -> bool:
    return dtype_name(v) == "float32"


def _slopes(c: Chooser, accept: Accept) -> Choice | None:
    """A value, and a slope for each of its channels or one for all."""
    a = c.value(both(accept, lambda v: v.tensor.shape[1] == v.second[1]))
    if a is None:
        return None
    n = c.random.choice([1, a.tensor.shape[1]])
    return Choice((a.name, c.make((n,), (n,), dtype_name(a), weight=True)))


ROWS: tuple[Row, ...] = (
    *_table(one, floats, FLOAT_UNARY),
    *_table(two, floats, FLOAT_BINARY, weight=1.5),
    *_table(one, numbers, KEEP_UNARY, keeps=True),
    *_table(two, numbers, KEEP_BINARY, keeps=True, weight=3),
    *_table(one, numbers, EXACT_UNARY, keeps=True, needs_exact=True, weight=0.6),
    *_table(two, numbers, EXACT_BINARY, keeps=True, needs_exact=True, weight=0.8),
    *_table(
        two,
        anything,
        {
            "logical_and": "torch.logical_and({0}, {1})",
            "logical_or": "torch.logical_or({0}, {1})",
            "logical_xor": "torch.logical_xor({0}, {1})",
        },
        keeps=True,
        needs_exact=True,
        weight=0.5,
    ),
    *_table(
        two,
        whole,
        {"bit_and": "{0} & {1}", "bit_or": "{0} | {1}", "bit_xor": "{0} ^ {1}"},
        keeps=True,
    ),
    *_table(
        one,
        integers,
        {
            "shift_left": "{0} << {by}",
            "shift_right": "{0} >> {by}",
            "mask_bits": "{0} & {by}",
        },
        keeps=True,
        attrs={"by": (0, 1, 3, 7)},
    ),
    Row("wrap", "{0} * 113 + 97", one, integers, keeps=True),
    Row("bit_not", "~{0}", one, whole, keeps=True),
    Row("bool_add", "{0} + {1}", two, bools, keeps=True),
    Row("bool_mul", "{0} * {1}", two, bools, keeps=True),
    Row("where", "torch.where({0}, {1}, {2})", _condition, anything, keeps=True, weight=4),
    Row("where_scalar", "torch.where({1}, {0}, 0)", _masked, anything, keeps=True),
    Row("masked_fill", "{0}.masked_fill({1}, 1)", _masked, anything, keeps=True, weight=2),
    Row("mul_mask", "{0} * {1}", _masked, numbers, keeps=True),
    Row("addcmul", "torch.addcmul({0}, {1}, {2}, value=0.5)", three, floats, weight=2),
    Row("addcdiv", "torch.addcdiv({0}, {1}, {2}.abs() + 1, value=2)", three, floats),
    Row("lerp", "torch.lerp({0}, {1}, {2}.to({0}.dtype))", three, floats),
    Row("clamp_tensors", "torch.clamp({0}, {1}, {2})", three, numbers, keeps=True),
    Row("fma", "{0} * {1} + {2}", three, numbers, keeps=True, weight=2),
    Row("mul_cmp", "({0} * {1} > {2})", three, numbers, keeps=True, needs_exact=True),
    # Casts copy, so that float64 in place of another dtype does not make an alias.
    Row(
        "to_float",
        "{0}.to({dtype}, copy=True)",
        one,
        anything,
        {"dtype": FLOAT_DTYPES},
        keeps=True,
        weight=4,
    ),
    Row(
        "to_signed",
        "{0}.clamp(-100, 100).to({dtype})",
        one,
        numbers,
        {"dtype": SIGNED},
        keeps=True,
        needs_exact=True,
        weight=2,
    ),
    Row("to_uint8", "{0}.clamp(0, 200).to(torch.uint8)", one, numbers, keeps=True, needs_exact=True),
    Row("wrap_int", "{0}.to({dtype})", one, whole, {"dtype": (*SIGNED, "uint8")}, keeps=True),
    Row("to_bool", "{0}.to(torch.bool)", one, anything, keeps=True, needs_exact=True),
    Row("int_div", "{0} / 4", one, whole),
    Row("int_float_mix", "{0} * 0.25 + 1", one, whole, keeps=True),
    Row("item_scalar", "{0} + {1}.sum().to({0}.dtype)", two, numbers, keeps=True, reorders=True),
    Row(
        "float8",
        "{0}.clamp(-400, 400).to({dtype}).to({0}.dtype)",
        one,
        floats,
        {"dtype": ("float8_e4m3fn", "float8_e5m2")},
        keeps=True,
        needs_exact=True,
        weight=2,
    ),
    Row("quantized", "torch.fake_quantize_per_tensor_affine({0}, 0.5, 3, -8, 7)", one, _floats32, needs_exact=True),
    Row("nextafter", "torch.nextafter({0}, {1})", two, _floats32, keeps=True, needs_exact=True, weight=0.5),
    Row("prelu", "F.prelu({0}, {1})", _slopes, both(floats, rank(2)), keeps=True),
    Row("ldexp", "torch.ldexp({0}, {1}.clamp(-3, 3))", two, integers, keeps=True, weight=0.5),
    Row("remainder_by_whole", "torch.remainder({0}, {1}.abs() + 1)", two, integers, keeps=True, weight=0.5),
)
