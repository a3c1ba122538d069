"""After `kill -9`: a killed agent harms no traffic, a killed server finds its pods again, and nothing stays behind."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import urllib.request
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from tests.clients.kubectl_command import Kubectl, kubectl_binary
from tests.clients.server_process import ServerProcess
from tests.machine import need
from tests.node.leftovers import left_on_machine, processes_of
from tests.node.namespaces import need_namespaces
from tests.waiting import until

_SERVE = "python3 -m http.server 8080"
_LOAD = """
import json, time, urllib.request
good, bad = 0, []
while True:
    try:
        urllib.request.urlopen("http://web:8080/", timeout=60).read()
        good += 1
    except OSError as error:
        bad.append(str(error))
    print(json.dumps({"good": good, "bad": bad}), flush=True)
    time.sleep(0.02)
"""


def _start(place: Path, *arguments: str) -> ServerProcess:
    need_namespaces()
    kubectl_binary()
    need("curl")
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("PINNACE_OFFLINE", "1")
        environment.setenv("TMPDIR", str(place))
        environment.delenv("PINNACE_NO_NODE", raising=False)
        return ServerProcess.start(place, *arguments)


@contextlib.contextmanager
def _stopped(server: ServerProcess) -> Iterator[ServerProcess]:
    try:
        yield server
    finally:
        if server.process.poll() is None:
            server.stop()


def _kubectl(server: ServerProcess, place: Path) -> Kubectl:
    kubectl = Kubectl(kubectl_binary(), server.await_kubeconfig(), place / "cache", "default")
    until(lambda: kubectl("get nodes -o name"))
    return kubectl


def _nodes(place: Path) -> list[Path]:
    """The state directories of the nodes whose cluster has its data in a directory."""
    until(lambda: list(place.glob("node*/runtime")))
    return list(place.glob("node*"))


def _fetch(port: str) -> bool:
    with contextlib.suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=60) as answer:
        return b"Directory listing" in answer.read()
    return False


def test_a_killed_server_finds_its_pods_again_and_leaves_nothing_when_it_stops(tmp_path: Path) -> None:
    data = ("--data-dir", str(tmp_path / "data"))
    with _stopped(_start(tmp_path, *data)) as first:
        kubectl = _kubectl(first, tmp_path)
        kubectl(f"run web --image=python --port=8080 --expose -- {_SERVE}")
        kubectl('patch service web -p \'{"spec":{"type":"NodePort"}}\'')
        kubectl("wait --for=condition=Ready --timeout=120s pod/web")
        container = kubectl("get pod web -o jsonpath={.status.containerStatuses[0].containerID}")
        port = kubectl("get service web -o jsonpath={.spec.ports[0].nodePort}")
        until(lambda: _fetch(port))
        nodes = _nodes(tmp_path / "data")
        first.process.kill()
        first.process.wait()
    until(lambda: not any("--with-parent" in command for command in processes_of(tmp_path).values()))
    assert processes_of(tmp_path), "the pod goes on without its server"
    with _stopped(_start(tmp_path, *data)) as second:
        kubectl = _kubectl(second, tmp_path)
        until(lambda: _fetch(port))
        assert kubectl("get pod web -o jsonpath={.status.containerStatuses[0].containerID}") == container
        assert second.stop() == 0
    until(lambda: not processes_of(tmp_path))
    assert left_on_machine(tmp_path, nodes) == []


def test_a_killed_cluster_in_memory_ends_its_pods_and_the_next_one_removes_its_files(tmp_path: Path) -> None:
    with _stopped(_start(tmp_path, "--ephemeral")) as first:
        kubectl = _kubectl(first, tmp_path)
        kubectl("run web --image=python -- sleep 1000")
        kubectl("wait --for=condition=Ready --timeout=120s pod/web")
        (scratch,) = tmp_path.glob("pinnace-cluster-*")
        nodes = _nodes(scratch)
        first.process.kill()
        first.process.wait()
    until(lambda: not processes_of(scratch))
    with _stopped(_start(tmp_path, "--ephemeral")) as second:
        second.await_kubeconfig()
        until(lambda: not scratch.exists())
        (successor,) = tmp_path.glob("pinnace-cluster-*")
        nodes += _nodes(successor)
        assert second.stop() == 0
    until(lambda: not processes_of(tmp_path))
    assert list(tmp_path.glob("pinnace-cluster-*")) == []
    assert left_on_machine(tmp_path, nodes) == []


@pytest.mark.soak
def test_an_agent_that_is_killed_while_it_programs_rules_harms_no_other_traffic(tmp_path: Path) -> None:
    with _stopped(_start(tmp_path, "--data-dir", str(tmp_path / "data"))) as server:
        kubectl = _kubectl(server, tmp_path)
        kubectl(f"run web --image=python --port=8080 --expose -- {_SERVE}")
        kubectl("wait --for=condition=Ready --timeout=120s pod/web")
        container = {"name": "load", "image": "python", "command": ["python3", "-c", _LOAD]}
        spec = {"containers": [container], "terminationGracePeriodSeconds": 0}
        load = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "load"}, "spec": spec}
        kubectl("apply -f -", stdin=json.dumps(load))
        kubectl("wait --for=condition=Ready --timeout=120s pod/load")

        def count() -> int:
            lines = kubectl.outcome("logs load --tail=1").stdout
            return int(json.loads(lines)["good"]) if lines.endswith("}\n") else 0

        def has_more_than(number: int) -> bool:
            return count() > number

        def is_served(name: str) -> bool:
            return "listing" in kubectl.outcome(f"exec load -- curl -sS http://{name}/").stdout

        until(partial(has_more_than, 5))
        for attempt in range(3):
            ports = [{"port": 80, "targetPort": 8080}]
            services = [
                {
                    "apiVersion": "v1",
                    "kind": "Service",
                    "metadata": {"name": f"s{attempt}-{number}"},
                    "spec": {"selector": {"run": "web"}, "ports": ports},
                }
                for number in range(40)
            ]
            agents = [pid for pid, command in processes_of(tmp_path).items() if "--with-parent" in command]
            kubectl("apply -f -", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": services}))
            for agent in agents:
                os.kill(agent, signal.SIGKILL)
            until(partial(has_more_than, count() + 5))
        for name in ("s0-0", "s1-20", "s2-39"):
            until(partial(is_served, name))
        result = json.loads(kubectl("logs load --tail=1"))
        assert result["bad"] == [], result
