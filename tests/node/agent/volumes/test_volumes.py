"""Volumes of pods on a real node: claims, images, groups, sub-paths; and what the kernel shows."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.node.agent.conftest import RealNode
from tests.node.images.image_files import BuiltImage, directory, entry, layer

from pinnace.model.objects import Object
from pinnace.node.agent.volumes.volume_files import VolumeFile, write_volume
from pinnace.node.agent.volumes.volumes import MOST_BYTES, VolumeMemory
from pinnace.node.machine.subordinate_ids import find_mappers

needs_ids = pytest.mark.skipif(
    os.geteuid() != 0 and not find_mappers(), reason="an ordinary user without subordinate ids has one group only"
)


def _mount(name: str, path: str, **fields: Any) -> dict[str, Any]:
    return {"volumeMounts": [{"name": name, "mountPath": path, **fields}]}


async def _output(node: RealNode, name: str, command: str, **spec: Any) -> str:
    """Run a command to its end in a pod, and return its output."""
    await node.create(name, command, restartPolicy="Never", **spec)
    await node.until_pod(name, lambda pod: (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed"))
    return await node.logs(name)


def _waiting(pod: Object) -> str:
    statuses = (pod.get("status") or {}).get("containerStatuses") or [{}]
    return str(statuses[0].get("state", {}).get("waiting", {}).get("reason"))


def _claim(name: str) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}},
    }


async def test_a_claim_keeps_its_data_from_pod_to_pod(node: RealNode) -> None:
    await node.client.create(_claim("data"))
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    await _output(node, "writer", "echo kept > /data/file", volumes=volumes, container=_mount("data", "/data"))
    await node.delete("writer")
    read = await _output(node, "reader", "cat /data/file", volumes=volumes, container=_mount("data", "/data"))
    assert read == "kept\n"


async def test_a_generic_ephemeral_volume_is_made_for_the_pod(node: RealNode) -> None:
    template = {"spec": _claim("unused")["spec"]}
    volumes = [{"name": "scratch", "ephemeral": {"volumeClaimTemplate": template}}]
    text = await _output(
        node, "one", "echo fine > /x/file; cat /x/file", volumes=volumes, container=_mount("scratch", "/x")
    )
    assert text == "fine\n"


async def test_a_missing_claim_is_waited_for(node: RealNode) -> None:
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "late"}}]
    await node.create("waits", ["true"], restartPolicy="Never", volumes=volumes, container=_mount("data", "/data"))

    async def is_reported() -> bool:
        events = await node.client.list("v1/Event", namespace="default")
        return any(
            event["reason"] == "FailedMount" and 'persistentvolumeclaim "late" not found' in event["message"]
            for event in events
        )

    await node.until(is_reported)
    await node.client.create(_claim("late"))
    await node.until_phase("waits", "Succeeded")


async def test_a_local_volume_must_exist(node: RealNode, tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir(mode=0o777)
    (tmp_path / "disk" / "file").write_text("local\n")
    terms = [{"matchExpressions": [{"key": "kubernetes.io/os", "operator": "Exists"}]}]
    volume = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": "disk"},
        "spec": {
            "capacity": {"storage": "1Mi"},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "manual",
            "local": {"path": str(tmp_path / "disk")},
            "nodeAffinity": {"required": {"nodeSelectorTerms": terms}},
        },
    }
    await node.client.create(volume)
    claim = _claim("disk")
    claim["spec"]["storageClassName"] = "manual"
    await node.client.create(claim)
    volumes = [{"name": "disk", "persistentVolumeClaim": {"claimName": "disk"}}]
    assert await _output(node, "local", "cat /d/file", volumes=volumes, container=_mount("disk", "/d")) == "local\n"


async def test_an_image_is_mounted_read_only(node: RealNode, tmp_path: Path) -> None:
    lower = layer(directory("models"), entry("models/a", b"first"), entry("models/b", b"old"))
    built = BuiltImage([lower, layer(directory("models"), entry("models/b", b"new"))])
    await node.images.load(built.write_docker(tmp_path / "image.tar", "example.com/models:v1"))
    volumes = [{"name": "models", "image": {"reference": "example.com/models:v1", "pullPolicy": "Never"}}]
    command = "cat /m/models/a /m/models/b; touch /m/x 2>/dev/null || echo refused"
    text = await _output(node, "whole", command, volumes=volumes, container=_mount("models", "/m"))
    assert text == "firstnewrefused\n"
    part = _mount("models", "/m", subPath="models")
    assert await _output(node, "part", "cat /m/a", volumes=volumes, container=part) == "first"


async def test_an_image_volume_without_its_image_waits(node: RealNode) -> None:
    volumes = [{"name": "models", "image": {"reference": "example.com/none:v1", "pullPolicy": "Never"}}]
    await node.create("waits", ["true"], volumes=volumes, container=_mount("models", "/m"))

    await node.until_pod("waits", lambda pod: _waiting(pod) == "ErrImageNeverPull")


@needs_ids
async def test_the_group_of_a_pod_owns_a_directory_in_memory(node: RealNode) -> None:
    text = await _output(
        node,
        "grouped",
        "stat -c %g:%a /memory; touch /memory/x; stat -c %u:%g /memory/x",
        securityContext={"runAsUser": 1000, "runAsGroup": 1000, "fsGroup": 1234},
        volumes=[{"name": "memory", "emptyDir": {"medium": "Memory"}}],
        container=_mount("memory", "/memory"),
    )
    assert text.split() == ["1234:2777", "1000:1234"]


async def test_every_user_may_write_to_a_directory_in_memory(node: RealNode) -> None:
    text = await _output(
        node,
        "open",
        "stat -c %a /memory",
        volumes=[{"name": "memory", "emptyDir": {"medium": "Memory"}}],
        container=_mount("memory", "/memory"),
    )
    assert text == "777\n"


@needs_ids
async def test_the_group_of_a_pod_reads_what_it_mounts_from_the_api(node: RealNode) -> None:
    for kind, data in (("Secret", "stringData"), ("ConfigMap", "data")):
        metadata = {"name": "object", "namespace": "default"}
        await node.client.create({"apiVersion": "v1", "kind": kind, "metadata": metadata, data: {"key": "x"}})
    sources = [{"secret": {"name": "object"}}, {"serviceAccountToken": {"path": "token"}}]
    volumes = [
        {"name": "secret", "secret": {"secretName": "object", "defaultMode": 0o400}},
        {"name": "map", "configMap": {"name": "object", "defaultMode": 0o400}},
        {"name": "all", "projected": {"sources": sources, "defaultMode": 0o400}},
    ]
    text = await _output(
        node,
        "grouped",
        "for file in /secret/key /map/key /all/key; do stat -Lc %g:%a $file; cat $file > /dev/null || echo no; done; "
        "cat /all/token > /dev/null && echo token",
        securityContext={"runAsUser": 1000, "runAsGroup": 1000, "fsGroup": 1234},
        volumes=volumes,
        container={"volumeMounts": [{"name": name, "mountPath": f"/{name}"} for name in ("secret", "map", "all")]},
    )
    assert text.split() == ["1234:440"] * 3 + ["token"]


@needs_ids
async def test_the_group_of_a_pod_owns_its_volumes(node: RealNode) -> None:
    metadata = {"name": "secret", "namespace": "default"}
    await node.client.create({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": {"key": "x"}})
    text = await _output(
        node,
        "grouped",
        "id -u; id -G; stat -c %g:%a /empty; stat -Lc %g:%a /secret/key; touch /empty/x; stat -c %g /empty/x",
        securityContext={"runAsUser": 1000, "fsGroup": 1234, "supplementalGroups": [77]},
        volumes=[
            {"name": "empty", "emptyDir": {}},
            {"name": "secret", "secret": {"secretName": "secret", "defaultMode": 0o400}},
        ],
        container={
            "volumeMounts": [{"name": "empty", "mountPath": "/empty"}, {"name": "secret", "mountPath": "/secret"}]
        },
    )
    user, groups, empty, secret, made = text.splitlines()
    assert user == "1000"
    assert {"77", "1234"} <= set(groups.split())
    assert empty == "1234:2777"
    assert secret == "1234:440"
    assert made == "1234"


@needs_ids
@pytest.mark.parametrize("node", ["AtomicWriteVolumeUserFields=true"], indirect=True)
async def test_the_files_of_a_volume_belong_to_the_users_that_it_states(node: RealNode) -> None:
    data = {"own": "x", "other": "x"}
    for kind, place in (("Secret", "stringData"), ("ConfigMap", "data")):
        metadata = {"name": "object", "namespace": "default"}
        await node.client.create({"apiVersion": "v1", "kind": kind, "metadata": metadata, place: data})
    items = [{"key": "own", "path": "own", "user": 1001}, {"key": "other", "path": "other"}]
    names = [{"path": "name", "fieldRef": {"fieldPath": "metadata.name"}, "user": 1001}]
    sources = [
        {"secret": {"name": "object", "items": items}},
        {"serviceAccountToken": {"path": "token", "user": 1002}},
        {"downwardAPI": {"items": names}},
    ]
    volumes = [
        {"name": "secret", "secret": {"secretName": "object", "items": items, "defaultUser": 1003}},
        {"name": "map", "configMap": {"name": "object", "defaultUser": 1003}},
        {"name": "down", "downwardAPI": {"items": names, "defaultUser": 1003}},
        {"name": "all", "projected": {"sources": sources, "defaultUser": 1004}},
    ]
    files = "/secret/own /secret/other /map/own /down/name /all/own /all/other /all/name /all/token"
    text = await _output(
        node,
        "owned",
        f"stat -Lc %u:%a {files}",
        volumes=volumes,
        container={"volumeMounts": [{"name": volume["name"], "mountPath": f"/{volume['name']}"} for volume in volumes]},
    )
    owners = ["1001:644", "1003:644", "1003:644", "1001:644", "1001:644", "1004:644", "1001:644", "1002:600"]
    assert text.split() == owners


@needs_ids
@pytest.mark.parametrize("node", ["EmptyDirVolumeMode=true"], indirect=True)
async def test_an_empty_directory_has_the_mode_that_it_states(node: RealNode) -> None:
    text = await _output(
        node,
        "strict",
        "stat -c %a /disk /memory",
        volumes=[
            {"name": "disk", "emptyDir": {"mode": 0o750}},
            {"name": "memory", "emptyDir": {"mode": 0o1700, "medium": "Memory"}},
        ],
        container={"volumeMounts": [{"name": name, "mountPath": f"/{name}"} for name in ("disk", "memory")]},
    )
    assert text.split() == ["750", "1700"]


async def test_sub_paths_are_expanded_from_variables(node: RealNode) -> None:
    text = await _output(
        node,
        "expanded",
        "echo here > /logs/file; cat /all/expanded/file",
        volumes=[{"name": "work", "emptyDir": {}}],
        container={
            "env": [{"name": "NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
            "volumeMounts": [
                {"name": "work", "mountPath": "/logs", "subPathExpr": "$(NAME)"},
                {"name": "work", "mountPath": "/all"},
            ],
        },
    )
    assert text == "here\n"


@pytest.mark.parametrize("path", ["/tmp", "../etc", "$(NONE)"], ids=["absolute", "upwards", "unknown variable"])
async def test_a_sub_path_that_expands_badly_is_refused(node: RealNode, path: str) -> None:
    await node.create(
        "bad",
        ["true"],
        volumes=[{"name": "work", "emptyDir": {}}],
        container={
            "env": [{"name": "PATH_PART", "value": path}],
            **_mount("work", "/work", subPathExpr="$(PATH_PART)" if "NONE" not in path else path),
        },
    )

    await node.until_pod("bad", lambda pod: _waiting(pod) == "CreateContainerConfigError")


async def test_sysctls_belong_to_the_pod(node: RealNode) -> None:
    values = {"net.ipv4.ip_local_port_range": "40000 41000", "kernel.shm_rmid_forced": "1"}
    sysctls = [{"name": name, "value": value} for name, value in values.items()]
    command = "cd /proc/sys; cat net/ipv4/ip_local_port_range kernel/shm_rmid_forced"
    text = await _output(node, "tuned", command, securityContext={"sysctls": sysctls})
    assert text.split() == ["40000", "41000", "1"]


async def test_the_default_seccomp_profile_refuses_dangerous_calls(node: RealNode) -> None:
    profile = {"seccompProfile": {"type": "RuntimeDefault"}}
    text = await _output(node, "filtered", "grep Seccomp: /proc/self/status", securityContext=profile)
    assert text.split() == ["Seccomp:", "2"]
    unconfined = {"seccompProfile": {"type": "Unconfined"}}
    text = await _output(node, "open", "grep Seccomp: /proc/self/status", securityContext=unconfined)
    assert text.split() == ["Seccomp:", "0"]


async def test_proc_is_masked_unless_the_container_asks_for_all_of_it(node: RealNode) -> None:
    command = "grep -c ' /proc/' /proc/self/mountinfo || true"
    masked = await _output(node, "masked", command)
    assert int(masked) > 0
    unmasked = await _output(
        node,
        "unmasked",
        command,
        hostUsers=False,
        container={"securityContext": {"procMount": "Unmasked"}},
    )
    assert int(unmasked) == 0


@needs_ids
async def test_the_group_of_a_pod_owns_the_files_of_the_api(node: RealNode) -> None:
    await node.client.create(
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "plain"}, "data": {"map": "text"}}
    )
    await node.client.create(
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "hidden"}, "stringData": {"secret": "text"}}
    )
    sources = [
        {"configMap": {"name": "plain"}},
        {"secret": {"name": "hidden"}},
        {"downwardAPI": {"items": [{"path": "name", "fieldRef": {"fieldPath": "metadata.name"}}]}},
    ]
    volumes = [
        {"name": "maps", "configMap": {"name": "plain", "defaultMode": 0o400}},
        {"name": "secrets", "secret": {"secretName": "hidden", "defaultMode": 0o400}},
        {"name": "all", "projected": {"sources": sources, "defaultMode": 0o400}},
    ]
    mounts = [{"name": volume["name"], "mountPath": f"/{volume['name']}"} for volume in volumes]
    text = await _output(
        node,
        "reads",
        "stat -L -c %g:%a /maps/map /secrets/secret /all/map /all/secret /all/name; cat /all/*",
        securityContext={"runAsUser": 1000, "runAsGroup": 1000, "fsGroup": 1234},
        volumes=volumes,
        container={"volumeMounts": mounts},
    )
    assert text == "1234:440\n" * 5 + "textreadstext"


def _files_of_key(count: int) -> list[Object]:
    return [{"key": "k", "path": f"file-{number}"} for number in range(count)]


def _annotation_files(count: int) -> list[Object]:
    reference = {"fieldPath": "metadata.annotations"}
    return [{"path": f"file-{number}", "fieldRef": reference} for number in range(count)]


def _deep_files(count: int) -> list[Object]:
    return [{"key": "empty", "path": f"{number}{'/d' * 900}"} for number in range(count)]


@pytest.mark.parametrize(
    "volume",
    [
        {"configMap": {"name": "large", "items": _files_of_key(1_500)}},
        {"projected": {"sources": [{"configMap": {"name": "large", "items": _files_of_key(1_500)}}]}},
        {"downwardAPI": {"items": _annotation_files(1_500)}},
        {
            "configMap": {
                "name": "large",
                "items": [{"key": "empty", "path": f"{top}{'/d' * 900}"} for top in range(20)],
            }
        },
    ],
    ids=["ConfigMap", "projected", "annotations", "directories"],
)
async def test_many_files_of_one_large_text_do_not_fill_the_memory_of_the_node(node: RealNode, volume: Object) -> None:
    data = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "large", "namespace": "default"}}
    await node.client.create({**data, "data": {"k": "x" * 900_000, "empty": ""}})
    volumes = [{"name": "api", **volume}]
    metadata = {"annotations": {"example.com/a": "x" * 200_000}}
    await node.create("greedy", ["true"], metadata=metadata, volumes=volumes, container=_mount("api", "/api"))

    async def is_reported() -> bool:
        events = await node.client.list("v1/Event", namespace="default")
        return any(
            event["reason"] == "FailedMount" and f"more than {MOST_BYTES} bytes together" in event["message"]
            for event in events
        )

    await node.until(is_reported)
    assert await _output(node, "other", "echo fine") == "fine\n"


def test_a_file_may_be_as_deep_as_its_path_is_long(tmp_path: Path) -> None:
    deepest = "/".join("d" * 2_000)
    place = os.open(tmp_path, os.O_RDONLY)
    try:
        write_volume(place, "api", {deepest: VolumeFile(b"x", 0o644)})
        assert (tmp_path / "api" / deepest).read_bytes() == b"x"
        write_volume(place, "api", {"other": VolumeFile(b"x", 0o644)})
    finally:
        os.close(place)
    assert sorted(os.listdir(tmp_path / "api/..data/")) == ["other"]


_SHARE, _LENT = 25, 250
"""The bytes of a node with 1000 bytes for ten pods: what each of them has, and what all may take beside."""


@pytest.fixture
def shared() -> Callable[..., None]:
    """Reserve memory of a node for a pod, after others have taken as much as they get."""
    memory = VolumeMemory(most_pods=10)
    reserve = partial(memory.reserve, total=1000, is_made=False)
    reserve("greedy", _SHARE + _LENT - 1)
    reserve("second", _SHARE + 1)
    return reserve


def test_pods_that_take_much_memory_leave_each_other_pod_its_share(shared: Callable[..., None]) -> None:
    for number in range(8):
        with pytest.raises(ValueError, match=f"beside {_SHARE} bytes for each pod"):
            shared(f"late-{number}", _SHARE + 1)
        shared(f"late-{number}", _SHARE)
    with pytest.raises(ValueError, match="beside 25 bytes"):
        shared("second", _SHARE + 2)
    shared("second", _SHARE + 1)


def test_pods_of_an_earlier_agent_keep_their_memory(shared: Callable[..., None]) -> None:
    shared("running", 100, is_made=True)
    with pytest.raises(ValueError, match="beside 25 bytes"):
        shared("running", 101, is_made=True)


def test_a_content_that_many_files_share_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[bytes] = []
    sha256 = hashlib.sha256

    def counted(content: bytes) -> Any:
        read.append(content)
        return sha256(content)

    monkeypatch.setattr(hashlib, "sha256", counted)
    content = b"x" * 1000
    place = os.open(tmp_path, os.O_RDONLY)
    try:
        write_volume(place, "api", {f"file-{number}": VolumeFile(content, 0o644) for number in range(100)})
    finally:
        os.close(place)
    assert read.count(content) == 1
    assert sum(map(len, read)) < 100 * len(content)
    assert (tmp_path / "api" / "file-99").read_bytes() == content
