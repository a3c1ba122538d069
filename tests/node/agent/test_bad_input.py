"""Pods that misbehave, and a node in trouble: the status says what kubelet would say, and other pods go on."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.node.agent.conftest import RealNode, is_ready
from tests.node.images.image_files import BuiltImage, entry, layer
from tests.node.runtime.embedded.conftest import Pods, open_runtime

from pinnace.model.objects import Object
from pinnace.node.errors import ImageFailure, SandboxFailed
from pinnace.node.images.images import Images
from pinnace.node.machine import linux
from pinnace.process.clock import SystemClock


def _restarts(pod: Object) -> int:
    statuses = (pod.get("status") or {}).get("containerStatuses") or [{}]
    return int(statuses[0].get("restartCount") or 0)


async def test_a_probe_that_hangs_times_out_and_counts_as_failed(node: RealNode) -> None:
    probe = {"exec": {"command": ["sleep", "1000"]}, "timeoutSeconds": 1, "periodSeconds": 1, "failureThreshold": 1}
    await node.create("hung", "sleep 1000", container={"livenessProbe": probe}, terminationGracePeriodSeconds=0)
    await node.create("unready", "sleep 1000", container={"readinessProbe": probe})
    await node.create("neighbour", "sleep 1000")
    await node.until_pod("hung", lambda pod: _restarts(pod) >= 1)
    assert is_ready(await node.until_ready("neighbour"))
    pod = await node.until_phase("unready", "Running")
    assert not is_ready(pod)
    messages = [event["message"] for event in await node.client.list("v1/Event", namespace="default")]
    assert any("Liveness probe failed" in message and "timed out" in message for message in messages), messages


async def test_a_pod_that_is_deleted_while_it_starts_is_gone(node: RealNode) -> None:
    missing = [{"name": "late", "configMap": {"name": "late"}}]
    for number in range(5):
        await node.create(f"short-{number}", "sleep 1000", volumes=missing if number % 2 else [])
        await node.client.delete("v1/Pod", f"short-{number}", namespace="default", grace_seconds=number % 3)
    for number in range(5):
        await node.until_gone(f"short-{number}")

    async def is_empty() -> bool:
        return not await node.runtime.sandboxes() and not list((node.directory / "agent" / "pods").glob("*"))

    await node.until(is_empty)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 4 MB."""
    if os.geteuid() != 0:
        pytest.skip("only root mounts a file system")
    disk = tmp_path / "disk"
    disk.mkdir()
    linux.mount("tmpfs", str(disk), "tmpfs", 0, "size=4m")
    try:
        yield disk
    finally:
        linux.unmount(str(disk))


async def test_an_image_that_does_not_fit_on_the_disk_is_refused(small_disk: Path, tmp_path: Path) -> None:
    images = Images(small_disk, SystemClock(), is_offline=True)
    image = BuiltImage([layer(entry("large", os.urandom(8_000_000)))])
    with pytest.raises(ImageFailure, match="No space left on device"):
        await images.load(image.write_docker(tmp_path / "large.tar", "large:v1"))
    assert list((small_disk / "layers").iterdir()) == []
    fits = BuiltImage([layer(entry("small", b"x"))])
    assert await images.load(fits.write_docker(tmp_path / "small.tar", "small:v1"))


async def test_a_pod_on_a_full_disk_is_an_error_and_the_next_one_starts(small_disk: Path) -> None:
    runtime = await open_runtime(small_disk)
    pods = Pods(runtime, small_disk)
    try:
        running = await pods.start(["sleep", "1000"])
        filler = small_disk / "filler"
        with pytest.raises(OSError, match="No space"), filler.open("wb", buffering=0) as file:
            while True:
                file.write(b"x" * 4096)
        with pytest.raises(SandboxFailed, match="No space left on device"):
            await pods.sandbox(name="unlucky")
        assert len(await runtime.sandboxes()) == 1
        assert (await runtime.exec_sync(running, ["echo", "fine"], timeout=60)).output == b"fine\n"
        filler.unlink()
        await pods.start(["sleep", "1000"])
    finally:
        await runtime.end()
