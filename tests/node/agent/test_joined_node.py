"""A node that joins with a token as a process by itself: the API server reaches its pods over the network."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.clients.kubectl_command import Kubectl, kubectl_binary
from tests.clients.server_process import ServerProcess
from tests.machine import need
from tests.node.namespaces import need_namespaces
from tests.waiting import until

import pinnace

NODE = "joined"


@pytest.fixture(scope="module")
def kubectl(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubectl]:
    need_namespaces()
    kubectl_binary()
    directory = tmp_path_factory.mktemp("joined")
    environment = os.environ | {"PYTHONPATH": str(Path(pinnace.__file__).parents[1]), "PINNACE_OFFLINE": "1"}
    command = [sys.executable, "-m", "pinnace.cli.main"]
    server = ServerProcess.start(directory, "--data-dir", str(directory / "data"))
    result = Kubectl(kubectl_binary(), server.await_kubeconfig(), directory, "default")
    requested = [*command, "token", "create", "--print-join-command", "--kubeconfig", str(server.kubeconfig)]
    join = subprocess.run(requested, env=environment, capture_output=True, text=True, timeout=60, check=True).stdout
    arguments = [*command, *join.split()[1:], "--name", NODE, "--directory", str(directory / "node"), "--stop-pods"]
    with (directory / "node.log").open("wb") as output:
        node = subprocess.Popen(arguments, env=environment, stdout=output, stderr=subprocess.STDOUT)
    try:
        _await_node(result, directory / "node.log")
        yield result
    finally:
        node.terminate()
        node.wait(60)
        server.stop()


def _await_node(kubectl: Kubectl, log: Path) -> None:
    try:
        until(lambda: NODE in kubectl("get nodes -o name"))
    except AssertionError:
        raise AssertionError(f"the node has not registered itself:\n{log.read_text()}") from None
    kubectl("wait --for=condition=Ready --timeout=120s node --all")
    kubectl("run served --image=host -- sh -c 'echo hello; sleep 1000'")
    kubectl("wait --for=condition=Ready --timeout=120s pod served")


def test_logs_and_commands_reach_the_pods_of_a_joined_node(kubectl: Kubectl) -> None:
    assert kubectl("logs served") == "hello\n"
    assert kubectl("exec served -- hostname") == "served\n"
    assert kubectl("exec -i served -- cat", stdin="through") == "through"
    assert "exit code 3" in kubectl.failure("exec served -- sh -c 'exit 3'")


def test_a_caller_without_permission_is_refused(kubectl: Kubectl, tmp_path: Path) -> None:
    port = kubectl(f"get node {NODE} -o jsonpath={{.status.daemonEndpoints.kubeletEndpoint.Port}}")
    pair = kubectl.kubeconfig.parent / "node" / "pki" / "kubelet-client-current.pem"
    for options, code in (([], "401"), (["--cert", str(pair), "--key", str(pair)], "403")):
        command = [need("curl"), "-sk", "-o", str(tmp_path / "body"), "-w", "%{http_code}", *options]
        done = subprocess.run(
            [*command, f"https://127.0.0.1:{port}/stats/summary"], capture_output=True, text=True, timeout=60
        )
        assert done.stdout == code


def test_a_node_joins_a_cluster_without_nodes_by_the_kubeconfig_of_an_administrator(tmp_path: Path) -> None:
    need_namespaces()
    kubectl_binary()
    environment = os.environ | {"PYTHONPATH": str(Path(pinnace.__file__).parents[1]), "PINNACE_OFFLINE": "1"}
    server = ServerProcess.start(tmp_path, "--data-dir", str(tmp_path / "data"), "--no-node")
    request = Kubectl(kubectl_binary(), server.await_kubeconfig(), tmp_path, "default")
    command = [sys.executable, "-m", "pinnace.cli.main", "node", "--kubeconfig", str(server.kubeconfig)]
    arguments = [*command, "--name", NODE, "--directory", str(tmp_path / "node"), "--stop-pods"]
    with (tmp_path / "node.log").open("wb") as output:
        node = subprocess.Popen(arguments, env=environment, stdout=output, stderr=subprocess.STDOUT)
    try:
        _await_node(request, tmp_path / "node.log")
        assert request("logs served") == "hello\n"
    finally:
        node.terminate()
        node.wait(60)
        server.stop()
