"""Containers get whole parts of the machine first; the options of the policy change the order."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.node.resources.alignment.machines import machine

from pinnace.node.resources.alignment.cpu_assignment import CpuOrder, take_cpus
from pinnace.node.resources.alignment.hints import AllocationFailed
from pinnace.node.resources.alignment.machine_topology import format_cpus, parse_cpus

PACKED, SPREAD = CpuOrder(), CpuOrder(distributes_over_cores=True)
DISTRIBUTED = CpuOrder(distributes_over_numa_nodes=True)
WHOLE = CpuOrder(distributes_over_numa_nodes=True, has_whole_cores=True)
CACHES = CpuOrder(prefers_caches=True)
SOCKETS = CpuOrder(distributes_over_numa_nodes=True, aligns_sockets=True)
# Two sockets of two NUMA nodes with two cores of two threads: CPU 8 is the second thread of core 0.


@pytest.mark.parametrize(
    ("available", "count", "order", "taken"),
    [
        pytest.param("0-15", 1, PACKED, "0", id="one thread"),
        pytest.param("1-15", 1, PACKED, "8", id="a thread of a core that is used already"),
        pytest.param("1-15", 2, PACKED, "1,9", id="a whole core, in the fullest NUMA node"),
        pytest.param("0-15", 4, PACKED, "0-1,8-9", id="a whole NUMA node"),
        pytest.param("0-3,5-15", 4, PACKED, "6-7,14-15", id="a whole NUMA node of the fullest socket"),
        pytest.param("0-15", 8, PACKED, "0-3,8-11", id="a whole socket"),
        pytest.param("0-15", 11, PACKED, "0-5,8-12", id="a socket, a core and a thread"),
        pytest.param("0-15", 3, SPREAD, "0-2", id="threads of different cores"),
        pytest.param("0-15", 4, DISTRIBUTED, "0-1,8-9", id="one NUMA node is enough"),
        pytest.param("0-15", 6, DISTRIBUTED, "0-3,8,10", id="the same share of two NUMA nodes"),
        pytest.param("0-15", 7, DISTRIBUTED, "0-3,8-10", id="an odd share"),
        pytest.param("0-15", 6, WHOLE, "0-2,8-10", id="whole cores of two NUMA nodes"),
        pytest.param("2-15", 6, SOCKETS, "4-7,12,14", id="two NUMA nodes of one socket"),
        pytest.param("1-15", 4, CACHES, "2-3,10-11", id="a cache that is free"),
        pytest.param("1-15", 3, CACHES, "1,8-9", id="what is left of a cache"),
        pytest.param("0-15", 0, PACKED, "", id="none"),
    ],
)
def test_cpus_are_taken_in_the_order_of_kubelet(
    tmp_path: Path, available: str, count: int, order: CpuOrder, taken: str
) -> None:
    topology = machine(tmp_path, sockets=2, nodes=2, cores=2, threads=2)
    assert format_cpus(take_cpus(topology, parse_cpus(available), count, order)) == taken


def test_numa_nodes_may_have_several_sockets(tmp_path: Path) -> None:
    topology = machine(tmp_path, sockets=4, nodes=1, cores=1, threads=2)
    assert format_cpus(take_cpus(topology, topology.cpus - {0}, 3, PACKED)) == "1,4-5"


def test_more_cpus_than_are_free_are_refused(tmp_path: Path) -> None:
    text = "not enough cpus available to satisfy request: requested=3, available=2"
    with pytest.raises(AllocationFailed, match=text):
        take_cpus(machine(tmp_path), frozenset({0, 1}), 3, PACKED)
