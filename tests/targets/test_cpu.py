from __future__ import annotations

import dataclasses

import pytest
import torch

from inductor_cpu import config
from inductor_cpu.errors import UserError
from inductor_cpu.targets import cpu

CPUINFO = """processor : 0
model name\t: Some CPU 9000
flags\t\t: fpu sse2 {flags}
"""
AVX2 = "avx2 fma f16c"
AVX512 = f"{AVX2} avx512f avx512bw avx512dq avx512vl avx512cd"


@pytest.mark.parametrize(
    ("flags", "isa"),
    [
        (AVX512, "avx512"),
        (AVX2, "avx2"),
        ("avx2 fma", "scalar"),
        ("", "scalar"),
        (f"{AVX2} avx512f", "avx2"),
    ],
)
def test_best_isa_is_the_widest_whose_features_are_all_there(flags: str, isa: str) -> None:
    name, features = cpu.parse_cpuinfo(CPUINFO.format(flags=flags))
    assert name == "Some CPU 9000"
    assert cpu.best_isa(features).name == isa


def test_cpuinfo_without_flags_gives_no_features() -> None:
    assert cpu.parse_cpuinfo("processor : 0\n") == ("unknown CPU", frozenset())


@pytest.mark.parametrize(
    ("vendor", "family", "model", "generation"),
    [
        ("AuthenticAMD", "23", "1", 1),
        ("AuthenticAMD", "23", "49", 2),
        ("AuthenticAMD", "25", "1", 3),
        ("AuthenticAMD", "25", "17", 4),  # also where the machine hides AVX-512
        ("AuthenticAMD", "25", "80", 3),
        ("AuthenticAMD", "25", "97", 4),
        ("AuthenticAMD", "25", "160", 4),
        ("AuthenticAMD", "26", "2", 5),
        ("AuthenticAMD", "22", "0", 0),
        ("GenuineIntel", "25", "17", 0),
        ("AuthenticAMD", "unknown", "17", 0),
    ],
)
def test_generations_of_zen_go_by_family_and_model(vendor: str, family: str, model: str, generation: int) -> None:
    text = f"vendor_id\t: {vendor}\ncpu family\t: {family}\nmodel\t\t: {model}\nmodel name\t: AMD EPYC\n"
    assert cpu.zen_generation(text) == generation


def test_other_instructions_leave_the_generation_of_the_core() -> None:
    assert cpu.target_for(0, "avx2").zen == cpu.detect().zen


def test_optional_flags_follow_the_features() -> None:
    plain = dataclasses.replace(cpu.detect(), isa=cpu.ISAS[0], features=frozenset(AVX512.split()))
    rich = dataclasses.replace(plain, features=plain.features | {"avx512_bf16", "amx_tile", "amx_int8", "amx_bf16"})
    assert "-mavx512bf16" not in plain.flags
    assert "-mavx512bf16" in rich.flags
    assert "-DCPU_CAPABILITY=AVX512" in rich.flags


def test_detected_isa_agrees_with_torch() -> None:
    expected = {"AVX512": "avx512", "AVX2": "avx2"}.get(torch.backends.cpu.get_cpu_capability(), "scalar")
    assert cpu.detect().isa.name == expected


def test_detected_machine_is_plausible() -> None:
    machine = cpu.detect()
    assert machine.cores >= 1
    assert 0 < machine.l1 <= machine.l2 <= machine.l3
    assert machine.cpu_name in str(machine)


@pytest.mark.parametrize("simdlen", [0, 1])
def test_scalar_code_can_always_be_asked_for(simdlen: int) -> None:
    assert cpu.target_for(simdlen).isa.name == "scalar"


def test_unknown_width_is_a_user_error() -> None:
    with pytest.raises(UserError, match="no instruction set of icpu has that width"):
        cpu.target_for(384)


def test_width_that_the_cpu_lacks_is_a_user_error(monkeypatch: pytest.MonkeyPatch) -> None:
    old = dataclasses.replace(cpu.detect(), isa=cpu.ISAS[1], features=frozenset(AVX2.split()))
    monkeypatch.setattr(cpu, "detect", lambda: old)
    assert cpu.target_for().isa.name == "avx2"
    with pytest.raises(UserError, match=r"has no avx512bw.*can use: 256, 0"):
        cpu.target_for(512)


def test_settings_name_the_generations_of_cpus() -> None:
    assert tuple(cpu.LEVELS) == config.ISA_LEVELS


def test_a_generation_hides_what_came_later(monkeypatch: pytest.MonkeyPatch) -> None:
    rich = dataclasses.replace(
        cpu.detect(), isa=cpu.ISAS[0], features=frozenset(AVX512.split()) | {"avx512_bf16", "amx_tile", "amx_bf16"}
    )
    monkeypatch.setattr(cpu, "detect", lambda: rich)
    assert cpu.target_for(None, "amx") == rich
    assert cpu.target_for(None, "avx512_bf16").features == rich.features - {"amx_tile", "amx_bf16"}
    assert "-mamx-tile" not in cpu.target_for(None, "avx512_bf16").flags
    assert cpu.target_for(None, "avx2").isa.name == "avx2"
    assert cpu.target_for(None, "scalar").isa.name == "scalar"
