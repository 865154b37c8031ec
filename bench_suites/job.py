"""What a process is asked to do: one model with the settings of a run."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal


@dataclass(frozen=True)
class Job:
    """One model of one suite, and how to run it. `batch` None: the row's own."""

    suite: str
    model: str
    backends: tuple[str, ...]
    dtype: str = "float32"
    mode: Literal["inference", "training"] = "inference"
    dynamic: bool = False
    threads: int | None = None
    batch: int | None = None
    tiny: bool = False
    repeat: int = 30
    torchbench_dir: str | None = None

    @property
    def key(self) -> str:
        """What makes two rows the same measurement; a resumed run does not do it again."""
        parts = [self.suite, self.model, self.dtype, self.mode]
        parts += ["dynamic"] if self.dynamic else []
        parts += [f"{self.threads} threads"] if self.threads else []
        parts += [f"batch {self.batch}"] if self.batch else []
        parts += ["tiny"] if self.tiny else []
        return "/".join(parts)

    def plain(self) -> dict[str, Any]:
        """As data for JSON."""
        return {**asdict(self), "backends": list(self.backends)}

    @staticmethod
    def of(data: dict[str, Any]) -> Job:
        """From `plain()`."""
        return Job(**{**data, "backends": tuple(data["backends"])})
