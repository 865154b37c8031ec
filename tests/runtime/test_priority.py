"""What waits for nobody: compilers of a lower priority, and builds that begin before somebody needs them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from inductor_cpu import backend
from inductor_cpu.runtime.process import ProcessGroup


def test_a_lower_priority_is_that_of_a_process_and_of_its_session() -> None:
    # It is lowered once the process runs.
    said = ProcessGroup().run(["sh", "-c", "sleep 0.5; nice; cat /proc/self/autogroup || true"], 60, nice=7).stdout
    before = int(ProcessGroup().run(["nice"], 60).stdout)
    own, *session = said.splitlines()
    assert int(own) == min(before + 7, 19)
    if Path("/proc/self/autogroup").exists():
        assert session[0].endswith(f"nice {own}")


@pytest.mark.parametrize(
    ("gradients", "options", "builds"),
    [(True, {}, 1), (False, {}, 0), (True, {"debug_interpret": True}, 0)],
    ids=["training", "inference", "interpreter"],
)
def test_the_prelude_is_precompiled_before_a_training_graph_is_traced(
    gradients: bool, options: dict[str, Any], builds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[object] = []
    monkeypatch.setattr(backend, "warm_up_training", begun.append)
    x = torch.randn(5, requires_grad=True)
    with torch.set_grad_enabled(gradients):
        torch.compile(lambda x: x.sin() * 2, backend="icpu", options=options)(x)
    assert len(begun) == builds
