"""The kubectl plug-in of the examples: in a test's own process, and under the real kubectl."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest
import yaml
from tests.clients.kubectl_command import kubectl_binary
from tests.testing.both_ways import in_process_only
from tests.testing.ready_pods import run_pods_of

from pinnace.sdk.command.operator_files import only_in, operator_in
from pinnace.sdk.kubectl import Plugin
from pinnace.testing.cluster import Cluster

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
FILE = EXAMPLES / "08-kubectl-plugin" / "websites.py"


@pytest.fixture
def needs_kubectl() -> None:
    kubectl_binary()


async def with_websites(cluster: Cluster) -> None:
    """A cluster in which one website is up, and another is not."""
    await cluster.run(operator_in(str(EXAMPLES / "01-website" / "website.py")))
    site = yaml.safe_load((EXAMPLES / "01-website" / "kubia.yaml").read_text())
    await cluster.client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}})
    for name, namespace in (("kubia", "default"), ("blog", "shop")):
        await cluster.client.create({**site, "metadata": {"name": name, "namespace": namespace}})
    await cluster.settle()
    await run_pods_of(cluster, "kubia-website")


async def test_it_shows_websites_and_what_belongs_to_one(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    await with_websites(cluster)
    plugin = only_in(str(FILE), Plugin)
    await plugin.run("--all-namespaces", client=cluster.client)
    up, down = sorted(capsys.readouterr().out.splitlines())
    assert up.split()[:2] == ["default/kubia", "up"]
    assert down.split()[:4] == ["shop/blog", "0", "of", "1"]
    await plugin.run("kubia", client=cluster.client)
    assert capsys.readouterr().out.splitlines()[1:] == ["  deployment/kubia-website", "  service/kubia-website"]


class RealKubectl:
    """kubectl with the plug-in on its PATH."""

    def __init__(self, directory: Path, kubeconfig: Path) -> None:
        self._environment = {
            "PATH": f"{directory}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT / "src"),
            "KUBECONFIG": str(kubeconfig),
            "HOME": str(directory),
        }

    async def __call__(self, *arguments: str) -> tuple[int, str]:
        process = await asyncio.create_subprocess_exec(
            kubectl_binary(),
            *arguments,
            env=self._environment,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        output, errors = await process.communicate()
        return process.returncode or 0, output.decode() or errors.decode()


@in_process_only
@pytest.mark.usefixtures("needs_kubectl")
async def test_kubectl_finds_runs_and_completes_it(cluster: Cluster, kubeconfig: Path, tmp_path: Path) -> None:
    await with_websites(cluster)
    kubectl = RealKubectl(tmp_path / "bin", kubeconfig)
    install = [sys.executable, "-m", "pinnace.cli.main", "plugin", "install", str(FILE), "--directory"]
    process = await asyncio.create_subprocess_exec(
        *install, str(tmp_path / "bin"), env={**os.environ, "PYTHONPATH": str(ROOT / "src")}
    )
    assert await process.wait() == 0

    _, listed = await kubectl("plugin", "list")
    assert str(tmp_path / "bin" / "kubectl-websites") in listed
    _, helped = await kubectl("websites", "--help")
    assert "Usage: kubectl websites" in helped
    assert "--context" in helped
    code, output = await kubectl("websites")
    assert (code, output.split()[:2]) == (0, ["kubia", "up"])
    assert (await kubectl("websites", "-n", "shop"))[1].split()[:2] == ["blog", "0"]
    assert await kubectl("websites", "-n", "empty") == (0, "There are no websites in empty.\n")

    code, output = await kubectl("websites", "absent")
    message = 'Error from server (NotFound): websites.extensions.example.com "absent" not found\n'
    assert (code, output) == (1, message)
    code, output = await kubectl("websites", "--as", "ann")
    assert code == 1
    assert 'Error from server (Forbidden): websites.extensions.example.com is forbidden: User "ann"' in output

    _, completed = await kubectl("__complete", "websites", "ku")
    assert completed.splitlines()[:2] == ["kubia", ":4"]
    _, completed = await kubectl("__complete", "websites", "-n", "shop", "")
    assert completed.splitlines()[0] == "blog"
    _, completed = await kubectl("__complete", "websites", "--all")
    assert completed.splitlines()[0].split("\t") == ["--all-namespaces", "Those of all namespaces."]
