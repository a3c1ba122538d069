"""The parts of a machine are read from /sys, and lists of CPUs from files and configurations."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.node.resources.alignment.machines import GI, machine

from pinnace.node.resources.alignment.machine_topology import CpuPart, discover, format_cpus, parse_cpus


def test_a_machine_is_read_from_its_description(tmp_path: Path) -> None:
    topology = machine(tmp_path, sockets=2, nodes=2, cores=2, threads=2, pages=8)
    assert topology.cpus == frozenset(range(16))
    assert [topology.count(level) for level in (CpuPart.SOCKET, CpuPart.NUMA_NODE, CpuPart.CACHE, CpuPart.CORE)] == [
        2,
        4,
        4,
        8,
    ]
    assert dict(topology.places[13]) == {CpuPart.SOCKET: 1, CpuPart.NUMA_NODE: 2, CpuPart.CACHE: 4, CpuPart.CORE: 5}
    assert topology.nodes[3].memory == {"memory": 4 * GI, "hugepages-2Mi": 16 << 20}
    assert topology.nodes[3].distances == [21, 21, 21, 10]


def test_this_machine_has_the_cpus_that_are_online() -> None:
    online = parse_cpus(Path("/sys/devices/system/cpu/online").read_text())
    assert discover().cpus == online


def test_a_machine_without_a_description_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="could not detect number of cpus"):
        discover(tmp_path)


@pytest.mark.parametrize("text", ["", "0", "0-3", "0,2-3,5", "7,9-8191"])
def test_lists_of_cpus_are_read_and_written(text: str) -> None:
    assert format_cpus(parse_cpus(text)) == text


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("a", 'parsing "a": invalid syntax'),
        ("1-", 'parsing "1-": invalid syntax'),
        ("3-1", r'invalid range "3-1" \(3 > 1\)'),
        ("0-8192", "at most 8192 CPUs"),
        ("0-99999999999", "invalid syntax"),
    ],
)
def test_other_texts_are_no_lists_of_cpus(text: str, error: str) -> None:
    with pytest.raises(ValueError, match=error):
        parse_cpus(text)
