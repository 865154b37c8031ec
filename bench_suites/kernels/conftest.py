"""The option of the corpus."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """--threads, of all that is timed."""
    parser.addoption("--threads", type=int, default=1, help="of kernels, stock's and bare loops; 1 if not given")
