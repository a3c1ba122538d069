"""Trees of files that others make: their disk space, and their removal, whatever their modes are."""

from __future__ import annotations

import os
from pathlib import Path

from pinnace.node.machine.file_trees import remove_files, sizes_below


def test_sizes_are_added_by_the_first_two_parts_of_the_path(tmp_path: Path) -> None:
    (tmp_path / "volumes/work/deeper").mkdir(parents=True)
    (tmp_path / "volumes/work/deeper/file").write_bytes(b"x" * 10_000)
    (tmp_path / "hosts").write_bytes(b"x" * 100)
    (tmp_path / "volumes/away").symlink_to("/usr")
    sizes = sizes_below(str(tmp_path))
    assert 10_000 <= sizes["volumes/work"] < 50_000
    assert sizes["volumes/away"] <= 4096
    assert "hosts" in sizes
    assert sizes_below(str(tmp_path / "none")) == {}


def test_directories_without_permissions_are_removed(tmp_path: Path) -> None:
    closed = tmp_path / "tree/closed"
    (closed / "below").mkdir(parents=True)
    (closed / "below/file").touch()
    for place in (closed / "below", closed):
        place.chmod(0)
    remove_files(str(tmp_path / "tree"))
    remove_files(str(tmp_path / "tree"))
    assert os.listdir(tmp_path) == []
