"""Tests that root runs once more as an ordinary user reach a checkout that lies in a directory of root's."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from tests.node.namespaces import need_namespaces
from tests.node.ordinary_user import NOBODY, keep_reachable, needs_root

_AS_NOBODY = ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups")


@pytest.fixture
def home() -> Iterator[Path]:
    """A directory that every user can enter, unlike `tmp_path`."""
    with TemporaryDirectory(prefix="pinnace-home-") as directory:
        Path(directory).chmod(0o755)
        yield Path(directory)


@needs_root
def test_only_needed_directories_below_a_closed_one_are_reached(home: Path) -> None:
    need_namespaces()
    closed = home / "closed"
    for name in ("checkout with spaces", "python", "secrets"):
        (closed / name).mkdir(parents=True)
        (closed / name / "file").write_text(name)
    closed.chmod(0o700)
    checkout, python, secrets = (closed / name / "file" for name in ("checkout with spaces", "python", "secrets"))
    prefix = keep_reachable(home, checkout.parent, python.parent, Path("/usr"))
    command = [*prefix, *_AS_NOBODY, "cat", str(checkout), str(python), str(secrets)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.stdout == "checkout with spacespython"
    assert "secrets" in done.stderr
    assert not (home / "reachable-0" / "file").exists(), "this process sees what it saw before"


@needs_root
def test_a_command_needs_no_other_view_of_open_directories(home: Path) -> None:
    assert keep_reachable(home, Path("/usr")) == []


@needs_root
def test_a_directory_that_is_closed_itself_is_named_with_the_remedy(home: Path) -> None:
    home.chmod(0o700)
    with pytest.raises((pytest.skip.Exception, pytest.fail.Exception), match=f"cannot read {home}: chmod -R go"):
        keep_reachable(home, home)
