"""Containers of the image `host` have the programs of busybox that this machine lacks."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from pinnace.node.images.host import make_programs


def test_nslookup_is_a_program_that_needs_no_package(tmp_path: Path) -> None:
    result = make_programs(tmp_path / "programs")
    assert result == tmp_path / "programs"
    assert os.access(result / "nslookup", os.X_OK)
    done = subprocess.run([result / "nslookup", "127.0.0.1", "8.8.8.8"], capture_output=True, text=True, timeout=60)
    assert (done.returncode, "asks the server in /etc/resolv.conf alone" in done.stderr) == (1, True)


def test_the_directory_may_be_made_again_while_containers_use_it(tmp_path: Path) -> None:
    before = {program.name for program in (make_programs(tmp_path) or tmp_path).iterdir()}
    assert {program.name for program in (make_programs(tmp_path) or tmp_path).iterdir()} == before


def test_a_directory_that_cannot_be_written_leaves_the_machine_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert make_programs(tmp_path / "file" / "programs") is None
