"""Tests that run under nohup, or in the background of a shell, test the same as others."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_programs_of_tests_ignore_no_signals_when_the_tests_do(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(
        "from tests.conftest import heed_signals\n\ndef pytest_configure() -> None:\n    heed_signals()\n"
    )
    (tmp_path / "test_child.py").write_text(
        "import signal, subprocess\n\n"
        "def test_child() -> None:\n"
        "    for name in ('INT', 'QUIT', 'HUP'):\n"
        "        ended = subprocess.run(['sh', '-c', f'kill -{name} $$; sleep 60'])\n"
        "        assert ended.returncode == -getattr(signal, f'SIG{name}')\n"
    )
    pytest = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir=.", "."]
    command = ["sh", "-c", "trap '' INT QUIT HUP; exec \"$@\"", "sh", *pytest]
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
