"""Decisions of the node about its pods: deadlines, restart rules, conditions, and termination messages."""

from __future__ import annotations

import shutil
from typing import Any

import pytest
from tests.node.agent.conftest import NodeInMemory, RealNode, is_ready

from pinnace.model.objects import Key, Object
from pinnace.node.errors import RuntimeFailure


def _first(pod: Object) -> Object:
    statuses = (pod.get("status") or {}).get("containerStatuses") or [{}]
    first: Object = statuses[0]
    return first


async def test_a_pod_whose_directory_cannot_be_made_waits_for_it(memory_node: NodeInMemory) -> None:
    pods = memory_node.directory / "agent" / "pods"
    shutil.rmtree(pods, ignore_errors=True)
    pods.parent.mkdir(exist_ok=True)
    pods.write_text("not a directory")
    try:
        await memory_node.create("unlucky", "sleep 1000")

        async def has_event() -> bool:
            listed = await memory_node.client.list("v1/Event", namespace="default")
            return any(event["reason"] == "FailedToMakePodDataDirectories" for event in listed)

        await memory_node.until(has_event)
        assert (await memory_node.get("unlucky") or {})["status"]["phase"] == "Pending"
    finally:
        pods.unlink()

    async def is_ready_now() -> bool:
        await memory_node.clock.advance(1.0)
        return is_ready(await memory_node.get("unlucky") or {})

    await memory_node.until(is_ready_now)


async def test_a_pod_goes_on_soon_after_an_outage_however_long_it_was(memory_node: NodeInMemory) -> None:
    node, queue, key = memory_node, memory_node.agent.controller.queue, Key("default", "patient")
    error = RuntimeFailure("the runtime does not answer")
    with node.runtime.failing("sandboxes", error, pod="patient") as outage:

        async def has_failed_for_minutes() -> bool:
            if queue.due_in(key):
                await node.clock.advance(queue.due_in(key))
            return outage.hits > 20

        async def is_delayed() -> bool:
            return queue.due_in(key) > 0

        await node.create("patient")
        await node.until(has_failed_for_minutes)
        await node.until(is_delayed)
        assert queue.due_in(key) <= 10

    async def is_ready_now() -> bool:
        await node.clock.advance(1.0)
        return is_ready(await node.get("patient") or {})

    await node.until(is_ready_now)


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


def _conditions(pod: Object) -> dict[str, Object]:
    return {condition["type"]: condition for condition in (pod.get("status") or {}).get("conditions") or ()}


async def test_conditions_of_others_are_kept(memory_node: NodeInMemory) -> None:
    await memory_node.create("gated", "sleep 1000", readinessGates=[{"conditionType": "example.com/open"}])
    pod = await memory_node.until_pod(
        "gated", lambda pod: _conditions(pod).get("ContainersReady", {}).get("status") == "True"
    )
    ready = _conditions(pod)["Ready"]
    assert (ready["status"], ready["reason"]) == ("False", "ReadinessGatesNotReady")
    opened = {"type": "example.com/open", "status": "True"}
    patch = {"status": {"conditions": [opened]}}
    await memory_node.client.patch(
        "v1/Pod", "gated", patch, namespace="default", subresource="status", form="strategic"
    )
    pod = await memory_node.until_ready("gated")
    assert _conditions(pod)["example.com/open"]["status"] == "True"
