"""Decisions of the node about its pods: admission, deadlines, restart rules, resize, and termination messages."""

from __future__ import annotations

import json
import os
import shutil
from typing import Any

import pytest
from tests.node.agent.conftest import NODE, RealNode

from pinnace.model.objects import Object


def _first(pod: Object) -> Object:
    statuses = (pod.get("status") or {}).get("containerStatuses") or [{}]
    first: Object = statuses[0]
    return first


@pytest.mark.parametrize(
    ("spec", "reason", "message"),
    [
        pytest.param(
            {"container": {"resources": {"requests": {"cpu": "10k"}}}},
            "OutOfcpu",
            "Pod was rejected: Node didn't have enough resource: cpu, requested: 10000000, used: 0, capacity: ",
            id="cpu",
        ),
        pytest.param(
            {"nodeSelector": {"disk": "fast"}},
            "NodeAffinity",
            "Pod was rejected: Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector",
            id="labels",
        ),
        pytest.param(
            {"nodeSelector": {"kubernetes.io/os": "windows"}},
            "PodOSSelectorNodeLabelDoesNotMatch",
            "Pod was rejected: Failed to admit pod as the `kubernetes.io/os` label doesn't match node label",
            id="operating system",
        ),
        pytest.param(
            {"securityContext": {"sysctls": [{"name": "kernel.msgmax", "value": "65536"}]}},
            "SysctlForbidden",
            'Pod was rejected: forbidden sysctl: "kernel.msgmax" not allowlisted',
            id="unsafe sysctl",
        ),
    ],
)
async def test_a_pod_that_does_not_fit_is_rejected(
    node: RealNode, spec: dict[str, Any], reason: str, message: str
) -> None:
    await node.create("large", "sleep 1000", **spec)
    pod = await node.until_phase("large", "Failed")
    assert pod["status"]["reason"] == reason
    assert pod["status"]["message"].startswith(message)
    assert await node.runtime.sandboxes() == []


async def test_a_pod_whose_resources_cannot_be_set_aside_is_rejected(node: RealNode) -> None:
    pods = node.directory / "agent" / "pods"
    shutil.rmtree(pods, ignore_errors=True)
    pods.parent.mkdir(exist_ok=True)
    pods.write_text("not a directory")
    try:
        await node.create("unlucky", "sleep 1000")
        pod = await node.until_phase("unlucky", "Failed")
    finally:
        pods.unlink()
    assert pod["status"]["reason"] == "UnexpectedAdmissionError"
    assert "Pod was rejected: Allocate failed due to" in pod["status"]["message"]
    await node.create("lucky", "sleep 1000")
    await node.until_ready("lucky")


async def test_a_pod_that_never_started_gives_its_resources_back(node: RealNode) -> None:
    capacity = await node.client.get("v1/Node", NODE)
    all_of_it = {"resources": {"requests": {"cpu": capacity["status"]["capacity"]["cpu"]}}}
    missing = [{"name": "none", "hostPath": {"path": "/nonexistent", "type": "Directory"}}]
    await node.create("first", "sleep 1000", container=dict(all_of_it), volumes=missing)
    await node.until_pod("first", lambda pod: (pod.get("status") or {}).get("startTime"))
    await node.create("second", "sleep 1000", container=dict(all_of_it))
    await node.until_phase("second", "Failed")
    await node.client.delete("v1/Pod", "first", namespace="default", grace_seconds=0)

    async def is_forgotten() -> bool:
        return not list((node.directory / "agent" / "pods").glob("*/allocated.json"))

    await node.until(is_forgotten)
    await node.create("third", "sleep 1000", container=dict(all_of_it))
    await node.until_ready("third")


async def test_a_host_port_is_given_once(node: RealNode) -> None:
    ports = {"container": {"ports": [{"containerPort": 80, "hostPort": 47163, "hostIP": "127.0.0.1"}]}}
    await node.create("first", "sleep 1000", **json.loads(json.dumps(ports)))
    await node.until_ready("first")
    await node.create("second", "sleep 1000", **ports)
    pod = await node.until_phase("second", "Failed")
    assert pod["status"]["reason"] == "NodePorts"


async def test_a_pod_ends_at_its_deadline(node: RealNode) -> None:
    await node.create("late", "sleep 1000", activeDeadlineSeconds=1, terminationGracePeriodSeconds=1)
    pod = await node.until_phase("late", "Failed")
    assert pod["status"]["reason"] == "DeadlineExceeded"
    assert pod["status"]["message"] == "Pod was active on the node longer than the specified deadline"
    assert _first(pod)["state"]["terminated"]["exitCode"] != 0


@pytest.mark.parametrize(
    ("command", "container", "message"),
    [
        pytest.param("printf done > /dev/termination-log", {}, "done", id="file"),
        pytest.param(
            "printf own > /tmp/message; exit 1", {"terminationMessagePath": "/tmp/message"}, "own", id="own path"
        ),
        pytest.param(
            "echo first; echo last; exit 1",
            {"terminationMessagePolicy": "FallbackToLogsOnError"},
            "first\nlast\n",
            id="log after an error",
        ),
        pytest.param("echo fine", {"terminationMessagePolicy": "FallbackToLogsOnError"}, None, id="no log"),
    ],
)
async def test_a_container_leaves_a_message(
    node: RealNode, command: str, container: dict[str, Any], message: str | None
) -> None:
    await node.create("words", command, restartPolicy="Never", container=container)
    pod = await node.until_pod("words", lambda pod: _first(pod).get("state", {}).get("terminated"))
    assert _first(pod)["state"]["terminated"].get("message") == message


async def test_rules_by_exit_code_restart_a_container_of_a_pod_that_never_restarts(node: RealNode) -> None:
    rules = [{"action": "Restart", "exitCodes": {"operator": "In", "values": [42]}}]
    volumes = {"volumeMounts": [{"name": "state", "mountPath": "/state"}]}
    await node.create(
        "rules",
        "test -e /state/again && exit 7; touch /state/again; exit 42",
        restartPolicy="Never",
        volumes=[{"name": "state", "emptyDir": {}}],
        container={"restartPolicy": "Never", "restartPolicyRules": rules, **volumes},
    )
    pod = await node.until_phase("rules", "Failed")
    status = _first(pod)
    assert status["restartCount"] == 1
    assert status["state"]["terminated"]["exitCode"] == 7
    assert status["lastState"]["terminated"]["exitCode"] == 42


async def test_one_rule_restarts_all_containers(node: RealNode) -> None:
    rules = [{"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [42]}}]
    volumes = {"volumeMounts": [{"name": "state", "mountPath": "/state"}]}
    init = {"name": "first", "image": "host", "command": ["sh", "-c", "echo run >> /state/runs"], **volumes}
    command = "test $(wc -l < /state/runs) -ge 2 && exit 0; exit 42"
    await node.create(
        "rules",
        command,
        restartPolicy="Never",
        initContainers=[init],
        volumes=[{"name": "state", "emptyDir": {}}],
        container={"restartPolicy": "Never", "restartPolicyRules": rules, **volumes},
    )
    await node.until_phase("rules", "Succeeded")


async def test_a_pod_is_resized_in_place(node: RealNode) -> None:
    resources = {"requests": {"cpu": "100m", "memory": "20Mi"}, "limits": {"cpu": "200m", "memory": "40Mi"}}
    await node.create("grows", "sleep 1000", container={"resources": resources})
    before = await node.until_ready("grows")
    assert _first(before)["resources"] == resources
    assert _first(before)["allocatedResources"] == resources["requests"]
    wanted = {"requests": {"cpu": "150m", "memory": "30Mi"}, "limits": {"cpu": "300m", "memory": "60Mi"}}
    await _resize(node, "grows", wanted)
    after = await node.until_pod("grows", lambda pod: _first(pod).get("resources") == wanted)
    assert _first(after)["containerID"] == _first(before)["containerID"]
    assert _first(after)["restartCount"] == 0
    after = await node.until_pod("grows", lambda pod: "PodResizeInProgress" not in _conditions(pod))
    assert after["status"]["observedGeneration"] == after["metadata"]["generation"]
    (container,) = await node.runtime.containers()
    assert container.config.resources.memory_bytes == 60 << 20
    if os.geteuid() == 0:
        result = await node.runtime.exec_sync(container.id, ["sh", "-c", _READ_LIMIT], timeout=60)
        assert result.output.split() == [str(60 << 20).encode()]


_READ_LIMIT = "cat /sys/fs/cgroup/memory.max /sys/fs/cgroup/memory/memory.limit_in_bytes 2>/dev/null || true"


async def test_a_resize_policy_asks_for_a_restart(node: RealNode) -> None:
    resources = {"requests": {"memory": "20Mi"}}
    policy = [{"resourceName": "memory", "restartPolicy": "RestartContainer"}]
    container = {"resources": resources, "resizePolicy": policy}
    await node.create("restarts", "sleep 1000", container=container, terminationGracePeriodSeconds=1)
    await node.until_ready("restarts")
    await _resize(node, "restarts", {"requests": {"memory": "30Mi"}})
    pod = await node.until_pod("restarts", lambda pod: _first(pod).get("restartCount") == 1)
    assert pod["metadata"]["generation"] == 2


async def test_a_resize_beyond_the_node_is_infeasible(node: RealNode) -> None:
    await node.create("greedy", "sleep 1000", container={"resources": {"requests": {"cpu": "100m"}}})
    await node.until_ready("greedy")
    await _resize(node, "greedy", {"requests": {"cpu": "10k"}})
    pod = await node.until_pod("greedy", lambda pod: "PodResizePending" in _conditions(pod))
    assert _conditions(pod)["PodResizePending"]["reason"] == "Infeasible"
    assert _first(pod)["resources"]["requests"] == {"cpu": "100m"}
    await _resize(node, "greedy", {"requests": {"cpu": "100m"}})
    await node.until_pod("greedy", lambda pod: "PodResizePending" not in _conditions(pod))


def _conditions(pod: Object) -> dict[str, Object]:
    return {one["type"]: one for one in (pod.get("status") or {}).get("conditions") or ()}


async def _resize(node: RealNode, name: str, resources: Object) -> None:
    patch = {"spec": {"containers": [{"name": "main", "resources": resources}]}}
    await node.client.patch("v1/Pod", name, patch, namespace="default", subresource="resize", form="strategic")


async def test_conditions_of_others_are_kept(node: RealNode) -> None:
    await node.create("gated", "sleep 1000", readinessGates=[{"conditionType": "example.com/open"}])
    pod = await node.until_pod("gated", lambda pod: _conditions(pod).get("ContainersReady", {}).get("status") == "True")
    ready = _conditions(pod)["Ready"]
    assert (ready["status"], ready["reason"]) == ("False", "ReadinessGatesNotReady")
    opened = {"type": "example.com/open", "status": "True"}
    patch = {"status": {"conditions": [opened]}}
    await node.client.patch("v1/Pod", "gated", patch, namespace="default", subresource="status", form="strategic")
    pod = await node.until_ready("gated")
    assert _conditions(pod)["example.com/open"]["status"] == "True"
