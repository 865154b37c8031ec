"""A writer of indented C++ text."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class Writer:
    """Lines of C++ with the indentation of the open blocks."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._depth = 0

    def line(self, text: str) -> None:
        """Append one line."""
        self._lines.append("  " * self._depth + text if text else "")

    @contextmanager
    def block(self, head: str, end: str = "}") -> Iterator[None]:
        """`head {`, the lines written inside, indented, and `end`."""
        self.line(head + " {")
        self._depth += 1
        yield
        self._depth -= 1
        self.line(end)

    def text(self) -> str:
        """Everything, with a newline at the end."""
        return "\n".join(self._lines) + "\n"
