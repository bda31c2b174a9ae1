"""What a control group leaves of the machine."""

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from recollect.config import cores
from recollect.db._server_memory import memory_limit


def lay(root: Path, files: Mapping[str, str]) -> None:
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content)


@pytest.mark.parametrize(
    ("files", "limit"),
    [
        ({}, None),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "max\n"}, None),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "268435456\n"}, 268435456),
        (
            {
                "proc/self/cgroup": "0::/app.slice/one.service\n",
                "sys/fs/cgroup/app.slice/memory.max": "134217728\n",
                "sys/fs/cgroup/app.slice/one.service/memory.max": "max\n",
            },
            134217728,
        ),
        (
            {
                "proc/self/cgroup": "9:cpu,cpuacct:/x\n4:memory:/docker/a\n",
                "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
                "sys/fs/cgroup/memory/docker/a/memory.limit_in_bytes": "536870912\n",
            },
            536870912,
        ),
        ({"proc/self/cgroup": "nonsense\n"}, None),
    ],
)
def test_a_bound_of_the_control_group_or_of_one_above_it_counts(
    tmp_path: Path, files: dict[str, str], limit: int | None
):
    lay(tmp_path, files)
    whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert memory_limit(tmp_path) == (whole if limit is None else limit)


@pytest.mark.parametrize(
    ("files", "limit"),
    [
        ({}, None),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "max 100000\n"}, None),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "50000 100000\n"}, 1),
        (
            {
                "proc/self/cgroup": "0::/app.slice/one.service\n",
                "sys/fs/cgroup/app.slice/cpu.max": "150000 100000\n",
                "sys/fs/cgroup/app.slice/one.service/cpu.max": "max 100000\n",
            },
            2,
        ),
        (
            {
                "proc/self/cgroup": "9:cpu,cpuacct:/x\n4:memory:/docker/a\n",
                "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "-1\n",
                "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000\n",
                "sys/fs/cgroup/cpu,cpuacct/x/cpu.cfs_quota_us": "200000\n",
                "sys/fs/cgroup/cpu,cpuacct/x/cpu.cfs_period_us": "100000\n",
            },
            2,
        ),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "nonsense\n"}, None),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "50000 0\n"}, None),
        (
            {
                "proc/self/cgroup": "1:cpu:/\n",
                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "50000\n",
                "sys/fs/cgroup/cpu/cpu.cfs_period_us": "0\n",
            },
            None,
        ),
    ],
)
def test_of_a_machine_with_many_cores_it_uses_its_share(
    tmp_path: Path, files: dict[str, str], limit: int | None, monkeypatch: pytest.MonkeyPatch
):
    """A container with two cores of 64 worked on 128 documents at once, with 64 threads a model."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(64)))
    lay(tmp_path, files)

    assert cores(tmp_path) == (64 if limit is None else limit)
