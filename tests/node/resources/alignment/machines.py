"""Descriptions of machines that the tests write, as the kernel does below /sys."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

from pinnace.model.objects import Object
from pinnace.model.typed_objects import Pod
from pinnace.node.resources.alignment.machine_topology import MachineTopology, discover

GI = 1 << 30


def write_machine(
    sys: Path, *, sockets: int = 1, nodes: int = 1, cores: int = 4, threads: int = 2, pages: int = 0
) -> Path:
    """Describe sockets with NUMA nodes, and nodes with cores. The second threads come after all the first ones.

    Two cores share a last cache; each node has 4 GiB, and `pages` huge pages of 2 MiB.
    """
    all_cores = sockets * nodes * cores
    for core in range(all_cores):
        siblings = [core + all_cores * thread for thread in range(threads)]
        pair = [core & ~1, core | 1]
        shared = [other + all_cores * thread for other in pair for thread in range(threads)]
        for cpu in siblings:
            place = sys / f"devices/system/cpu/cpu{cpu}"
            (place / "topology").mkdir(parents=True)
            (place / "cache/index3").mkdir(parents=True)
            (place / "topology/physical_package_id").write_text(str(core // (nodes * cores)))
            (place / "topology/thread_siblings_list").write_text(",".join(map(str, siblings)))
            (place / "cache/index3/shared_cpu_list").write_text(",".join(map(str, shared)))
    (sys / f"devices/system/cpu/cpu{all_cores * threads}").mkdir()  # It is offline.
    for node in range(sockets * nodes):
        place = sys / f"devices/system/node/node{node}"
        pool = place / "hugepages/hugepages-2048kB"
        pool.mkdir(parents=True)
        first = range(node * cores, (node + 1) * cores)
        cpus = [core + all_cores * thread for core in first for thread in range(threads)]
        (place / "cpulist").write_text(",".join(map(str, cpus)))
        (place / "meminfo").write_text(f"Node {node} MemTotal: {4 << 20} kB\n")
        (place / "distance").write_text(" ".join("10" if other == node else "21" for other in range(sockets * nodes)))
        (pool / "nr_hugepages").write_text(str(pages))
    return sys


def machine(sys: Path, **parts: int) -> MachineTopology:
    return discover(write_machine(sys, **parts))


def container(name: str, cpu: str = "1", memory: str = "64Mi", **fields: Any) -> Object:
    amounts = {"cpu": cpu, "memory": memory}
    return {"name": name, "image": "web", "resources": {"requests": dict(amounts), "limits": dict(amounts)}, **fields}


def pod(uid: str, *containers: Object, init: list[Object] | None = None, **spec: Any) -> Pod:
    body = {"initContainers": init or [], "containers": list(containers), **spec}
    return cast(Pod, {"metadata": {"name": uid, "namespace": "default", "uid": uid}, "spec": body})
