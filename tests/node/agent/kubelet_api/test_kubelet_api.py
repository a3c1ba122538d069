"""Kubelet's API of a node: through the server's node proxy, and at the port of a node that has joined."""

from __future__ import annotations

import base64
import http.client
import json
import os
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from tests.clients.kubectl_command import Kubectl, kubectl_binary
from tests.clients.server_process import ServerProcess
from tests.node.namespaces import need_namespaces
from tests.waiting import until

import pinnace
from pinnace.model.objects import Object

OWN, JOINED, MINOR = socket.gethostname().lower(), "joined", "1.36"
_MANIFEST = """
apiVersion: v1
kind: Pod
metadata: {name: static}
spec: {containers: [{name: main, image: host, command: [sleep, "1000"]}]}
"""


@pytest.fixture(scope="module")
def kubectl(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubectl]:
    """A server with a node of its own, and a node that has joined; each runs one pod."""
    need_namespaces()
    kubectl_binary()
    directory = tmp_path_factory.mktemp("api")
    environment = os.environ | {"PYTHONPATH": str(Path(pinnace.__file__).parents[1]), "PINNACE_OFFLINE": "1"}
    environment.pop("PINNACE_NO_NODE", None)
    command = [sys.executable, "-m", "pinnace.cli.main"]
    data = ["--data-dir", str(directory / "data")]
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("PINNACE_NO_NODE", raising=False)
        server = ServerProcess.start(directory, *data, "--node", "--kubernetes-version", MINOR)
    result = Kubectl(kubectl_binary(), server.await_kubeconfig(), directory, "default")
    arguments = [*command, "token", "create", "--print-join-command", "--kubeconfig", str(server.kubeconfig)]
    join = subprocess.run(arguments, env=environment, capture_output=True, text=True, timeout=60, check=True).stdout
    manifests = directory / "manifests"
    manifests.mkdir()
    (manifests / "static.yaml").write_text(_MANIFEST)
    own = ["--name", JOINED, "--directory", str(directory / "node"), "--stop-pods", "--pod-network", "10.244.7.0/24"]
    with (directory / "node.log").open("wb") as output:
        node = subprocess.Popen(
            [*command, *join.split()[1:], *own, "--pod-manifest-path", str(manifests)],
            env=environment,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        until(lambda: {f"node/{OWN}", f"node/{JOINED}"} <= set(result("get nodes -o name").split()))
        result("wait --for=condition=Ready --timeout=120s node --all")
        for name in (OWN, JOINED):
            bound = json.dumps({"spec": {"nodeName": name}})
            result(f"run on-{name} --image=host --overrides={bound!r} -- sh -c 'echo started; sleep 1000'")
        result(f"wait --for=condition=Ready --timeout=120s pod on-{OWN} on-{JOINED}")
        yield result
    finally:
        node.terminate()
        node.wait(60)
        server.stop()


def ask(kubectl: Kubectl, node: str, path: str, *, method: str = "GET") -> tuple[int, str]:
    """Return status and body: through the server's node proxy, which refuses loopback addresses, or from the port."""
    server, prefix = kubectl("config view --minify -o jsonpath={.clusters[0].cluster.server}"), ""
    address = server.removeprefix("https://")
    if node == OWN:
        prefix = f"/api/v1/nodes/{node}/proxy"
    else:
        port = kubectl(f"get node {node} -o jsonpath={{.status.daemonEndpoints.kubeletEndpoint.Port}}")
        address = f"127.0.0.1:{port}"
    connection = http.client.HTTPSConnection(address, context=administrator(kubectl), timeout=60)
    try:
        connection.request(method, prefix + path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def administrator(kubectl: Kubectl) -> ssl.SSLContext:
    user = yaml.safe_load(kubectl.kubeconfig.read_text())["users"][0]["user"]
    pair = kubectl.cache / "administrator.pem"
    pair.write_bytes(b"".join(base64.b64decode(user[f"client-{name}-data"]) for name in ("certificate", "key")))
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.load_cert_chain(pair)
    return context


def read(kubectl: Kubectl, node: str, path: str) -> Object:
    status, body = ask(kubectl, node, path)
    assert status == 200, body
    document: Object = json.loads(body)
    return document


@pytest.mark.parametrize("node", [OWN, JOINED])
def test_a_node_reports_the_version_that_is_served(kubectl: Kubectl, node: str) -> None:
    assert kubectl(f"get node {node} -o jsonpath={{.status.nodeInfo.kubeletVersion}}") == f"v{MINOR}.0"


@pytest.mark.parametrize("node", [OWN, JOINED])
def test_the_pods_of_a_node(kubectl: Kubectl, node: str) -> None:
    document = read(kubectl, node, "/pods")
    assert (document["kind"], document["apiVersion"]) == ("PodList", "v1")
    pods = {pod["metadata"]["name"]: pod for pod in document["items"]}
    expected = {f"on-{node}"} | ({f"static-{JOINED}"} if node == JOINED else set())
    assert set(pods) == expected
    assert pods[f"on-{node}"]["spec"]["nodeName"] == node
    assert pods[f"on-{node}"]["status"]["phase"] == "Running"


@pytest.mark.parametrize("node", [OWN, JOINED])
def test_the_running_pods_of_a_node(kubectl: Kubectl, node: str) -> None:
    document = read(kubectl, node, "/runningpods/")
    pods = {pod["metadata"]["name"]: pod for pod in document["items"]}
    (container,) = pods[f"on-{node}"]["spec"]["containers"]
    assert (container["name"], container["image"].partition(":")[0]) == (f"on-{node}", "host")
    uid = kubectl(f"get pod on-{node} -o jsonpath={{.metadata.uid}}")
    assert pods[f"on-{node}"]["metadata"] == {"name": f"on-{node}", "namespace": "default", "uid": uid}


@pytest.mark.parametrize("node", [OWN, JOINED])
def test_the_configuration_of_a_node(kubectl: Kubectl, node: str) -> None:
    configuration = read(kubectl, node, "/configz")["kubeletconfig"]
    assert configuration["kind"] == "KubeletConfiguration"
    assert configuration["maxPods"] == 110
    assert configuration["evictionHard"]["memory.available"] == "100Mi"
    assert configuration["authentication"]["anonymous"] == {"enabled": False}


@pytest.mark.parametrize("node", [OWN, JOINED])
def test_the_other_pages_of_a_node(kubectl: Kubectl, node: str) -> None:
    assert ask(kubectl, node, "/healthz") == (200, "ok")
    assert ask(kubectl, node, "/healthz/syncloop") == (200, "ok")
    assert "kubelet_running_pods" in ask(kubectl, node, "/metrics")[1]
    assert read(kubectl, node, "/stats/summary")["node"]["nodeName"] == node
    assert ask(kubectl, node, "/logs/") == (405, "logs endpoint is disabled.\n")
    assert ask(kubectl, node, "/nothing") == (404, "404 page not found\n")
    assert ask(kubectl, node, "/pods", method="DELETE") == (405, "405: Method Not Allowed")
    status, body = ask(kubectl, node, "/checkpoint/default/one/two", method="POST")
    assert status == 500
    assert body.startswith("checkpointing of default/one/two failed (rpc error: code = Unimplemented")


@pytest.mark.parametrize("node", [OWN, JOINED])
def test_the_pages_about_the_process_of_a_node(kubectl: Kubectl, node: str) -> None:
    status, text = ask(kubectl, node, "/statusz")
    assert (status, text.splitlines()[1]) == (200, "kubelet statusz")
    assert "/configz" in text.splitlines()[-1]
    assert f"\nname={node}\n" in ask(kubectl, node, "/flagz")[1]
    assert "debug/pprof" in ask(kubectl, node, "/debug/pprof/")[1]
    assert "node-agent" in ask(kubectl, node, "/debug/pprof/goroutine?debug=2")[1]


def test_a_log_is_read_at_the_port_of_the_node(kubectl: Kubectl) -> None:
    path = f"/containerLogs/default/on-{JOINED}/on-{JOINED}"
    assert ask(kubectl, JOINED, path) == (200, "started\n")
    for number in ("x", "-1", "9" * 5000, "9223372036854775808", "\u0663".encode().hex()):
        assert ask(kubectl, JOINED, f"{path}?tailLines={number}")[0] == 400
    assert ask(kubectl, JOINED, f"{path}?sinceSeconds=9223372036854775807")[0] == 200
    assert ask(kubectl, JOINED, f"{path}?tailLines=9223372036854775807")[0] == 200
