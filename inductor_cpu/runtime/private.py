"""Whether other users could change what is in a folder. Code is loaded from the cache, so they must not."""

from __future__ import annotations

import grp
import os
import pwd
import stat
from pathlib import Path

_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def why_not_private(folder: Path) -> str | None:
    """Why others could change the content of `folder`, an existing real path; None if only its user and root can.

    As ssh does, this looks at every folder above too: who may rename one of them may put another in its place. In a
    folder with the sticky bit (/tmp), only the owner of an entry may rename it. Raises OSError."""
    info = folder.stat()
    if not stat.S_ISDIR(info.st_mode):
        return "it is not a folder"
    if info.st_uid != os.geteuid():
        return f"it belongs to user {info.st_uid}, not to {os.geteuid()}"
    if info.st_mode & _OTHERS_WRITE:
        return f"other users may write to it (mode {stat.S_IMODE(info.st_mode):o}; `chmod 700` it)"
    return why_parents_unsafe(folder)


def why_parents_unsafe(folder: Path) -> str | None:
    """Why others could put another folder in the place of `folder`, a real path; None if they cannot."""
    for parent in folder.parents:
        info = parent.stat()
        if info.st_uid not in (0, os.geteuid()):
            return f"the folder {parent} above it belongs to user {info.st_uid}"
        if info.st_mode & _OTHERS_WRITE and not info.st_mode & stat.S_ISVTX and _others_may_write(info):
            mode = stat.S_IMODE(info.st_mode)
            return f"other users may write to the folder {parent} above it (mode {mode:o})"
    return None


def is_own_file(info: os.stat_result) -> bool:
    """Whether a file belongs to this user and nobody else may write to it."""
    return info.st_uid == os.geteuid() and not info.st_mode & _OTHERS_WRITE


def _others_may_write(info: os.stat_result) -> bool:
    return bool(info.st_mode & stat.S_IWOTH) or not _is_own_group(info.st_gid)


def _is_own_group(number: int) -> bool:
    """Root's group, or the group of this user alone that many systems make (and then give files mode 664)."""
    if number == 0:
        return True
    try:
        user, group = pwd.getpwuid(os.geteuid()), grp.getgrgid(number)
    except KeyError:
        return False
    return user.pw_gid == number and group.gr_name == user.pw_name and set(group.gr_mem) <= {user.pw_name}
