"""Every example, at work in a cluster of the test's own."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web
from tests.testing.both_ways import in_process_only
from tests.testing.ready_pods import run_pods_of

from pinnace.model import errors
from pinnace.sdk import Operator
from pinnace.sdk.command.operator_files import operator_in
from pinnace.testing.cluster import Cluster

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
FILES = [path for path in sorted(EXAMPLES.glob("*/*.py")) if "Operator(" in path.read_text()]
DEPLOYMENT = "apps/v1/Deployment"


def example(path: str) -> Operator:
    return operator_in(str(EXAMPLES / path))


async def test_a_website_is_served_reports_and_takes_all_with_it(cluster: Cluster) -> None:
    await cluster.run(example("01-website/website.py"))
    site = yaml.safe_load((EXAMPLES / "01-website/kubia.yaml").read_text())
    await cluster.client.create(site)
    await cluster.settle()
    assert await cluster.client.get("v1/Service", "kubia-website")
    await run_pods_of(cluster, "kubia-website")
    assert (await cluster.client.get("extensions.example.com/v1/Website", "kubia"))["status"] == {"ready": 1}
    await cluster.client.delete("extensions.example.com/v1/Website", "kubia")
    await cluster.settle()
    assert await cluster.client.get_or_none(DEPLOYMENT, "kubia-website") is None
    assert await cluster.client.get_or_none("v1/Service", "kubia-website") is None


def foo(name: str, deployment: str, replicas: int = 1) -> dict[str, Any]:
    return {
        "apiVersion": "samplecontroller.k8s.example.com/v1alpha1",
        "kind": "Foo",
        "metadata": {"name": name},
        "spec": {"deploymentName": deployment, "replicas": replicas},
    }


async def test_a_foo_becomes_the_deployment_that_it_names(cluster: Cluster) -> None:
    await cluster.run(example("02-sample-controller/foo.py"))
    await cluster.client.create(foo("one", "first", 2))
    await cluster.settle()
    assert (await cluster.client.get(DEPLOYMENT, "first"))["spec"]["replicas"] == 2
    kind = "samplecontroller.k8s.example.com/v1alpha1/Foo"
    await cluster.client.patch(kind, "one", {"spec": {"deploymentName": "second"}})
    await cluster.settle()
    assert [obj["metadata"]["name"] for obj in await cluster.client.list(DEPLOYMENT)] == ["second"]


async def test_a_foo_never_takes_a_deployment_that_is_not_its_own(cluster: Cluster) -> None:
    await cluster.run(example("02-sample-controller/foo.py"))
    await cluster.client.create(foo("one", "shared"))
    await cluster.settle()
    before = await cluster.client.get(DEPLOYMENT, "shared")
    await cluster.client.create(foo("two", "shared", 5))
    await cluster.settle()
    assert await cluster.client.get(DEPLOYMENT, "shared") == before
    events = await cluster.client.list("v1/Event", fields="type=Warning")
    assert [event["involvedObject"]["name"] for event in events] == ["two"]


async def test_kubewatch_posts_what_comes_changes_and_goes(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    messages: list[str] = []
    failures = iter([True])

    async def chat(request: web.Request) -> web.Response:
        if next(failures, False):
            return web.Response(status=503)
        messages.append((await request.json())["text"])
        return web.Response()

    app = web.Application()
    app.router.add_post("/", chat)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        monkeypatch.setenv("CHAT_WEBHOOK", f"http://127.0.0.1:{runner.addresses[0][1]}/")
        await cluster.run(example("03-kubewatch/kubewatch.py"))
        service = {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "web"},
            "spec": {"ports": [{"port": 80}]},
        }
        await cluster.client.create(service)
        await cluster.settle()
        assert messages == []  # The chat was down.
        await cluster.advance(1)
        await cluster.client.patch("v1/Service", "web", {"spec": {"ports": [{"port": 81}]}})
        await cluster.settle()
        await cluster.client.delete("v1/Service", "web")
        await cluster.settle()
    finally:
        await runner.cleanup()
    assert messages == [f"Service default/web was {what}" for what in ("created", "changed", "deleted")]


async def test_a_config_map_is_given_its_team_by_the_webhook(cluster: Cluster) -> None:
    await cluster.run(example("04-mutating-webhook/team_labels.py"))
    settings: dict[str, Any] = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}}
    made = await cluster.client.create(settings)
    assert made["metadata"]["labels"] == {"team": "default"}
    loud = {**settings, "metadata": {"name": "loud", "labels": {"team": "SALES"}}}
    with pytest.raises(errors.ApiError, match="write it in small letters"):
        await cluster.client.create(loud)


async def test_a_website_of_a_test_repository_is_refused(cluster: Cluster) -> None:
    await cluster.run(example("01-website/website.py"))
    site = yaml.safe_load((EXAMPLES / "01-website/kubia.yaml").read_text())
    site["spec"]["gitRepo"] = "https://example.com/test.git"
    with pytest.raises(errors.ApiError, match="serve something real"):
        await cluster.client.create(site)


async def test_a_server_is_seen_in_both_versions(cluster: Cluster) -> None:
    await cluster.run(example("05-two-versions/servers.py"))
    obj = {"apiVersion": "example.com/v1", "kind": "Server", "metadata": {"name": "web"}}
    await cluster.client.create({**obj, "spec": {"hostPort": "example.com:8080"}})
    assert (await cluster.client.get("example.com/v2/Server", "web"))["spec"] == {"host": "example.com", "port": 8080}
    await cluster.client.patch("example.com/v2/Server", "web", {"spec": {"port": 81}})
    assert (await cluster.client.get("example.com/v1/Server", "web"))["spec"] == {"hostPort": "example.com:81"}


async def test_websites_without_a_definition_are_kept_in_a_table_of_their_own(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEBSITES_DB", str(tmp_path / "websites.db"))
    await cluster.run(example("07-website-api/website_api.py"))
    site = yaml.safe_load((EXAMPLES / "07-website-api/kubia.yaml").read_text())
    await cluster.client.create(site)
    with sqlite3.connect(tmp_path / "websites.db") as shop:
        assert shop.execute("SELECT site, servers FROM website").fetchall() == [("kubia", 1)]
        shop.execute("UPDATE website SET servers = 4")
    kind = "extensions.example.com/v1alpha1/Website"
    assert (await cluster.client.get(kind, "kubia"))["spec"]["replicas"] == 4
    with pytest.raises(errors.Invalid, match="serve something real"):
        await cluster.client.patch(kind, "kubia", {"spec": {"gitRepo": "https://example.com/test.git"}})
    await cluster.client.delete(kind, "kubia")
    assert await cluster.client.list(kind) == []


@in_process_only
@pytest.mark.parametrize("path", FILES, ids=[path.parent.name for path in FILES])
async def test_each_example_also_runs_as_a_process_of_its_own(path: Path, cluster: Cluster, kubeconfig: Path) -> None:
    command = [sys.executable, "-m", "pinnace.cli.main", "run", str(path), "--kubeconfig", str(kubeconfig)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    process = await asyncio.create_subprocess_exec(
        *command, env=environment, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    try:
        assert process.stdout is not None
        output = b""
        while b"is running" not in output:
            line = await process.stdout.readline()
            assert line, output.decode()
            output += line
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()


async def test_two_replicas_share_the_certificates(cluster: Cluster) -> None:
    managers = [await cluster.run(example("16-sharded/certificates.py")) for _ in range(2)]
    for number in range(12):
        certificate = {"apiVersion": "extensions.example.com/v1", "kind": "SiteCertificate"}
        metadata = {"name": f"site-{number}", "namespace": "default"}
        await cluster.client.create({**certificate, "metadata": metadata, "spec": {"host": f"{number}.example.com"}})
    await cluster.settle()
    assert {frozenset(), frozenset(range(6))} != {manager.shards.held for manager in managers if manager.shards}
    stored = await cluster.client.list("extensions.example.com/v1/SiteCertificate")
    assert {obj["status"]["secret"] for obj in stored} == {f"site-{number}-certificate" for number in range(12)}
