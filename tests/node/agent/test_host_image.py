"""Containers of the image `host` see what every user of this machine may read, on nodes that show their machine."""

from __future__ import annotations

import os
from typing import Any

import pytest
from tests.node.agent.conftest import RealNode

from pinnace.node.images.host import shows_host_image

RESTRICTED = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
    "runAsNonRoot": True,
    "runAsUser": 1000,
}
PRIVATE = ("/etc/shadow", "/etc/gshadow", "/etc/sudoers", "/etc/ssl/private", "/etc/ssh", "/etc/machine-id")
_LOOK = f"""for path in {" ".join(PRIVATE)}; do [ -e $path ] && echo $path; done
id -u; getent passwd root; getent hosts localhost"""


@pytest.mark.parametrize(
    ("spec", "user"),
    [
        pytest.param({}, 0, id="root"),
        pytest.param(
            {"securityContext": {"supplementalGroups": [42]}, "container": {"securityContext": RESTRICTED}},
            1000,
            id="restricted with the group shadow",
        ),
        pytest.param({"container": {"securityContext": {"privileged": True}}}, 0, id="privileged"),
    ],
)
async def test_no_user_of_a_container_finds_the_secrets_of_etc(node: RealNode, spec: dict[str, Any], user: int) -> None:
    await node.create("curious", _LOOK, restartPolicy="Never", **spec)
    await node.until_phase("curious", "Succeeded")
    lines = (await node.logs("curious")).splitlines()
    assert lines[0] == str(user), "the paths before it are secrets of this machine"
    assert lines[1].startswith("root:x:0:0:")
    assert "localhost" in lines[2], "programs still find what they need"


async def test_changes_in_etc_stay_in_the_container(node: RealNode) -> None:
    command = "echo 'new:x:7777:7777::/:/bin/sh' >> /etc/passwd && getent passwd 7777"
    await node.create("writer", command, restartPolicy="Never")
    await node.until_phase("writer", "Succeeded")
    await node.create("reader", "getent passwd 7777 || echo unknown", restartPolicy="Never")
    await node.until_phase("reader", "Succeeded")
    assert await node.logs("writer") == "new:x:7777:7777::/:/bin/sh\n"
    assert await node.logs("reader") == "unknown\n"


async def test_the_stand_in_for_pause_ends_at_its_signal(node: RealNode) -> None:
    metadata = {"finalizers": ["example.com/wait"]}
    await node.create("idle", container={"image": "registry.k8s.io/pause:3.10"}, metadata=metadata)
    await node.until_ready("idle")
    await node.client.delete("v1/Pod", "idle", namespace="default", grace_seconds=3000)
    pod = await node.until_phase("idle", "Succeeded")
    assert pod["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 0
    await node.client.patch("v1/Pod", "idle", {"metadata": {"finalizers": None}}, namespace="default")
    await node.until_gone("idle")


async def test_the_stand_in_for_python_has_both_names_of_it(node: RealNode) -> None:
    command = ["python", "-c", "import sys; print(sys.version_info[0])"]
    await node.create("snake", command, container={"image": "python:3"}, restartPolicy="Never")
    await node.until_phase("snake", "Succeeded")
    assert await node.logs("snake") == "3\n"


@pytest.fixture
def without_host_image(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PINNACE_HOST_IMAGE", "0")


@pytest.mark.parametrize(
    ("image", "policy", "reason", "message"),
    [
        pytest.param("host", "Always", "ErrImagePull", "no registry has it; start the node with --host", id="host"),
        pytest.param("host", "IfNotPresent", "ErrImagePull", "start the node with --host-image", id="if not present"),
        pytest.param("host", "Never", "ErrImageNeverPull", "start the node with --host-image", id="never"),
        pytest.param("busybox", "Never", "ErrImageNeverPull", "start the node with --host", id="well-known, never"),
        pytest.param(
            "busybox",
            "Always",
            "ErrImagePull",
            "is refused: PINNACE_OFFLINE=1 or --offline allows pulls from loopback alone; load the image with "
            "`pinnace image load FILE`; or start the node with --host-image or PINNACE_HOST_IMAGE=1",
            id="well-known",
        ),
    ],
)
async def test_a_node_that_does_not_show_its_machine_names_the_flag(
    without_host_image: None, node: RealNode, image: str, policy: str, reason: str, message: str
) -> None:
    await node.create("web", "sleep 60", container={"image": image, "imagePullPolicy": policy})
    pod = await node.until_pod("web", lambda pod: reason in str(pod.get("status")))
    waiting = pod["status"]["containerStatuses"][0]["state"]["waiting"]
    assert reason in f"{waiting['reason']}: {waiting['message']}", "or it is in back-off for this reason already"
    assert message in waiting["message"]


@pytest.mark.parametrize(
    ("variable", "wanted", "is_shown"),
    [
        pytest.param("", None, os.geteuid() != 0, id="ordinary users alone"),
        pytest.param("1", None, True, id="variable"),
        pytest.param("0", None, False, id="variable says no"),
        pytest.param("0", True, True, id="the flag is stronger"),
        pytest.param("1", False, False, id="the flag says no"),
    ],
)
def test_the_flag_then_the_variable_then_the_user_decide(
    monkeypatch: pytest.MonkeyPatch, variable: str, wanted: bool | None, is_shown: bool
) -> None:
    monkeypatch.setenv("PINNACE_HOST_IMAGE", variable)
    assert shows_host_image(wanted) is is_shown


_PRIVATE_FILES = r"""
import os, stat
looked = 0
for top in os.listdir("/"):
    if top not in ("usr", "opt", "etc", "lib", "bin", "sbin"):
        continue
    for place, directories, files in os.walk(f"/{top}"):
        for name in files + directories:
            path = f"{place}/{name}"
            status = os.lstat(path)
            looked += 1
            if stat.S_ISLNK(status.st_mode) or status.st_mode & 4:
                continue
            try:
                os.listdir(path) if stat.S_ISDIR(status.st_mode) else open(path, "rb").close()
                print("private, but readable:", path)
            except PermissionError:
                pass
print("enough" if looked > 10_000 else looked)
"""


@pytest.mark.parametrize(
    "context",
    [
        pytest.param({}, id="root"),
        pytest.param({"privileged": True}, id="privileged"),
        pytest.param({"capabilities": {"add": ["ALL"]}}, id="all capabilities"),
        pytest.param({"runAsUser": 1000, "capabilities": {"add": ["DAC_READ_SEARCH"]}}, id="user"),
    ],
)
async def test_no_container_reads_a_file_that_others_may_not_read(node: RealNode, context: dict[str, Any]) -> None:
    container = {"command": ["python3", "-c", _PRIVATE_FILES], "securityContext": context}
    await node.create("curious", restartPolicy="Never", container=container)
    await node.until_phase("curious", "Succeeded")
    assert await node.logs("curious") == "enough\n"


_WRITE_EVERYWHERE = r"""
import os, stat
points = [line.split()[4].replace("\\040", " ") for line in open("/proc/self/mountinfo")]
written = set()
for point in points:
    if point.startswith(("/proc", "/sys", "/dev/pts", "/dev/shm", "/dev/mqueue")):
        continue
    if os.path.exists(point) and stat.S_ISCHR(os.stat(point).st_mode):
        continue
    target = f"{point.rstrip('/')}/written" if os.path.isdir(point) else point
    try:
        open(target, "a").close()
        written.add(point)
    except OSError:
        pass
places = ("/etc/passwd", "/etc/hosts", "/usr/bin/x", "/usr/x", "/opt/x", "/dev/x", "/tmp/x", "/x", "/var/lib/x")
for path in places:
    try:
        open(path, "a").close()
        written.add(path)
    except OSError:
        pass
print(*sorted(written))
"""


@pytest.mark.parametrize("context", [{}, {"privileged": True}], ids=["root", "privileged"])
async def test_every_mount_of_a_read_only_root_is_read_only(node: RealNode, context: dict[str, Any]) -> None:
    container = {
        "command": ["python3", "-c", _WRITE_EVERYWHERE],
        "securityContext": {**context, "readOnlyRootFilesystem": True},
        "volumeMounts": [{"name": "work", "mountPath": "/usr/local/work"}, {"name": "work", "mountPath": "/work"}],
    }
    await node.create("writer", restartPolicy="Never", container=container, volumes=[{"name": "work", "emptyDir": {}}])
    await node.until_phase("writer", "Succeeded")
    assert await node.logs("writer") == "/dev/termination-log /usr/local/work /work\n"
