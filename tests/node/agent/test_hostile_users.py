"""Users that an image names: `runAsUser` and `runAsNonRoot` hold whatever the image has in its /etc/passwd."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.machine import need
from tests.node.agent.conftest import RealNode
from tests.node.images.image_files import BuiltImage, directory, entry, layer

_ROWS = "root:x:0:0::/:\n1000:x:0:0::/evil:\n4294968296:x:0:0::/:\n00:x:0:0::/:\nweb:x:1001:1002::/web:\n"
_GROUPS = "root:x:0:1000\n1000:x:0:\nextra:x:42:web\n"


async def _image(node: RealNode, tmp_path: Path, user: str) -> str:
    files = [
        directory("bin"),
        directory("etc"),
        entry("bin/busybox", Path(need("busybox")).read_bytes(), mode=0o755),
        entry("etc/passwd", _ROWS.encode()),
        entry("etc/group", _GROUPS.encode()),
    ]
    name = "example.com/evil:v1"
    await node.images.load(BuiltImage([layer(*files)], {"User": user}).write_docker(tmp_path / "image.tar", name))
    return name


async def _result(node: RealNode, image: str, **security: Any) -> str:
    """Return the ids of the container, or the reason why it does not start."""
    command = ["/bin/busybox", "sh", "-c", "echo $(/bin/busybox id -u) $(/bin/busybox id -g)"]
    container = {"image": image, "imagePullPolicy": "Never", "securityContext": security}
    await node.create("user", command, container=container, restartPolicy="Never")

    def has_result(pod: Any) -> Any:
        state = ((pod.get("status") or {}).get("containerStatuses") or [{}])[0].get("state") or {}
        return "terminated" in state or (state.get("waiting") or {}).get("message")

    pod = await node.until_pod("user", has_result)
    state = pod["status"]["containerStatuses"][0]["state"]
    if state.get("terminated", {}).get("exitCode") == 0:
        return (await node.logs("user")).strip()
    return str((state.get("terminated") or state["waiting"])["message"])


@pytest.mark.parametrize(
    ("user", "security", "expected"),
    [
        ("", {"runAsUser": 1000, "runAsNonRoot": True}, "1000 0"),
        ("1000", {"runAsNonRoot": True}, "1000 0"),
        ("1000", {}, "1000 0"),
        ("1000:1000", {"runAsNonRoot": True}, "1000 1000"),
        ("4294968296", {"runAsNonRoot": True}, "uids and gids must be in range"),
        ("00", {"runAsNonRoot": True}, "image will run as root"),
        ("0000:5", {"runAsNonRoot": True}, "image will run as root"),
        ("٠", {"runAsNonRoot": True}, "non-numeric user"),
        ("web", {"runAsNonRoot": True}, "non-numeric user"),
        ("web", {}, "1001 1002"),
    ],
    ids=lambda value: value or "none" if isinstance(value, str) else "",
)
async def test_a_number_is_a_user_and_never_the_name_of_another(
    node: RealNode, tmp_path: Path, user: str, security: dict[str, Any], expected: str
) -> None:
    assert expected in await _result(node, await _image(node, tmp_path, user), **security)


async def test_the_image_adds_no_groups_to_a_pod_that_is_strict(node: RealNode, tmp_path: Path) -> None:
    image = await _image(node, tmp_path, "web")
    for policy, groups in (("Merge", {"1002", "42", "77"}), ("Strict", {"1002", "77"})):
        container = {"image": image, "imagePullPolicy": "Never"}
        security = {"supplementalGroupsPolicy": policy, "supplementalGroups": [77]}
        name = policy.lower()
        await node.create(
            name, ["/bin/busybox", "id", "-G"], container=container, securityContext=security, restartPolicy="Never"
        )
        await node.until_phase(name, "Succeeded")
        assert set((await node.logs(name)).split()) == groups
