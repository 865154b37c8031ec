"""What there is to try: one case for every database entry, dtype and kind of use."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import Any

import torch
from torch.testing._internal.common_methods_invocations import op_db, python_ref_db
from torch.testing._internal.common_modules import module_db
from torch.testing._internal.hop_db import hop_db
from torch.testing._internal.opinfo.core import BinaryUfuncInfo, OpInfo, ReductionOpInfo, UnaryUfuncInfo

from tests.sweep.rows import Case

DATABASES: dict[str, Sequence[Any]] = {"op": op_db, "module": module_db, "hop": hop_db, "ref": python_ref_db}

#: The common dtypes first, because a sweep seldom runs to its end.
DTYPES = (
    "float32 bfloat16 int64 bool float64 float16 int32 uint8 int8 complex64 int16 complex128 complex32 "
    "uint16 uint32 uint64"
).split()

#: What is done with the samples of an operator. README.md says what each compares.
KINDS = ("inference", "gradients", "layouts", "special", "inplace", "out", "dynamic", "errors")

#: Operators that, in eager mode, trap at the limits of integers (a division overflows) or loop as often as they say.
_NO_LIMITS = re.compile(r"gcd|lcm|special\..*_polynomial_")

#: The kinds that a module can be tried in.
_MODULE_KINDS = ("inference", "gradients", "dynamic")


def entry_of(case: Case) -> Any:
    """The OpInfo or ModuleInfo of a case."""
    return _by_name(case.database)[case.op]


def entry_name(entry: Any) -> str:
    """The name of an OpInfo with its variant, or of a ModuleInfo."""
    return str(entry.full_name) if isinstance(entry, OpInfo) else str(entry.name)


@cache
def _by_name(database: str) -> dict[str, Any]:
    """Entries by unique name: a second entry of one name gets a number."""
    named: dict[str, Any] = {}
    for entry in DATABASES[database]:
        name, number = entry_name(entry), 2
        while name in named:
            name, number = f"{entry_name(entry)}.{number}", number + 1
        named[name] = entry
    return named


def all_cases(
    databases: Iterable[str], dtypes: Sequence[str], kinds: Sequence[str], pattern: str = ""
) -> Iterator[Case]:
    """Every case of these databases, dtypes and kinds whose `database op` matches: by dtype, then by kind."""
    wanted = re.compile(pattern)
    entries = [
        (database, name, entry)
        for database in databases
        for name, entry in _by_name(database).items()
        if wanted.search(f"{database} {name}")
    ]
    for dtype in dtypes:
        for kind in kinds:
            for database, name, entry in entries:
                case = Case(database, name, dtype, kind)
                if _applies(entry, case):
                    yield case


def _applies(entry: Any, case: Case) -> bool:
    dtype, kind = case.torch_dtype, case.kind
    if dtype not in entry.supported_dtypes("cpu"):
        return False
    if not isinstance(entry, OpInfo):
        return kind in _MODULE_KINDS
    if kind == "gradients":
        return bool(entry.supports_autograd) and dtype in entry.supported_backward_dtypes("cpu")
    if kind == "out":
        return bool(entry.supports_out)
    if kind == "inplace":
        return entry.get_inplace() is not None
    if kind == "special":
        if case.database == "ref" or (not dtype.is_floating_point and _NO_LIMITS.match(case.op)):
            return False
        return isinstance(entry, UnaryUfuncInfo | BinaryUfuncInfo | ReductionOpInfo)
    if kind == "errors":  # an operator's errors do not depend on the dtype
        return case.database == "op" and entry.error_inputs_func is not None and case.dtype == _first_dtype(entry)
    return True


def _first_dtype(entry: Any) -> str:
    supported = entry.supported_dtypes("cpu")
    return next(name for name in DTYPES if getattr(torch, name) in supported)
