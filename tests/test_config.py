"""Settings: names, types, environment, patches, snapshots, options and modes."""

from __future__ import annotations

import dataclasses
import threading
from pathlib import Path

import pytest

from inductor_cpu import config
from inductor_cpu.errors import UserError


@pytest.mark.parametrize("name", config.SETTINGS)
def test_setting_has_meaning_and_a_default_of_its_kind(name: str) -> None:
    setting = config.SETTINGS[name]
    assert len(setting.metadata["meaning"]) > 10
    assert setting.metadata["kind"].accepts(setting.default)


@pytest.mark.parametrize("name", config.SETTINGS)
def test_readme_has_the_default_and_the_meaning_of_a_setting(name: str) -> None:
    lines = (Path(__file__).resolve().parents[1] / "README.md").read_text().splitlines()
    (line,) = (line for line in lines if line.startswith(f"| `{name}` |"))
    setting = config.SETTINGS[name]
    assert line.startswith(f"| `{name}` | {setting.default} | ")
    assert line.endswith(f" | {setting.metadata['meaning']} |")


@pytest.mark.parametrize("name", config.SETTINGS)
def test_setting_is_readable_as_an_attribute_and_in_a_snapshot(name: str) -> None:
    values = config.to_dict(config.snapshot())
    target = config.cpp if name.startswith("cpp.") else config
    assert getattr(target, name.removeprefix("cpp.")) == values[name]


def test_assignment_shows_in_the_next_snapshot_only() -> None:
    with config.patch({"cpp.weight_prepack": True}):
        before = config.snapshot()
        config.cpp.weight_prepack = False
        assert before.cpp.weight_prepack is True
        assert config.snapshot().cpp.weight_prepack is False


def test_snapshot_is_immutable() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.snapshot().max_autotune = True  # type: ignore[misc]


def test_patch_restores_after_an_exception() -> None:
    seen = []

    @config.patch({"cpp.simdlen": 256}, max_autotune=True)
    def fail() -> None:
        seen.append((config.cpp.simdlen, config.max_autotune))
        raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert seen == [(256, True)]
    assert (config.cpp.simdlen, config.max_autotune) == (None, False)


def test_patch_nests() -> None:
    change = config.patch("cpp.simdlen", 256)
    with change, config.patch({"cpp.simdlen": 512}), change:
        assert config.cpp.simdlen == 256
    assert config.cpp.simdlen is None


def test_patch_decorates_every_call() -> None:
    @config.patch(max_autotune=True)
    def tuned(depth: int) -> list[object]:
        return [config.max_autotune, *(tuned(depth - 1) if depth else [])]

    assert tuned(2) == [True] * 3
    assert tuned.__name__ == "tuned"
    assert config.max_autotune is False


def test_patch_with_one_bad_name_changes_nothing() -> None:
    with pytest.raises(UserError):
        config.patch({"max_autotune": True, "nonsense": 1})
    assert config.max_autotune is False


def test_an_error_says_that_none_is_possible() -> None:
    with pytest.raises(UserError, match=r"'cpp\.simdlen' takes one of 0, 1, 256, 512 or None"):
        config.from_options({"cpp.simdlen": 3})


@pytest.mark.parametrize(
    ("wrong", "nearest"),
    [
        ("cpp.simdlne", "cpp.simdlen"),
        ("simdlen", "cpp.simdlen"),
        ("maxautotune", "max_autotune"),
        ("cpp.weight_prepacking", "cpp.weight_prepack"),
    ],
)
def test_unknown_option_names_the_nearest(wrong: str, nearest: str) -> None:
    with pytest.raises(UserError, match=f"Did you mean '{nearest}'"):
        config.from_options({wrong: 1})


def test_unknown_attribute_is_a_user_error_on_read_and_write() -> None:
    with pytest.raises(UserError, match=r"cpp\.simdlen"):
        config.cpp.simdlne = 256
    with pytest.raises(UserError, match=r"cpp\.simdlen"):
        _ = config.cpp.simdlne
    with pytest.raises(UserError, match="max_autotune"):
        config.max_autotun = True
    assert not hasattr(config, "max_autotun")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("cpp.simdlen", "256"),
        ("cpp.simdlen", 100),
        ("cpp.threads", True),
        ("cpp.threads", -2),
        ("max_autotune", 1),
        ("cpp.min_chunk_size", None),
        ("dump", 3),
        ("fallback_random", 1),
        ("cpp", {}),
    ],
)
def test_wrong_value_is_a_user_error_that_names_the_option(name: str, value: object) -> None:
    with pytest.raises(UserError, match=name):
        config.from_options({name: value})


@pytest.mark.parametrize(
    ("mode", "changed"),
    [
        ("default", {}),
        ("reduce-overhead", {}),
        ("max-autotune", {"max_autotune": True}),
        ("max-autotune-no-cudagraphs", {"max_autotune": True}),
    ],
)
def test_mode_sets_its_options(mode: str, changed: dict[str, object]) -> None:
    base = config.to_dict(config.snapshot())
    assert config.to_dict(config.from_options(None, mode)) == {**base, **changed}


def test_options_win_over_the_mode() -> None:
    assert config.from_options({"max_autotune": False}, "max-autotune").max_autotune is False


def test_unknown_mode_names_the_nearest() -> None:
    with pytest.raises(UserError, match="Did you mean 'max-autotune'"):
        config.from_options(None, "maxautotune")


@pytest.mark.parametrize(
    ("variable", "text", "name", "value"),
    [
        ("ICPU_CPP_SIMDLEN", "256", "cpp.simdlen", 256),
        ("ICPU_CPP_SIMDLEN", "none", "cpp.simdlen", None),
        ("ICPU_MAX_AUTOTUNE", "1", "max_autotune", True),
        ("ICPU_CPP_WEIGHT_PREPACK", "off", "cpp.weight_prepack", False),
        ("ICPU_DUMP", "/tmp/x", "dump", "/tmp/x"),
        ("ICPU_CACHE_DIR", "", "cache_dir", None),
    ],
)
def test_environment_gives_the_first_value(variable: str, text: str, name: str, value: object) -> None:
    assert config._from_environment({variable: text})[name] == value


@pytest.mark.parametrize(
    ("variable", "text"),
    [("ICPU_CPP_SIMDLEN", "wide"), ("ICPU_MAX_AUTOTUNE", "maybe"), ("ICPU_CPP_THREADS", "-7")],
)
def test_bad_environment_is_a_user_error_that_names_the_variable(variable: str, text: str) -> None:
    with pytest.raises(UserError, match=variable):
        config._from_environment({variable: text})


def test_patch_in_one_thread_never_shows_half_of_itself_in_a_snapshot() -> None:
    stop = threading.Event()

    def flip() -> None:
        while not stop.is_set():
            with config.patch({"cpp.simdlen": 256, "max_autotune": True}):
                pass

    thread = threading.Thread(target=flip)
    thread.start()
    try:
        seen = {(s.cpp.simdlen, s.max_autotune) for s in (config.snapshot() for _ in range(2000))}
    finally:
        stop.set()
        thread.join()
    assert seen <= {(None, False), (256, True)}
