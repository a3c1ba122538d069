"""Simulated nodes register, stay ready, keep their leases and take their pods through life."""

from __future__ import annotations

import random
from ipaddress import ip_address, ip_network

import pytest
from tests.node.simulated.pods import create_job, pod

from pinnace.model.objects import Object
from pinnace.model.typed_objects import NodeAddress
from pinnace.node.simulated.fast import FAILS, FastLife, Pace
from pinnace.node.simulated.machines import AddressPool, NoAddressLeft, NodeShape, host_ips
from pinnace.testing.cluster import Cluster

LEASE = "coordination.k8s.io/v1/Lease"
LEASES = "kube-node-lease"


def condition(obj: Object, type: str) -> Object:
    current: Object = next((condition for condition in obj["status"]["conditions"] if condition["type"] == type), {})
    return current


async def test_nodes_are_ready_with_labels_addresses_and_capacity(cluster: Cluster) -> None:
    await cluster.add_nodes(3)
    nodes = await cluster.client.list("v1/Node")
    assert [node["metadata"]["name"] for node in nodes] == ["node-0", "node-1", "node-2"]
    assert len({node["status"]["addresses"][0]["address"] for node in nodes}) == 3
    node = nodes[1]
    assert condition(node, "Ready")["status"] == "True"
    assert node["metadata"]["labels"]["kubernetes.io/hostname"] == "node-1"
    assert "taints" not in node["spec"]
    expected = {"cpu": "32", "memory": "256Gi", "pods": "110", "ephemeral-storage": "1Ti"}
    assert node["status"]["allocatable"] == node["status"]["capacity"] == expected


async def test_more_nodes_and_other_shapes_can_be_added_later(cluster: Cluster) -> None:
    await cluster.add_nodes(1)
    await cluster.add_nodes(1, shape=NodeShape(cpu="2", labels={"zone": "b"}, extended={"example.com/gpu": "4"}))
    node = await cluster.client.get("v1/Node", "node-1")
    assert node["status"]["capacity"]["cpu"] == "2"
    assert node["status"]["capacity"]["example.com/gpu"] == "4"
    assert node["metadata"]["labels"]["zone"] == "b"


async def test_a_node_that_a_user_marks_is_simulated_too(cluster: Cluster) -> None:
    await cluster.add_nodes(1)
    metadata = {"name": "mine", "annotations": {"kwok.x-k8s.io/node": "fake"}}
    status = {"capacity": {"cpu": "1", "pods": "5"}}
    await cluster.client.create({"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": status})
    await cluster.settle()
    node = await cluster.client.get("v1/Node", "mine")
    assert condition(node, "Ready")["status"] == "True"
    assert node["status"]["allocatable"] == {"cpu": "1", "pods": "5"}


async def test_leases_are_renewed_while_a_node_lives(cluster: Cluster) -> None:
    nodes = await cluster.add_nodes(2)
    before = [obj["spec"]["renewTime"] for obj in await cluster.client.list(LEASE, namespace=LEASES)]
    assert len(before) == 2
    nodes.stop("node-1")
    await cluster.advance(60)
    first, second = await cluster.client.list(LEASE, namespace=LEASES)
    assert first["spec"]["renewTime"] >= "2026-01-01T00:00:40"
    assert second["spec"]["renewTime"] == before[1]
    assert first["spec"]["holderIdentity"] == "node-0"
    assert first["metadata"]["ownerReferences"][0]["kind"] == "Node"
    nodes.start("node-1")
    await cluster.settle()
    revived = await cluster.client.get(LEASE, "node-1", namespace=LEASES)
    assert revived["spec"]["renewTime"] >= "2026-01-01T00:01:00"


async def test_a_node_that_became_unready_becomes_ready_again(cluster: Cluster) -> None:
    await cluster.add_nodes(1)
    lost = [{"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown", "message": ""}]
    await cluster.client.patch("v1/Node", "node-0", {"status": {"conditions": lost}}, subresource="status")
    await cluster.settle()
    assert condition(await cluster.client.get("v1/Node", "node-0"), "Ready")["reason"] == "KubeletReady"


async def test_a_pod_runs_and_becomes_ready_as_a_kubelet_says_it(cluster: Cluster) -> None:
    await cluster.add_nodes(1)
    sidecar = {"name": "log", "image": "log", "restartPolicy": "Always"}
    init = [{"name": "setup", "image": "setup"}, sidecar]
    await cluster.client.create(pod("web", initContainers=init, readinessGates=[{"conditionType": "example.com/up"}]))
    await cluster.settle()
    status = (await cluster.client.get("v1/Pod", "web"))["status"]
    assert status["phase"] == "Running"
    assert status["hostIP"] == "198.18.0.1"
    assert status["podIPs"] == [{"ip": status["podIP"]}]
    types = {condition["type"]: condition["status"] for condition in status["conditions"]}
    ready = ("PodScheduled", "PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "example.com/up")
    assert types == dict.fromkeys(ready, "True")
    assert status["containerStatuses"][0]["state"]["running"]["startedAt"]
    setup, log = status["initContainerStatuses"]
    assert setup["state"]["terminated"]["exitCode"] == 0
    assert log["state"]["running"]


async def test_a_pod_on_the_host_network_has_its_nodes_address(cluster: Cluster) -> None:
    await cluster.add_nodes(1)
    await cluster.client.create(pod("web", hostNetwork=True))
    await cluster.settle()
    status = (await cluster.client.get("v1/Pod", "web"))["status"]
    assert status["podIP"] == status["hostIP"]


async def test_pods_have_addresses_of_their_own_from_their_nodes_network(cluster: Cluster) -> None:
    await cluster.add_nodes(1)
    for number in range(3):
        await cluster.client.create(pod(f"web-{number}"))
    await cluster.settle()
    network = ip_network((await cluster.client.get("v1/Node", "node-0"))["spec"]["podCIDR"])
    addresses = {obj["status"]["podIP"] for obj in await cluster.client.list("v1/Pod", namespace="default")}
    assert len(addresses) == 3
    assert all(ip_address(address) in network for address in addresses)


def test_an_address_is_given_again_only_after_its_release() -> None:
    pool = AddressPool("192.0.2.0/30")
    pool.take("192.0.2.1")
    assert pool.allocate() == "192.0.2.2"
    with pytest.raises(NoAddressLeft, match="all 2 addresses"):
        pool.allocate()
    pool.release("192.0.2.1")
    pool.release("10.0.0.1")
    assert pool.allocate() == "192.0.2.1"


async def test_a_deleted_pod_goes_and_frees_its_address(cluster: Cluster) -> None:
    await cluster.add_nodes(1)
    await cluster.client.create(pod("web"))
    await cluster.settle()
    await cluster.client.delete("v1/Pod", "web")
    await cluster.settle()
    assert await cluster.client.get_or_none("v1/Pod", "web") is None


async def test_a_deleted_pod_with_a_finalizer_says_how_it_ended(cluster: Cluster) -> None:
    await cluster.add_nodes(1)
    await cluster.client.create(pod("web", finalizers=["example.com/hold"]))
    await cluster.settle()
    await cluster.client.delete("v1/Pod", "web")
    await cluster.settle()
    held = await cluster.client.get("v1/Pod", "web")
    assert held["status"]["phase"] == "Failed"
    assert held["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 137


async def test_pods_of_a_dead_node_stay_as_they_are(cluster: Cluster) -> None:
    nodes = await cluster.add_nodes(1)
    await cluster.client.create(pod("web"))
    await cluster.settle()
    nodes.stop("node-0")
    await cluster.client.delete("v1/Pod", "web")
    await cluster.settle()
    assert await cluster.client.get("v1/Pod", "web")
    nodes.start("node-0")
    await cluster.settle()
    assert await cluster.client.get_or_none("v1/Pod", "web") is None


async def test_delays_and_jitter_pass_before_a_stage(cluster: Cluster) -> None:
    life = FastLife(Pace(ready=10, jitter=5, random=random.Random(1)))
    await cluster.add_nodes(1, life=life)
    await cluster.client.create(pod("web"))
    await cluster.settle()
    await cluster.advance(9)
    assert (await cluster.client.get("v1/Pod", "web"))["status"]["phase"] == "Pending"
    await cluster.client.patch("v1/Pod", "web", {"metadata": {"labels": {"touched": "yes"}}})
    await cluster.advance(6)  # A change meanwhile does not begin the delay anew.
    assert (await cluster.client.get("v1/Pod", "web"))["status"]["phase"] == "Running"


@pytest.mark.parametrize(
    ("rate", "phase"), [pytest.param(0.0, "Succeeded", id="none fail"), pytest.param(1.0, "Failed", id="all fail")]
)
async def test_pods_of_jobs_end_by_the_failure_rate(cluster: Cluster, rate: float, phase: str) -> None:
    await cluster.add_nodes(1, life=FastLife(Pace(failure_rate=rate)))
    await cluster.client.create(pod("work", owner=await create_job(cluster.client), restartPolicy="Never"))
    await cluster.settle()
    status = (await cluster.client.get("v1/Pod", "work"))["status"]
    assert status["phase"] == phase
    assert status["containerStatuses"][0]["state"]["terminated"]["exitCode"] == rate
    assert status["podIP"]


async def test_a_label_makes_a_pod_fail_with_a_chosen_exit_code(cluster: Cluster) -> None:
    await cluster.add_nodes(1)
    made = pod("work", restartPolicy="Never")
    made["metadata"] |= {"labels": {FAILS: "true"}, "annotations": {f"{FAILS}/exit-code": "42"}}
    await cluster.client.create(made)
    await cluster.settle()
    status = (await cluster.client.get("v1/Pod", "work"))["status"]
    assert status["phase"] == "Failed"
    assert status["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 42


async def test_an_annotation_delays_the_completion_of_one_pod(cluster: Cluster) -> None:
    await cluster.add_nodes(1)
    made = pod("work", owner=await create_job(cluster.client), restartPolicy="Never")
    made["metadata"]["annotations"] = {"pod-complete.stage.kwok.x-k8s.io/delay": "1m30s"}
    await cluster.client.create(made)
    await cluster.settle()
    await cluster.advance(80)
    assert (await cluster.client.get("v1/Pod", "work"))["status"]["phase"] == "Running"
    await cluster.advance(11)
    assert (await cluster.client.get("v1/Pod", "work"))["status"]["phase"] == "Succeeded"


@pytest.mark.parametrize(
    ("command", "seconds", "phase", "code"),
    [
        pytest.param(["sleep", "90"], 90, "Succeeded", 0, id="sleep"),
        pytest.param(["/bin/sh", "-c", "sleep 1m; exit 3"], 60, "Failed", 3, id="sleep and exit"),
        pytest.param(["false"], 0, "Failed", 1, id="false"),
        pytest.param(["sh", "-c", "echo hello && exit 0"], 0, "Succeeded", 0, id="exit 0"),
        pytest.param(["agnhost", "version"], 0, "Succeeded", 0, id="another command"),
    ],
)
async def test_the_pod_of_a_job_ends_as_its_command_says(
    cluster: Cluster, command: list[str], seconds: int, phase: str, code: int
) -> None:
    await cluster.add_nodes(1)
    made = pod("work", owner=await create_job(cluster.client), restartPolicy="Never")
    made["spec"]["containers"][0]["command"] = command
    await cluster.client.create(made)
    await cluster.settle()
    if seconds:
        await cluster.advance(seconds - 1)
        assert (await cluster.client.get("v1/Pod", "work"))["status"]["phase"] == "Running"
        await cluster.advance(1)
    status = (await cluster.client.get("v1/Pod", "work"))["status"]
    assert status["phase"] == phase
    assert status["containerStatuses"][0]["state"]["terminated"]["exitCode"] == code


@pytest.mark.parametrize(
    "container",
    [
        pytest.param({"image": "registry.k8s.io/pause:3.10"}, id="pause"),
        pytest.param({"image": "busybox", "command": ["sleep", "infinity"]}, id="sleep infinity"),
        pytest.param({"image": "busybox", "command": ["sh", "-c", "tail -f /dev/null"]}, id="tail"),
    ],
)
async def test_a_command_that_never_ends_keeps_the_pod_of_a_job_running(cluster: Cluster, container: Object) -> None:
    await cluster.add_nodes(1)
    made = pod("work", owner=await create_job(cluster.client), restartPolicy="Never")
    made["spec"]["containers"][0] |= container
    await cluster.client.create(made)
    await cluster.settle()
    await cluster.advance(100)
    assert (await cluster.client.get("v1/Pod", "work"))["status"]["phase"] == "Running"


async def test_a_container_that_fails_is_restarted_where_the_policy_says_so(cluster: Cluster) -> None:
    await cluster.add_nodes(1)
    made = pod("work", owner=await create_job(cluster.client), restartPolicy="OnFailure")
    made["spec"]["containers"][0]["command"] = ["false"]
    await cluster.client.create(made)
    await cluster.settle()
    for pause, restarts in ((9, 1), (1, 2), (20, 3)):
        await cluster.advance(pause)
        status = (await cluster.client.get("v1/Pod", "work"))["status"]
        assert status["phase"] == "Running"
        assert status["containerStatuses"][0]["restartCount"] == restarts
    assert status["containerStatuses"][0]["lastState"]["terminated"]["exitCode"] == 1


async def test_idle_nodes_write_nothing_but_their_leases(cluster: Cluster) -> None:
    await cluster.add_nodes(5)
    for number in range(20):
        await cluster.client.create(pod(f"web-{number}"))
    await cluster.settle()
    _, before = await versions(cluster)
    await cluster.advance(40)
    changed, _ = await versions(cluster, since=before)
    assert changed == {"leases"}


async def versions(cluster: Cluster, since: int = 0) -> tuple[set[str], int]:
    """The resources that have an object newer than a version, and the newest version."""
    records = (await cluster.plane.store.list("")).records
    changed = {record.key.split("/")[3] for record in records if record.revision > since}
    return changed, max(record.revision for record in records)


async def test_each_node_writes_as_itself_with_the_rights_of_a_node(cluster: Cluster) -> None:
    await cluster.add_nodes(2)
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["pods/status"]}
    refuses = {"expression": "request.userInfo.username != 'system:node:node-0'", "message": "not from this node"}
    expects = {"expression": "'system:nodes' in request.userInfo.groups"}
    policy = {"matchConstraints": {"resourceRules": [rule]}, "validations": [refuses, expects]}
    binding = {"policyName": "statuses", "validationActions": ["Deny"]}
    group = "admissionregistration.k8s.io/v1"
    for kind, spec in (("ValidatingAdmissionPolicy", policy), ("ValidatingAdmissionPolicyBinding", binding)):
        await cluster.client.create({"apiVersion": group, "kind": kind, "metadata": {"name": "statuses"}, "spec": spec})
    for number in range(2):
        await cluster.client.create(pod(f"on-{number}", nodeName=f"node-{number}"))
    await cluster.settle()
    phases = [(await cluster.client.get("v1/Pod", f"on-{number}"))["status"]["phase"] for number in range(2)]
    assert phases == ["Pending", "Running"]


ADDRESSES: dict[str, tuple[list[tuple[str, str]], tuple[str, ...]]] = {
    "none": ([], ()),
    "names only": ([("Hostname", "n"), ("InternalDNS", "n.local")], ()),
    "many of one family": ([("InternalIP", f"192.0.2.{number}") for number in range(1, 100)], ("192.0.2.1",)),
    "both families": (
        [("InternalIP", "2001:db8::1"), ("InternalIP", "192.0.2.1"), ("InternalIP", "192.0.2.2")],
        ("2001:db8::1", "192.0.2.1"),
    ),
    "an external one": ([("ExternalIP", "192.0.2.9"), ("InternalIP", "2001:db8::1")], ("2001:db8::1", "192.0.2.9")),
    "no address": ([("InternalIP", "10.0.0.0.1"), ("InternalIP", "192.0.2.1")], ("192.0.2.1",)),
}


@pytest.mark.parametrize(("listed", "chosen"), ADDRESSES.values(), ids=ADDRESSES)
def test_pods_on_the_network_of_a_node_have_one_address_of_each_family(
    listed: list[tuple[str, str]], chosen: tuple[str, ...]
) -> None:
    addresses: list[NodeAddress] = [{"type": kind, "address": address} for kind, address in listed]
    assert host_ips({"metadata": {"name": "n"}, "status": {"addresses": addresses}}) == chosen
