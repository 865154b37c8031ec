from __future__ import annotations

import pytest


@pytest.fixture
def flex_by_operators(monkeypatch: pytest.MonkeyPatch) -> None:
    """Eager mode traces `flex_attention` with Dynamo to run it by operators: here these run as they come."""
    monkeypatch.setattr("torch.nn.attention.flex_attention._FLEX_ATTENTION_DISABLE_COMPILE_DEBUG", True)
