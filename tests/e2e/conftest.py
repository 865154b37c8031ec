from __future__ import annotations

import pytest

from inductor_cpu.targets.cpu import detect

#: A generation of CPUs -> the feature that it needs.
_LEVELS = {"avx2": "avx2", "avx512": "avx512f"}


@pytest.fixture(params=_LEVELS)
def level(request: pytest.FixtureRequest) -> dict[str, str]:
    """Settings for each width of vectors that micro kernels of floats have."""
    if _LEVELS[request.param] not in detect().features:
        pytest.skip(f"this CPU has no {request.param}")
    return {"cpp.max_isa": request.param}


@pytest.fixture
def flex_by_operators(monkeypatch: pytest.MonkeyPatch) -> None:
    """Eager mode traces `flex_attention` with Dynamo to run it by operators: here these run as they come."""
    monkeypatch.setattr("torch.nn.attention.flex_attention._FLEX_ATTENTION_DISABLE_COMPILE_DEBUG", True)
