"""Volumes of pods on a real node: claims, images, groups, sub-paths; and what the kernel shows."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from tests.node.agent.conftest import RealNode
from tests.node.images.image_files import BuiltImage, directory, entry, layer

from pinnace.model.objects import Object
from pinnace.node.runtime.embedded.subordinate_ids import find_mappers

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
            one["reason"] == "FailedMount" and 'persistentvolumeclaim "late" not found' in one["message"]
            for one in events
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
    sysctls = [{"name": "net.ipv4.ip_local_port_range", "value": "40000 41000"}]
    command = "cat /proc/sys/net/ipv4/ip_local_port_range"
    text = await _output(node, "tuned", command, securityContext={"sysctls": sysctls})
    assert text.split() == ["40000", "41000"]


async def test_the_default_seccomp_profile_refuses_dangerous_calls(node: RealNode) -> None:
    profile = {"seccompProfile": {"type": "RuntimeDefault"}}
    text = await _output(node, "filtered", "grep Seccomp: /proc/self/status", securityContext=profile)
    assert text.split() == ["Seccomp:", "2"]
    text = await _output(node, "open", "grep Seccomp: /proc/self/status")
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
