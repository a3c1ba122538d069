"""kubectl with workloads, on a server with simulated nodes."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.clients.kubectl_command import Kubectl, kubectl_binary
from tests.clients.manifests import as_yaml, deployment
from tests.clients.server_process import ServerProcess


@pytest.fixture(scope="module")
def cluster_with_nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    kubectl_binary()
    server = ServerProcess.start(tmp_path_factory.mktemp("server"), "--ephemeral", "--nodes", "2")
    try:
        yield server.await_kubeconfig()
    finally:
        server.stop()


@pytest.fixture
def kubectl(cluster_with_nodes: Path, kubectl_cache: Path) -> Kubectl:
    """kubectl in a namespace of the test's own."""
    name = f"workloads-{secrets.token_hex(4)}"
    Kubectl(kubectl_binary(), cluster_with_nodes, kubectl_cache, "default")(f"create namespace {name}")
    return Kubectl(kubectl_binary(), cluster_with_nodes, kubectl_cache, name)


def image(kubectl: Kubectl, kind: str) -> str:
    return kubectl(f"get {kind} web -o jsonpath={{.spec.template.spec.containers[0].image}}")


def rolled_out(kubectl: Kubectl, kind: str = "deployment") -> str:
    return kubectl(f"rollout status {kind} web --timeout=120s").splitlines()[-1]


def test_create_deployment_makes_pods_that_run(kubectl: Kubectl) -> None:
    assert kubectl("create deployment web --image=example.com/web:1 --replicas=3") == "deployment.apps/web created\n"
    assert rolled_out(kubectl) == 'deployment "web" successfully rolled out'
    assert kubectl("get deployment web --no-headers").split()[:4] == ["web", "3/3", "3", "3"]
    assert kubectl("wait deployment web --for=condition=Available --timeout=120s").endswith("condition met\n")
    described = kubectl("describe deployment web")
    assert "3 desired | 3 updated | 3 total | 3 available | 0 unavailable" in described
    assert "Scaled up replica set web-" in described
    kubectl("delete deployment web --timeout=120s")
    kubectl("wait pods --all --for=delete --timeout=120s")


def test_a_deployment_is_scaled(kubectl: Kubectl) -> None:
    kubectl("create deployment web --image=example.com/web:1")
    for replicas in (4, 1):
        kubectl(f"scale deployment web --replicas={replicas}")
        kubectl(f"wait deployment web --for=jsonpath={{.status.readyReplicas}}={replicas} --timeout=120s")
        kubectl(f"wait deployment web --for=jsonpath={{.status.replicas}}={replicas} --timeout=120s")


def test_a_rollout_has_a_history_and_is_undone(kubectl: Kubectl) -> None:
    kubectl("create deployment web --image=example.com/web:1")
    kubectl("annotate deployment web kubernetes.io/change-cause=first")
    rolled_out(kubectl)
    kubectl("set image deployment/web web=example.com/web:2")
    kubectl("annotate deployment web kubernetes.io/change-cause=second --overwrite")
    rolled_out(kubectl)
    rows = kubectl("rollout history deployment web").split("\n")
    assert [row.split() for row in rows[1:4]] == [["REVISION", "CHANGE-CAUSE"], ["1", "first"], ["2", "second"]]
    assert "example.com/web:1" in kubectl("rollout history deployment web --revision=1")
    assert kubectl("rollout undo deployment web") == "deployment.apps/web rolled back\n"
    rolled_out(kubectl)
    assert image(kubectl, "deployment") == "example.com/web:1"
    numbers = [row.split()[0] for row in kubectl("rollout history deployment web").splitlines()[2:] if row]
    assert numbers == ["2", "3"]
    kubectl("rollout undo deployment web --to-revision=2")
    rolled_out(kubectl)
    assert image(kubectl, "deployment") == "example.com/web:2"
    assert "unable to find specified revision 9" in kubectl.failure("rollout undo deployment web --to-revision=9")


def test_a_rollout_is_paused_resumed_and_restarted(kubectl: Kubectl) -> None:
    kubectl("create deployment web --image=example.com/web:1 --replicas=2")
    rolled_out(kubectl)
    kubectl("rollout pause deployment web")
    kubectl("wait deployment web --for=condition=Progressing=Unknown --timeout=120s")
    kubectl("set image deployment/web web=example.com/web:2")
    assert "can't restart paused deployment" in kubectl.failure("rollout restart deployment web")
    assert len(kubectl("get replicasets --no-headers").splitlines()) == 1
    kubectl("rollout resume deployment web")
    assert rolled_out(kubectl) == 'deployment "web" successfully rolled out'
    before = set(kubectl("get pods -o name").split())
    kubectl("rollout restart deployment web")
    rolled_out(kubectl)
    kubectl("wait deployment web --for=jsonpath={.status.replicas}=2 --timeout=120s")
    for name in before:
        kubectl(f"wait {name} --for=delete --timeout=120s")


def test_a_pod_that_is_deleted_is_replaced(kubectl: Kubectl) -> None:
    kubectl("create -f -", stdin=as_yaml(deployment("web", replicas=2)))
    rolled_out(kubectl)
    name = kubectl("get pods -o name").split()[0]
    kubectl(f"delete {name} --timeout=120s")
    kubectl("wait deployment web --for=jsonpath={.status.readyReplicas}=2 --timeout=120s")


@pytest.mark.parametrize("kind", ["StatefulSet", "DaemonSet"])
def test_sets_with_revisions_are_rolled_out_and_undone(kubectl: Kubectl, kind: str) -> None:
    manifest = deployment("web", replicas=2)
    manifest["kind"] = kind
    if kind == "DaemonSet":
        del manifest["spec"]["replicas"]
    else:
        manifest["spec"]["serviceName"] = "web"
    kubectl("create -f -", stdin=json.dumps(manifest))
    resource = kind.lower()
    rolled_out(kubectl, resource)
    kubectl(f"set image {resource}/web web=example.com/web:2")
    rolled_out(kubectl, resource)
    assert [row.split()[0] for row in kubectl(f"rollout history {resource} web").splitlines()[2:] if row] == ["1", "2"]
    kubectl(f"rollout undo {resource} web")
    rolled_out(kubectl, resource)
    assert image(kubectl, resource) == "nginx:1.27"
    kubectl(f"rollout restart {resource} web")
    rolled_out(kubectl, resource)
