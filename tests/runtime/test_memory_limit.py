"""The memory that a process may take, by trees of control groups as systems lay them out."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import pytest

from inductor_cpu.runtime.memory_limit import memory_limit
from tests.children import ending, fork

MACHINE = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
LIMIT = 1 << 20


def tree(root: Path, groups: str, files: dict[str, str]) -> Path:
    for name, text in {"proc/self/cgroup": groups, **files}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


@pytest.mark.parametrize(
    ("groups", "files"),
    [
        ("0::/a/b\n", {"sys/fs/cgroup/a/b/memory.max": f"{LIMIT}\n"}),
        ("0::/a/b\n", {"sys/fs/cgroup/a/b/memory.max": "max\n", "sys/fs/cgroup/a/memory.max": f"{LIMIT}\n"}),
        ("0::/\n", {"sys/fs/cgroup/memory.max": f"{LIMIT}\n"}),
        ("0::/of/the/host\n", {"sys/fs/cgroup/memory.max": f"{LIMIT}\n"}),
        ("3:cpu:/x\n2:memory:/y\n", {"sys/fs/cgroup/memory/y/memory.limit_in_bytes": f"{LIMIT}\n"}),
        ("2:hugetlb,memory:/y\n", {"sys/fs/cgroup/memory/memory.limit_in_bytes": f"{LIMIT}\n"}),
    ],
    ids=["own group", "group around it", "root", "path of the host", "version 1", "version 1, root"],
)
def test_limit_of_a_control_group_counts(groups: str, files: dict[str, str], tmp_path: Path) -> None:
    assert memory_limit(tree(tmp_path, groups, files)) == LIMIT


@pytest.mark.parametrize(
    ("groups", "files"),
    [
        ("0::/a\n", {"sys/fs/cgroup/a/memory.max": "max\n"}),
        ("2:memory:/\n", {"sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n"}),
        ("3:cpu:/x\n", {"sys/fs/cgroup/memory/memory.limit_in_bytes": f"{LIMIT}\n"}),
    ],
    ids=["max", "version 1 without a limit", "another controller"],
)
def test_memory_of_the_machine_counts_where_no_group_has_less(
    groups: str, files: dict[str, str], tmp_path: Path
) -> None:
    assert memory_limit(tree(tmp_path, groups, files)) <= MACHINE
    assert memory_limit(tree(tmp_path, groups, files)) > LIMIT


def test_resource_limit_of_the_process_counts() -> None:
    expected = min(1 << 33, memory_limit())

    def program() -> None:
        resource.setrlimit(resource.RLIMIT_DATA, (1 << 33, resource.RLIM_INFINITY))
        assert memory_limit() == expected

    assert ending(fork(program)) == 0
