"""Runs tests once more as an ordinary user, when root runs the suite."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from shlex import quote
from typing import TypeVar

import pytest
from tests.machine import do_without, need

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
    _run(home, _bound(home / "etc", "/etc"), tests)


def as_ordinary_user(home: Path) -> list[str]:
    """Return the beginning of a command of a user without rights, who can enter `home`."""
    need("setpriv")
    return [*keep_checkout_reachable(home), "setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]


def keep_checkout_reachable(home: Path) -> list[str]:
    """Return the beginning of a command in which ordinary users reach this checkout and its Python."""
    return keep_reachable(home, _TOP, Path(sys.prefix), Path(sys.base_prefix))


def keep_reachable(home: Path, *needed: Path) -> list[str]:
    """Return the beginning of a command in which ordinary users, who can enter `home`, reach these directories.

    Where one lies in a directory of root's that others cannot enter, such as root's home, the command sees another
    directory there, which has the needed ones at their places and nothing else.
    """
    closed = {path: folder for path in needed if (folder := _closed(path))}
    for path in closed:
        if path in closed.values() or not path.stat().st_mode & stat.S_IROTH:
            do_without(f"other users cannot read {path}: chmod -R go+rX {path}")
    paths = [path for path in closed if closed.keys().isdisjoint(path.parents)]
    places = {path: home / f"reachable-{number}" for number, path in enumerate(paths)}
    for place in places.values():
        place.mkdir()
    steps = [
        *(f"mount --bind {quote(str(path))} {quote(str(place))}" for path, place in places.items()),
        *(f"mount -t tmpfs -o mode=0755 tmpfs {quote(str(folder))}" for folder in set(closed.values())),
        *(f"mkdir -p {quote(str(path))}" for path in paths),
        *(f"mount --bind {quote(str(place))} {quote(str(path))}" for path, place in places.items()),
        'exec "$@"',
    ]
    return ["unshare", "--mount", "sh", "-ceu", "\n".join(steps), "sh"] if paths else []


def _closed(path: Path) -> Path | None:
    """Return the uppermost of the directories of a path that other users cannot enter."""
    folders = [folder for folder in (path, *path.parents) if not folder.stat().st_mode & stat.S_IXOTH]
    return folders[-1] if folders else None


def _bound(source: Path, target: str) -> list[str]:
    """Return the beginning of a command that sees a directory at another place too."""
    bind = 'mount --bind "$1" "$2" && shift 2 && exec "$@"'
    return ["unshare", "--mount", "sh", "-c", bind, "sh", str(source), target]


def _run(home: Path, prefix: Sequence[str], tests: Sequence[str]) -> None:
    os.chown(home, NOBODY, NOBODY)
    command = [
        *(*prefix, *as_ordinary_user(home), "env", "-C", str(_TOP)),
        *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"),
        *(str(_TOP / "tests" / name) for name in tests),
    ]
    variables = {
        **{key: text for key, text in os.environ.items() if not key.startswith("PYTEST")},
        **{"HOME": str(home), "TMPDIR": str(home), "PYTHONDONTWRITEBYTECODE": "1"},
        "PYTHONPATH": str(_TOP / "src"),
    }
    try:
        done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=_SECONDS)
        assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    finally:
        shutil.rmtree(home, ignore_errors=True)
