"""Functions of single numbers."""

from __future__ import annotations

import torch

from bench_suites.layers.row import Layer, flags, function, integers, positive

_N = (200000,)

_OF_ANY: tuple[str, ...] = (
    "abs", "neg", "sign", "square", "exp", "expm1", "exp2", "sin", "cos", "tan", "atan", "sinh", "cosh", "asinh", "erf",
    "erfc", "floor", "ceil", "round", "trunc", "frac", "sinc", "nan_to_num", "deg2rad", "positive", "isnan", "isinf",
    "signbit", "logit", "angle",
)  # fmt: skip
_OF_POSITIVE: tuple[str, ...] = (
    "sqrt", "rsqrt", "log", "log2", "log10", "log1p", "reciprocal", "lgamma", "digamma", "erfinv", "asin", "acos",
    "atanh", "i0",
)  # fmt: skip
_SPECIAL: tuple[str, ...] = (
    "bessel_j0", "i0e", "i1", "i1e", "ndtr", "ndtri", "log_ndtr", "entr", "xlog1py", "zeta", "erfcx",
)  # fmt: skip
_NO_GRADIENT = frozenset({"isnan", "isinf", "signbit", "bessel_j0", "zeta", "floor", "ceil", "round", "trunc", "sign"})
_FLOAT32 = frozenset({*_SPECIAL, "lgamma", "digamma", "erfinv", "i0"})
_OF_TWO = frozenset({"xlog1py", "zeta"})


def _unary(name: str, call: object) -> Layer:
    make = [_N if name in _OF_ANY else positive(*_N)] * (2 if name in _OF_TWO else 1)
    assert callable(call)
    return function(name, call, *make, trained=name not in _NO_GRADIENT, low_precision=name not in _FLOAT32)


ROWS = (
    *(_unary(name, getattr(torch, name)) for name in (*_OF_ANY, *_OF_POSITIVE)),
    *(_unary(name, getattr(torch.special, name)) for name in _SPECIAL),
    function("add_relu_mul", lambda x, y: torch.relu(x + y) * 0.5, _N, _N),
    function("div", torch.div, _N, positive(*_N)),
    function("div_floor", lambda x, y: torch.div(x, y, rounding_mode="floor"), _N, positive(*_N), trained=False),
    function("fmod", torch.fmod, _N, positive(*_N), trained=False),
    function("remainder", torch.remainder, _N, positive(*_N), trained=False),
    function("pow", torch.pow, positive(*_N), _N),
    function("pow_3", lambda x: x**3, _N),
    function("pow_1.5", lambda x: x**1.5, positive(*_N)),
    function("atan2", torch.atan2, _N, _N),
    function("hypot", torch.hypot, _N, _N),
    function("maximum", torch.maximum, _N, _N),
    function("clamp", lambda x: x.clamp(-0.5, 0.5), _N),
    function("lerp", lambda x, y: torch.lerp(x, y, 0.3), _N, _N),
    function("where", torch.where, flags(*_N), _N, _N),
    function("masked_fill", lambda x, m: x.masked_fill(m, -1e4), _N, flags(*_N)),
    function("copysign", torch.copysign, _N, _N),
    function("nextafter", torch.nextafter, _N, _N, trained=False, low_precision=False),
    function("logaddexp", torch.logaddexp, _N, _N),
    function("ldexp", lambda x: torch.ldexp(x, torch.tensor(3)), _N),
    function("frexp", lambda x: torch.frexp(x)[0], _N, trained=False, low_precision=False),
    function("heaviside", torch.heaviside, _N, _N, trained=False),
    function("addcmul", lambda x, y, z: torch.addcmul(x, y, z, value=0.1), _N, _N, _N),
    function("addcdiv", lambda x, y, z: torch.addcdiv(x, y, z, value=0.1), _N, _N, positive(*_N)),
    function("to_double", lambda x: x.double() * 2, _N, trained=False),
    function("to_bytes", lambda x: (x * 10).clamp(0, 255).to(torch.uint8), _N, trained=False),
    function(
        "from_bytes",
        lambda x: x.float() / 255,
        lambda: torch.randint(256, _N, dtype=torch.uint8),
        trained=False,
        low_precision=False,
    ),
    function("polynomial", lambda x: ((x * 0.1 + 0.2) * x + 0.3) * x + 0.4, _N),
    function(
        "complex_mul",
        lambda x, y: torch.view_as_real(torch.view_as_complex(x) * torch.view_as_complex(y)),
        (100000, 2),
        (100000, 2),
        low_precision=False,
    ),
    function("polar", lambda r, a: torch.view_as_real(torch.polar(r, a)), positive(*_N), _N, low_precision=False),
    function("bit_and_shift", lambda i: (i & 255) << 2, integers(1 << 20, *_N), trained=False, low_precision=False),
    function("int_div", lambda i: i // 7, integers(1 << 20, *_N), trained=False, low_precision=False),
    function("int_remainder", lambda i: i % 7, integers(1 << 20, *_N), trained=False, low_precision=False),
    function("gcd", torch.gcd, integers(1 << 20, *_N), integers(1 << 20, *_N), trained=False, low_precision=False),
    function("rand_like", lambda x: x + torch.rand_like(x), _N, trained=False, random=True),
    function("randn_like", lambda x: x + torch.randn_like(x), _N, trained=False, random=True),
    function("bernoulli", lambda x: torch.bernoulli(x), positive(*_N), trained=False, random=True),
    function("randint", lambda x: x + torch.randint(0, 100, x.shape), _N, trained=False, random=True),
)
