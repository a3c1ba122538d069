"""Guaranteed containers get memory of as few NUMA nodes as possible; a checkpoint keeps it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from tests.node.resources.alignment.machines import GI, container, pod, write_machine

from pinnace.kinds.feature_gates.gates import FeatureGates
from pinnace.model.objects import Object
from pinnace.node.errors import RuntimeFailure
from pinnace.node.resources.admission import Rejection
from pinnace.node.resources.alignment.node_resources import (
    MachineAmounts,
    NodeResources,
    ResourcePolicies,
)
from pinnace.node.resources.alignment.topology_manager import TopologyPolicy

RESERVED = {0: {"memory": "1Gi"}, 1: {"memory": "1Gi"}}
ALLOCATE = "Allocate failed due to [memorymanager] "


class Machine:
    """Two NUMA nodes with 4 GiB each, of which 1 GiB is reserved, and 0.5 GiB are huge pages."""

    def __init__(self, directory: Path) -> None:
        self.sys = write_machine(directory / "sys", sockets=2, cores=1, threads=1, pages=256)
        self.directory = directory
        self.file = directory / "memory_manager_state"

    def open(
        self,
        topology: str = "none",
        *,
        scope: str = "container",
        reserved: Mapping[int, Mapping[str, str]] = RESERVED,
        policy: str = "Static",
    ) -> NodeResources:
        policies = ResourcePolicies(
            memory=policy,
            reserved_memory=reserved,
            topology=TopologyPolicy(name=topology, scope=scope),
            machine=self.sys,
        )
        amounts = MachineAmounts(capacity={"memory": "8Gi"}, reserved={"memory": "1948Mi"}, eviction_bytes=100 << 20)
        return NodeResources(policies, amounts, self.directory, FeatureGates("1.37"))


@pytest.fixture
def there(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def needs(memory: str, **fields: object) -> Object:
    return container("web", "1", memory, **fields)


async def test_memory_is_taken_from_one_numa_node_while_it_has_enough(there: Machine) -> None:
    resources = there.open()
    for uid, memory, nodes in (("a", "2Gi", "0"), ("b", "2Gi", "1"), ("c", "512Mi", "0")):
        assert await resources.admit(pod(uid, needs(memory))) is None
        assert resources.placement(uid, "web").memory_nodes == nodes
    refused = await resources.admit(pod("d", needs("1Gi")))
    text = f"{ALLOCATE}failed to get the default NUMA affinity, no NUMA nodes with enough memory is available"
    assert refused == Rejection("UnexpectedAdmissionError", f"{text}, which is unexpected")
    resources.release("b")
    assert await resources.admit(pod("d", needs("1Gi"))) is None
    assert resources.placement("d", "web").memory_nodes == "1"


async def test_much_memory_comes_from_a_group_of_numa_nodes(there: Machine) -> None:
    resources = there.open()
    assert await resources.admit(pod("large", needs("4Gi"))) is None
    assert resources.placement("large", "web").memory_nodes == "0-1"
    blocks = resources.memory_of("large", "web")
    assert [(block.nodes, block.type, block.size) for block in blocks] == [([0, 1], "memory", 4 * GI)]
    refused = await resources.admit(pod("small", needs("64Mi")))  # Neither node gives memory alone now.
    assert refused is not None
    assert "failed to find the default preferred hint" in refused.message


async def test_huge_pages_and_memory_come_from_the_same_numa_nodes(there: Machine) -> None:
    resources = there.open("single-numa-node")
    body = needs("1Gi")
    for side in ("requests", "limits"):
        body["resources"][side]["hugepages-2Mi"] = "512Mi"
    assert await resources.admit(pod("a", body)) is None
    assert await resources.admit(pod("b", body)) is None
    assert [resources.placement(uid, "web").memory_nodes for uid in "ab"] == ["0", "1"]
    refused = await resources.admit(pod("c", body))
    assert refused is not None
    assert "no NUMA nodes with enough memory is available" in refused.message


async def test_containers_have_the_memory_of_init_containers_again(there: Machine) -> None:
    resources = there.open("single-numa-node", scope="pod")
    owner = pod("p", needs("2Gi"), init=[container("setup", "1", "2Gi")])
    assert await resources.admit(owner) is None
    assert await resources.admit(pod("q", needs("2Gi"))) is None
    assert [resources.placement(uid, "web").memory_nodes for uid in "pq"] == ["0", "1"]
    assert resources.placement("p", "setup").memory_nodes == "0"
    resources.note_start(owner, owner["spec"]["containers"][0])
    assert resources.placement("p", "setup").memory_nodes == ""
    resources.release("p")
    assert sum(block.size for block in resources.allocatable_memory if block.type == "memory") == 5 * GI
    assert await resources.admit(pod("r", needs("2560Mi"))) is None  # Everything is free again.


@pytest.mark.parametrize(
    "body", [container("web", "500m", "1Gi"), {"name": "web", "resources": {"requests": {"memory": "1Gi"}}}]
)
async def test_guaranteed_pods_alone_have_memory_of_certain_nodes(there: Machine, body: Object) -> None:
    resources = there.open()
    assert await resources.admit(pod("p", body)) is None
    assert resources.placement("p", "web").memory_nodes == ("0" if "limits" in body["resources"] else "")


async def test_the_next_agent_knows_what_containers_have(there: Machine) -> None:
    owner = pod("p", needs("2Gi"))
    assert await there.open().admit(owner) is None
    again = there.open()
    assert await again.admit(owner) is None
    assert await again.admit(pod("q", needs("2Gi"))) is None
    assert again.placement("q", "web").memory_nodes == "1"


async def test_a_checkpoint_of_another_machine_is_refused(there: Machine) -> None:
    assert await there.open().admit(pod("p", needs("2Gi"))) is None
    (there.sys / "devices/system/node/node1/meminfo").write_text("Node 1 MemTotal: 1024 kB\n")
    with pytest.raises(RuntimeFailure) as refused:
        there.open()
    assert "[memorymanager] the expected machine state is different from the real one, please drain" in str(
        refused.value
    )
    assert f'delete the memory manager checkpoint file "{there.file}"' in str(refused.value)
    with pytest.raises(RuntimeFailure, match='policy "None" differs from state checkpoint policy "Static"'):
        there.open(policy="None")


@pytest.mark.parametrize(
    ("reserved", "error"),
    [
        ({}, 'the total amount "0" of type "memory" is not equal to the value "2Gi" determined by Node Allocatable'),
        ({0: {"memory": "1Gi"}}, 'the total amount "1Gi" of type "memory" is not equal to the value "2Gi"'),
        ({7: {"memory": "2Gi"}}, "references a NUMA node 7 that does not exist on this machine"),
        ({0: {"memory": "2Gi", "hugepages-2Mi": "2Mi"}}, 'of type "hugepages-2Mi" is not equal to the value "0"'),
    ],
)
def test_the_reserved_memory_must_be_the_reservation(
    there: Machine, reserved: Mapping[int, Mapping[str, str]], error: str
) -> None:
    with pytest.raises(ValueError, match=error):
        there.open(reserved=reserved)
