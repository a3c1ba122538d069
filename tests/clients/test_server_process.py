"""The server, seen from outside: when it is ready, and how it stops."""

from __future__ import annotations

import json
import ssl
import stat
import urllib.error
import urllib.request
from pathlib import Path

import yaml
from tests.clients.server_process import ServerProcess
from tests.free_ports import free_port


def _readiness(url: str) -> str:
    """Return the text of the page. Until the server is ready, there is no authority to check its certificate by."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        with urllib.request.urlopen(f"{url}/readyz", context=context, timeout=60) as answer:
            return str(answer.read().decode())
    except urllib.error.URLError as error:
        return str(error)


def _assert_complete_and_private(kubeconfig: Path, url: str) -> None:
    assert stat.S_IMODE(kubeconfig.stat().st_mode) == 0o600
    content = yaml.safe_load(kubeconfig.read_text())
    assert content["clusters"][0]["cluster"]["server"] == url
    assert content["users"][0]["user"].keys() >= {"client-certificate-data", "client-key-data"}


def test_a_server_with_a_kubeconfig_is_ready_and_the_kubeconfig_complete_and_private(tmp_path: Path) -> None:
    port = free_port()
    server = ServerProcess.start(tmp_path, "--ephemeral", port=port)
    try:
        kubeconfig = server.await_kubeconfig()
        _assert_complete_and_private(kubeconfig, f"https://127.0.0.1:{port}")
        assert _readiness(f"https://127.0.0.1:{port}") == "ok"
    finally:
        assert server.stop() == 0


def test_a_server_that_says_that_it_is_ready_has_written_its_kubeconfig(tmp_path: Path) -> None:
    port = free_port()
    # On disk, since the first objects then take long enough for a request to come between.
    server = ServerProcess.start(tmp_path, "--data-dir", str(tmp_path / "data"), port=port)
    try:
        while (answer := _readiness(f"https://127.0.0.1:{port}")) != "ok":
            assert not server.ends_within(0.001), answer
        _assert_complete_and_private(server.kubeconfig, f"https://127.0.0.1:{port}")
    finally:
        assert server.stop() == 0


def test_a_port_that_is_taken_is_reported_in_one_line(tmp_path: Path, kubeconfig: Path) -> None:
    taken = yaml.safe_load(kubeconfig.read_text())["clusters"][0]["cluster"]["server"].rpartition(":")[2]
    server = ServerProcess.start(tmp_path, "--ephemeral", port=int(taken))
    assert server.ends_within(60)
    assert server.process.returncode == 1
    (line,) = server.log.read_text().splitlines()
    assert f"cannot listen on 127.0.0.1:{taken}" in line
    assert not server.kubeconfig.exists()


def test_a_server_that_is_stopped_while_it_registers_nodes_exits_well(tmp_path: Path) -> None:
    port = free_port()
    server = ServerProcess.start(tmp_path, "--ephemeral", "--nodes", "5000", port=port)
    while "HTTP Error" not in (answer := _readiness(f"https://127.0.0.1:{port}")):
        assert not server.ends_within(0.01), answer
    assert server.stop() == 0
    assert "Traceback" not in server.log.read_text()
    assert "is ready" not in server.log.read_text()


def test_a_server_that_is_reported_to_stop_ends_its_watches_and_exits_well(tmp_path: Path) -> None:
    server = ServerProcess.start(tmp_path, "--ephemeral")
    content = yaml.safe_load(server.await_kubeconfig().read_text())
    url, token = content["clusters"][0]["cluster"]["server"], content["users"][0]["user"]["token"]
    context = ssl._create_unverified_context()
    request = urllib.request.Request(
        f"{url}/api/v1/namespaces?watch=true", headers={"Authorization": f"Bearer {token}"}
    )
    with urllib.request.urlopen(request, context=context, timeout=60) as watch:
        assert json.loads(watch.readline())["type"] == "ADDED"
        server.process.terminate()
        lines = watch.read().splitlines()
    assert server.await_end() == 0
    assert all(json.loads(line)["type"] in ("ADDED", "MODIFIED", "BOOKMARK") for line in lines)
