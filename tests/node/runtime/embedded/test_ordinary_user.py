"""The tests of this folder once more as an ordinary user, when root runs them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

_HERE = Path(__file__).parent
_NOBODY = 65534
_NAMES = (
    *("test_containers.py", "test_streams.py", "test_survival.py", "test_images.py"),
    *("../../images/test_unpacking.py", "../../agent/test_straight_line.py", "../../agent/test_processes.py"),
    *("../../agent/test_volumes.py", "../../agent/test_node_decisions.py"),
)


@pytest.mark.skipif(os.geteuid() != 0, reason="this user is an ordinary one already")
def test_everything_works_for_an_ordinary_user() -> None:
    home = Path(tempfile.mkdtemp(prefix="pinnace-ordinary-"))
    os.chown(home, _NOBODY, _NOBODY)
    command = [
        *("setpriv", f"--reuid={_NOBODY}", f"--regid={_NOBODY}", "--clear-groups"),
        *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"),
        *(str(_HERE / name) for name in _NAMES),
    ]
    environment = {
        **{key: text for key, text in os.environ.items() if not key.startswith("PYTEST")},
        **{"HOME": str(home), "TMPDIR": str(home), "PYTHONDONTWRITEBYTECODE": "1"},
    }
    try:
        done = subprocess.run(
            command, env=environment, cwd=_HERE.parents[3], capture_output=True, text=True, timeout=600
        )
        assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    finally:
        shutil.rmtree(home, ignore_errors=True)
