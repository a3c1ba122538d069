"""The fixture against another server, over HTTPS: the same tests pass, and those that cannot run say why."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.clients.server_process import ServerProcess

ROOT = Path(__file__).parents[2]
SUITE = """
import pytest
from tests.sdk.websites import website, website_operator

SEEN = set()

def site_in(cluster):
    site = website(replicas=2)
    site["metadata"]["namespace"] = cluster.client.namespace
    return site

@pytest.mark.parametrize("round", [1, 2])
async def test_an_operator_makes_a_deployment(cluster, round):
    SEEN.add(cluster.client.namespace)
    assert len(SEEN) == round, "each test has a namespace of its own"
    manager = await cluster.run(website_operator())
    await cluster.client.create(site_in(cluster))
    await cluster.settle()
    deployment = await cluster.client.get("apps/v1/Deployment", "blog")
    assert deployment["spec"]["replicas"] == 2
    await cluster.kill(manager)
    await cluster.client.patch("extensions.example.com/v1/Website", "blog", {"spec": {"replicas": 3}})
    await cluster.run(website_operator())
    await cluster.settle()
    assert (await cluster.client.get("apps/v1/Deployment", "blog"))["spec"]["replicas"] == 3

async def test_users_have_their_rights(cluster, kubeconfig):
    from pinnace.model import errors
    with pytest.raises(errors.Forbidden):
        await cluster.client_as("mallory").list("v1/Secret")
    assert cluster.client.namespace in kubeconfig.read_text()

async def test_an_operator_has_its_role_alone(cluster):
    from tests.sdk.operator.test_rights import reader
    seen = []
    manager = await cluster.run(reader(seen))
    await cluster.client.create(site_in(cluster))
    await cluster.settle()
    assert not seen
    await cluster.kill(manager)
    await cluster.run(reader(seen), rights="admin")
    await cluster.settle()
    assert seen

async def test_time(cluster):
    await cluster.clock.advance(5)

async def test_forks(cluster):
    await cluster.fork()

@pytest.mark.kubernetes(version="1.31")
async def test_version(cluster): ...

@pytest.mark.perturb(operator=website_operator)
async def test_timing(cluster): ...
"""


def test_a_suite_passes_against_a_server_of_another_process(tmp_path: Path) -> None:
    (tmp_path / "server").mkdir()
    process = ServerProcess.start(tmp_path / "server", "--data-dir", str(tmp_path / "data"))
    try:
        process.await_kubeconfig()
        (tmp_path / "pytest.ini").write_text("[pytest]\nasyncio_mode = auto")
        (tmp_path / "test_it.py").write_text(SUITE)
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "src")))}
        command = [sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider"]
        ended = subprocess.run(
            [*command, f"--pinnace-server={process.kubeconfig}"],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
        )
    finally:
        assert process.stop() == 0, process.log.read_text()
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "4 passed, 4 skipped" in ended.stdout
    for reason in (
        "cluster.clock: the time of a real server passes by itself",
        "cluster.fork: a fork copies this process, and a real server runs in another process",
        "the marker kubernetes chooses a version and settings",
        "perturb forks a cluster of this process",
    ):
        assert reason in ended.stdout
