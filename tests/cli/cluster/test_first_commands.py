"""The five commands that `pinnace up` prints work as printed."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.clients.kubectl_command import kubectl_binary
from tests.clients.server_process import ServerProcess
from tests.node.namespaces import need_namespaces

from pinnace.cli.cluster.foreground import first_commands
from pinnace.cluster.settings import Settings


@contextlib.contextmanager
def _started(place: Path, *arguments: str, path: str) -> Iterator[list[str]]:
    """Start a cluster, and yield the lines below "Try"; each must be a command."""
    with pytest.MonkeyPatch.context() as environment:
        environment.delenv("PINNACE_NO_NODE", raising=False)
        environment.setenv("PINNACE_OFFLINE", "1")
        environment.setenv("PATH", path)
        server = ServerProcess.start(place, "--data-dir", str(place / "data"), *arguments)
    try:
        server.await_kubeconfig()
        deadline = time.monotonic() + 60
        while (output := server.log.read_text()).partition("Try, in another terminal:\n")[2].count("\n") < 6:
            assert not server.ends_within(0.02) and time.monotonic() < deadline, output
        first, _, rest = output.partition("\nTry, in another terminal:\n")
        assert " is ready at https://127.0.0.1:" in first.splitlines()[-1]
        lines = rest.splitlines()[:6]
        assert all(line.startswith("  ") for line in lines)
        assert lines[0].startswith("  export KUBECONFIG=")
        yield [line.strip() for line in lines]
    finally:
        server.stop()


def _run(export: str, commands: list[str], environment: dict[str, str]) -> str:
    script = "\n".join(["set -euo pipefail", export, *commands])
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=120, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def _fetch_while(export: str, command: str, environment: dict[str, str]) -> str:
    """Return the page behind a command that forwards a port until it is stopped."""
    process = subprocess.Popen(["bash", "-c", f"{export}\nexec {command}"], env=environment, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        assert process.stdout.readline().startswith(b"Forwarding from 127.0.0.1:8080")
        deadline = time.monotonic() + 60
        while True:
            try:
                with urllib.request.urlopen("http://127.0.0.1:8080/", timeout=60) as answer:
                    return str(answer.read().decode())
            except OSError:
                assert time.monotonic() < deadline
    finally:
        process.terminate()
        process.wait()


@pytest.fixture
def free_8080() -> None:
    """The commands name this port: skip where another program has it."""
    with socket.socket() as probe:
        if probe.connect_ex(("127.0.0.1", 8080)) == 0:
            pytest.skip("another program listens on port 8080")


def _with_kubectl(tmp_path: Path) -> str:
    """A PATH that begins with kubectl."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "kubectl").symlink_to(kubectl_binary())
    return f"{tmp_path / 'bin'}:{os.environ['PATH']}"


def _without_kubectl(tmp_path: Path) -> str:
    """A PATH with the programs that the commands and the node need, but no kubectl."""
    (tmp_path / "bin").mkdir()
    for name in ("bash", "python3", "echo", "sh"):
        result = shutil.which(name)
        assert result is not None
        (tmp_path / "bin" / name).symlink_to(result)
    return str(tmp_path / "bin")


def test_the_commands_run_a_pod_and_show_its_page(tmp_path: Path, free_8080: None) -> None:
    need_namespaces()
    path = _with_kubectl(tmp_path)
    with _started(tmp_path, path=path) as (export, *commands):
        environment = os.environ | {"PATH": path, "HOME": str(tmp_path)}
        output = _run(export, commands[:4], environment)
        assert "pod/web created" in output and "service/web created" in output
        assert output.endswith("web\n")  # The host name of the pod.
        assert "Directory listing" in _fetch_while(export, commands[4], environment)


def test_without_kubectl_the_commands_are_those_of_pinnace(tmp_path: Path, free_8080: None) -> None:
    need_namespaces()
    path = _without_kubectl(tmp_path)
    with _started(tmp_path, path=path) as (export, *commands):
        environment = os.environ | {"PATH": path, "HOME": str(tmp_path)}
        assert not any("kubectl " in command for command in commands)
        output = _run(export, commands[:4], environment)
        assert "pod/web created" in output and "service/web created" in output
        assert "Directory listing" in _fetch_while(export, commands[4], environment)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        pytest.param(["--nodes", "2"], "deployment.apps/web scaled", id="simulated nodes"),
        pytest.param(["--no-node"], "configmap/greeting created", id="no node"),
    ],
)
def test_the_commands_fit_a_cluster_that_runs_no_containers(
    tmp_path: Path, arguments: list[str], expected: str
) -> None:
    path = _with_kubectl(tmp_path)
    with _started(tmp_path, *arguments, path=path) as (export, *commands):
        assert expected in _run(export, commands, os.environ | {"PATH": path, "HOME": str(tmp_path)})


def test_a_merged_cluster_needs_no_export_and_one_without_kubeconfig_says_so() -> None:
    merged = first_commands(Settings(), None, is_merged=True).splitlines()
    assert len(merged) == 6 and "export" not in merged[1]
    assert "--kubeconfig PATH or --merge" in first_commands(Settings(), None, is_merged=False)


@pytest.mark.parametrize(("wanted", "says_so"), [(False, True), (True, False)])
def test_the_commands_say_that_images_are_pulled_unless_they_are_this_machine(
    monkeypatch: pytest.MonkeyPatch, wanted: bool, says_so: bool
) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    settings = Settings(node="vm", has_host_image=wanted)
    assert ("pulls the image" in first_commands(settings, None, is_merged=True)) is says_so
