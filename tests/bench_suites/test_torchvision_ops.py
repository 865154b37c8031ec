"""torchvision can be imported after `bench_suites`, whether its C++ library fits this torch or not."""

from __future__ import annotations

import subprocess
import sys

from bench_suites.torchvision_ops import loads_own


def test_torchvision_is_imported_after_its_operators_are_there() -> None:
    program = "import bench_suites, torch, torchvision; torch.ops.torchvision.nms"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=240)


def test_a_package_that_is_not_there_or_has_no_library_loads_none() -> None:
    assert not loads_own("no_such_package")
    assert not loads_own("bench_suites")
