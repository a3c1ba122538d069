"""Specifications that the API server takes and no container can have: each pod says why, and no other one suffers."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.node.agent.conftest import RealNode

_WORK = {"name": "work", "emptyDir": {}}


def _mount(path: str = "/work", **fields: Any) -> dict[str, Any]:
    return {"volumeMounts": [{"name": "work", "mountPath": path, **fields}]}


def _annotation(path: str) -> dict[str, Any]:
    return {"env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": path}}}]}


_SPECS: dict[str, tuple[list[str], dict[str, Any], str]] = {
    "command": (["sh", "-c", "echo a\0b"], {}, "the command has a NUL byte: 'echo a\\x00b'"),
    "variable": (["true"], {"container": {"env": [{"name": "A", "value": "x\0y"}]}}, "the environment has a NUL byte"),
    "annotation": (
        ["true"],
        {
            "metadata": {"annotations": {"odd": "x\0y"}},
            "container": _annotation("metadata.annotations['odd']"),
        },
        "the environment has a NUL byte: 'A=x\\x00y'",
    ),
    "directory": (["true"], {"container": {"workingDir": "/a\0b"}}, "the working directory has a NUL byte: '/a\\x00b'"),
    "mount": (["true"], {"volumes": [_WORK], "container": _mount("/a\0b")}, "a volume has a NUL byte: '/a\\x00b'"),
    "sub-path": (["true"], {"volumes": [_WORK], "container": _mount(subPath="a\0b")}, "a volume has a NUL byte"),
    "message": (["true"], {"container": {"terminationMessagePath": "/a\0b"}}, "a volume has a NUL byte"),
    "host-path": (
        ["true"],
        {"volumes": [{"name": "work", "hostPath": {"path": "/tmp/a\0b", "type": "DirectoryOrCreate"}}]},
        "the path has a NUL byte",
    ),
    "hook": (
        ["sleep", "1000"],
        {"container": {"lifecycle": {"postStart": {"exec": {"command": ["a\0b"]}}}}},
        "PostStartHook failed: failed to generate spec: the command has a NUL byte",
    ),
    "probe": (
        ["sleep", "1000"],
        {"container": {"livenessProbe": {"exec": {"command": ["a\0b"]}, "failureThreshold": 1000}}},
        "Liveness probe failed: failed to generate spec: the command has a NUL byte",
    ),
    "header": (
        ["python3", "-m", "http.server", "80"],
        {
            "container": {
                "readinessProbe": {"httpGet": {"port": 80, "httpHeaders": [{"name": "X", "value": "a\r\nEvil: 1"}]}}
            }
        },
        'net/http: invalid header field value for "X"',
    ),
    "long-name": (["true"], {"volumes": [_WORK], "container": _mount("/" + "n" * 300)}, "File name too long"),
    "message-in-proc": (["true"], {"container": {"terminationMessagePath": "/proc/self/mem"}}, "it is inside /proc"),
    "message-in-sys": (["true"], {"container": {"terminationMessagePath": "/sys/fs/x"}}, "Read-only file system"),
}


async def test_each_pod_says_why_it_cannot_run(node: RealNode) -> None:
    async def try_spec(name: str) -> None:
        command, spec, message = _SPECS[name]
        await node.create(name, command, restartPolicy="Never", **spec)
        await node.until_event(name, message)

    async with asyncio.TaskGroup() as group:
        for name in _SPECS:
            group.create_task(try_spec(name))
    await node.create("after", "sleep 1000")
    await node.until_ready("after")


async def test_a_sub_path_of_many_parts_is_made(node: RealNode) -> None:
    """Also through a link inside of the volume, which leads up in it."""
    deep = "/".join(["d"] * 1_500)
    first = {"name": "first", "image": "host", "command": ["sh", "-c", "mkdir /work/d; ln -s . /work/d/up"], **_mount()}
    mounts = [
        {"name": "work", "mountPath": "/deep", "subPath": deep},
        {"name": "work", "mountPath": "/up", "subPath": "d/up/made/below"},
    ]
    await node.create(
        "deep",
        "touch /deep/x /up/y && echo made",
        volumes=[_WORK],
        initContainers=[first],
        container={"volumeMounts": mounts},
        restartPolicy="Never",
    )
    await node.until_phase("deep", "Succeeded")
    assert await node.logs("deep") == "made\n"
