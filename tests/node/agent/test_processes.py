"""`pinnace up` with a node: server and node are processes of their own; kubectl reaches the pods through both."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.clients.kubectl_command import Kubectl, kubectl_binary
from tests.clients.server_process import ServerProcess
from tests.free_ports import free_port
from tests.node.namespaces import need_namespaces
from tests.waiting import until

from pinnace.model.objects import Object

NODE = socket.gethostname().lower()
_TWO_CONTAINERS = """
apiVersion: v1
kind: Pod
metadata: {name: busy}
spec:
  containers:
  - {name: busy, image: host, command: [sh, -c, "while :; do :; done"]}
  - {name: idle, image: host, command: [sleep, "1000"]}
"""
_PROBED = """
apiVersion: v1
kind: Pod
metadata: {name: measured}
spec:
  containers:
  - {name: measured, image: host, command: [sleep, "1000"], readinessProbe: {exec: {command: ["true"]}}}
"""
_USAGE_PAGES = {
    "resource": {"container_cpu_usage_seconds_total", "container_start_time_seconds", "pod_cpu_usage_seconds_total"},
    "cadvisor": {"container_memory_usage_bytes", "container_fs_usage_bytes", "machine_memory_bytes"},
    "probes": {"prober_probe_total", "prober_probe_duration_seconds_count"},
}
"""The pages below /metrics of a node, with names on each."""
_WEB_SERVER = """
apiVersion: v1
kind: Pod
metadata: {name: served}
spec:
  containers:
  - name: served
    image: host
    command: [/usr/bin/python3, -m, http.server, "8080", --directory, /usr/share/doc]
    readinessProbe: {tcpSocket: {port: 8080}, periodSeconds: 1}
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    need_namespaces()
    kubectl_binary()
    directory = tmp_path_factory.mktemp("server")
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("PINNACE_OFFLINE", "1")
        environment.delenv("PINNACE_NO_NODE", raising=False)
        started = ServerProcess.start(directory, "--data-dir", str(directory / "data"))
    try:
        yield started
    finally:
        code = started.stop()
    assert code == 0, started.log.read_text()
    assert _command_lines_with(str(directory)) == []


@pytest.fixture
def kubectl(server: ServerProcess, tmp_path: Path) -> Kubectl:
    command = Kubectl(kubectl_binary(), server.await_kubeconfig(), tmp_path, "default")
    _await_node(command)
    return command


def _command_lines_with(text: str) -> list[str]:
    results = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            words = (entry / "cmdline").read_bytes().decode(errors="replace")
            results += [words] if text in words else []
    return results


def _await_node(kubectl: Kubectl) -> None:
    until(lambda: NODE in kubectl("get nodes -o name"))
    kubectl("wait --for=condition=Ready --timeout=120s node --all")


def test_a_deployment_is_scheduled_and_runs(kubectl: Kubectl) -> None:
    kubectl("create deployment web --image=host -- sleep 1000")
    kubectl("rollout status deployment web --timeout=120s")
    pods = json.loads(kubectl("get pods -l app=web -o json"))["items"]
    assert [pod["spec"]["nodeName"] for pod in pods] == [NODE]
    assert kubectl("exec deploy/web -- hostname").strip() == pods[0]["metadata"]["name"]
    assert kubectl("exec -i deploy/web -- sh -c 'cat; exit 0'", stdin="hello") == "hello"
    assert "exit code 3" in kubectl.failure("exec deploy/web -- sh -c 'exit 3'")
    kubectl("delete deployment web")
    kubectl("delete pod -l app=web --grace-period=1")


def test_logs_are_followed_to_the_end(kubectl: Kubectl) -> None:
    script = "for i in 1 2 3; do echo $i; done; until [ -e /tmp/go ]; do sleep 0.05; done; echo end"
    kubectl(f"run counter --image=host --restart=Never -- sh -c '{script}'")
    kubectl("wait --for=jsonpath={.status.phase}=Running --timeout=120s pod counter")
    arguments = [kubectl.binary, "--kubeconfig", str(kubectl.kubeconfig), "logs", "-f", "counter"]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as following:
        assert following.stdout is not None
        assert [following.stdout.readline() for _ in range(3)] == ["1\n", "2\n", "3\n"]
        kubectl("exec counter -- touch /tmp/go")
        assert following.stdout.read() == "end\n"
    assert kubectl("logs counter --tail=1") == "end\n"


def test_logs_of_the_previous_container_and_of_a_time(kubectl: Kubectl) -> None:
    kubectl("run again --image=host --restart=OnFailure -- sh -c 'echo attempt; exit 1'")
    kubectl("wait --for=jsonpath={.status.containerStatuses[0].restartCount}=1 --timeout=120s pod again")
    assert kubectl("logs again --previous") == "attempt\n"
    stamp, _, text = kubectl("logs again --timestamps --since=1h --all-containers --previous").partition(" ")
    assert (stamp[-1], text) == ("Z", "attempt\n")
    assert kubectl("logs again --previous --since-time=2999-01-01T00:00:00Z") == ""
    kubectl("delete pod again --grace-period=0 --force")


def test_files_are_copied_and_a_debug_container_sees_the_processes(kubectl: Kubectl, tmp_path: Path) -> None:
    kubectl("run tools --image=host -- sleep 4711")
    kubectl("wait --for=condition=Ready --timeout=120s pod tools")
    (tmp_path / "there").write_text("content")
    kubectl(f"cp --no-preserve {tmp_path / 'there'} tools:/tmp/there")  # The owner has no id in a pod with one id.
    kubectl(f"cp tools:/tmp/there {tmp_path / 'back'}")
    assert (tmp_path / "back").read_text() == "content"
    kubectl("debug tools --image=host --target=tools -c helper -- grep -a 4711 /proc/1/cmdline")
    ended = "{.status.ephemeralContainerStatuses[0].state.terminated.exitCode}=0"
    kubectl(f"wait --for=jsonpath={ended} --timeout=120s pod tools")
    assert "4711" in kubectl("logs tools -c helper")
    kubectl("delete pod tools --grace-period=0 --force")


def test_a_pod_is_run_attached_and_removed(kubectl: Kubectl) -> None:
    output = kubectl(
        "run once --image=host --rm -i --restart=Never -- sh -c 'read line; echo got $line'", stdin="this\n"
    )
    assert "got this" in output
    assert "NotFound" in kubectl.failure("get pod once")


def test_a_port_is_forwarded(kubectl: Kubectl) -> None:
    kubectl("apply -f -", stdin=_WEB_SERVER)
    kubectl("wait --for=condition=Ready --timeout=120s pod served")
    port = free_port()
    arguments = [kubectl.binary, "--kubeconfig", str(kubectl.kubeconfig), "port-forward", "pod/served", f"{port}:8080"]
    forward = subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True)
    try:
        assert forward.stdout is not None
        assert "Forwarding from" in forward.stdout.readline()
        for _ in range(100):
            try:
                answer = urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=60)
            except OSError:
                continue
            assert b"Directory listing" in answer.read()
            return
        raise AssertionError("nothing answers on the forwarded port")
    finally:
        forward.terminate()
        forward.wait(60)


def test_the_node_serves_statistics_of_its_pods(kubectl: Kubectl) -> None:
    kubectl("apply -f -", stdin=_PROBED)
    kubectl("wait --for=condition=Ready --timeout=120s pod measured")
    kubectl("exec measured -- sh -c 'head -c 500000 /dev/zero > /tmp/file'")
    summary = json.loads(kubectl(f"get --raw /api/v1/nodes/{NODE}/proxy/stats/summary"))
    assert summary["node"]["nodeName"] == NODE
    assert summary["node"]["memory"]["workingSetBytes"] > 0
    (pod,) = [measured for measured in summary["pods"] if measured["podRef"]["name"] == "measured"]
    assert [container["name"] for container in pod["containers"]] == ["measured"]
    assert pod["memory"]["workingSetBytes"] > 0
    assert 500_000 <= pod["containers"][0]["rootfs"]["usedBytes"] <= pod["ephemeral-storage"]["usedBytes"] < 1 << 20
    assert pod["containers"][0]["logs"]["usedBytes"] >= 0
    for page, names in _USAGE_PAGES.items():
        text = kubectl(f"get --raw /api/v1/nodes/{NODE}/proxy/metrics/{page}")
        result = {sample.name for family in text_string_to_metric_families(text) for sample in family.samples}
        assert names <= result, page
        assert 'pod="measured"' in text
    page = kubectl(f"get --raw /api/v1/nodes/{NODE}/proxy/metrics")
    samples = {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
    }
    assert samples["kubelet_running_pods",] >= 1
    assert samples["kubelet_running_containers", "running"] >= 1
    assert samples["kubelet_started_pods_total",] >= 1
    assert samples["kubelet_started_containers_total", "container"] >= 1
    assert samples["kubelet_runtime_operations_total", "run_podsandbox"] >= 1
    assert samples["kubelet_pod_start_duration_seconds_count",] >= 1
    assert samples["kubelet_pod_start_sli_duration_seconds_count",] >= 1
    assert samples["kubelet_node_name", NODE] == 1
    assert any(name == "workqueue_adds_total" for name, *_ in samples)
    assert kubectl(f"get --raw /api/v1/nodes/{NODE}/proxy/healthz") == "ok"
    slis = kubectl(f"get --raw /api/v1/nodes/{NODE}/proxy/metrics/slis")
    assert 'kubernetes_healthcheck{name="ping",type="healthz"} 1' in slis


def test_kubectl_top_shows_the_node_its_pods_and_their_containers(kubectl: Kubectl) -> None:
    kubectl("apply -f -", stdin=_TWO_CONTAINERS)
    kubectl("wait --for=condition=Ready --timeout=120s pod busy")
    assert kubectl("exec busy -c idle -- sh -c 'echo ready'") == "ready\n"
    rows = {row.split()[1]: row.split()[2:] for row in kubectl("top pod busy --containers --no-headers").splitlines()}
    assert set(rows) == {"busy", "idle"}
    assert int(rows["busy"][0].removesuffix("m")) > int(rows["idle"][0].removesuffix("m"))
    assert all(memory.endswith("Mi") for _, memory in rows.values())
    name, cpu, memory = kubectl("top pod busy --no-headers").split()
    assert (name, cpu[-1], memory[-2:]) == ("busy", "m", "Mi")
    name, cores, _, used, _ = kubectl(f"top node {NODE} --no-headers").split()
    assert (name, cores[-1]) == (NODE, "m")
    assert int(used.removesuffix("Mi")) > int(memory.removesuffix("Mi"))
    kubectl("delete pod busy --grace-period=0 --force")


def test_pods_outlive_a_killed_agent(kubectl: Kubectl, server: ServerProcess) -> None:
    kubectl("run lasting --image=host -- sleep 1000")
    kubectl("wait --for=condition=Ready --timeout=120s pod lasting")
    before = kubectl("get pod lasting -o jsonpath={.status.containerStatuses[0].containerID}")
    server.kill_agent()
    kubectl("run next --image=host -- sleep 1000")
    kubectl("wait --for=condition=Ready --timeout=120s pod next")
    assert kubectl("get pod lasting -o jsonpath={.status.containerStatuses[0].containerID}") == before
    assert kubectl("exec lasting -- echo fine") == "fine\n"
    kubectl("delete pod lasting next --grace-period=1")


@pytest.mark.soak
def test_an_agent_that_is_killed_at_any_moment_starts_each_pod_once(kubectl: Kubectl, server: ServerProcess) -> None:
    """Kill it as soon as a sandbox, a container or a running process of new pods is there."""
    directory = server.kubeconfig.parent / "data" / "node" / "runtime" / "pods"
    for number, pattern in enumerate(("*/supervisor.json", "*/containers/*", "*/containers/*/status.json")):
        known = set(directory.glob(pattern))
        names = [f"born-{number}-{index}" for index in range(3)]
        manifests = {"apiVersion": "v1", "kind": "List", "items": [_sleeper(name) for name in names]}
        create = [kubectl.binary, "--kubeconfig", str(kubectl.kubeconfig), "create", "-f", "-"]
        with subprocess.Popen(create, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as creating:
            assert creating.stdin is not None
            creating.stdin.write(json.dumps(manifests))
            creating.stdin.close()
            deadline = time.monotonic() + 60
            while not set(directory.glob(pattern)) - known:
                assert time.monotonic() < deadline
            server.kill_agent()
        kubectl(f"wait --for=condition=Ready --timeout=120s {' '.join(f'pod/{name}' for name in names)}")
        restarts = "jsonpath={.status.containerStatuses[0].restartCount}"
        assert [kubectl(f"get pod {name} -o {restarts}") for name in names] == ["0", "0", "0"]
    kubectl("delete pods --all --grace-period=0 --force")
    until(lambda: not list(directory.iterdir()))


def _sleeper(name: str) -> Object:
    container = {"name": "main", "image": "host", "command": ["sleep", "1000"]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": [container]}}


def test_the_node_has_an_identity_of_its_own(kubectl: Kubectl, server: ServerProcess, tmp_path: Path) -> None:
    node = server.kubeconfig.parent / "data" / "node"
    assert "client-key-data" not in (node / "kubeconfig").read_text()
    pair = node / "pki" / "kubelet-client-current.pem"
    own = Kubectl(kubectl.binary, node / "kubeconfig", tmp_path / "own", "default")
    message = own(
        f"auth whoami --client-certificate={pair} --client-key={pair} -o jsonpath={{.status.userInfo.username}}"
    )
    assert message == f"system:node:{NODE}"


@pytest.mark.parametrize("flags", [["--no-node"], ["--nodes", "1"], ["--no-controllers"]], ids=lambda flags: flags[0])
def test_a_cluster_without_a_node_of_its_own(tmp_path: Path, flags: list[str]) -> None:
    with pytest.MonkeyPatch.context() as environment:
        environment.delenv("PINNACE_NO_NODE", raising=False)
        started = ServerProcess.start(tmp_path, "--data-dir", str(tmp_path / "data"), *flags)
    try:
        started.await_kubeconfig()
    finally:
        assert started.stop() == 0
    assert not (tmp_path / "data" / "node").exists()


_SCRAPER = """
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: scraper}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: "system:kubelet-api-admin"}
subjects: [{kind: ServiceAccount, name: default, namespace: default}]
---
apiVersion: v1
kind: Pod
metadata: {name: scraper}
spec:
  restartPolicy: Never
  containers:
  - name: scraper
    image: host
    env: [{name: NODE, valueFrom: {fieldRef: {fieldPath: status.hostIP}}}]
    command:
    - /usr/bin/python3
    - -c
    - |
      import json, os, ssl, urllib.error, urllib.request
      token = open("/var/run/secrets/kubernetes.io/serviceaccount/token").read()
      def read(page, **headers):
          request = urllib.request.Request(f"https://{os.environ['NODE']}:10250/{page}", headers=headers)
          return urllib.request.urlopen(request, context=ssl._create_unverified_context()).read()
      try:
          read("pods")
      except urllib.error.HTTPError as error:
          print(error.code)
      for page in ("pods", "runningpods/"):
          items = json.loads(read(page, Authorization=f"Bearer {token}"))["items"]
          print("scraper" in [item["metadata"]["name"] for item in items])
"""


def test_pods_reach_kubelets_port_of_their_node(kubectl: Kubectl) -> None:
    ports = kubectl("get nodes -o jsonpath={.items[*].status.daemonEndpoints.kubeletEndpoint.Port}")
    assert ports == "10250"
    kubectl("apply -f -", stdin=_SCRAPER)
    kubectl("wait --for=jsonpath={.status.phase}=Succeeded --timeout=120s pod scraper")
    assert kubectl("logs scraper").split() == ["401", "True", "True"]
    kubectl("delete pod scraper --grace-period=0 --force")
