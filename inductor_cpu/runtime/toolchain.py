"""The C++ compiler as a value: where it is, its version, and the commands that build kernels with it."""

from __future__ import annotations

import ctypes
import os
import shlex
import shutil
import sysconfig
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import torch

from inductor_cpu.errors import UserError
from inductor_cpu.runtime.process import ProcessGroup
from inductor_cpu.targets.blocking import blocking_for, definitions
from inductor_cpu.targets.cpu import Target

_CANDIDATES = (
    "g++",
    "c++",
    "clang++",
    *(f"g++-{n}" for n in range(16, 10, -1)),
    *(f"clang++-{n}" for n in range(21, 13, -1)),
)
_MIN_MAJOR = {"gcc": 11, "clang": 14}

COMMON_FLAGS = (
    "-std=c++20",
    "-fPIC",
    "-w",
    # Numbers follow eager: no contraction of a*b+c, no -ffast-math. math-errno only matters to code that reads errno.
    "-ffp-contract=off",
    "-fno-math-errno",
)
#: With -O2 and -fpeel-loops g++ 12 takes a fifth less time; but on a Zen 3 argmax of bf16 then took 1.6 times as long,
#: padding of an image 1.3 times, also with all other optimizations of -O3 named one by one.
KERNEL_FLAGS = ("-O3", "-fopenmp")
EXECUTOR_FLAGS = ("-O1", "-fvisibility=hidden", "-fopenmp")
#: A compile needs some hundred MiB in any case: to collect garbage below that takes a tenth of its time.
GCC_FLAGS = ("--param", "ggc-min-expand=400", "--param", "ggc-min-heapsize=700000")
#: AddressSanitizer and UndefinedBehaviorSanitizer. They go on after a report, so that one run shows them all. The types
#: of torch have no type information for `vptr`.
SANITIZER_FLAGS = (
    "-O1",
    "-g1",
    "-fno-omit-frame-pointer",
    "-fsanitize=address,undefined,float-cast-overflow",
    "-fno-sanitize=vptr",
    "-fsanitize-recover=address,undefined,float-cast-overflow",
)
#: With -O1 constants of templates become data, which GCC would share among all libraries of a process, those of another
#: instruction set too. -O3 leaves no such constant.
GCC_SANITIZER_FLAGS = ("-fno-gnu-unique",)

TORCH_LIBRARY, STANDARD_LIBRARY = "libtorch_cpu.so", "libstdc++.so.6"
"""The names by which the loader finds the libraries that kernels call functions of; this process has both loaded."""

#: What g++ links besides the standard library.
_GCC_LIBRARIES = ("-nodefaultlibs", "-lm", "-lgcc", "-lgcc_s", "-lc")

TIME_LIMIT = 600
"""Seconds that one compiler may take, unless the setting cpp.compile_timeout says otherwise."""

_PROBE_SECONDS = 60.0
"""Time for a compiler to tell its version."""

_HOW_TO_GET_ONE = (
    "icpu compiles C++ and needs a compiler with C++20, g++ 11 or newer, or clang++ 14 or newer. Get one with "
    "`apt-get install g++`, `dnf install gcc-c++` or `conda install -c conda-forge gxx`; or name yours in the "
    "environment variable CXX or the setting cpp.cxx."
)


@dataclass(frozen=True)
class Toolchain:
    """A compiler and the torch it builds against. `command` may carry leading arguments (`ccache g++`).

    `time_limit`: seconds that one run of it may take. `sanitize`: whether code checks itself for errors of memory and
    for undefined behaviour."""

    command: tuple[str, ...]
    family: str
    version: str
    torch_root: Path
    openmp: Path | None
    time_limit: int = TIME_LIMIT
    sanitize: bool = False

    @property
    def identity(self) -> str:
        """What of this toolchain decides the bytes of a library: part of every cache key."""
        own_flags = " ".join(word for word in self.command if word.startswith("-"))
        return f"{self.version}|{own_flags}|torch {torch.__version__}|{torch.version.git_version}"

    @property
    def includes(self) -> tuple[str, ...]:
        """-I flags of torch's headers. As system headers they give no warnings."""
        root = self.torch_root / "include"
        return ("-isystem", str(root), "-isystem", str(root / "torch" / "csrc" / "api" / "include"))

    def kernel_flags(self, target: Target) -> tuple[str, ...]:
        """Flags of kernels and of their precompiled header: these must be the same for both."""
        cuts = definitions(blocking_for(target))
        return (*COMMON_FLAGS, *KERNEL_FLAGS, *self._family_flags, *self.sanitizer_flags, *target.flags, *cuts)

    @property
    def _family_flags(self) -> tuple[str, ...]:
        return GCC_FLAGS if self.family == "gcc" else ()

    @property
    def sanitizer_flags(self) -> tuple[str, ...]:
        """What `sanitize` adds to the flags of kernels and of the executor."""
        if not self.sanitize:
            return ()
        return (*SANITIZER_FLAGS, *(GCC_SANITIZER_FLAGS if self.family == "gcc" else ()))

    def kernel_command(
        self,
        target: Target,
        header: Path,
        include: Path,
        source: Path,
        output: Path,
        stubs: Sequence[Path] = (),
        objects: Sequence[Path] = (),
    ) -> list[str]:
        """Build one library of kernels; `header` is included first, precompiled if that exists beside it. `stubs`:
        libraries to link in the place of those in `stub_names`, one for each. `objects`: what it also consists of."""
        libraries = self._stub_flags(stubs) if stubs else self.link_flags()
        compiled = [*self._after_header(target, header, include), "-shared", "-o", str(output), str(source)]
        return [*compiled, *map(str, objects), *libraries]

    def object_command(self, target: Target, header: Path, include: Path, source: Path, output: Path) -> list[str]:
        """Compile a part of libraries of kernels; header: as for them."""
        return [*self._after_header(target, header, include), "-c", str(source), "-o", str(output)]

    def _after_header(self, target: Target, header: Path, include: Path) -> list[str]:
        """The compiler with what it must be told for everything that comes after the prelude."""
        precompiled = header.with_name(header.name + ".pch")
        use = (
            ["-include-pch", str(precompiled)]
            if self.family == "clang" and precompiled.exists()
            else ["-include", str(header)]
        )
        return [*self.command, *self.kernel_flags(target), *self.includes, "-I", str(include), *use]

    @property
    def stub_names(self) -> tuple[str, ...]:
        """The libraries of kernels that empty ones can stand in for. What g++ links by itself (the sanitizers' runtime,
        an OpenMP of its own) comes with the standard library or not at all."""
        by_itself = self.family != "gcc" or self.openmp is None or self.sanitize
        return (TORCH_LIBRARY,) if by_itself else (TORCH_LIBRARY, STANDARD_LIBRARY)

    def _stub_flags(self, stubs: Sequence[Path]) -> tuple[str, ...]:
        rest = _GCC_LIBRARIES if STANDARD_LIBRARY in self.stub_names else ()
        return (*self._openmp_flags, *_named(stubs), *rest)

    def stub_command(self, source: Path, output: Path) -> list[str]:
        """Build an empty library that the loader takes for the one with the name of `output`. `source` is empty."""
        name = f"-Wl,-soname,{output.name}"
        return [*self.command, "-shared", "-nostdlib", name, "-x", "c++", str(source), "-o", str(output)]

    def header_command(self, target: Target, header: Path, include: Path, output: Path) -> list[str]:
        """Precompile `header` into `output`."""
        flags = [*self.kernel_flags(target), *self.includes, "-I", str(include)]
        return [*self.command, *flags, "-x", "c++-header", str(header), "-o", str(output)]

    def precompiled(self, header: Path) -> Path:
        """Where this compiler looks for the precompiled form of `header`."""
        return header.with_name(header.name + (".pch" if self.family == "clang" else ".gch"))

    def executor_command(self, source: Path, output: Path) -> list[str]:
        """Build the native executor, an extension of this Python."""
        return [
            *self.command,
            *COMMON_FLAGS,
            *EXECUTOR_FLAGS,
            *self._family_flags,
            *self.sanitizer_flags,
            *self.includes,
            "-isystem",
            sysconfig.get_paths()["include"],
            "-shared",
            "-o",
            str(output),
            str(source),
            *self.link_flags(),
            "-ltorch_python",
        ]

    def link_flags(self) -> tuple[str, ...]:
        """Libraries by name only: the process has torch's loaded, and the loader takes those.

        OpenMP comes from the very file that torch ships, so that there is one runtime and one number of threads."""
        return (*self._openmp_flags, f"-L{self.torch_root / 'lib'}", "-ltorch_cpu", "-lc10")

    @property
    def _openmp_flags(self) -> tuple[str, ...]:
        return (str(self.openmp),) if self.openmp is not None and self.family == "gcc" else ("-fopenmp",)


def _named(libraries: Sequence[Path]) -> tuple[str, ...]:
    """Flags that name these libraries in the result, though they define nothing: some linkers drop them else."""
    return ("-Wl,--push-state,--no-as-needed", *map(str, libraries), "-Wl,--pop-state")


def find_toolchain(cxx: str | None = None, time_limit: int = TIME_LIMIT, sanitize: bool = False) -> Toolchain:
    """The compiler named by `cxx` (setting cpp.cxx), else by the variable CXX, else the first found on PATH.

    time_limit, sanitize: see `Toolchain`. Raises UserError if there is none, the named one does not run or is too old,
    or this process cannot run sanitized code."""
    found = _find(cxx or os.environ.get("CXX") or None, os.environ.get("PATH", ""))
    if sanitize and not _sanitizer_is_loaded():
        raise UserError(
            "cpp.sanitize needs the sanitizer's runtime from the start of the process: run it with "
            f'LD_PRELOAD="$({shlex.join(found.command)} -print-file-name=libasan.so) '
            f'$({shlex.join(found.command)} -print-file-name=libstdc++.so.6)" ASAN_OPTIONS=detect_leaks=0'
        )
    return replace(found, time_limit=time_limit, sanitize=sanitize)


def _sanitizer_is_loaded() -> bool:
    """Whether this process has AddressSanitizer's runtime, without which loading sanitized code would end it."""
    return hasattr(ctypes.CDLL(None), "__asan_init")


@lru_cache(maxsize=16)
def _find(named: str | None, path: str) -> Toolchain:
    if named is not None:
        words = _words(named)
        if not words or shutil.which(words[0], path=path) is None:
            raise UserError(f"the C++ compiler {named!r} was not found. {_HOW_TO_GET_ONE}")
        return _probe(words)
    found = next((name for name in _CANDIDATES if shutil.which(name, path=path)), None)
    if found is None:
        raise UserError(f"no C++ compiler was found. {_HOW_TO_GET_ONE}")
    return _probe([found])


def _words(named: str) -> list[str]:
    try:
        return shlex.split(named)
    except ValueError as error:
        raise UserError(f"the C++ compiler {named!r} cannot be read: {error}. {_HOW_TO_GET_ONE}") from error


def _probe(words: Sequence[str]) -> Toolchain:
    """Ask the compiler for its version."""
    try:
        outcome = ProcessGroup().run([*words, "-dM", "-E", "-x", "c++", os.devnull], _PROBE_SECONDS)
    except OSError as error:
        raise UserError(f"the C++ compiler {shlex.join(words)!r} does not start: {error}. {_HOW_TO_GET_ONE}") from error
    if outcome.timed_out:
        raise UserError(
            f"the C++ compiler {shlex.join(words)!r} did not tell its version within {_PROBE_SECONDS:.0f} s: it hangs, "
            f"or its disk does. {_HOW_TO_GET_ONE}"
        )
    macros = dict(line.split(" ", 2)[1:] for line in outcome.stdout.splitlines() if line.count(" ") >= 2)
    if outcome.code != 0 or "__GNUC__" not in macros:
        detail = outcome.stderr.strip().splitlines()[:3]
        raise UserError(
            f"{shlex.join(words)!r} does not work as a C++ compiler (exit code {outcome.code}): "
            f"{' / '.join(detail) or 'it does not define __GNUC__'}. {_HOW_TO_GET_ONE}"
        )
    family = "clang" if "__clang__" in macros else "gcc"
    major = int(macros["__clang_major__" if family == "clang" else "__GNUC__"])
    if major < _MIN_MAJOR[family]:
        raise UserError(f"{shlex.join(words)!r} is {family} {major}, which is too old. {_HOW_TO_GET_ONE}")
    root = Path(torch.__file__).resolve().parent
    openmp = next(iter(sorted((root / "lib").glob("libgomp*.so*"))), None)
    return Toolchain(tuple(words), family, f"{family} {macros['__VERSION__']}", root, openmp)
