"""Pods of a node with the static policies: who runs on which CPUs, and which pods are refused."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.machine import do_without
from tests.node.agent.conftest import NodeInMemory, RealNode, running_node
from tests.node.namespaces import need_namespaces
from tests.node.resources.alignment.machines import container, write_machine

from pinnace.cluster.cluster import running
from pinnace.cluster.in_process import in_process_client
from pinnace.cluster.settings import Settings
from pinnace.model.node_plugins import pod_resources
from pinnace.model.objects import Object
from pinnace.node.errors import RuntimeFailure
from pinnace.node.image_service import ImageService
from pinnace.node.resources.alignment.node_resources import ResourcePolicies
from pinnace.node.runtime.in_memory import InMemoryRuntime
from pinnace.node.runtime.runtime import Resources, Runtime
from pinnace.process.grpc.methods import SocketChannel

CAPACITY = {"cpu": "16", "memory": "8Gi", "pods": "20"}


class NodeWithManyCpus(NodeInMemory):
    """A node in memory whose containers outlive its agent."""

    runtime: InMemoryRuntime

    async def open_runtime(self) -> tuple[Runtime, ImageService]:
        return (self.runtime, self.images) if hasattr(self, "runtime") else await super().open_runtime()

    def limits(self, name: str, container: str = "main") -> Resources:
        """Return the limits of a container of a running pod."""
        return self.runtime.find(name, container).config.resources


@pytest.fixture
async def many(tmp_path: Path) -> AsyncIterator[NodeWithManyCpus]:
    machine = write_machine(tmp_path / "sys", sockets=2, cores=4, threads=2)
    async with running(Settings()) as cluster:
        made = NodeWithManyCpus(cluster, in_process_client(cluster.plane.local()), tmp_path)
        policies = ResourcePolicies(
            cpus="static",
            cpu_options={"full-pcpus-only": "true"},
            memory="Static",
            reserved_memory={0: {"memory": "1Gi"}},
            machine=machine,
        )
        reserved = {"cpu": "2", "memory": "924Mi"}
        made.has_plugins = True
        made.options = {"policies": policies, "capacity": CAPACITY, "reserved": reserved}
        await made.start_agent()
        try:
            yield made
        finally:
            await made.stop_agent()


def body(cpu: str, **fields: Any) -> Object:
    return {"container": {"resources": container("main", cpu)["resources"]}, **fields}


async def test_exclusive_cpus_survive_the_agent_and_come_back_with_the_pod(many: NodeWithManyCpus) -> None:
    await many.create("shares")
    await many.until_phase("shares", "Running")
    assert many.limits("shares").cpus == "0-15"
    await many.create("owns", **body("2"))
    await many.until_phase("owns", "Running")
    owned = many.limits("owns")
    assert (owned.cpus, owned.cpu_quota, owned.memory_nodes) == ("1,9", 0, "0")
    assert many.limits("shares").cpus == "0,2-8,10-15"

    await many.kill_agent()
    await many.start_agent()
    await many.create("late")
    await many.until_phase("late", "Running")
    assert [many.limits(name).cpus for name in ("owns", "late")] == ["1,9", "0,2-8,10-15"]
    await many.delete("owns")

    async def has_all() -> bool:
        return many.limits("shares").cpus == many.limits("late").cpus == "0-15"

    await many.until(has_all)


async def test_programs_on_the_node_ask_for_the_cpus_and_memory_of_pods(many: NodeWithManyCpus) -> None:
    await many.create("owns", **body("2"))
    await many.until_phase("owns", "Running")
    channel = SocketChannel(many.plugins / "pod-resources" / "kubelet.sock")
    listed = await channel.call(pod_resources.LIST, pod_resources.ListPodResourcesRequest(), seconds=60)
    (owner,) = listed.pod_resources[0].containers
    assert (list(owner.cpu_ids), [(memory.memory_type, memory.size) for memory in owner.memory]) == (
        [1, 9],
        [("memory", 64 << 20)],
    )
    request = pod_resources.AllocatableResourcesRequest()
    every = await channel.call(pod_resources.GET_ALLOCATABLE, request, seconds=60)
    channel.close()
    assert list(every.cpu_ids) == [*range(1, 8), *range(9, 16)]
    sizes = {memory.topology.nodes[0].id: memory.size >> 30 for memory in every.memory if memory.topology is not None}
    assert sizes == {0: 3, 1: 4}


async def test_a_pod_that_has_ended_frees_its_cpus(many: NodeWithManyCpus) -> None:
    await many.create("first", **body("14", restartPolicy="Never"))
    await many.until_phase("first", "Running")
    await many.create("refused", **body("2"))
    pod = await many.until_phase("refused", "Failed")
    assert pod["status"]["reason"] == "SMTAlignmentError"
    assert pod["status"]["message"].startswith(
        "Pod was rejected: SMT Alignment Error: not enough free physical CPUs: available physical CPUs = 0, "
    )
    many.runtime.end_container(many.runtime.find("first", "main").id, 0)
    await many.until_phase("first", "Succeeded")
    await many.create("second", **body("14"))
    await many.until_phase("second", "Running")


async def test_a_pod_that_fails_a_later_check_keeps_no_cpus(many: NodeWithManyCpus) -> None:
    await many.create("elsewhere", **body("14", nodeSelector={"disk": "fast"}))
    assert (await many.until_phase("elsewhere", "Failed"))["status"]["reason"] == "NodeAffinity"
    await many.create("here", **body("14"))
    await many.until_phase("here", "Running")


async def test_pods_that_went_while_no_agent_ran_keep_no_cpus(many: NodeWithManyCpus) -> None:
    await many.create("gone", **body("14"))
    await many.until_phase("gone", "Running")
    await many.kill_agent()
    await many.client.delete("v1/Pod", "gone", namespace="default", grace_seconds=0)
    await many.start_agent()
    await many.create("next", **body("14"))
    await many.until_phase("next", "Running")


@pytest.fixture
async def pinned(tmp_path: Path) -> AsyncIterator[RealNode]:
    """This machine as a node whose first CPU is reserved."""
    need_namespaces()
    if len(os.sched_getaffinity(0)) < 2 or os.sched_getaffinity(0) != set(range(os.cpu_count() or 1)):
        do_without("this machine has fewer than two CPUs, or some are offline")
    options = {"policies": ResourcePolicies(cpus="static", reserved_cpus="0"), "reserved": {"cpu": "1"}}
    try:
        async with running_node(tmp_path, options=options) as made:
            yield made
    except RuntimeFailure as error:
        do_without(str(error))


async def test_containers_run_on_their_cpus(pinned: RealNode) -> None:
    everything = Path("/sys/devices/system/cpu/online").read_text().strip()
    allowed = "grep Cpus_allowed_list /proc/self/status | cut -f2 > /tmp/cpus; "

    async def shared_cpus() -> str:
        container = (await pinned.get("shares") or {})["status"]["containerStatuses"][0]["containerID"]
        command = ["sh", "-c", "grep Cpus_allowed_list /proc/self/status | cut -f2"]
        done = await pinned.runtime.exec_sync(container.partition("://")[2], command, timeout=60)
        return done.output.decode().strip()

    await pinned.create("shares", "sleep 1000")
    await pinned.until_phase("shares", "Running")
    assert await shared_cpus() == everything
    await pinned.create("owns", f"{allowed} sleep 1000", terminationGracePeriodSeconds=0, **body("1"))
    await pinned.until_phase("owns", "Running")
    await pinned.until_file("owns", "/tmp/cpus", lambda text: text == "1\n")
    assert await shared_cpus() == everything.replace("0-1", "0")
    await pinned.delete("owns")

    async def has_all() -> bool:
        return await shared_cpus() == everything

    await pinned.until(has_all)
