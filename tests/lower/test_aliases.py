"""Which value a result is a view of."""

from __future__ import annotations

import pytest
import torch

from inductor_cpu.lower import aliases
from tests.lower.harness import lower


def test_a_split_is_looked_at_once_for_all_its_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    seen, called = [], aliases._called
    monkeypatch.setattr(aliases, "_called", lambda call, source: (seen.append(call), called(call, source))[1])
    program = lower(lambda x: x.split(1), torch.randn(30, 2))
    assert len(program.results) == 30
    assert len(seen) == 1
