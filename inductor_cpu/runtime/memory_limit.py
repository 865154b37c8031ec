"""How many bytes this process may take: of the machine, of its control groups (containers), of its resource limits."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from pathlib import Path


def memory_limit(root: Path = Path("/")) -> int:
    """The least limit. root: the folder that has `proc` and `sys`."""
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    own = [resource.getrlimit(kind)[0] for kind in (resource.RLIMIT_AS, resource.RLIMIT_DATA)]
    return min([machine, *(limit for limit in own if limit != resource.RLIM_INFINITY), *_of_groups(root)])


def _of_groups(root: Path) -> Iterator[int]:
    """The limits of the control groups of this process, and of those around them."""
    try:
        groups = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    for line in groups:
        _, controllers, path = line.split(":", 2)
        if not controllers:  # version 2
            mount, name = root / "sys/fs/cgroup", "memory.max"
        elif "memory" in controllers.split(","):
            mount, name = root / "sys/fs/cgroup/memory", "memory.limit_in_bytes"
        else:
            continue
        group = mount / path.lstrip("/")
        # A container may see its own group as the mount, and not its path on the machine.
        for folder in (group, *(parent for parent in group.parents if parent.is_relative_to(mount))):
            try:
                yield int((folder / name).read_text())
            except (OSError, ValueError):  # no such file, or the word max
                continue
