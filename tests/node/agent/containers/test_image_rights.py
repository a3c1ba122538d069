"""Images with several layers and with odd rights: as volumes, and as the root of containers."""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import Any

from tests.machine import need
from tests.node.agent.conftest import RealNode
from tests.node.images.image_files import BuiltImage, Entry, directory, entry, layer, link

_NAME = "example.com/layers:v1"
_MANY = 120


async def _load(node: RealNode, place: Path, *layers: list[Entry]) -> None:
    built = BuiltImage([layer(*entries) for entries in layers])
    await node.images.load(built.write_docker(place / "image.tar", _NAME))


def _volume(**fields: Any) -> dict[str, Any]:
    return {
        "volumes": [{"name": "files", "image": {"reference": _NAME, "pullPolicy": "Never"}}],
        "container": {"volumeMounts": [{"name": "files", "mountPath": "/files", **fields}]},
        "restartPolicy": "Never",
    }


async def test_an_image_volume_shows_the_upper_layers(node: RealNode, tmp_path: Path) -> None:
    """With whiteouts, links that lead out, and a part of it, for pods with the node's users and with their own."""
    await _load(
        node,
        tmp_path,
        [directory("a"), entry("a/old", b"1"), entry("a/gone", b"1"), directory("b"), entry("b/hidden", b"1")],
        [entry("a/old", b"2"), entry("a/.wh.gone"), entry("b/.wh..wh..opq"), entry("b/new", b"2"), link("out", "/etc")],
        *[[entry(f"c/{number}", b"x")] for number in range(_MANY)],
    )
    for name, host_users in (("node-users", True), ("own-users", False)):
        look = "cd /files; cat a/old; ls a b; readlink out; ls c | wc -l; touch x 2>/dev/null || echo read-only"
        await node.create(name, look, hostUsers=host_users, **_volume())
        await node.until_phase(name, "Succeeded")
        words = (await node.logs(name)).replace("2a:", "2 a:").split()
        assert words == ["2", "a:", "old", "b:", "new", "/etc", str(_MANY), "read-only"]
        await node.create(f"{name}-part", "ls /files", hostUsers=host_users, **_volume(subPath="a"))
        await node.until_phase(f"{name}-part", "Succeeded")
        assert await node.logs(f"{name}-part") == "old\n"


async def test_a_root_of_many_layers_starts(node: RealNode, tmp_path: Path) -> None:
    busybox = entry("bin/busybox", Path(need("busybox")).read_bytes(), mode=0o755)
    await _load(node, tmp_path, [busybox], *[[entry(f"c/{number}", b"x")] for number in range(_MANY)])
    for name, host_users in (("node-users", True), ("own-users", False)):
        command = ["/bin/busybox", "sh", "-c", "/bin/busybox ls /c | /bin/busybox wc -l"]
        container = {"image": _NAME, "imagePullPolicy": "Never"}
        await node.create(name, command, container=container, hostUsers=host_users, restartPolicy="Never")
        await node.until_phase(name, "Succeeded")
        assert (await node.logs(name)).split() == [str(_MANY)]


async def test_a_capability_of_a_file_gives_no_more_than_the_container_has(node: RealNode, tmp_path: Path) -> None:
    """SYS_ADMIN on a program of the image, for a user that is not root: nothing of it arrives."""
    value = struct.pack("<IIIII", 0x02000001, 1 << 21, 0, 0, 0).decode("latin-1")
    pax = {"pax_headers": {"SCHILY.xattr.security.capability": value}}
    busybox = entry("bin/busybox", Path(need("busybox")).read_bytes(), mode=0o4755, **pax)
    await _load(node, tmp_path, [busybox])
    command = ["/bin/busybox", "grep", "CapEff", "/proc/self/status"]
    for name, host_users in (("node-users", True), ("own-users", False)):
        security = {"runAsUser": 1000, "allowPrivilegeEscalation": False}
        container = {"image": _NAME, "imagePullPolicy": "Never", "securityContext": security}
        await node.create(name, command, container=container, hostUsers=host_users, restartPolicy="Never")
        await node.until_phase(name, "Succeeded")
        assert int((await node.logs(name)).split()[1], 16) == 0, os.geteuid()
