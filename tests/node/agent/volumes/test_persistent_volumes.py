"""Persistent volumes of this machine: directories, files in them, and block devices with and without a file system."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.node.agent.conftest import NodeInMemory, NodeUnderTest, RealNode

from pinnace.model.objects import Object

_TERMS = [{"matchExpressions": [{"key": "kubernetes.io/os", "operator": "Exists"}]}]


async def claim(node: NodeUnderTest, name: str, **source: Any) -> list[Object]:
    """Make a volume and a claim that is bound to it; return the volumes of a pod that uses it."""
    shared = {"accessModes": ["ReadWriteOnce"], "storageClassName": "manual"}
    mode = {"volumeMode": source.pop("mode", "Filesystem")}
    if "local" in source:
        source["nodeAffinity"] = {"required": {"nodeSelectorTerms": _TERMS}}
    spec = {**shared, **mode, "capacity": {"storage": "1Mi"}, **source}
    reference = {"kind": "PersistentVolumeClaim", "namespace": "default", "name": name}
    volume = {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}}
    await node.client.create({**volume, "spec": {**spec, "claimRef": reference}})
    wanted = {**shared, **mode, "volumeName": name, "resources": {"requests": {"storage": "1Mi"}}}
    metadata = {"name": name, "namespace": "default"}
    await node.client.create(
        {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": wanted}
    )
    return [{"name": "disk", "persistentVolumeClaim": {"claimName": name}}]


async def output(node: RealNode, name: str, command: str, **spec: Any) -> str:
    await node.create(name, command, restartPolicy="Never", **spec)
    await node.until_pod(name, lambda pod: (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed"))
    return await node.logs(name)


def mount(path: str, **fields: Any) -> Object:
    return {"volumeMounts": [{"name": "disk", "mountPath": path, **fields}]}


@pytest.fixture
def device(tmp_path: Path) -> Iterator[str]:
    """A blank block device of 16 MiB."""
    if os.geteuid() != 0:
        pytest.skip("only root makes block devices")
    image = tmp_path / "image"
    with image.open("wb") as file:
        file.truncate(16 << 20)
    made = subprocess.run(["losetup", "--find", "--show", str(image)], capture_output=True, text=True, check=False)
    if made.returncode != 0:
        pytest.skip(f"this machine has no loop devices: {made.stderr.strip()}")
    yield made.stdout.strip()
    subprocess.run(["losetup", "--detach", made.stdout.strip()], check=True)


async def test_a_directory_behind_a_link_and_a_file_in_it_are_mounted(node: RealNode, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir(mode=0o755)
    (tmp_path / "real" / "file").write_text("local\n")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    volumes = await claim(node, "linked", local={"path": str(tmp_path / "link")})
    assert await output(node, "whole", "cat /d/file", volumes=volumes, container=mount("/d")) == "local\n"
    part = mount("/only", subPath="file")
    assert await output(node, "part", "cat /only", volumes=volumes, container=part) == "local\n"


async def test_a_claim_that_is_used_read_only_cannot_be_written(node: RealNode, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir(mode=0o777)
    volumes = await claim(node, "data", local={"path": str(tmp_path / "data")})
    volumes[0]["persistentVolumeClaim"]["readOnly"] = True
    command = "touch /d/x 2>/dev/null || echo refused"
    assert await output(node, "reads", command, volumes=volumes, container=mount("/d")) == "refused\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="an ordinary user cannot give the directory away")
async def test_the_group_of_a_pod_owns_a_local_directory(node: RealNode, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir(mode=0o755)
    volumes = await claim(node, "data", local={"path": str(tmp_path / "data")})
    security = {"runAsUser": 1000, "runAsGroup": 1000, "fsGroup": 1234}
    command = "touch /d/x; stat -c %g:%a /d; stat -c %g /d/x"
    text = await output(node, "grouped", command, volumes=volumes, container=mount("/d"), securityContext=security)
    assert text == "1234:2775\n1234\n"


async def test_a_blank_device_gets_a_file_system_that_keeps_its_files(node: RealNode, device: str) -> None:
    volumes = await claim(node, "disk", local={"path": device})
    security = {"runAsUser": 1000, "runAsGroup": 1000, "fsGroup": 1234}
    command = "echo kept > /d/file && stat -c %g /d && stat -f -c %T /d"
    text = await output(node, "writes", command, volumes=volumes, container=mount("/d"), securityContext=security)
    assert text == "1234\next2/ext3\n"
    part = mount("/only", subPath="file")
    assert await output(node, "reads", "cat /only", volumes=volumes, container=part) == "kept\n"


async def test_a_container_opens_a_device_without_a_file_system(node: RealNode, device: str) -> None:
    volumes = await claim(node, "raw", local={"path": device}, mode="Block")
    container = {"volumeDevices": [{"name": "disk", "devicePath": "/dev/xvda"}]}
    command = "printf block | dd of=/dev/xvda conv=notrunc 2>/dev/null; sync; test -b /dev/xvda && echo device"
    assert await output(node, "raw", command, volumes=volumes, container=container) == "device\n"
    assert Path(device).read_bytes()[:5] == b"block"


async def test_a_volume_is_used_in_the_mode_that_it_has(memory_node: NodeInMemory, tmp_path: Path) -> None:
    volumes = await claim(memory_node, "files", local={"path": str(tmp_path)})
    container = {"volumeDevices": [{"name": "disk", "devicePath": "/dev/xvda"}]}
    await memory_node.create("wrong", volumes=volumes, container=container)
    await memory_node.until_event(
        "wrong", "volume disk has volumeMode Filesystem, but is specified in volumeDevices", reason="FailedMount"
    )


@pytest.mark.skipif(Path("/sbin/mount.nfs").exists(), reason="this machine has mount.nfs")
async def test_nfs_is_refused_in_the_words_of_kubelet(memory_node: NodeInMemory) -> None:
    nfs = {"server": "127.0.0.1", "path": "/exports"}
    text = (
        "mount failed: exit status 32\nMounting command: mount\nMounting arguments: -t nfs 127.0.0.1:/exports\n"
        "Output: mount: 127.0.0.1:/exports: bad option; for several filesystems (e.g. nfs, cifs) you might need a "
        "/sbin/mount.<type> helper program."
    )
    volumes = await claim(memory_node, "remote", nfs=nfs)
    await memory_node.create("claims", volumes=volumes)
    await memory_node.until_event("claims", text, reason="FailedMount")
    await memory_node.create("direct", volumes=[{"name": "remote", "nfs": nfs}])
    await memory_node.until_event("direct", text, reason="FailedMount")
