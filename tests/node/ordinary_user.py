"""Runs tests once more as an ordinary user, when root runs the suite."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import pytest

NOBODY = 65534
_TOP = Path(__file__).parents[2]
_SECONDS = 900
_Test = TypeVar("_Test", bound=Callable[..., object])


def needs_root(test: _Test) -> _Test:
    """Mark a test that runs many others as an ordinary user, and so may take as long as all of them."""
    mark = pytest.mark.skipif(os.geteuid() != 0, reason="this user is an ordinary one already")
    marked: _Test = mark(pytest.mark.timeout(_SECONDS + 60)(test))
    return marked


def run_tests_as_ordinary_user(*tests: str) -> None:
    """Run tests, named from the folder `tests`, in a process of a user without rights. Fail with its output."""
    home = Path(tempfile.mkdtemp(prefix="pinnace-ordinary-"))
    _run(home, [], tests)


def run_tests_as_user_with_ids(*tests: str) -> None:
    """Run tests as a user with subordinate ids: these processes have an /etc of their own."""
    home = Path(tempfile.mkdtemp(prefix="pinnace-ordinary-"))
    subprocess.run(["cp", "-a", "/etc", str(home)], check=True, timeout=60)
    for name in ("subuid", "subgid"):
        (home / "etc" / name).write_text(f"{NOBODY}:200000:65536\n")
    bind = 'mount --bind "$1" /etc && shift && exec "$@"'
    _run(home, ["unshare", "--mount", "sh", "-c", bind, "sh", f"{home}/etc"], tests)


def _run(home: Path, prefix: Sequence[str], tests: Sequence[str]) -> None:
    os.chown(home, NOBODY, NOBODY)
    command = [
        *(*prefix, "setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"),
        *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"),
        *(str(_TOP / "tests" / name) for name in tests),
    ]
    variables = {
        **{key: text for key, text in os.environ.items() if not key.startswith("PYTEST")},
        **{"HOME": str(home), "TMPDIR": str(home), "PYTHONDONTWRITEBYTECODE": "1"},
    }
    try:
        done = subprocess.run(command, env=variables, cwd=_TOP, capture_output=True, text=True, timeout=_SECONDS)
        assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    finally:
        shutil.rmtree(home, ignore_errors=True)
