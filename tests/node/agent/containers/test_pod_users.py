"""Each pod has user ids of its own, also where the node runs as root, unless it needs those of the node."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, cast

import pytest
from tests.node.agent.conftest import RealNode, is_ready

from pinnace.model.objects import Object
from pinnace.model.typed_objects import Pod
from pinnace.node.agent.containers.container_configs import host_users_of
from pinnace.node.errors import SandboxFailed
from pinnace.node.runtime.embedded.start.pod_users import RANGE
from pinnace.node.runtime.embedded.user_ranges import PLACE, RangeClaims, UserRanges

_root_only = pytest.mark.skipif(os.geteuid() != 0, reason="the pods of an ordinary user never have the node's users")


async def _maps(node: RealNode, name: str, **spec: Any) -> list[int]:
    await node.create(name, ["sleep", "1000"], **spec)
    await node.until_pod(name, is_ready)
    return [int(number) for number in (await node.read(name, "/proc/self/uid_map")).split()]


@_root_only
async def test_no_two_pods_share_a_user_and_the_node_shares_none(node: RealNode) -> None:
    first, second = await _maps(node, "first"), await _maps(node, "second", hostUsers=False)
    assert first[0] == second[0] == 0
    assert first[2] == second[2] == RANGE
    assert first[1] >= RANGE
    assert abs(first[1] - second[1]) >= RANGE
    assert (await _maps(node, "stated", hostUsers=True))[:2] == [0, 0]
    pod = await node.get("first")
    assert pod is not None
    assert "hostUsers" not in pod["spec"]


@_root_only
async def test_a_range_is_free_again_once_its_pod_is_gone_and_not_before(node: RealNode) -> None:
    first = await _maps(node, "first")
    await node.kill_agent()
    await node.start_agent()
    second = await _maps(node, "second")
    assert first != second
    claim = PLACE / str(first[1])
    owner = os.readlink(claim)
    await node.delete("first")

    async def is_released() -> bool:
        """Another node of this machine may have claimed the range since then."""
        return not claim.is_symlink() or os.readlink(claim) != owner

    await node.until(is_released)
    third = await _maps(node, "third")
    assert third[1] != second[1]


def test_no_free_range_is_an_exact_error(tmp_path: Path) -> None:
    files = tmp_path / "subuid", tmp_path / "subgid"
    for file in files:
        file.write_text("someone:1:5\nkubelet:100000:200000\n")
    pods = [tmp_path / name for name in ("first", "second", "third")]
    for pod in pods:
        pod.mkdir()
    ranges = UserRanges(tmp_path, {pods[0]: 131072}, files=files, claims=RangeClaims(tmp_path / "claims"))
    assert ranges.allocate(pods[1]) == 196608
    message = "can't allocate user namespace: could not find an empty slot to allocate a user namespace"
    with pytest.raises(SandboxFailed, match=message):
        ranges.allocate(pods[2])
    ranges.release(pods[0])
    assert ranges.allocate(pods[2]) == 131072


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, None),
        ({"hostUsers": True}, True),
        ({"hostUsers": False, "hostNetwork": False}, False),
        ({"hostNetwork": True}, True),
        ({"hostPID": True}, True),
        ({"hostIPC": True}, True),
        ({"securityContext": {"runAsUser": 65535, "fsGroup": 65535}}, None),
        ({"securityContext": {"fsGroup": 65536}}, True),
        ({"securityContext": {"supplementalGroups": [1, 4_000_000]}}, True),
        ({"containers": [{"securityContext": {"privileged": True}}]}, True),
        ({"initContainers": [{"securityContext": {"runAsUser": 1 << 20}}]}, True),
        ({"containers": [{"securityContext": {"capabilities": {"add": ["SYS_TIME"]}}}]}, True),
        ({"containers": [{"securityContext": {"capabilities": {"add": ["NET_ADMIN", "SYS_PTRACE"]}}}]}, None),
        ({"containers": [{"volumeMounts": [{"mountPropagation": "Bidirectional"}]}]}, True),
        ({"containers": [{"volumeDevices": [{"name": "disk"}]}]}, True),
    ],
    ids=str,
)
def test_a_pod_has_the_users_of_the_node_if_it_needs_them(spec: Object, expected: bool | None) -> None:
    assert host_users_of(cast(Pod, {"spec": {"containers": [], **spec}})) is expected


async def test_files_have_the_owners_that_users_expect(node: RealNode, tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    host = tmp_path / "host"
    host.mkdir()
    (host / "of-node").write_text("x")
    command = """
    set -e
    stat -c '%n %u:%g' /host/of-node /empty /memory /tmp
    echo x > /host/of-pod; echo x > /empty/file; echo x > /memory/file; mkdir /empty/made
    chown 1000:1000 /empty/file /tmp; stat -c '%n %u:%g' /empty/file /memory/file /tmp
    """
    volumes = [
        {"name": "host", "hostPath": {"path": str(host)}},
        {"name": "empty", "emptyDir": {}},
        {"name": "memory", "emptyDir": {"medium": "Memory"}},
    ]
    mounts = [{"name": volume["name"], "mountPath": f"/{volume['name']}"} for volume in volumes]
    if os.geteuid() != 0:
        pytest.skip("an ordinary user without subordinate ids has one user")
    context = {"fsGroup": 2000}
    await node.create(
        "owner",
        command,
        volumes=volumes,
        container={"volumeMounts": mounts},
        securityContext=context,
        restartPolicy="Never",
    )
    await node.until_pod("owner", lambda pod: pod["status"].get("phase") in ("Succeeded", "Failed"))
    lines = (await node.logs("owner")).splitlines()
    owners = dict(line.split(" ") for line in lines)
    assert owners["/host/of-node"] == "0:0"
    assert owners["/memory/file"].startswith("0:")
    assert owners["/empty/file"] == owners["/tmp"] == "1000:1000"
    assert ((host / "of-pod").stat().st_uid, (host / "of-pod").stat().st_gid) == (0, 0)


@_root_only
async def test_a_pod_with_a_volume_that_cannot_map_ids_has_the_users_of_the_node(node: RealNode) -> None:
    proc = [{"name": "proc", "hostPath": {"path": "/proc"}}]
    mounts = {"volumeMounts": [{"name": "proc", "mountPath": "/host"}]}
    assert (await _maps(node, "unset", volumes=proc, container=mounts))[1] == 0
    await node.create("stated", ["true"], volumes=proc, container=mounts, hostUsers=False)
    message = "can't set `spec.hostUsers: false`, runtime does not support user namespaces"

    async def is_reported() -> bool:
        events = await node.client.list("v1/Event", namespace="default")
        return any(event["reason"] == "FailedCreatePodSandBox" and message in event["message"] for event in events)

    await node.until(is_reported)


async def test_the_usual_work_of_images_goes_on_with_own_users(node: RealNode) -> None:
    """A setuid program, a low port, another user, a terminal of its own, sockets, devices, sysctls."""
    command = """
    cp /usr/bin/id /tmp/id && chmod 4755 /tmp/id
    python3 -c 'import os; os.setgid(1000); os.setuid(1000); os.system("/tmp/id -u; echo x > /dev/null && echo device")'
    python3 -c 'import socket; s = socket.create_server(("", 80)); print("port", s.getsockname()[1])'
    python3 -c 'import os; a, b = os.openpty(); print("terminal", os.isatty(b))'
    cat /proc/sys/net/ipv4/ip_local_port_range; echo x > /dev/stdout; hostname; touch /dev/shm/x && echo shm
    """
    if os.geteuid() != 0:
        pytest.skip("an ordinary user without subordinate ids has one user")
    sysctls = [{"name": "net.ipv4.ip_local_port_range", "value": "40000 41000"}]
    await node.create("usual", command, securityContext={"sysctls": sysctls}, restartPolicy="Never")
    await node.until_pod("usual", lambda pod: pod["status"].get("phase") in ("Succeeded", "Failed"))
    words = (await node.logs("usual")).split()
    assert words == [
        *("0", "device", "port", "80", "terminal", "True", "40000", "41000", "x", "usual", "shm"),
    ]
