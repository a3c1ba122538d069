"""Containers from images with several layers."""

from __future__ import annotations

import os
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest
from tests.machine import need
from tests.node.images.image_files import BuiltImage, directory, entry, layer, link
from tests.node.runtime.embedded.conftest import Pods

from pinnace.node.errors import CreateFailed
from pinnace.node.images.images import Images
from pinnace.node.machine.mapped_root import remove_tree
from pinnace.node.runtime.embedded.launches.root_plans import plan_root
from pinnace.node.runtime.embedded.runtime import EmbeddedRuntime, EmbeddedSettings
from pinnace.process.clock import SystemClock


def _image() -> BuiltImage:
    tools = [link(f"bin/{name}", "busybox") for name in ("sh", "cat", "ls", "id", "mkdir", "stat", "pwd", "echo")]
    base = layer(
        directory("bin"),
        entry("bin/busybox", Path(need("busybox")).read_bytes(), mode=0o755),
        *tools,
        entry("etc/passwd", b"root:x:0:0:root:/root:/bin/sh\nweb:x:101:102:web:/srv:/bin/sh\n"),
        entry("etc/group", b"root:x:0:\nextra:x:500:web\n"),
        directory("var/old"),
        entry("var/old/gone", b"x"),
        entry("etc/removed", b"x"),
        link("data", "../../../../etc"),
    )
    middle = layer(entry("etc/.wh.removed"), entry("var/old/.wh..wh..opq"), entry("var/old/kept", b"x"))
    top = layer(entry("etc/dev-node", type=tarfile.CHRTYPE, devmajor=1, devminor=5), entry("etc/top", b"top"))
    config = {"Entrypoint": ["/bin/sh", "-c"], "Cmd": ["echo from the image"], "User": "web", "WorkingDir": "/srv"}
    return BuiltImage([base, middle, top], config | {"Env": ["FROM=image", "PATH=/bin"]})


@pytest.mark.parametrize("has_overlay", [True, False], ids=["overlay", "copy"])
@pytest.mark.parametrize("host_users", [True, None], ids=["the node's users", "own users"])
async def test_a_container_runs_from_its_layers(
    fast_path: Path, tmp_path: Path, has_overlay: bool, host_users: bool | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    images = Images(fast_path / "images", SystemClock(), is_offline=True)
    (loaded,) = await images.load(_image().write_oci(tmp_path / "image.tar", "example.com/web:v1"))
    runtime = await EmbeddedRuntime.open(EmbeddedSettings(directory=fast_path / "node"), images, SystemClock())
    if not has_overlay:
        monkeypatch.setattr("pinnace.node.runtime.embedded.runtime.plan_root", _plan_without_overlay)
    pods = Pods(runtime, fast_path / "node")
    pods.host_users = host_users
    try:
        assert await pods.output([], image=loaded.id) == "from the image\n"
        command = "echo $FROM; id -u; id -g; pwd; ls /etc /var/old; mkdir /tmp; echo new > /etc/passwd"
        lines = (await pods.output([], image=loaded.id, args=[command])).split("\n")
        assert lines[:4] == ["image", "101", "102", "/srv"]
        assert "removed" not in lines and "gone" not in lines and "kept" in lines and "top" in lines
        assert "dev-node" not in lines
        other = await pods.output(["cat", "/etc/passwd"], image=loaded.id)
        assert other.startswith("root:x:0:0")
    finally:
        for sandbox in await runtime.sandboxes():
            await runtime.remove_sandbox(sandbox.id)
        await runtime.close()
        os.kill(pods.supervisor(".."), 15)
        remove_tree(fast_path / "node")


def _plan_without_overlay(*args: object, **named: object) -> object:
    return plan_root(*args, **{**named, "has_overlay": False})  # type: ignore[arg-type]


@pytest.mark.skipif(os.geteuid() != 0, reason="the pods of an ordinary user have the ids of its node")
@pytest.mark.parametrize("user", ["70000", "1000:70000"])
async def test_an_image_whose_user_the_pod_lacks_is_refused_with_the_number_and_the_remedy(
    fast_path: Path, tmp_path: Path, user: str
) -> None:
    image = _image()
    built = replace(image, config={**image.config, "User": user})
    images = Images(fast_path / "images", SystemClock(), is_offline=True)
    (loaded,) = await images.load(built.write_oci(tmp_path / "image.tar", "example.com/web:v1"))
    runtime = await EmbeddedRuntime.open(EmbeddedSettings(directory=fast_path / "node"), images, SystemClock())
    pods = Pods(runtime, fast_path / "node")
    pods.host_users = None
    try:
        with pytest.raises(CreateFailed, match=f"user {user} is not among the 65536 ids of the pod: set hostUsers"):
            await pods.output([], image=loaded.id)
        assert CreateFailed.reason == "CreateContainerError"
        pods.host_users = True
        output = await pods.output([], image=loaded.id, args=["id -u; id -g"])
        assert "70000" in output.split()
    finally:
        await runtime.end()
