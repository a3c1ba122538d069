"""The published attacks of the last years on kubelet's files and volumes: each is tried, and each has its result."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from tests.node.agent.conftest import NODE, RealNode

from pinnace.model import errors
from pinnace.model.objects import Object
from pinnace.node.pressure.eviction import CHECK_SECONDS

_WORK = {"name": "work", "emptyDir": {}}
_EXCHANGE = """
import ctypes, os
os.chdir('/work'); os.mkdir('dir'); os.symlink({target!r}, 'link')
libc = ctypes.CDLL(None)
print('racing', flush=True)
while True:
    libc.renameat2(-100, b'dir', -100, b'link', 2)
"""
"""Exchange a directory and a link as fast as possible."""


def _mount(path: str = "/work", **fields: Any) -> Object:
    return {"volumeMounts": [{"name": "work", "mountPath": path, **fields}]}


def _container(name: str, command: str, **fields: Any) -> Object:
    return {"name": name, "image": "host", "command": ["sh", "-c", command], **fields}


def _sentinel(place: Path) -> Path:
    sentinel = place / "sentinel"
    sentinel.mkdir()
    (sentinel / "kept-outside").write_text("content outside")
    return sentinel


def _waiting(pod: Object, name: str = "main") -> str:
    for container_status in (pod.get("status") or {}).get("containerStatuses") or ():
        if container_status["name"] == name:
            states = (
                container_status["state"].get("waiting"),
                container_status["state"].get("terminated"),
                container_status["lastState"].get("terminated"),
            )
            return "; ".join(f"{state.get('reason')}: {state.get('message')}" for state in states if state)
    return ""


async def _pod_directory(node: RealNode, name: str) -> Path:
    pod = await node.client.get("v1/Pod", name, namespace="default")
    return node.directory / "agent/pods" / str(pod["metadata"]["uid"])


async def _sub_path_link(node: RealNode, place: Path) -> None:
    """An init container puts a link where the main one mounts a subPath."""
    sentinel = _sentinel(place)
    first = _container("first", f"ln -s {sentinel} /work/out; ln -s / /work/top", **_mount())
    for name in ("out", "top"):
        main = _mount("/seen", subPath=name)
        await node.create(f"sub-{name}", "ls /seen", volumes=[_WORK], initContainers=[first], container=main)
        pod = await node.until_pod(f"sub-{name}", lambda pod: "Error" in _waiting(pod))
        assert "cross-device link" in _waiting(pod), _waiting(pod)
        assert "kept-outside" not in json.dumps(pod)


async def _sub_path_race(node: RealNode, place: Path) -> None:
    """A container exchanges the subPath of others with a link while they start."""
    sentinel = _sentinel(place)
    racer = _container("racer", "", **_mount(), restartPolicy="Always")
    racer["command"] = ["python3", "-c", _EXCHANGE.format(target=str(sentinel))]
    seen = _mount("/seen", subPath="dir")
    others = [_container(f"other-{number}", "ls /seen", **seen) for number in range(12)]
    await node.create(
        "race",
        "ls /seen",
        volumes=[_WORK],
        initContainers=[racer],
        container={**seen, "name": "main"},
        containers=[_container("main", "ls /seen", **seen), *others],
        restartPolicy="Never",
    )

    def has_tried(pod: Object) -> bool:
        states = [
            container_status["state"] for container_status in (pod.get("status") or {}).get("containerStatuses") or ()
        ]
        return len(states) == len(others) + 1 and all("terminated" in state for state in states)

    pod = await node.until_pod("race", has_tried)
    for status in pod["status"]["containerStatuses"]:
        if status["state"]["terminated"]["reason"] != "StartError":
            assert await node.logs("race", status["name"]) == "", "an empty directory, never the link's target"


async def _hosts_file_fills_the_disk(node: RealNode, place: Path) -> None:
    """A container writes into its /etc/hosts: the file counts to its ephemeral storage."""
    limits = {"resources": {"limits": {"ephemeral-storage": "1Mi"}}}
    await node.create("filler", "head -c 3000000 /dev/zero >> /etc/hosts; sleep 1000", container=limits)
    await node.until_pod("filler", lambda pod: (pod.get("status") or {}).get("phase") == "Running")

    async def is_evicted() -> bool:
        await node.clock.advance(CHECK_SECONDS)
        pod = await node.get("filler")
        return pod is not None and pod["status"].get("reason") == "Evicted"

    await node.until(is_evicted)


async def _git_repository(node: RealNode, place: Path) -> None:
    """A gitRepo volume runs the hooks of a repository on the node: the kind is refused."""
    volumes = [{"name": "work", "gitRepo": {"repository": str(place), "directory": "../../x"}}]
    try:
        await node.create("git", ["true"], volumes=volumes, container=_mount())
    except Exception as error:  # The API server may refuse it first.
        assert "directory" in str(error)
    volumes[0]["gitRepo"]["directory"] = "."  # type: ignore[index]
    await node.create("git", ["true"], volumes=volumes, container=_mount())
    await node.until_event("git", "volumes of the kind gitRepo are not supported", reason="FailedMount")


async def _local_path_with_commands(node: RealNode, place: Path) -> None:
    """The path of a local volume is a command line: it is a name that does not exist, and nothing runs."""
    path = f"{place}/x;touch {place}/ran;$(touch {place}/ran)&&touch {place}/ran"
    terms = [{"matchExpressions": [{"key": "kubernetes.io/os", "operator": "Exists"}]}]
    shared = {"accessModes": ["ReadWriteOnce"], "storageClassName": "manual"}
    volume = {**shared, "capacity": {"storage": "1Mi"}, "local": {"path": path}}
    volume["nodeAffinity"] = {"required": {"nodeSelectorTerms": terms}}
    metadata = {"name": "disk", "namespace": "default"}
    await node.client.create(
        {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "disk"}, "spec": volume}
    )
    claim = {**shared, "resources": {"requests": {"storage": "1Mi"}}}
    await node.client.create({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": claim})
    volumes = [{"name": "work", "persistentVolumeClaim": {"claimName": "disk"}}]
    await node.create("local", ["true"], volumes=volumes, container=_mount())
    await node.until_event("local", "does not exist", reason="FailedMount")
    assert not (place / "ran").exists()


async def _log_link(node: RealNode, place: Path) -> None:
    """A pod with a hostPath of the logs replaces a log by a link: `kubectl logs` does not follow it."""
    secret = _sentinel(place) / "kept-outside"
    await node.create("logger", "echo said; sleep 1000")
    await node.until_ready("logger")
    await node.until_logs("logger", "said\n")
    log = await _pod_directory(node, "logger") / "logs/main/0.log"
    for planted in ("link", "fifo", "link above"):
        if planted == "link above":
            log.unlink()
            (secret.parent / "0.log").write_text("2026-01-01T00:00:00Z stdout F content outside\n")
            log.parent.rename(log.parent.with_name("old"))
            log.parent.symlink_to(secret.parent)
        else:
            log.unlink()
            log.symlink_to(secret) if planted == "link" else os.mkfifo(log)
        with pytest.raises(Exception) as raised:
            await node.logs("logger")
        assert "content outside" not in str(raised.value)


async def _message_file(node: RealNode, place: Path) -> None:
    """The file of the termination message is huge, a link, or a FIFO: the status has no more than it may, at once."""
    await node.create("huge", "truncate -s 1G /dev/termination-log; exit 1", restartPolicy="Never")
    pod = await node.until_phase("huge", "Failed")
    assert len(pod["status"]["containerStatuses"][0]["state"]["terminated"].get("message", "")) <= 4096
    secret = _sentinel(place) / "kept-outside"
    for planted in ("link", "fifo"):
        await node.create(
            planted,
            "while [ ! -e /work/go ]; do sleep 0.05; done; exit 3",
            volumes=[_WORK],
            container=_mount(),
            restartPolicy="Never",
        )
        await node.until_ready(planted)
        directory = await _pod_directory(node, planted)
        file = directory / "containers/main/message-0"
        file.unlink()
        file.symlink_to(secret) if planted == "link" else os.mkfifo(file)
        (directory / "volumes/work/go").touch()
        pod = await node.until_phase(planted, "Failed")
        assert pod["status"]["containerStatuses"][0]["state"]["terminated"].get("message", "") == ""


async def _message_path_climbs(node: RealNode, place: Path) -> None:
    """terminationMessagePath leads above the root of the container: it stays inside."""
    path = "/../../../.." + str(place / "climbed")
    fields = {"terminationMessagePath": path}
    await node.create("climber", f"echo inside > {place}/climbed; exit 1", container=fields, restartPolicy="Never")
    await node.until_phase("climber", "Failed")
    assert not (place / "climbed").exists()


async def _static_manifests(node: RealNode, place: Path) -> None:
    """The directory of manifests has FIFOs, devices, huge and malformed files: the others run."""
    os.mkfifo(node.manifests / "a-fifo.yaml")
    (node.manifests / "a-zero.yaml").symlink_to("/dev/zero")
    (node.manifests / "a-loop.yaml").symlink_to("a-loop.yaml")
    with (node.manifests / "a-huge.yaml").open("wb") as file:
        file.truncate(1 << 34)
    head = "apiVersion: v1\nkind: Pod\n"
    malformed = {
        "list": "metadata: [1]\nspec: {containers: [{name: x}]}",
        "text": "metadata: {name: x, annotations: text}\nspec: {containers: [{name: x}]}",
        "climb": "metadata: {name: ../../x, namespace: ../x}\nspec: {containers: [{name: x}]}",
        "shape": "metadata: {name: x}\nspec: {containers: {a: b}, tolerations: 1}",
        "deep": "metadata: " + "[" * 20_000,
    }
    for name, text in malformed.items():
        (node.manifests / f"b-{name}.yaml").write_text(head + text)
    (node.manifests / "c-binary.yaml").write_bytes(os.urandom(4096))
    good = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "good"}}
    good["spec"] = {"containers": [_container("main", "sleep 1000")], "terminationGracePeriodSeconds": 1}
    (node.manifests / "z-good.json").write_text(json.dumps(good))
    await node.clock.advance(3)
    await node.until_ready(f"good-{NODE}")


async def _host_path_below_a_pod(node: RealNode, place: Path) -> None:
    """A pod puts links into a directory that it may write to; a hostPath below them makes nothing elsewhere."""
    shared = place / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    sentinel = _sentinel(place)
    (shared / "out").symlink_to(sentinel)
    for number, kind in enumerate(("DirectoryOrCreate", "FileOrCreate", "")):
        volumes = [{"name": "work", "hostPath": {"path": f"{shared}/out/made-{number}", "type": kind}}]
        await node.create(f"below-{number}", ["true"], volumes=volumes, container=_mount())
        await node.until_event(f"below-{number}", "is a link that other users may have made", reason="FailedMount")
    assert os.listdir(sentinel) == ["kept-outside"]
    (place / "own").symlink_to(shared)  # A link of the owner alone is followed, as /var/run is.
    volumes = [{"name": "work", "hostPath": {"path": f"{place}/own/a/b", "type": "DirectoryOrCreate"}}]
    await node.create("followed", "sleep 1000", volumes=volumes, container=_mount())
    await node.until_ready("followed")
    assert (shared / "a/b").is_dir()


async def _group_walk(node: RealNode, place: Path) -> None:
    """A later agent gives an emptyDir to the fsGroup once more: it changes neither what links lead to nor the files."""
    sentinel = _sentinel(place)
    before = [(path.stat().st_gid, path.stat().st_mode) for path in (sentinel, sentinel / "kept-outside")]
    command = f"ln -s {sentinel} /work/out; ln -s {sentinel}/kept-outside /work/file; mkfifo /work/fifo; sleep 1000"
    own = {"fsGroup": os.getegid()}
    await node.create("grouped", command, volumes=[_WORK], container=_mount(), securityContext=own)
    await node.until_ready("grouped")
    await node.kill_agent()
    await node.runtime.close()
    await node.start_agent()
    await node.until_ready("grouped")
    assert [(path.stat().st_gid, path.stat().st_mode) for path in (sentinel, sentinel / "kept-outside")] == before


async def _secrets_of_ephemeral_containers(node: RealNode, place: Path) -> None:
    """An account allows no Secrets but its own; an ephemeral container asks for another one."""
    annotations = {"kubernetes.io/enforce-mountable-secrets": "true"}
    metadata = {"name": "strict", "namespace": "default", "annotations": annotations}
    await node.client.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata})
    await node.create("strict", "sleep 1000", serviceAccountName="strict")
    await node.until_ready("strict")
    for source in (
        {"envFrom": [{"secretRef": {"name": "other"}}]},
        {"env": [{"name": "X", "valueFrom": {"secretKeyRef": {"name": "other", "key": "key"}}}]},
    ):
        patch = {"spec": {"ephemeralContainers": [_container("debug", "env", **source)]}}
        with pytest.raises(errors.Forbidden, match=r"secret.*other.*is not allowed"):
            await node.client.patch("v1/Pod", "strict", patch, namespace="default", subresource="ephemeralcontainers")


async def _tree_that_cannot_be_removed(node: RealNode, place: Path) -> None:
    """An emptyDir with a tree of depth 20,000, odd names, links, FIFOs and sockets: its pod ends as any other."""
    sentinel = _sentinel(place)
    code = f"""
import os, socket
os.chdir('/work')
for name in (b'line\\nbreak', b'\\xff\\xfe', b'-rf', b' ', b'*'):
    os.mkdir(name); os.mkfifo(name + b'/fifo'); os.symlink({str(sentinel)!r}.encode(), name + b'/out')
socket.socket(socket.AF_UNIX).bind('socket')
os.symlink({str(sentinel)!r}, 'out')
for _ in range(20000):
    os.mkdir('deep'); os.chdir('deep')
print('made', flush=True)
"""
    await node.create(
        "deep",
        ["python3", "-c", code + "import time; time.sleep(1000)"],
        volumes=[_WORK],
        container=_mount(),
        terminationGracePeriodSeconds=0,
    )
    await node.until_ready("deep")
    await node.until_logs("deep", "made\n")
    directory = await _pod_directory(node, "deep")
    usage = await node.runtime.disk_usage(str(directory), [])
    assert "volumes/work" in usage.files
    await node.delete("deep")

    async def is_removed() -> bool:
        return not directory.exists() and not any((node.directory / "agent").rglob("deep"))

    await node.until(is_removed)
    assert os.listdir(sentinel) == ["kept-outside"]


_ATTACKS: dict[str, Callable[[RealNode, Path], Coroutine[Any, Any, None]]] = {
    "CVE-2017-1002101 a subPath is a link": _sub_path_link,
    "CVE-2017-1002102 a tree is removed through links": _tree_that_cannot_be_removed,
    "CVE-2020-8557 the disk is filled by way of /etc/hosts": _hosts_file_fills_the_disk,
    "CVE-2021-25741 a subPath is exchanged while it is mounted": _sub_path_race,
    "CVE-2023-2728 CVE-2024-3177 an ephemeral container takes a Secret": _secrets_of_ephemeral_containers,
    "CVE-2023-3676 CVE-2023-5528 a path of a local volume is a command": _local_path_with_commands,
    "CVE-2024-10220 CVE-2025-1767 a gitRepo volume runs hooks": _git_repository,
    "CVE-2025-0750 logs: a link in the place of a log": _log_link,
    "messages: links, FIFOs and huge files": _message_file,
    "messages: a path that climbs": _message_path_climbs,
    "static pods: FIFOs, devices, huge and malformed manifests": _static_manifests,
    "hostPath: a directory is made behind the link of a pod": _host_path_below_a_pod,
    "fsGroup: owners change behind a link": _group_walk,
}


@pytest.mark.parametrize("attack", _ATTACKS)
async def test_a_published_attack_fails(node: RealNode, tmp_path: Path, attack: str) -> None:
    await _ATTACKS[attack](node, tmp_path)
    await node.create("after", "sleep 1000")
    await node.until_ready("after")
