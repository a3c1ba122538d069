"""The options of a mount of a volume: bindMountOptions and recursiveReadOnly hold in the container."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from tests.node.agent.conftest import RealNode
from tests.node.namespaces import need_namespaces

from pinnace.cluster.cluster import running
from pinnace.cluster.in_process import in_process_client
from pinnace.cluster.settings import Settings
from pinnace.node.machine.mapped_root import remove_tree

_GATES = "VolumeBindMountOptions=true"
_COMMAND = r"""
printf '#!/bin/sh\necho ran\n' > /plain/program; chmod 755 /plain/program
/plain/program; /safe/program || echo refused
grep -E ' /(plain|safe) ' /proc/self/mountinfo | cut -d ' ' -f 5,6
"""


@pytest.fixture
async def node() -> AsyncIterator[RealNode]:
    need_namespaces()
    directory = Path(tempfile.mkdtemp(prefix="pinnace-", dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None))
    try:
        async with running(Settings(feature_gates=_GATES)) as cluster:
            made = RealNode(cluster, in_process_client(cluster.plane.local()), directory)
            made.feature_gates = _GATES
            await made.start_agent()
            try:
                yield made
            finally:
                await made.stop_agent()
    finally:
        remove_tree(directory)


async def test_options_hold_for_the_mount_that_states_them_alone(node: RealNode) -> None:
    mounts = [
        {"name": "data", "mountPath": "/plain"},
        {"name": "data", "mountPath": "/safe", "bindMountOptions": ["noexec", "nosuid"]},
    ]
    volumes = [{"name": "data", "emptyDir": {}}]
    await node.create("web", _COMMAND, restartPolicy="Never", container={"volumeMounts": mounts}, volumes=volumes)
    await node.until_phase("web", "Succeeded")
    lines = (await node.logs("web")).splitlines()
    assert [line for line in lines if "Permission" not in line and "denied" not in line][:2] == ["ran", "refused"]
    options = {target: set(stated.split(",")) for target, stated in (line.split() for line in lines[-2:])}
    assert "noexec" not in options["/plain"]
    assert {"noexec", "nosuid"} <= options["/safe"]


@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[Path]:
    """A directory with a mount below it, which is there before the node starts."""
    if os.geteuid() != 0:
        pytest.skip("only root mounts a file system")
    below = tmp_path / "below"
    below.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=777", "none", str(below)], check=True)
    yield tmp_path
    subprocess.run(["umount", str(below)], check=True)


async def test_a_recursive_read_only_mount_covers_the_mounts_below_it(mounted: Path, node: RealNode) -> None:
    mounts = [
        {"name": "data", "mountPath": "/shallow", "readOnly": True},
        {"name": "data", "mountPath": "/deep", "readOnly": True, "recursiveReadOnly": "Enabled"},
    ]
    command = "touch /shallow/below/x && echo wrote; touch /deep/below/y || echo refused"
    volumes = [{"name": "data", "hostPath": {"path": str(mounted)}}]
    await node.create("web", command, restartPolicy="Never", container={"volumeMounts": mounts}, volumes=volumes)
    await node.until_phase("web", "Succeeded")
    lines = (await node.logs("web")).splitlines()
    assert [line for line in lines if line in ("wrote", "refused")] == ["wrote", "refused"]
