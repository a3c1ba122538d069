"""Pods that turn their volumes against the agent: nothing outside of the volume is read, written or removed."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from base64 import b64encode
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.node.agent.conftest import RealNode

import pinnace
from pinnace.model.objects import Object
from pinnace.node.agent.volumes.volume_files import VolumeFile, write_volume

_REFRESH_SECONDS = 61
"""A little more than the time after which the agent reads the objects again."""
_MS_REMOUNT = 0x20
"""The flag of mount(2) that changes the options of a mount."""
_VOLUMES = ("config", "secret", "all", "info")


def _object(kind: str, **content: Any) -> Object:
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": "conf", "namespace": "default"}, **content}


async def _create_pod_with_api_data(node: RealNode, command: str, **security: Any) -> None:
    """A pod that mounts one volume of each kind that shows API objects."""
    await node.client.create(_object("ConfigMap", data={"key": "first"}))
    await node.client.create(_object("Secret", stringData={"key": "first"}))
    label = {"path": "key", "fieldRef": {"fieldPath": "metadata.labels['key']"}}
    await node.create(
        "hostile",
        command,
        metadata={"labels": {"key": "first"}},
        volumes=[
            {"name": "config", "configMap": {"name": "conf"}},
            {"name": "secret", "secret": {"secretName": "conf"}},
            {"name": "all", "projected": {"sources": [{"configMap": {"name": "conf"}}]}},
            {"name": "info", "downwardAPI": {"items": [label]}},
        ],
        container={
            "volumeMounts": [{"name": name, "mountPath": f"/{name}"} for name in _VOLUMES],
            "securityContext": security,
        },
    )
    await node.until_ready("hostile")


async def _update_api_data(node: RealNode) -> None:
    await node.client.patch("v1/ConfigMap", "conf", {"data": {"key": "second"}}, namespace="default")
    await node.client.patch("v1/Secret", "conf", {"stringData": {"key": "second"}}, namespace="default")
    await node.client.patch("v1/Pod", "hostile", {"metadata": {"labels": {"key": "second"}}}, namespace="default")
    await node.advance(_REFRESH_SECONDS)


async def test_volumes_of_api_objects_are_read_only(node: RealNode) -> None:
    attempts = " ".join(f"/{name}/new /{name}/key /{name}/..data/key" for name in _VOLUMES)
    command = f"for path in {attempts}; do touch $path 2>/dev/null && echo wrote $path; done; echo done; sleep 1000"
    await _create_pod_with_api_data(node, command)
    await node.until_logs("hostile", "done\n")


@pytest.mark.parametrize("replacement", ["link", "directory"])
async def test_an_update_removes_nothing_that_a_pod_points_to(node: RealNode, tmp_path: Path, replacement: str) -> None:
    """A privileged container makes its volumes writable, and leads the agent out of them (CVE-2017-1002102).

    That of an ordinary user's node cannot: its mounts are locked by the user namespace of the pod.
    """
    sentinel = tmp_path / "sentinel"
    sentinel.mkdir()
    (sentinel / "kept").write_text("kept")
    make = {
        "link": f"ln -s {sentinel} ..data && ln -s {sentinel} ..old && ln -sf {sentinel} key",
        "directory": f"mkdir ..data key && ln -s {sentinel} ..data/key && ln -s {sentinel}/kept key/x",
    }[replacement]
    attack = " && ".join(
        f"mount -o remount,rw,bind /{name} && cd /{name} && rm -f ..data key && {make}" for name in _VOLUMES
    )
    await _create_pod_with_api_data(
        node, f"({attack}) 2>/dev/null && echo armed || echo refused; sleep 1000", privileged=True
    )
    await node.until_logs("hostile", "armed\n" if os.geteuid() == 0 else "refused\n")
    await _update_api_data(node)
    for name in _VOLUMES:
        await node.until_file("hostile", f"/{name}/key", lambda text: text == "second")
    assert (sentinel / "kept").read_text() == "kept"
    await node.delete("hostile")
    assert (sentinel / "kept").read_text() == "kept"


async def test_secrets_and_tokens_are_on_no_disk(node: RealNode) -> None:
    """The whole state directory is searched while the pod runs: volumes, variables, arguments, tokens, pull secrets."""
    login = b64encode(b"user:pull-secret-value").decode()
    config = json.dumps({"auths": {"example.com": {"auth": login, "password": "pull-secret-value"}}})
    await node.client.create(_object("Secret", stringData={"key": "secret-of-the-api"}))
    await node.client.create(
        {
            **_object("Secret", stringData={".dockerconfigjson": config}, type="kubernetes.io/dockerconfigjson"),
            "metadata": {"name": "pull", "namespace": "default"},
        }
    )
    await node.create(
        "careful",
        ["sh", "-c", "sleep 1000", "$(KEY)"],
        imagePullSecrets=[{"name": "pull"}],
        volumes=[
            {"name": "secret", "secret": {"secretName": "conf"}},
            {"name": "all", "projected": {"sources": [{"secret": {"name": "conf"}}]}},
            {"name": "token", "projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}},
        ],
        container={
            "env": [{"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "conf", "key": "key"}}}],
            "envFrom": [{"prefix": "ALL_", "secretRef": {"name": "conf"}}],
            "volumeMounts": [{"name": name, "mountPath": f"/{name}"} for name in ("secret", "all", "token")],
        },
    )
    await node.until_ready("careful")
    assert await node.read("careful", "/secret/key") == "secret-of-the-api"
    assert "ALL_key=secret-of-the-api" in await node.read("careful", "/proc/1/environ")
    assert "secret-of-the-api" in await node.read("careful", "/proc/1/cmdline")
    token = await node.read("careful", "/token/token")
    assert token.count(".") == 2
    values = [text.encode() for text in ("secret-of-the-api", "pull-secret-value", login, token)]
    values += [b64encode(value) for value in values]
    assert not _files_with(node.directory, values)
    assert _files_with(node.directory, [b"careful"]), "the search finds what is there"


def _files_with(directory: Path, values: Sequence[bytes]) -> list[str]:
    """Search all files below a directory."""
    paths = [Path(place, name) for place, _, names in os.walk(directory) for name in names]
    files = [path for path in paths if path.is_file() and not path.is_symlink()]
    return [str(path) for path in files if any(value in path.read_bytes() for value in values)]


async def test_a_full_memory_stops_the_pod_that_does_not_fit_and_no_other(node: RealNode) -> None:
    await node.client.create(_object("ConfigMap", data={"key": "first"}))
    volumes = [{"name": "config", "configMap": {"name": "conf"}}]
    mount = {"volumeMounts": [{"name": "config", "mountPath": "/config"}]}
    await node.create("small", "sleep 1000", volumes=volumes, container=mount)
    await node.until_ready("small")
    await _limit_memory(node, "size=1m")
    large = _object("ConfigMap", data={"key": "x" * 500_000}) | {"metadata": {"name": "large", "namespace": "default"}}
    await node.client.create(large)
    await node.create(
        "large", "sleep 1000", volumes=[{"name": "config", "configMap": {"name": "large"}}], container=mount
    )

    async def is_reported() -> bool:
        events = await node.client.list("v1/Event", namespace="default")
        expected = 'MountVolume.SetUp failed for volume "config" : '
        return any(
            event["reason"] == "FailedMount"
            and event["message"].startswith(expected)
            and "other pods have taken the memory" in event["message"]
            for event in events
        )

    await node.until(is_reported)
    await node.create("other", "sleep 1000", volumes=volumes, container=mount)
    await node.until_ready("other")
    assert await node.read("other", "/config/key") == "first"
    await _limit_memory(node, "size=8m")
    await node.until_ready("large")


async def _limit_memory(node: RealNode, option: str) -> None:
    """Change the size of the file system in memory, in the namespaces of the fork server."""
    users = [] if os.geteuid() == 0 else ["--user", "--preserve-credentials"]
    enter = ["nsenter", "--target", str(await node.runtime.node_pid()), "--mount", *users]
    # Not mount(8): it repeats the option uid, whose number means another user there.
    call = (
        "import sys; from pinnace.node.machine import linux;"
        "linux.mount('none', sys.argv[1], '', int(sys.argv[2]), sys.argv[3])"
    )
    command = [*enter, sys.executable, "-c", call, str(node.directory / "runtime/memory"), str(_MS_REMOUNT), option]
    environment = {**os.environ, "PYTHONPATH": str(Path(pinnace.__file__).parents[1])}
    await asyncio.to_thread(subprocess.run, command, check=True, timeout=60, env=environment)


async def test_the_mode_of_an_empty_directory_stays_as_its_pod_has_made_it(node: RealNode) -> None:
    mount = {"volumeMounts": [{"name": "work", "mountPath": "/work"}]}
    volumes = [{"name": "work", "emptyDir": {}}, {"name": "config", "configMap": {"name": "conf"}}]
    await node.client.create(_object("ConfigMap", data={"key": "first"}))
    mount["volumeMounts"].append({"name": "config", "mountPath": "/config"})
    await node.create("owner", "chmod 700 /work; sleep 1000", volumes=volumes, container=mount)
    await node.until_ready("owner")
    await node.client.patch("v1/ConfigMap", "conf", {"data": {"key": "second"}}, namespace="default")
    await node.advance(_REFRESH_SECONDS)
    await node.until_file("owner", "/config/key", lambda text: text == "second")
    pod = await node.client.get("v1/Pod", "owner", namespace="default")
    place = node.directory / "agent/pods" / pod["metadata"]["uid"] / "volumes/work"
    assert place.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize(
    "key", ["/tmp/x", "../../x", "a/../../x", "..data/x", "..", ".", "a\0b", "a//b", "", "x" * 5000]
)
def test_a_key_that_leads_out_of_its_volume_is_refused(tmp_path: Path, key: str) -> None:
    """The API server refuses such keys already. The agent does too, whatever server it has."""
    place = os.open(tmp_path, os.O_RDONLY)
    try:
        with pytest.raises(ValueError, match="must be relative, and must not contain or start with"):
            write_volume(place, "volume", {"good": VolumeFile(b"x", 0o644), key: VolumeFile(b"x", 0o644)})
    finally:
        os.close(place)
    assert os.listdir(tmp_path) == []


async def test_a_pod_of_an_earlier_fork_server_gets_its_updates(node: RealNode) -> None:
    """The file system in memory that the pod mounts from lives on in its own mount namespace."""
    await node.client.create(_object("ConfigMap", data={"key": "first"}))
    volumes = [{"name": "config", "configMap": {"name": "conf"}}]
    mount = {"volumeMounts": [{"name": "config", "mountPath": "/config"}]}
    await node.create("survivor", "sleep 1000", volumes=volumes, container=mount)
    await node.until_ready("survivor")
    old = await node.runtime.node_pid()
    os.kill(old, signal.SIGKILL)

    async def is_replaced() -> bool:
        return await node.runtime.node_pid() != old

    await node.until(is_replaced)
    await node.client.patch("v1/ConfigMap", "conf", {"data": {"key": "second"}}, namespace="default")
    await node.advance(_REFRESH_SECONDS)
    await node.until_file("survivor", "/config/key", lambda text: text == "second")
