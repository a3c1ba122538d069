"""`pinnace up --agents 3`: three nodes on one machine, which can be drained and killed."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from tests.clients.kubectl_command import Kubectl, kubectl_binary
from tests.clients.server_process import ServerProcess
from tests.machine import need
from tests.node.namespaces import need_namespaces

NODE = socket.gethostname().lower()
_WEB = "python3 -m http.server 8080 --directory /usr/share/doc"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    need_namespaces()
    kubectl_binary()
    need("curl")
    place = tmp_path_factory.mktemp("agents")
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("PINNACE_OFFLINE", "1")
        started = ServerProcess.start(place, "--data-dir", str(place / "data"), "--agents", "3")
    try:
        yield started
    finally:
        code = started.stop()
    assert code == 0, started.log.read_text()


def _until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "the condition has not come true within 60 s"


def test_pods_spread_and_reach_each_other_and_nodes_drain_and_come_back(server: ServerProcess, tmp_path: Path) -> None:
    kubectl = Kubectl(kubectl_binary(), server.await_kubeconfig(), tmp_path, "default")
    _until(lambda: len(kubectl("get nodes -o name").split()) == 3)
    kubectl("wait --for=condition=Ready --timeout=120s node --all")
    kubectl(f"create deployment web --image=python --replicas=3 -- {_WEB}")
    kubectl("rollout status deployment web --timeout=120s")
    pods = json.loads(kubectl("get pods -l app=web -o json"))["items"]
    assert {pod["spec"]["nodeName"] for pod in pods} == {NODE, f"{NODE}-2", f"{NODE}-3"}
    for pod in pods:
        for other in pods:
            fetch = f"exec {pod['metadata']['name']} -- curl -sS --max-time 10 http://{other['status']['podIP']}:8080/"
            _until(partial(_succeeds, kubectl, fetch))

    server.kill_agent(f"{NODE}-2")
    kubectl(f"drain {NODE}-3 --ignore-daemonsets --force --grace-period=1 --timeout=120s")
    kubectl("rollout status deployment web --timeout=120s")
    _until(lambda: f"{NODE}-3" not in kubectl("get pods -l app=web -o jsonpath={.items[*].spec.nodeName}").split())
    kubectl(f"uncordon {NODE}-3")
    overrides = json.dumps({"spec": {"nodeName": f"{NODE}-2"}})
    kubectl(f"run again --image=busybox --overrides='{overrides}' -- sleep 1000")
    kubectl("wait --for=condition=Ready --timeout=120s pod again")
    kubectl("delete deployment web --wait=false")


def _succeeds(kubectl: Kubectl, command: str) -> bool:
    return kubectl.outcome(command).code == 0
