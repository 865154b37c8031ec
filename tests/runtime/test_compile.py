from __future__ import annotations

import ctypes
import math
import threading
from pathlib import Path
from typing import Any

import pytest

from inductor_cpu.errors import InternalError, UserError
from inductor_cpu.ir.plan import KernelSource
from inductor_cpu.runtime import background
from inductor_cpu.runtime import compile as compile_module
from inductor_cpu.runtime.cache import KernelCache, open_cache
from inductor_cpu.runtime.compile import load_kernels, split_units
from inductor_cpu.runtime.prebuilt import Builder, prebuild, prelude_header, usable_prebuilt
from inductor_cpu.runtime.process import Cancelled, ProcessGroup
from inductor_cpu.runtime.toolchain import Toolchain, find_toolchain
from inductor_cpu.targets.cpu import target_for
from tests.children import ending, fork
from tests.faults.support import alive, until
from tests.runtime.conftest import Load
from tests.runtime.support import kernel


@pytest.fixture
def cache(tmp_path: Path) -> KernelCache:
    return open_cache(tmp_path / "cache")


@pytest.fixture
def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a new process: nothing is loaded."""
    monkeypatch.setattr(compile_module, "_LOADED", compile_module._Loaded())


@pytest.fixture
def compiles(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The outputs of the compiler runs of a test."""
    seen: list[str] = []
    original = compile_module.run_compiler

    def counting(command: list[str], *rest: Any, **more: Any) -> None:
        seen.append(Path(command[command.index("-o") + 1]).name)
        original(command, *rest, **more)

    monkeypatch.setattr(compile_module, "run_compiler", counting)
    return seen


def constant(value: int) -> KernelSource:
    return kernel(f"*(int64_t*)p[0] = {value} * PRELUDE_WAS_HERE;", f"constant_{value}")


def call(address: int) -> int:
    out = ctypes.c_int64(-1)
    pointers = (ctypes.c_void_p * 1)(ctypes.addressof(out))
    ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(address)(ctypes.addressof(pointers), None)
    return out.value


def test_kernels_compile_load_and_see_the_prelude(load: Load, cache: KernelCache) -> None:
    sources = [constant(n) for n in range(5)]
    addresses = load(*sources, cache=cache)
    assert [call(addresses[s.symbol]) for s in sources] == [0, 1, 2, 3, 4]


def test_second_call_compiles_nothing(load: Load, cache: KernelCache, compiles: list[str]) -> None:
    first = load(constant(10), cache=cache)
    assert len(compiles) == 1
    assert load(constant(10), cache=cache) == first
    assert len(compiles) == 1


@pytest.mark.usefixtures("forget")
def test_second_process_takes_single_kernels_from_libraries_on_disk(
    load: Load, cache: KernelCache, compiles: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    load(constant(20), constant(21), cache=cache, jobs=1)
    monkeypatch.setattr(compile_module, "_LOADED", compile_module._Loaded())
    addresses = load(constant(21), constant(22), cache=cache, jobs=1)
    assert [call(addresses[constant(n).symbol]) for n in (21, 22)] == [21, 22]
    assert len(compiles) == 2


@pytest.mark.usefixtures("forget")
@pytest.mark.parametrize("damage", ["flip", "truncate", "no checksum", "no index", "no library"])
def test_damaged_entry_is_made_again(load: Load, cache: KernelCache, compiles: list[str], damage: str) -> None:
    source = constant(30)
    load(source, cache=cache)
    (library,) = (cache.root / "libs").glob("*.so")
    content = library.read_bytes()
    match damage:
        case "flip":
            middle = len(content) // 2
            library.unlink()  # this process has the old file mapped
            library.write_bytes(content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :])
        case "truncate":
            library.unlink()
            library.write_bytes(content[: len(content) // 2])
        case "no checksum":
            library.with_name(library.name + ".sha256").unlink()
        case "no index":
            next((cache.root / "kernels").iterdir()).unlink()
        case "no library":
            library.unlink()
    compile_module._LOADED.addresses.clear()
    compile_module._LOADED.libraries.clear()
    assert call(load(source, cache=cache)[source.symbol]) == 30
    # A lost index leaves a sound library, which is recorded again.
    assert len(compiles) == 2
    assert cache.is_sound(library)


def test_kernel_with_the_same_symbol_and_other_code_is_another_kernel(load: Load, cache: KernelCache) -> None:
    code = constant(40).code
    first = KernelSource("icpu_same", "a", code.replace(constant(40).symbol, "icpu_same"))
    second = KernelSource("icpu_same", "a", first.code.replace("40", "41"))
    assert call(load(first, cache=cache)["icpu_same"]) == 40
    assert call(load(second, cache=cache)["icpu_same"]) == 41


def test_many_threads_asking_for_one_kernel_compile_it_once(
    load: Load, cache: KernelCache, compiles: list[str]
) -> None:
    found: list[dict[str, int]] = []
    workers = [threading.Thread(target=lambda: found.append(load(constant(50), cache=cache))) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert len(found) == 4
    assert all(addresses == found[0] for addresses in found)
    assert len(compiles) == 1


def test_many_processes_asking_for_one_kernel_compile_it_once(tmp_path: Path, prelude: Path) -> None:
    wrapper = tmp_path / "counting-g++"
    cxx = find_toolchain().command[0]
    wrapper.write_text(f'#!/bin/sh\ncase "$*" in *-shared*) echo run >> {tmp_path}/runs; esac\nexec {cxx} "$@"\n')
    wrapper.chmod(0o755)
    source = KernelSource("icpu_p", "p", 'extern "C" void icpu_p(void* const*, const int64_t*) {}')

    def program() -> None:
        cache, toolchain = open_cache(tmp_path / "c"), find_toolchain(str(wrapper))
        assert load_kernels([source], target_for(), prelude, cache, toolchain)["icpu_p"]

    assert [ending(child) for child in [fork(program) for _ in range(2)]] == [0, 0]
    assert (tmp_path / "runs").read_text() == "run\n"


def test_failing_compile_shows_command_message_and_kept_source(load: Load, cache: KernelCache) -> None:
    bad = kernel("this_is_not_declared();", "bad_kernel")
    with pytest.raises(InternalError, match="'this_is_not_declared' was not declared") as error:
        load(bad, constant(60), cache=cache)
    text = str(error.value)
    assert "command: " in text
    (source,) = (cache.root / "failed").glob("*.cpp")
    assert str(source) in text
    assert "this_is_not_declared" in source.read_text()
    assert source.with_suffix(".log").exists()
    assert list((cache.root / "tmp").iterdir()) == []


def test_compiler_that_hangs_is_killed(cache: KernelCache, tmp_path: Path) -> None:
    outcome = ProcessGroup().run(["sh", "-c", f"sleep 60 & echo $! > {tmp_path}/child; wait"], timeout=0.3)
    assert outcome.timed_out
    child = int((tmp_path / "child").read_text())
    assert until(lambda: not alive(child))


def test_cancelled_group_kills_and_starts_nothing() -> None:
    group = ProcessGroup()
    ended: list[BaseException] = []

    def work() -> None:
        with pytest.raises(Cancelled) as error:
            group.run(["sleep", "60"], timeout=60)
        ended.append(error.value)

    worker = threading.Thread(target=work)
    worker.start()
    while not group._running:
        pass
    group.cancel()
    worker.join()
    assert ended
    with pytest.raises(RuntimeError, match="cancelled"):
        group.run(["true"], timeout=1)


def test_units_are_few_balanced_and_bounded() -> None:
    sources = {f"k{i}": KernelSource(f"s{i}", "l", "x" * (i + 1)) for i in range(60)}
    units = split_units(sources, 2)
    assert len(units) == 4  # a third one would leave a compiler without work for as long as it takes
    assert {key for unit in units for key in unit} == set(sources)
    assert max(len(unit) for unit in units) <= compile_module.MAX_KERNELS_PER_UNIT
    lengths = [sum(len(s.code) for s in unit.values()) for unit in units]
    assert max(lengths) < 1.4 * min(lengths)
    assert len(split_units({"k": sources["k1"]}, 8)) == 1


def test_background_builds_make_executor_and_header(
    cache: KernelCache, prelude: Path, toolchain: Toolchain, load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    executors: list[KernelCache] = []
    monkeypatch.setattr(background, "build_executor", lambda cache, *rest: executors.append(cache))
    for _ in range(2):
        background.start_executor_build(cache, toolchain)
        background.start_header_build(target_for(), prelude, cache, toolchain)
    background.wait_for_background_builds()
    header = toolchain.precompiled(prelude_header(Builder(target_for(), prelude, cache, toolchain)))
    assert cache.is_sound(header)
    assert executors == [cache]
    assert call(load(constant(70), cache=cache)[constant(70).symbol]) == 70


def test_failure_of_a_background_build_is_logged_and_costs_nothing_else(
    cache: KernelCache,
    tmp_path: Path,
    toolchain: Toolchain,
    caplog: pytest.LogCaptureFixture,
) -> None:
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "icpu.h").write_text("#error bad header\n")
    background.start_header_build(target_for(), tmp_path / "bad" / "icpu.h", cache, toolchain)
    background.wait_for_background_builds()
    assert "the precompiled header was not built in the background" in caplog.text


def test_precompiled_header_is_what_the_compiler_uses(cache: KernelCache, prelude: Path, toolchain: Toolchain) -> None:
    builder = Builder(target_for(), prelude, cache, toolchain)
    prebuild(builder, ProcessGroup())
    header = prelude_header(builder)
    source = cache.root / "source.cpp"
    source.write_text("int x = PRELUDE_WAS_HERE;\n")
    command = toolchain.kernel_command(target_for(), header, prelude.parent, source, cache.root / "out.so")
    outcome = ProcessGroup().run([*command, "-H"], timeout=60)
    assert outcome.code == 0
    assert f"! {toolchain.precompiled(header)}" in outcome.stderr


def test_a_kernel_linked_to_stand_ins_calls_functions_of_torch_and_of_the_standard_library(
    cache: KernelCache, prelude: Path, toolchain: Toolchain
) -> None:
    builder = Builder(target_for(), prelude, cache, toolchain)
    prebuild(builder, ProcessGroup())
    stubs = usable_prebuilt(builder).stubs
    assert [stub.name for stub in stubs] == list(toolchain.stub_names)
    assert all(stub.stat().st_size < 100_000 for stub in stubs)
    source, output = cache.root / "source.cpp", cache.root / "out.so"
    source.write_text(
        "#include <immintrin.h>\n#include <cmath>\n#include <stdexcept>\n"
        'extern "C" __m256d Sleef_sind4_u10(__m256d);\n'
        "struct Doubles {\n"
        "  double* p = new double[4]{};\n"
        "  ~Doubles() { delete[] p; }\n"
        "};\n"
        'extern "C" double f(double x) {\n'
        "  thread_local Doubles kept;\n"
        "  try {\n"
        "    _mm256_storeu_pd(kept.p, Sleef_sind4_u10(_mm256_set1_pd(x)));\n"
        '    if (x > 1) throw std::range_error("too large");\n'
        "  } catch (const std::exception&) {\n"
        "    return std::pow(x, 2.5);\n"
        "  }\n"
        "  return kept.p[3];\n"
        "}\n"
    )
    command = toolchain.kernel_command(target_for(), builder.prelude, prelude.parent, source, output, stubs)
    assert ProcessGroup().run(command, timeout=60).code == 0
    function = ctypes.CDLL(str(output)).f
    function.restype, function.argtypes = ctypes.c_double, [ctypes.c_double]
    assert function(0.5) == pytest.approx(math.sin(0.5), rel=1e-15)
    assert function(2.0) == pytest.approx(2**2.5, rel=1e-15)


def test_scalar_target_compiles_without_vector_flags(cache: KernelCache, prelude: Path, toolchain: Toolchain) -> None:
    source = kernel("\n#ifdef __AVX__\n#error vector flags\n#endif\n")
    assert load_kernels([source], target_for(0), prelude, cache, toolchain)[source.symbol]


# Finding the compiler


def test_no_compiler_is_a_user_error_that_tells_how_to_get_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(UserError, match=r"no C\+\+ compiler was found.*apt-get install g\+\+"):
        find_toolchain()


@pytest.mark.parametrize("named", ["no-such-compiler", "/dev/null/g++"])
def test_named_compiler_that_does_not_exist_is_a_user_error(named: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match="was not found"):
        find_toolchain(named)
    monkeypatch.setenv("CXX", named)
    with pytest.raises(UserError, match="was not found"):
        find_toolchain()


def test_program_that_is_no_compiler_is_a_user_error() -> None:
    with pytest.raises(UserError, match="does not work as a C"):
        find_toolchain("false")


def test_compiler_that_is_too_old_is_a_user_error(tmp_path: Path) -> None:
    old = tmp_path / "old-g++"
    old.write_text('#!/bin/sh\necho "#define __GNUC__ 7"\necho "#define __VERSION__ \\"7.5.0\\""\n')
    old.chmod(0o755)
    with pytest.raises(UserError, match="gcc 7, which is too old"):
        find_toolchain(str(old))


def test_environment_variable_names_the_compiler(monkeypatch: pytest.MonkeyPatch, toolchain: Toolchain) -> None:
    monkeypatch.setenv("CXX", f"env {toolchain.command[0]}")
    assert find_toolchain().command == ("env", toolchain.command[0])


def test_after_build_is_called_only_when_kernels_were_compiled(
    cache: KernelCache, prelude: Path, toolchain: Toolchain
) -> None:
    calls: list[str] = []
    for source in (constant(80), constant(80), constant(81)):
        load_kernels([source], target_for(), prelude, cache, toolchain, after_build=lambda: calls.append("built"))
    assert calls == ["built", "built"]
