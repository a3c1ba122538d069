"""Published attacks on runc, containerd, CRI-O and crun that need a whole pod: each is tried, and has its result.

`tests/hostile/published.toml` lists the others, and where they are tried.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, cast

import pytest
from tests.machine import need
from tests.node.agent.conftest import RealNode
from tests.node.census import census, children, supervisor_of, until_as
from tests.node.images.image_files import BuiltImage, Entry, directory, entry, layer, link

from pinnace.model import errors
from pinnace.model.node_connections import CommandStreams, PodAddress, TerminalSize
from pinnace.model.objects import Object
from pinnace.model.typed_objects import Pod
from pinnace.node.agent.kubelet_api.connection import AgentConnection
from pinnace.node.resources.admission import check_pod
from pinnace.node.runtime.embedded.groups.cgroups import Cgroups, group_name
from pinnace.process.clock import SystemClock

_IMAGE = "example.com/evil:v1"
_SHELL = ["/bin/busybox", "sh", "-c"]
_NAMESPACES = ("ipc", "mnt", "net", "pid", "uts")


async def _load(node: RealNode, place: Path, *entries: Entry, **config: Any) -> None:
    busybox = entry("bin/busybox", Path(need("busybox")).read_bytes(), mode=0o755)
    built = BuiltImage([layer(directory("bin"), busybox, *entries)], config)
    await node.images.load(built.write_docker(place / "image.tar", _IMAGE))


def _evil(**fields: Any) -> Object:
    return {"image": _IMAGE, "imagePullPolicy": "Never", **fields}


def _outside(place: Path) -> Path:
    outside = place / "outside"
    outside.mkdir()
    (outside / "kept").write_text("kept")
    return outside


async def _finished(node: RealNode, name: str) -> str:
    await node.until_phase(name, "Succeeded")
    return await node.logs(name)


async def _long_values(node: RealNode, place: Path) -> None:
    """A value of more than 64 KiB overran the length of its field in runc, and set namespace paths."""
    value = "\x08/proc/1/ns/mnt" * 8_000
    command = f'readlink {" ".join(f"/proc/self/ns/{name}" for name in _NAMESPACES)}; echo "${{#LONG}} ${{#1}}"'
    await node.create(
        "long",
        ["sh", "-c", command, "sh", value],
        container={"env": [{"name": "LONG", "value": value}]},
        restartPolicy="Never",
    )
    *spaces, lengths = (await _finished(node, "long")).splitlines()
    assert lengths == f"{len(value)} {len(value)}"
    assert not set(spaces) & {os.readlink(f"/proc/self/ns/{name}") for name in _NAMESPACES}


async def _volumes_of_an_image(node: RealNode, place: Path) -> None:
    """Containerd copied files of the machine to the volumes that an image names."""
    outside = _outside(place)
    volumes: Object = {f"/../../../../../../..{outside}": {}, f"{outside}": {}, "/data/../../../..": {}}
    await _load(node, place, Volumes=volumes)
    find = [*_SHELL, f"/bin/busybox find / -xdev -name kept; /bin/busybox cat {outside}/kept 2>/dev/null; true"]
    await node.create("volumes", find, container=_evil(), restartPolicy="Never")
    assert await _finished(node, "volumes") == ""
    assert os.listdir(outside) == ["kept"]


async def _files_that_a_runtime_writes_or_reads(node: RealNode, place: Path) -> None:
    """Links in the place of files that a runtime makes in the root of a container: /etc/mtab and crun's files."""
    outside = _outside(place)
    odd = [directory("etc"), link("etc/mtab", str(outside / "mtab"))]
    odd += [link(".krun_config.json", str(outside / "krun")), link("run", str(outside))]
    await _load(node, place, *odd)
    await node.create("odd", [*_SHELL, "true"], container=_evil(), restartPolicy="Never")
    await _finished(node, "odd")
    assert os.listdir(outside) == ["kept"]


async def _huge_user_files(node: RealNode, place: Path) -> None:
    """Accounts that fill the memory of a runtime which reads them whole."""
    rows = b"x" * 30_000_000
    files = [directory("etc"), entry("etc/passwd", rows), entry("etc/group", b"a:x:1:web\n" * 1_000_000)]
    await _load(node, place, *files, User="1000")
    await node.create("huge", [*_SHELL, "/bin/busybox id -u 2>/dev/null"], container=_evil(), restartPolicy="Never")
    assert await _finished(node, "huge") == "1000\n"


async def _labels_and_annotations(node: RealNode, place: Path) -> None:
    """Labels of an image, and annotations of a pod, that a runtime takes for its own configuration."""
    outside = _outside(place)
    run = f"binary:///bin/sh?-c=touch {outside}/ran"
    labels = {"containerd.io/restart.loguri": run, "containerd.io/restart.status": "running", "io.cri-containerd": "x"}
    await _load(node, place, Labels=labels)
    annotations = {
        "io.kubernetes.cri-o.UnifiedCgroup.main": "memory.max=max",
        "org.systemd.property.ExecStopPost": f"'/bin/touch {outside}/ran'",
        "io.kubernetes.cri-o.Devices": "/dev/kmsg",
        "io.kubernetes.cri-o.annotations.checkpoint.name": "main",
        "cdi.k8s.io/x": "vendor.com/device=all",
        "run.oci.handler": "krun",
        "run.oci.hooks.stderr": f"{outside}/ran",
    }
    look = "ls /dev; cat /sys/fs/cgroup/memory/memory.limit_in_bytes /sys/fs/cgroup/memory.max 2>/dev/null; true"
    limits = {"resources": {"limits": {"memory": "64Mi"}}}
    await node.create("plain", look, container=limits, restartPolicy="Never")
    await node.create("noted", look, container=limits, metadata={"annotations": annotations}, restartPolicy="Never")
    assert await _finished(node, "noted") == await _finished(node, "plain")
    await node.create("labelled", [*_SHELL, "exit 0"], container=_evil(), restartPolicy="Never")
    await _finished(node, "labelled")
    assert os.listdir(outside) == ["kept"]


async def _checkpoint_images(node: RealNode, place: Path) -> None:
    """An image with the files of a checkpoint is an image: nothing is restored, pulled, named or read by its words."""
    outside = _outside(place)
    spec = {"annotations": {"cdi.k8s.io/x": "vendor.com/device=all"}, "mounts": [{"source": "/", "destination": "/h"}]}
    config = {"rootfsImageName": "example.com/other:v1", "rootfsImageRef": _IMAGE}
    files = [
        entry("config.dump", json.dumps(config).encode()),
        entry("spec.dump", json.dumps(spec).encode()),
        link("container.log", str(outside / "kept")),
        directory("checkpoint"),
    ]
    before = {tag for image in await node.images.images() for tag in image.tags}
    await _load(node, place, *files, Labels={"org.criu.checkpoint.container.name": "main"})
    look = "ls /h 2>/dev/null; /bin/busybox cat /container.log 2>/dev/null; true"
    await node.create("restored", [*_SHELL, look], container=_evil(), restartPolicy="Never")
    assert await _finished(node, "restored") == ""
    after = {tag for image in await node.images.images() for tag in image.tags}
    assert after - before == {_IMAGE}


async def _environments_of_one_image(node: RealNode, place: Path) -> None:
    """Containers of one image that start together had the variables of each other."""
    names = [f"c{number}" for number in range(8)]
    made = [
        {"name": name, "image": "host", "command": ["env"], "env": [{"name": "OWN", "value": name}]} for name in names
    ]
    await node.create("several", containers=made, restartPolicy="Never")
    await node.until_phase("several", "Succeeded")
    for name in names:
        assert [line for line in (await node.logs("several", name)).splitlines() if line.startswith("OWN=")] == [
            f"OWN={name}"
        ]


async def _home_with_lines(node: RealNode, place: Path) -> None:
    """A home with line breaks became further rows of /etc/passwd."""
    await _load(node, place, directory("etc"), entry("etc/passwd", b"root:x:0:0::/:\n"))
    home = [{"name": "HOME", "value": "/x\nevil:x:0:0::/:/bin/sh"}]
    command = [*_SHELL, "/bin/busybox cat /etc/passwd"]
    container = _evil(env=home, workingDir="/x\nevil:x:0:0::/:/bin/sh", securityContext={"runAsUser": 7})
    await node.create("home", command, container=container, restartPolicy="Never")
    assert await _finished(node, "home") == "root:x:0:0::/:\n"


async def _user_after_a_restart(node: RealNode, place: Path) -> None:
    """A container that ran as the user of its image ran as root after a restart, in spite of runAsNonRoot."""
    await _load(node, place, User="1234")
    volumes = [{"name": "work", "emptyDir": {}}]
    command = [*_SHELL, "/bin/busybox id -u >> /work/ids; [ $(/bin/busybox wc -l < /work/ids) -ge 3 ] || exit 1"]
    container = _evil(securityContext={"runAsNonRoot": True}, volumeMounts=[{"name": "work", "mountPath": "/work"}])
    await node.create("again", command, container=container, volumes=volumes, restartPolicy="OnFailure")

    async def has_ended() -> bool:
        await node.clock.advance(20)
        pod = await node.get("again")
        return pod is not None and (pod.get("status") or {}).get("phase") == "Succeeded"

    await node.until(has_ended)
    pod = await node.client.get("v1/Pod", "again", namespace="default")
    ids = node.directory / "agent/pods" / str(pod["metadata"]["uid"]) / "volumes/work/ids"
    assert ids.read_text() == "1234\n" * 3


async def _sysctls_with_more(node: RealNode, place: Path) -> None:
    """A value with a plus sign set further sysctls of the machine."""
    before = Path("/proc/sys/kernel/core_pattern").read_bytes()
    value = f"1+kernel.core_pattern=|/bin/touch {place}/ran"
    sysctls = [{"name": "kernel.shm_rmid_forced", "value": value}]
    for name, host_users in (("plus", True), ("plus-own", False)):
        await node.create(name, "sleep 1000", securityContext={"sysctls": sysctls}, hostUsers=host_users)
        await node.until_event(name, "Invalid argument", reason="FailedCreatePodSandBox")
    assert Path("/proc/sys/kernel/core_pattern").read_bytes() == before
    for name, of_node in (("kernel.shm_rmid_forced", "hostIPC"), ("net.ipv4.tcp_syncookies", "hostNetwork")):
        result: Object = {"sysctls": [{"name": name, "value": "1"}]}
        with pytest.raises(errors.Invalid):
            await node.create("of-node", "true", securityContext=result, **{of_node: True})
        static = {"metadata": {}, "spec": {"securityContext": result, of_node: True}}  # No API server has checked it.
        rejection = check_pod(cast(Pod, static), is_static=True)
        assert rejection is not None
        assert rejection.reason == "SysctlForbidden"
    for name in ("kernel.shm_rmid_forced+kernel.core_pattern", "kernel/../kernel/core_pattern"):
        with pytest.raises(errors.Invalid):
            await node.create("named", "true", securityContext={"sysctls": [{"name": name, "value": "1"}]})


async def _empty_seccomp_profile(node: RealNode, place: Path) -> None:
    """A profile of the kind Localhost with an empty name meant no filter at all."""
    with pytest.raises(errors.Invalid):
        await node.create("none", "true", securityContext={"seccompProfile": {"type": "Localhost"}})

    def waits(pod: Object) -> bool:
        statuses = (pod.get("status") or {}).get("containerStatuses") or [{}]
        return "Create" in ((statuses[0].get("state") or {}).get("waiting") or {}).get("reason", "")

    for name, path in (("empty", ""), ("dot", ".")):
        profile = {"type": "Localhost", "localhostProfile": path}
        await node.create(name, "true", securityContext={"seccompProfile": profile})
        await node.until_pod(name, waits)


async def _limits_of_pods_with_own_users(node: RealNode, place: Path) -> None:
    """The groups of a pod with own users were not below that of the pod: its limits did not hold."""
    for name, host_users in (("shared", True), ("own", False)):
        limits = {"resources": {"limits": {"memory": "64Mi"}}}
        await node.create(name, ["sleep", "1000"], container=limits, hostUsers=host_users)
        await node.until_ready(name)
        (sandbox,) = await node.runtime.sandboxes("default", name)
        group = f"/{group_name(node.directory / 'runtime')}/{sandbox.id}/"
        roots = Cgroups(node.directory / "runtime")
        (process,) = [
            candidate
            for candidate in _below(supervisor_of(node.directory / "runtime", sandbox.id))
            if _is_sleep(candidate)
        ]
        lines = Path(f"/proc/{process}/cgroup").read_text().splitlines()
        has_groups = "limits of memory" not in " ".join(roots.missing(bounds_processes=True))
        assert any(group in f"{line}/" for line in lines) == has_groups
        if has_groups:
            assert _memory_limit_of(process) == 64 << 20


def _memory_limit_of(process: int) -> int:
    """The limit of the group of a process, in version 1 or 2 of control groups."""
    rows = [line.split(":", 2) for line in Path(f"/proc/{process}/cgroup").read_text().splitlines()]
    groups = {controllers: path for _, controllers, path in rows}
    if "memory" in groups:
        return int(Path(f"/sys/fs/cgroup/memory{groups['memory']}/memory.limit_in_bytes").read_text())
    return int(Path(f"/sys/fs/cgroup{groups['']}/memory.max").read_text())


def _below(process: int) -> list[int]:
    return [process, *(descendant for child in children(process) for descendant in _below(child))]


def _is_sleep(process: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{process}/cmdline").read_bytes().startswith(b"sleep\0")
    return False


async def _endless_output(node: RealNode, place: Path) -> None:
    """The output of a command of a probe filled the memory of the runtime."""
    flood = {"exec": {"command": ["head", "-c", "30000000", "/dev/zero"]}, "timeoutSeconds": 60}
    await node.create("flood", "sleep 1000", container={"readinessProbe": flood})
    pod = await node.until_ready("flood")
    container = pod["status"]["containerStatuses"][0]["containerID"].partition("://")[2]
    result = await node.runtime.exec_sync(container, ["head", "-c", "30000000", "/dev/zero"], timeout=60)
    assert (result.exit_code, len(result.output)) == (0, 1 << 20)


class _NullWriter:
    """A writer that drops everything."""

    def write(self, data: bytes) -> None:
        """Drop it."""

    async def drain(self) -> None:
        """Nothing waits."""

    def close(self) -> None:
        """Nothing is open."""

    def write_eof(self) -> None:
        """Nothing ends."""


async def _leaks_of_streams(node: RealNode, place: Path) -> None:
    """Terminals of commands that do not start, and clients that attach and leave, left tasks and files behind."""
    pod = await node.create("target", "sleep 1000")
    await node.until_ready("target")
    address = PodAddress("default", "target", pod["metadata"]["uid"])
    connection = AgentConnection(node.runtime, SystemClock())

    async def sizes() -> Any:
        yield TerminalSize(80, 24)
        await asyncio.Event().wait()

    async def attack() -> None:
        streams = CommandStreams(stdout=_NullWriter(), sizes=sizes())
        assert await connection.exec(address, "main", ["no-such-command"], streams) != 0
        attached = asyncio.ensure_future(connection.attach(address, "main", CommandStreams(stdout=_NullWriter())))
        await asyncio.sleep(0)
        attached.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await attached

    await attack()  # The first one makes what stays, such as the connection to the supervisor.
    before, tasks = census(node.directory / "runtime", node.directory), len(asyncio.all_tasks())
    for _ in range(30):
        await attack()
    await until_as(before, node.directory / "runtime", node.directory)

    async def has_no_more_tasks() -> bool:
        return len(asyncio.all_tasks()) <= tasks + 3  # Timers of the cluster come and go.

    await node.until(has_no_more_tasks)


_ATTACKS: dict[str, Callable[[RealNode, Path], Coroutine[Any, Any, None]]] = {
    "CVE-2021-43784 values that are longer than their length": _long_values,
    "CVE-2022-23648 volumes of an image lead out of it": _volumes_of_an_image,
    "CVE-2024-5154 CVE-2025-24965 links in place of files of the runtime": _files_that_a_runtime_writes_or_reads,
    "CVE-2025-4437 CVE-2026-47262 accounts that fill the memory": _huge_user_files,
    "CVE-2023-6476 CVE-2024-3154 CVE-2026-53488 labels and annotations are configuration": _labels_and_annotations,
    "CVE-2024-8676 CVE-2026-50195 CVE-2026-53489 CVE-2026-53492 a checkpoint as image": _checkpoint_images,
    "CVE-2021-21334 variables of another container": _environments_of_one_image,
    "CVE-2022-4318 a home with line breaks": _home_with_lines,
    "CVE-2019-11245 a restart as root": _user_after_a_restart,
    "CVE-2022-0811 CVE-2022-0532 a sysctl with further sysctls": _sysctls_with_more,
    "CVE-2023-2431 a seccomp profile without a name": _empty_seccomp_profile,
    "CVE-2025-47291 limits of pods with own users": _limits_of_pods_with_own_users,
    "CVE-2022-31030 CVE-2022-1708 endless output of a command": _endless_output,
    "CVE-2022-23471 CVE-2025-64329 streams that leave something behind": _leaks_of_streams,
}


@pytest.mark.parametrize("attack", _ATTACKS)
async def test_a_published_attack_on_a_runtime_fails(node: RealNode, tmp_path: Path, attack: str) -> None:
    await _ATTACKS[attack](node, tmp_path)
    await node.create("after", "sleep 1000")
    await node.until_ready("after")
