"""The limits that control groups of version 2 get, as far as their controllers are there."""

from __future__ import annotations

from pathlib import Path

import pytest

from pinnace.node.runtime.embedded.groups.cgroups import Cgroups, group_name
from pinnace.node.runtime.runtime import Resources


@pytest.mark.parametrize("has_huge_pages", [True, False])
def test_groups_allow_no_swap_and_huge_pages_up_to_their_limit(tmp_path: Path, *, has_huge_pages: bool) -> None:
    hierarchy, state = tmp_path / "cgroup", tmp_path / "state"
    own = hierarchy / group_name(state)
    own.mkdir(parents=True)
    (own / "cgroup.procs").touch()
    (hierarchy / "cgroup.controllers").write_text("cpu memory pids" + " hugetlb" * has_huge_pages)
    (tmp_path / "mountinfo").write_text(f"1 0 0:1 / {hierarchy} rw - cgroup2 cgroup2 rw\n")
    (tmp_path / "own").write_text("0::/\n")
    groups = Cgroups(state, mountinfo=tmp_path / "mountinfo", own=tmp_path / "own")
    groups.create("pod", "web", Resources(memory_bytes=1 << 20, huge_pages={"2MB": 4 << 20, "1GB": 0}))
    limits = {path.name: path.read_text() for path in (own / "pod" / "web").iterdir()}
    assert limits["memory.max"] == str(1 << 20)
    assert limits["memory.swap.max"] == "0"
    pages = {name: text for name, text in limits.items() if name.startswith("hugetlb")}
    assert pages == ({"hugetlb.2MB.max": str(4 << 20), "hugetlb.1GB.max": "0"} if has_huge_pages else {})
