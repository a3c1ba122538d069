"""The mistakes that users make most often are answered with one line that says what to do."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.clients.server_process import ServerProcess
from typer.testing import CliRunner

import pinnace
from pinnace.cli.command_table import app

BROKEN = 'from pinnace.sdk import Operator\noperator = Operator("x"\n'


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("timeline nofile", "nofile: No such file or directory"),
        ("snapshot save x --data-dir nothing", "does not exist; name the data directory of a cluster with --data-dir"),
        ("snapshot restore nofile --data-dir new", "there is no snapshot nofile; pinnace snapshot save writes one"),
        ("image load empty --directory node", "empty is not a tar archive with an image (file could not be opened"),
        ("perturb nofile.py", "there is no file nofile.py; expected a Python file with Scenarios"),
        ("perturb broken.py", "broken.py:2: '(' was never closed"),
        ("scheduler --config nofile", "nofile cannot be read: No such file or directory"),
        ("autoscale backtest nofile --metrics nofile", "error: nofile: No such file or directory"),
        ("get pods --kubeconfig nofile", "error: the kubeconfig nofile does not exist"),
    ],
    ids=lambda value: value.partition(" --")[0] if value else "",
)
def test_a_mistake_is_answered_in_one_line(
    command: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "broken.py").write_text(BROKEN)
    environment = os.environ | {"PYTHONPATH": str(Path(pinnace.__file__).parents[1])}
    words = [sys.executable, "-m", "pinnace.cli.main", *command.split()]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode != 0
    assert message in done.stderr, done.stderr
    assert "Traceback" not in done.stderr


def test_a_recording_without_changes_says_so(tmp_path: Path) -> None:
    recording = tmp_path / "quiet.jsonl"
    recording.write_text('{"format":"pinnace-recording/1"}\n')
    done = CliRunner().invoke(app, ["timeline", str(recording)])
    assert (done.exit_code, done.stdout) == (0, "")
    assert done.stderr == f"pinnace: nothing changed while {recording} was recorded\n"


@pytest.fixture(scope="module")
def kubeconfig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    server = ServerProcess.start(tmp_path_factory.mktemp("server"), "--ephemeral", "--no-node")
    try:
        yield server.await_kubeconfig()
    finally:
        server.stop()


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("record podz", 'the server doesn\'t have a resource type "podz"'),
        ("record example.com/v1/Podz", "the server has no Podz in example.com/v1"),
        ("token delete zzzzzz", "there is no token zzzzzz; pinnace token list shows them"),
        ("why-stuck configmap nope", 'configmaps "nope" not found'),
    ],
)
def test_a_missing_object_is_named(command: str, message: str, kubeconfig: Path, tmp_path: Path) -> None:
    result = CliRunner().invoke(app, [*command.split(), "--kubeconfig", str(kubeconfig)])
    assert result.exit_code == 1
    assert message in result.stderr


def test_kinds_are_recorded_by_the_names_that_kubectl_takes(kubeconfig: Path, tmp_path: Path) -> None:
    words = ["record", "ns", "svc", "-A", "--seconds", "1", "-o", str(tmp_path / "out")]
    result = CliRunner().invoke(app, [*words, "--kubeconfig", str(kubeconfig)])
    assert result.exit_code == 0, result.stderr
    assert '"kind":"Namespace"' in (tmp_path / "out").read_text()


def test_an_object_that_is_not_deleted_is_said_to_be_there(kubeconfig: Path) -> None:
    result = CliRunner().invoke(app, ["why-stuck", "ns", "default", "--kubeconfig", str(kubeconfig)])
    assert (result.exit_code, result.stdout) == (0, "namespace/default is not being deleted\n")
