"""Containers from images with several layers."""

from __future__ import annotations

import os
import shutil
import tarfile
from pathlib import Path

import pytest
from tests.node.images.image_files import BuiltImage, directory, entry, layer, link
from tests.node.runtime.embedded.conftest import Pods

from pinnace.model.clock import SystemClock
from pinnace.node.images.images import Images
from pinnace.node.runtime.embedded.root_file_systems import plan_root, remove_tree
from pinnace.node.runtime.embedded.runtime import EmbeddedRuntime, EmbeddedSettings

BUSYBOX = shutil.which("busybox", path="/usr/bin:/bin")


def _image() -> BuiltImage:
    assert BUSYBOX is not None
    tools = [link(f"bin/{name}", "busybox") for name in ("sh", "cat", "ls", "id", "mkdir", "stat", "pwd", "echo")]
    base = layer(
        directory("bin"),
        entry("bin/busybox", Path(BUSYBOX).read_bytes(), mode=0o755),
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


@pytest.mark.skipif(BUSYBOX is None, reason="this machine has no static busybox; apt-get install busybox-static")
@pytest.mark.parametrize("has_overlay", [True, False], ids=["overlay", "copy"])
async def test_a_container_runs_from_its_layers(
    fast_path: Path, tmp_path: Path, has_overlay: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    images = Images(fast_path / "images", SystemClock(), is_offline=True)
    (loaded,) = await images.load(_image().write_oci(tmp_path / "image.tar", "example.com/web:v1"))
    runtime = await EmbeddedRuntime.open(EmbeddedSettings(directory=fast_path / "node"), images, SystemClock())
    if not has_overlay:
        monkeypatch.setattr("pinnace.node.runtime.embedded.runtime.plan_root", _plan_without_overlay)
    pods = Pods(runtime, fast_path / "node")
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
