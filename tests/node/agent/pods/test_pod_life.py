"""The life of a pod as the agent decides on it: restarts, probes, hooks, images, sandboxes and the end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from tests.node.agent.conftest import NodeInMemory, is_ready

from pinnace.model.objects import Object
from pinnace.node.errors import ImageFailure, SandboxFailed, StartFailed
from pinnace.node.runtime.runtime import ContainerState, ContainerStatus, ExecResult


def first_status(pod: Object) -> Object:
    statuses = (pod.get("status") or {}).get("containerStatuses") or [{}]
    first: Object = statuses[0]
    return first


def waits_for(reason: str) -> Callable[[Object], Any]:
    return lambda pod: first_status(pod).get("state", {}).get("waiting", {}).get("reason") == reason


def has_restarted(count: int) -> Callable[[Object], Any]:
    def is_there(pod: Object) -> bool:
        status = first_status(pod)
        return status.get("restartCount") == count and "running" in status["state"]

    return is_there


@pytest.mark.parametrize(
    ("policy", "code", "phase"),
    [
        ("Never", 0, "Succeeded"),
        ("Never", 3, "Failed"),
        ("OnFailure", 0, "Succeeded"),
        ("OnFailure", 3, "Running"),
        ("Always", 0, "Running"),
    ],
)
async def test_the_restart_policy_decides_on_the_phase(
    memory_node: NodeInMemory, policy: str, code: int, phase: str
) -> None:
    memory_node.runtime.exit_codes["main"] = [code]
    await memory_node.create("web", restartPolicy=policy)
    pod = await memory_node.until_phase("web", phase)
    if phase == "Running":
        pod = await memory_node.until_pod("web", has_restarted(1))
        assert first_status(pod)["lastState"]["terminated"]["exitCode"] == code
    else:
        assert first_status(pod)["state"]["terminated"]["exitCode"] == code


async def test_the_pauses_before_restarts_double(memory_node: NodeInMemory) -> None:
    memory_node.runtime.exit_codes["main"] = [4, 4, 4]
    await memory_node.create("web")
    for pause, restarts in ((10, 1), (20, 2)):
        pod = await memory_node.until_pod("web", waits_for("CrashLoopBackOff"))
        assert first_status(pod)["state"]["waiting"]["message"].startswith(f"back-off {pause}s restarting failed")
        assert first_status(pod)["restartCount"] == restarts
        await memory_node.advance(pause)

        def is_next(pod: Object, restarts: int = restarts) -> bool:
            return bool(first_status(pod)["restartCount"] == restarts + 1)

        await memory_node.until_pod("web", is_next)
    await memory_node.until_pod("web", has_restarted(3))


async def test_a_command_that_cannot_start_is_reported_and_tried_again(memory_node: NodeInMemory) -> None:
    error = StartFailed('exec: "web": executable file not found in $PATH', exit_code=127)
    with memory_node.runtime.failing("start_container", error):
        await memory_node.create("web")
        pod = await memory_node.until_pod("web", waits_for("CrashLoopBackOff"))
        ended = first_status(pod)["lastState"]["terminated"]
        assert (ended["exitCode"], ended["reason"], ended["message"]) == (127, "StartError", str(error))
        await memory_node.until_event("web", f"Error: {error}", reason="Failed")
    await memory_node.advance(10)
    await memory_node.until_ready("web")


async def test_init_containers_end_one_after_the_other_before_the_others_start(memory_node: NodeInMemory) -> None:
    init = [{"name": name, "image": "web"} for name in ("first", "second")]
    await memory_node.create("web", initContainers=init)
    for name in ("first", "second"):

        async def is_running(name: str = name) -> bool:
            result = await memory_node.runtime.containers()
            return any(status.config.name == name and status.state is ContainerState.RUNNING for status in result)

        await memory_node.until(is_running)
        pod = await memory_node.until_pod("web", waits_for("PodInitializing"))
        assert pod["status"]["phase"] == "Pending"
        memory_node.runtime.end_container(memory_node.runtime.find("web", name).id, 0)
    await memory_node.until_ready("web")
    names = [status.config.name for status in await memory_node.runtime.containers()]
    assert names == ["first", "second", "main"]


async def test_a_failed_liveness_probe_restarts_the_container(memory_node: NodeInMemory) -> None:
    is_alive = True

    def run(container: ContainerStatus, command: Sequence[str]) -> ExecResult:
        assert command == ["check"]
        return ExecResult(0 if is_alive else 1, b"no answer")

    memory_node.runtime.run_command = run
    probe = {"exec": {"command": ["check"]}, "periodSeconds": 1, "failureThreshold": 2}
    await memory_node.create("web", container={"livenessProbe": probe})
    await memory_node.until_ready("web")
    is_alive = False
    await memory_node.until_event("web", "Liveness probe failed: no answer", reason="Unhealthy")
    await memory_node.until_event("web", "Container main failed liveness probe, will be restarted", reason="Killing")
    is_alive = True
    pod = await memory_node.until_pod("web", has_restarted(1))
    assert first_status(pod)["lastState"]["terminated"]["exitCode"] == 143


async def test_a_readiness_probe_decides_on_ready(memory_node: NodeInMemory) -> None:
    answer = b"HTTP/1.1 200 OK\r\n\r\n"

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        await writer.drain()

    probe = {"httpGet": {"path": "/ready", "port": "http"}, "periodSeconds": 1, "failureThreshold": 1}
    container = {"readinessProbe": probe, "ports": [{"name": "http", "containerPort": 8080}]}
    await memory_node.create("web", container=container)
    await memory_node.until_event("web", "Readiness probe failed: nothing listens on port 8080", reason="Unhealthy")
    memory_node.runtime.servers[8080] = serve
    await memory_node.until_ready("web")
    answer = b"HTTP/1.1 503 Busy\r\n\r\n"
    pod = await memory_node.until_pod("web", lambda pod: not is_ready(pod))
    assert first_status(pod)["restartCount"] == 0
    assert pod["status"]["phase"] == "Running"


async def test_a_redirect_to_another_host_is_a_success_with_a_warning(memory_node: NodeInMemory) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 302 Found\r\nLocation: http://192.0.2.1/\r\nContent-Length: 5\r\n\r\nmoved")
        await writer.drain()

    memory_node.runtime.servers[8080] = serve
    probe = {"httpGet": {"path": "/", "port": 8080}, "periodSeconds": 1}
    await memory_node.create("web", container={"readinessProbe": probe})
    text = "Readiness probe warning: Probe terminated redirects, Response body: moved"
    await memory_node.until_event("web", text, reason="ProbeWarning")
    await memory_node.until_ready("web")


async def test_a_hook_runs_before_the_stop_and_a_stubborn_container_is_killed(memory_node: NodeInMemory) -> None:
    commands: list[Sequence[str]] = []

    def run(container: ContainerStatus, command: Sequence[str]) -> ExecResult:
        assert container.state is ContainerState.RUNNING
        commands.append(command)
        return ExecResult(0, b"")

    memory_node.runtime.run_command = run
    memory_node.runtime.stubborn.add("main")
    hook = {"preStop": {"exec": {"command": ["farewell"]}}}
    await memory_node.create("web", container={"lifecycle": hook}, metadata={"finalizers": ["example.com/wait"]})
    await memory_node.until_ready("web")
    await memory_node.client.delete("v1/Pod", "web", namespace="default", grace_seconds=30)

    async def is_stopping() -> bool:
        return "stop_container" in memory_node.runtime.calls

    await memory_node.until(is_stopping)
    assert commands == [["farewell"]]
    await memory_node.clock.advance(30)
    pod = await memory_node.until_pod("web", lambda pod: "terminated" in first_status(pod)["state"])
    assert first_status(pod)["state"]["terminated"]["exitCode"] == 137
    await memory_node.client.patch("v1/Pod", "web", {"metadata": {"finalizers": None}}, namespace="default")
    await memory_node.until_gone("web")
    assert await memory_node.runtime.sandboxes() == []


async def test_an_image_that_cannot_be_pulled_waits_for_its_next_pull(memory_node: NodeInMemory) -> None:
    memory_node.images.failures["shop"] = ImageFailure("no such manifest")
    await memory_node.create("web", container={"image": "shop"})
    await memory_node.until_event("web", 'Failed to pull image "shop": no such manifest', reason="Failed")
    await memory_node.until_pod("web", waits_for("ImagePullBackOff"))
    del memory_node.images.failures["shop"]
    await memory_node.advance(10)
    pod = await memory_node.until_ready("web")
    assert first_status(pod)["imageID"] == "memory:shop"
    assert memory_node.images.pulled == ["shop", "shop"]


async def test_a_sandbox_that_cannot_be_made_is_reported_and_tried_again(memory_node: NodeInMemory) -> None:
    with memory_node.runtime.failing("run_sandbox", SandboxFailed("all addresses are in use")):
        await memory_node.create("web")
        await memory_node.until_event("web", "all addresses are in use", reason="FailedCreatePodSandBox")
        pod = await memory_node.until_pod("web", waits_for("ContainerCreating"))
        assert pod["status"]["phase"] == "Pending"
    await memory_node.advance(2)
    await memory_node.until_ready("web")


async def test_a_pod_goes_on_in_another_sandbox_and_counts_its_restarts(memory_node: NodeInMemory) -> None:
    await memory_node.create("web")
    before = await memory_node.until_ready("web")
    (sandbox,) = await memory_node.runtime.sandboxes()
    memory_node.runtime.lose_sandbox(sandbox.id)
    await memory_node.until_event("web", "Pod sandbox changed", reason="SandboxChanged")
    after = await memory_node.until_pod("web", has_restarted(1))
    assert after["status"]["podIP"] != before["status"]["podIP"]
    assert [sandbox.config.attempt for sandbox in await memory_node.runtime.sandboxes()] == [1]


@pytest.mark.parametrize("has_ended", [True, False], ids=["ended", "running"])
async def test_an_ephemeral_container_does_not_start_again_in_another_sandbox(
    memory_node: NodeInMemory, *, has_ended: bool
) -> None:
    """The agent started it, and could never write a status of its pod again: its end cannot be taken back."""
    runtime = memory_node.runtime
    await memory_node.create("web", ["sleep", "1000"])
    await memory_node.until_ready("web")
    debug = {"spec": {"ephemeralContainers": [{"name": "debug", "image": "web", "command": ["sleep", "1"]}]}}
    await memory_node.client.patch(
        "v1/Pod", "web", debug, namespace="default", subresource="ephemeralcontainers", form="strategic"
    )

    def state(pod: Object) -> Object:
        return next(iter((pod.get("status") or {}).get("ephemeralContainerStatuses") or ()), {"state": {}})["state"]

    await memory_node.until_pod("web", lambda pod: "running" in state(pod))
    if has_ended:
        runtime.end_container(runtime.find("web", "debug").id, 3)
        await memory_node.until_pod("web", lambda pod: "terminated" in state(pod))
    (sandbox,) = await runtime.sandboxes()
    runtime.lose_sandbox(sandbox.id)
    pod = await memory_node.until_pod("web", has_restarted(1))
    assert state(pod)["terminated"]["exitCode"] == (3 if has_ended else 137)
    assert [status.config.name for status in await runtime.containers()] == ["main"]


async def test_a_pod_that_is_replaced_ends_before_the_next_of_its_name_starts(memory_node: NodeInMemory) -> None:
    first = await memory_node.create("web")
    await memory_node.until_ready("web")
    with memory_node.runtime.hanging("remove_sandbox") as removal:
        await memory_node.client.delete("v1/Pod", "web", namespace="default", grace_seconds=0)
        second = await memory_node.create("web")

        async def is_removing() -> bool:
            return removal.hits > 0

        await memory_node.until(is_removing)
        assert [sandbox.config.uid for sandbox in await memory_node.runtime.sandboxes()] == [first["metadata"]["uid"]]
    await memory_node.until_ready("web")
    assert [sandbox.config.uid for sandbox in await memory_node.runtime.sandboxes()] == [second["metadata"]["uid"]]
