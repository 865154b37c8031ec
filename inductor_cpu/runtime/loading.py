"""The path by which the system's loader finds a library. It takes `$LIB`, `$ORIGIN` and `$PLATFORM` in a path for
folders of its own, and there is no way to quote them."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path


def loader_path(library: Path) -> str:
    """The path of a library; one without the folder's name if that has a `$`."""
    if "$" not in str(library.parent):
        return str(library)
    info = library.parent.stat()
    return f"/proc/self/fd/{_handle(library.parent, info.st_dev, info.st_ino)}/{library.name}"


@cache
def _handle(folder: Path, device: int, number: int) -> int:
    """A handle of the folder that stays open: the loader knows libraries by their paths, so that a path must not come
    to mean another one. device, number: of the folder, which may have been made again."""
    return os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
