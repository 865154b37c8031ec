"""Builds beside the program: those that wait a while are hurried by who needs them, and dropped at the end."""

from __future__ import annotations

from inductor_cpu.runtime.background import BackgroundBuilds


def test_a_delayed_build_runs_at_once_when_somebody_waits_for_it() -> None:
    builds, done = BackgroundBuilds(), []
    builds.start("a name", "a title", lambda _: done.append("built"), delay=3600)
    assert not done
    builds.wait()
    assert done == ["built"]


def test_a_delayed_build_is_not_begun_when_the_program_ends() -> None:
    builds, done = BackgroundBuilds(), []
    builds.start("a name", "a title", lambda _: done.append("built"), delay=3600)
    builds.stop()
    assert not done
