"""The device plug-in of the example, as `pinnace run` starts it and `pinnace manifests` installs it."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import pytest
import yaml
from tests.node.agent.conftest import NODE, NodeInMemory
from tests.node.plugins.conftest import node
from typer.testing import CliRunner

from pinnace.cli.command_table import app
from pinnace.sdk.command.operator_files import program_in
from pinnace.sdk.extension import NodePlugin

__all__ = ["node"]
EXAMPLE = Path(__file__).parents[2] / "examples" / "17-device-plugin"


async def test_a_pod_gets_one_of_the_leds(node: NodeInMemory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("green", "red"):
        (tmp_path / "leds" / name).mkdir(parents=True)
        (tmp_path / "leds" / name / "brightness").write_text("1")
    monkeypatch.setenv("LEDS", str(tmp_path / "leds"))
    plugin = program_in(str(EXAMPLE / "leds.py"))
    assert isinstance(plugin, NodePlugin)
    running = asyncio.ensure_future(plugin.run(node.plugins))

    async def has_leds() -> bool:
        return bool((await node.client.get("v1/Node", NODE))["status"]["allocatable"].get("example.com/led") == "2")

    await node.until(has_leds)
    pod = yaml.safe_load((EXAMPLE / "blinker.yaml").read_text())
    await node.create("blinker", container=pod["spec"]["containers"][0] | {"image": "web"})
    started = await node.until_phase("blinker", "Running")
    identity = started["status"]["containerStatuses"][0]["containerID"].partition("://")[2]
    config = (await node.runtime.container(identity)).config
    assert dict(config.environment)["LEDS"] == "green"
    assert [mount.container_path for mount in config.mounts if mount.container_path.startswith("/leds")] == [
        "/leds/green"
    ]
    assert (tmp_path / "leds" / "green" / "brightness").read_text() == "0"
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running


def test_the_manifests_are_a_daemon_set() -> None:
    printed = CliRunner().invoke(app, ["manifests", str(EXAMPLE / "leds.py"), "--image", "leds:1"])
    assert [obj["kind"] for obj in yaml.safe_load_all(printed.stdout)] == ["ServiceAccount", "DaemonSet"]
    refused = CliRunner().invoke(app, ["manifests", str(EXAMPLE / "leds.py"), "--format", "helm", "--out", "x"])
    assert refused.exit_code == 1
    assert "choose yaml or kustomize" in refused.output
