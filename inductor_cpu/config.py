"""Every setting: its meaning, default, allowed values and environment variable.

A person changes settings through this module, in the style of `torch._inductor.config`:

    import inductor_cpu.config as config
    config.cpp.weight_prepack = False
    config.max_autotune = True
    with config.patch({"cpp.simdlen": 256}): ...
    @config.patch(max_autotune=True)
    def f(): ...

A compile never looks at the module: it works on `snapshot()`, an immutable `Config`. Every setting also has an
environment variable, `ICPU_` and the name in upper case with `_` for `.` (`cpp.simdlen`: `ICPU_CPP_SIMDLEN`), which
gives its first value. An unknown name is a `UserError` naming the nearest valid setting, a wrong value one that says
what is allowed. README.md has the same table, in the same words.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import os
import sys
import threading
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from inductor_cpu.errors import UserError

_F = TypeVar("_F", bound=Callable[..., Any])


@dataclass(frozen=True)
class Kind:
    """The type rule of one setting: `base` is bool, int or str; `optional` allows None; `choices` limits the values."""

    base: type
    optional: bool = False
    choices: tuple[object, ...] = ()
    minimum: int | None = None

    def describe(self) -> str:
        """What a person may write, in words."""
        text = {bool: "a bool", int: "an int", str: "a string"}[self.base]
        if self.choices:
            text = "one of " + ", ".join(repr(c) for c in self.choices)
        elif self.minimum is not None:
            text += f" of at least {self.minimum}"
        return text + " or None" if self.optional else text

    def accepts(self, value: object) -> bool:
        """Whether `value` has the right type and is in range. A bool is not an int here."""
        if value is None:
            return self.optional
        if type(value) is not self.base:
            return False
        if self.choices:
            return value in self.choices
        return self.minimum is None or (isinstance(value, int) and value >= self.minimum)

    def parse(self, text: str) -> object:
        """The value that an environment variable spells. Raises ValueError."""
        word = text.strip().lower()
        if self.optional and word in ("", "none"):
            return None
        if self.base is bool:
            if word in _TRUE:
                return True
            if word in _FALSE:
                return False
            raise ValueError(text)
        return int(text) if self.base is int else text


_TRUE = ("1", "true", "yes", "on")
_FALSE = ("0", "false", "no", "off", "")
_BOOL = Kind(bool)

#: Generations of CPUs, oldest first (`targets.cpu.LEVELS` has their features).
ISA_LEVELS = ("scalar", "avx2", "avx2_vnni", "avx512", "avx512_vnni", "avx512_bf16", "amx", "amx_fp16")


def _setting(default: Any, kind: Kind, meaning: str) -> Any:
    return field(default=default, metadata={"kind": kind, "meaning": meaning})


@dataclass(frozen=True)
class Cpp:
    """Settings of the generated C++ and of the code around it."""

    weight_prepack: bool = _setting(
        True,
        _BOOL,
        "Inference: fold batch norms into weights, pack weights for the kernels, fuse activations and residuals into "
        "convolutions and linears, run convolutions channels-last, and quantized graphs as products of integers. Off: "
        "none of it; nor is anything packed at each call, and small products are no loops.",
    )
    drop_original_weights: bool = _setting(
        False,
        _BOOL,
        "Give back the memory of weights whose packed copy is all that graphs read; reading such a weight is an error.",
    )
    split_float32: bool = _setting(
        True,
        _BOOL,
        "With AMX, multiply floats as three bf16 parts each, to the last bits of a float (inference).",
    )
    winograd: bool = _setting(
        True,
        _BOOL,
        "Multiply windows of 3 x 3 floats by tiles of windows (in inference without AMX): 16 products in place of 36. "
        "Pixels lose digits beside others that are much larger. Packed weights are 16/9 as large, so not with "
        "drop_original_weights.",
    )
    simdlen: int | None = _setting(
        None,
        Kind(int, optional=True, choices=(0, 1, 256, 512)),
        "Vector width in bits. None: the widest that the CPU has; 0 or 1: scalar code.",
    )
    max_isa: str | None = _setting(
        None,
        Kind(str, optional=True, choices=ISA_LEVELS),
        "The newest instructions that kernels may use, as on an older CPU. None: all that the CPU has.",
    )
    threads: int = _setting(-1, Kind(int, minimum=-1), "Most threads of a kernel. -1 or 0: torch.get_num_threads().")
    dynamic_threads: bool = _setting(
        True, _BOOL, "Obey torch.set_num_threads at every call; off: kernels keep the number of the compile."
    )
    enable_kernel_profile: bool = _setting(
        False,
        _BOOL,
        "Record kernels also in a call during which torch.profiler starts; those of later calls are recorded anyway.",
    )
    min_chunk_size: int = _setting(
        4096,
        Kind(int, minimum=1),
        "Least work of a thread, in elements of a cheap loop (5 additions each): a kernel uses only as many threads as "
        "have so much.",
    )
    cxx: str | None = _setting(
        None, Kind(str, optional=True), "The C++ compiler. None: the variable CXX, then g++, then clang++."
    )
    compile_timeout: int = _setting(
        600, Kind(int, minimum=1), "Seconds after which a run of the C++ compiler is stopped, with an error."
    )
    sanitize: bool = _setting(
        False,
        _BOOL,
        "Build with AddressSanitizer and UndefinedBehaviorSanitizer; the process must preload their runtime.",
    )
    max_horizontal_fusion_size: int = _setting(
        16,
        Kind(int, minimum=1),
        "A loop that uses none of a kernel's results joins it, to read the same input once, only while the kernel has "
        "fewer loops than this.",
    )
    enable_tiling: bool = _setting(
        True,
        _BOOL,
        "Where operands are contiguous along different dimensions (a transpose), go by square tiles and turn them over "
        "in registers. Off: load and store such an operand element by element.",
    )


@dataclass(frozen=True)
class Config:
    """One immutable set of settings. Every field's `metadata` has its `kind` (`Kind`) and its `meaning`."""

    cpp: Cpp = field(default_factory=Cpp)
    max_autotune: bool = _setting(
        False,
        _BOOL,
        "Measure our kernels and the libraries for the shape of each linear and of each product that is no linear, once"
        " per machine, and keep the fastest.",
    )
    fallback_random: bool = _setting(
        False,
        _BOOL,
        "Draw the random numbers that eager mode draws. Off: a seed for each operator comes from eager's generator, "
        "and its numbers are computed from the seed in vectors, several times as fast.",
    )
    compile_threads: int = _setting(
        0, Kind(int, minimum=0), "C++ compilers that run at the same time. 0: one per core, at most 16."
    )
    verify: bool = _setting(False, _BOOL, "Verify the program after each stage.")
    dump: str | None = _setting(
        None, Kind(str, optional=True), "Folder for one readable file per stage of every graph, the C++ and a repro.py."
    )
    cache_dir: str | None = _setting(
        None, Kind(str, optional=True), "Folder of the kernel cache. None: $XDG_CACHE_HOME/icpu, else ~/.cache/icpu."
    )
    force_disable_caches: bool = _setting(False, _BOOL, "Compile every kernel anew; read and write no cache.")
    debug_interpret: bool = _setting(
        False,
        _BOOL,
        "Run programs with the reference interpreter in place of kernels, without folding or packing weights, to find "
        "the stage at fault for a wrong number.",
    )
    debug_redzones: bool = _setting(
        False, _BOOL, "Guard bytes around every buffer, checked after each kernel: slow, finds writes out of bounds."
    )


MODES: Mapping[str, Mapping[str, object]] = types.MappingProxyType(
    {
        "default": {},
        "reduce-overhead": {},
        "max-autotune": {"max_autotune": True},
        "max-autotune-no-cudagraphs": {"max_autotune": True},
    }
)
"""What each `mode=` of torch.compile sets."""


def _collect(cls: type, prefix: str) -> Iterator[tuple[str, dataclasses.Field[Any]]]:
    for f in dataclasses.fields(cls):
        if "kind" in f.metadata:
            yield prefix + f.name, f


SETTINGS: Mapping[str, dataclasses.Field[Any]] = types.MappingProxyType(
    dict([*_collect(Config, ""), *_collect(Cpp, "cpp.")])
)
"""Full name of a setting (`max_autotune`, `cpp.simdlen`) to its dataclass field."""


def env_name(name: str) -> str:
    """The environment variable of a setting: `cpp.simdlen` gives `ICPU_CPP_SIMDLEN`."""
    return "ICPU_" + name.upper().replace(".", "_")


class UnknownOptionError(UserError, AttributeError):
    """A name that is no setting. Also an AttributeError, so that `hasattr(config, name)` answers False."""


def _unknown(name: object) -> UnknownOptionError:
    near = difflib.get_close_matches(str(name), SETTINGS, n=1, cutoff=0.0)
    valid = ", ".join(SETTINGS)
    return UnknownOptionError(f"unknown icpu option {name!r}. Did you mean {near[0]!r}? Valid options: {valid}")


def _checked(name: object, value: object) -> tuple[str, object]:
    """The pair itself when `name` is a setting and `value` fits it; else a UserError."""
    if not isinstance(name, str) or name not in SETTINGS:
        raise _unknown(name)
    kind: Kind = SETTINGS[name].metadata["kind"]
    if not kind.accepts(value):
        raise UserError(f"icpu option {name!r} takes {kind.describe()}, not {value!r} ({type(value).__name__})")
    return name, value


def _build(values: Mapping[str, object]) -> Config:
    top = {k: v for k, v in values.items() if "." not in k}
    cpp = {k.removeprefix("cpp."): v for k, v in values.items() if k.startswith("cpp.")}
    return Config(cpp=Cpp(**cpp), **top)  # type: ignore[arg-type]


def _from_environment(environ: Mapping[str, str]) -> dict[str, object]:
    """First value of every setting. Raises UserError naming the variable."""
    values: dict[str, object] = {}
    for name, f in SETTINGS.items():
        kind: Kind = f.metadata["kind"]
        text = environ.get(env_name(name))
        if text is None:
            values[name] = f.default
            continue
        try:
            value = kind.parse(text)
        except ValueError:
            value = text
        if not kind.accepts(value):
            raise UserError(f"environment variable {env_name(name)} takes {kind.describe()}, not {text!r}")
        values[name] = value
    return values


class _Store:
    """The user's current settings. Every access holds the lock, so that a snapshot is never half of a patch."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._lock = threading.RLock()
        self._environ = environ
        self._values: dict[str, object] | None = None

    def _loaded(self) -> dict[str, object]:
        # Read lazily: a bad variable then fails the compile with a clear text, not `import inductor_cpu`.
        if self._values is None:
            self._values = _from_environment(self._environ)
        return self._values

    def get(self, name: str) -> object:
        with self._lock:
            return self._loaded()[name]

    def update(self, changes: Mapping[str, object]) -> dict[str, object]:
        """Apply already checked `changes`; returns the values that they replaced."""
        with self._lock:
            values = self._loaded()
            old = {name: values[name] for name in changes}
            values.update(changes)
            return old

    def snapshot(self) -> Config:
        with self._lock:
            return _build(self._loaded())

    def after_fork(self) -> None:
        """In the child: a thread that no longer exists may hold the lock."""
        self._lock = threading.RLock()


_STORE = _Store(os.environ)
os.register_at_fork(after_in_child=_STORE.after_fork)


class patch:  # noqa: N801  (same spelling as torch._inductor.config.patch)
    """Settings changed for a `with` block or for every call of a decorated function, then put back.

    `patch({"cpp.simdlen": 256})`, `patch(max_autotune=True)` and `patch("cpp.simdlen", 256)` are the same kind of call.
    The names and values are checked at once (`UserError`).
    """

    def __init__(self, changes: Mapping[str, object] | str | None = None, value: object = None, /, **more: object):
        given = {changes: value} if isinstance(changes, str) else dict(changes or {})
        self._changes = dict(_checked(k, v) for k, v in {**given, **more}.items())
        self._old: list[dict[str, object]] = []

    def __enter__(self) -> None:
        self._old.append(_STORE.update(self._changes))

    def __exit__(self, *exc: object) -> None:
        _STORE.update(self._old.pop())

    def __call__(self, function: _F) -> _F:
        changes = self._changes

        @functools.wraps(function)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            with patch(changes):
                return function(*args, **kwargs)

        return wrapped  # type: ignore[return-value]


def snapshot() -> Config:
    """The current settings as an immutable value. Raises UserError for a bad environment variable."""
    return _STORE.snapshot()


def from_options(options: Mapping[str, object] | None = None, mode: str | None = None) -> Config:
    """The current settings, then those of `mode`, then `options`, as torch.compile gives them. Raises UserError."""
    changes: dict[str, object] = {}
    if mode is not None:
        if mode not in MODES:
            near = difflib.get_close_matches(str(mode), MODES, n=1, cutoff=0.0)
            raise UserError(f"unknown mode {mode!r}. Did you mean {near[0]!r}? Valid modes: {', '.join(MODES)}")
        changes.update(MODES[mode])
    changes.update(_checked(k, v) for k, v in (options or {}).items())
    return with_changes(snapshot(), changes)


def with_changes(config: Config, changes: Mapping[str, object]) -> Config:
    """A copy of `config` with `changes` (full names). Raises UserError."""
    checked = dict(_checked(k, v) for k, v in changes.items())
    return _build({**to_dict(config), **checked})


def to_dict(config: Config) -> dict[str, object]:
    """Full name to value, in the order of `SETTINGS`."""
    return {
        name: getattr(config.cpp, name.removeprefix("cpp.")) if name.startswith("cpp.") else getattr(config, name)
        for name in SETTINGS
    }


class _Group:
    """`config.cpp`: attributes read and write the store."""

    _prefix: str

    def __init__(self, prefix: str) -> None:
        object.__setattr__(self, "_prefix", prefix)

    def __getattr__(self, name: str) -> object:
        full = self._prefix + name
        if full not in SETTINGS:
            raise _unknown(full)
        return _STORE.get(full)

    def __setattr__(self, name: str, value: object) -> None:
        _STORE.update(dict([_checked(self._prefix + name, value)]))

    def __dir__(self) -> list[str]:
        return [n.removeprefix(self._prefix) for n in SETTINGS if n.startswith(self._prefix)]


class _ConfigModule(types.ModuleType):
    """Makes `config.max_autotune` read and write the store, and refuses names that are no setting."""

    cpp: _Group

    def __getattr__(self, name: str) -> object:
        if name in SETTINGS:
            return _STORE.get(name)
        raise _unknown(name)

    def __setattr__(self, name: str, value: object) -> None:
        if name.startswith("__"):
            super().__setattr__(name, value)
        else:
            _STORE.update(dict([_checked(name, value)]))

    def __dir__(self) -> list[str]:
        return sorted([*super().__dir__(), *(n for n in SETTINGS if "." not in n)])


cpp = _Group("cpp.")
sys.modules[__name__].__class__ = _ConfigModule
