"""What a sweep is made of and what it gives: cases and rows, as plain values."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Case:
    """One row of the result: an entry of a database, a dtype, a kind."""

    database: str
    op: str
    dtype: str
    kind: str

    def __str__(self) -> str:
        return f"{self.database} {self.op} {self.dtype} {self.kind}"

    @property
    def torch_dtype(self) -> torch.dtype:
        """The dtype as torch's value."""
        value = getattr(torch, self.dtype)
        assert isinstance(value, torch.dtype)
        return value


@dataclass(frozen=True)
class Row:
    """The outcome of a case. status: pass, fail (a wrong result), error (an exception), crash, timeout, or none when
    eager itself has no call that works. `notes`: graph breaks, graphs that ran in eager mode, failures of aot_eager."""

    case: Case
    status: str
    calls: int = 0
    seconds: float = 0.0
    detail: str = ""
    notes: tuple[str, ...] = ()

    @property
    def failed(self) -> bool:
        """Whether icpu did something else than eager."""
        return self.status not in ("pass", "none")
