"""kubectl with the controllers of nodes, services and budgets at work: cordon, taint, drain, endpoints, volumes."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator

import pytest
from tests.clients.kubectl_command import Kubectl
from tests.clients.manifests import as_yaml

from pinnace.model.objects import Object

READY = {"type": "Ready", "status": "True", "reason": "KubeletReady", "lastTransitionTime": "2026-01-01T00:00:00Z"}


@pytest.fixture
def node(kubectl: Kubectl) -> Iterator[str]:
    """A node that says that it is ready. Nothing runs on it."""
    name = f"node-of-{kubectl.namespace}"
    made = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}
    kubectl("create -f -", stdin=as_yaml(made))
    tell(kubectl, f"node {name}", {"conditions": [READY]})
    yield name
    kubectl(f"delete node {name}")


def tell(kubectl: Kubectl, what: str, status: Object) -> None:
    patch = shlex.quote(json.dumps({"status": status}))
    kubectl(f"patch {what} --subresource=status --type=merge -p {patch}")


def run(kubectl: Kubectl, name: str, node: str, ip: str) -> None:
    """A pod that runs on a node, as its kubelet would say."""
    spec = {"nodeName": node, "containers": [{"name": "main", "image": "example.com/web:1"}]}
    metadata = {"name": name, "labels": {"app": "web"}}
    kubectl("create -f -", stdin=as_yaml({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}))
    status = {"phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}], "conditions": [READY]}
    tell(kubectl, f"pod {name}", status)


def test_a_node_is_cordoned_and_tainted(kubectl: Kubectl, node: str) -> None:
    assert kubectl(f"cordon {node}") == f"node/{node} cordoned\n"
    unschedulable = "node.kubernetes.io/unschedulable"
    kubectl(f"wait node {node} --for=jsonpath={{.spec.taints[0].key}}={unschedulable} --timeout=120s")
    assert "Ready,SchedulingDisabled" in kubectl(f"get node {node}")
    assert kubectl(f"uncordon {node}") == f"node/{node} uncordoned\n"
    run(kubectl, "web", node, "10.244.9.1")
    assert kubectl(f"taint node {node} example.com/repair=yes:NoExecute") == f"node/{node} tainted\n"
    # Nothing runs there: the pod is marked and waits for a kubelet to end it.
    mark = "jsonpath={.status.conditions[?(@.type=='DisruptionTarget')].reason}=DeletionByTaintManager"
    kubectl(f'wait pod web --for="{mark}" --timeout=120s')
    kubectl("delete pod web --grace-period=0 --force")


def test_a_drain_keeps_to_the_budget(kubectl: Kubectl, node: str) -> None:
    budget = "create poddisruptionbudget web --selector=app=web --min-available=2"
    kubectl(budget)
    for name, ip in (("a", "10.244.9.1"), ("b", "10.244.9.2")):
        run(kubectl, name, node, ip)
    kubectl("wait pdb web --for=jsonpath={.status.currentHealthy}=2 --timeout=120s")
    drain = f"drain {node} --force --grace-period=0 --timeout=4s --pod-selector=app=web"
    refused = kubectl.failure(drain)
    assert "Cannot evict pod as it would violate the pod's disruption budget." in refused
    assert len(kubectl("get pods -o name").split()) == 2
    kubectl("""patch pdb web --type=merge -p '{"spec":{"minAvailable":0}}'""")
    kubectl("wait pdb web --for=jsonpath={.status.disruptionsAllowed}=2 --timeout=120s")
    kubectl(drain.replace("4s", "120s"))
    assert kubectl("get pods -o name") == ""


def test_services_show_their_endpoints(kubectl: Kubectl, node: str) -> None:
    kubectl("create service clusterip web --tcp=80:8080")
    run(kubectl, "a", node, "10.244.9.1")
    condition = "jsonpath={.endpoints[0].addresses[0]}=10.244.9.1"
    kubectl(f"wait endpointslices -l kubernetes.io/service-name=web --for={condition} --timeout=120s")
    listed = kubectl("get endpointslices -l kubernetes.io/service-name=web").splitlines()[1].split()
    assert listed[1:4] == ["IPv4", "8080", "10.244.9.1"]
    assert "10.244.9.1:8080" in kubectl("describe service web")
    kubectl("delete pod a --grace-period=0 --force")


def test_a_claim_is_bound_by_the_default_class(kubectl: Kubectl) -> None:
    assert "standard (default)" in kubectl("get storageclass")
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data"}, "spec": spec}
    kubectl("create -f -", stdin=as_yaml(claim))
    kubectl("wait pvc data --for=jsonpath={.status.phase}=Bound --timeout=120s")
    volume = kubectl("get pvc data -o jsonpath={.spec.volumeName}")
    assert kubectl(f"get pv {volume} -o jsonpath={{.status.phase}}") == "Bound"
    kubectl("delete pvc data")
    kubectl(f"wait pv {volume} --for=delete --timeout=120s")
