"""Recordings: from any cluster into a test."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest
from tests.sdk.websites import website, website_operator
from tests.testing.both_ways import in_process_only

from pinnace.client.client import Client
from pinnace.testing.cluster import Cluster, running_cluster
from pinnace.testing.recordings import BadRecording, ClusterRecorder, read_recording

KINDS = ["apiextensions.k8s.io/v1/CustomResourceDefinition", "extensions.example.com/v1/Website", "v1/Secret"]
KIND = "extensions.example.com/v1/Website"


async def record(client: Client, path: Path, cluster: Cluster) -> None:
    """Record a website and a Secret, then a change and a deletion."""
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "key"}, "stringData": {"token": "hush"}}
    await client.create(secret)
    await client.create(website(replicas=2))
    await client.create(website("shop"))
    await cluster.settle()
    listed = asyncio.Event()
    with path.open("wb") as file:
        recorder = ClusterRecorder(client, file.write)
        recording = asyncio.create_task(recorder.run(KINDS, listed.set))
        await listed.wait()
        before = recorder.count
        await client.patch(KIND, "blog", {"spec": {"replicas": 3}})
        await client.delete(KIND, "shop")
        async with asyncio.timeout(60):
            while recorder.count < before + 2:
                await asyncio.sleep(0.01)
        recording.cancel()
        await asyncio.wait([recording])


@pytest.fixture
async def path(tmp_path: Path) -> Path:
    async with running_cluster(controllers=False) as cluster:
        manager = await cluster.run(website_operator())
        await cluster.kill(manager)
        await record(cluster.client, tmp_path / "recording.jsonl", cluster)
    return tmp_path / "recording.jsonl"


async def test_a_test_starts_from_a_recording_and_plays_its_changes(path: Path) -> None:
    async with running_cluster(controllers=False) as cluster:
        await cluster.load(path)
        assert {obj["metadata"]["name"] for obj in await cluster.client.list(KIND)} == {"blog", "shop"}
        assert (await cluster.client.get(KIND, "blog"))["spec"]["replicas"] == 2
        await cluster.run(website_operator())
        await cluster.settle()
        assert await cluster.replay(path) == 2
        assert (await cluster.client.get("apps/v1/Deployment", "blog"))["spec"]["replicas"] == 3
        assert [obj["metadata"]["name"] for obj in await cluster.client.list(KIND)] == ["blog"]


async def test_values_of_secrets_are_not_recorded(path: Path) -> None:
    assert b"hush" not in path.read_bytes()
    assert b"aHVzaA" not in path.read_bytes()
    (secret,) = [
        obj for obj in read_recording(path).initial if obj["kind"] == "Secret" and obj["metadata"]["name"] == "key"
    ]
    assert secret["data"] == {"token": ""}


async def test_a_recording_that_is_cut_off_is_read_up_to_there(path: Path) -> None:
    whole = read_recording(path)
    path.write_bytes(path.read_bytes()[:-20])
    cut = read_recording(path)
    assert (whole.is_cut_off, cut.is_cut_off) == (False, True)
    assert len(cut.changes) == len(whole.changes) - 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "is not a recording of pinnace record"),
        (b'{"format":"pinnace-recording/1"}\n{"type":1}\n', "line 2"),
        (b'{"format":"pinnace-recording/1"}\nnonsense\n', "line 2"),
    ],
    ids=["empty", "no object", "no json"],
)
def test_a_file_that_is_no_recording_is_named(text: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / "r.jsonl").write_bytes(text)
    with pytest.raises(BadRecording, match=message):
        read_recording(tmp_path / "r.jsonl")


async def test_a_kind_that_is_not_served_is_named(path: Path) -> None:
    lines = [line for line in path.read_bytes().splitlines(keepends=True) if b"CustomResourceDefinition" not in line]
    path.write_bytes(b"".join(lines))
    async with running_cluster(controllers=False) as cluster:
        with pytest.raises(BadRecording, match="record its CustomResourceDefinition too"):
            await cluster.load(path)


@in_process_only
async def test_the_command_records_a_cluster(cluster: Cluster, kubeconfig: Path, tmp_path: Path) -> None:
    await cluster.client.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}})
    file = tmp_path / "recording.jsonl"
    command = [sys.executable, "-m", "pinnace.cli.main", "record", "v1/ConfigMap", "--kubeconfig", str(kubeconfig)]
    process = await asyncio.create_subprocess_exec(*command, "-o", str(file), stderr=subprocess.PIPE)
    assert process.stderr is not None
    async with asyncio.timeout(60):
        assert b"recording to" in await process.stderr.readline()
        process.terminate()
        assert await process.wait() == 0
    names = {obj["metadata"]["name"] for obj in read_recording(file).initial}
    assert "settings" in names


async def test_the_history_of_an_object_names_writers_and_differences() -> None:
    async with running_cluster(controllers=False) as cluster:
        made = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"n": "1"}}
        await cluster.client.create(made)
        await cluster.client_as("jane", "system:masters").patch("v1/ConfigMap", "a", {"data": {"n": "2"}})
        await cluster.client.delete("v1/ConfigMap", "a")
        versions = cluster.history(made)
        assert [version.action for version in versions] == ["created", "updated", "deleted"]
        assert [version.origin.user for version in versions] == ["admin", "jane", "admin"]
        assert 'data.n: "1" → "2"' in versions[1].difference
        page = cluster.history.timeline_html()
        assert ">jane</div>" in page
        assert "data.n: &quot;1&quot; → &quot;2&quot;" in page


@pytest.mark.parametrize(
    ("args", "line"),
    [
        ([], "spec.replicas: 2 → 3"),
        (["--html"], '">deleted extensions.example.com/v1/Website default/shop</div>'),
    ],
    ids=["text", "html"],
)
async def test_the_timeline_of_a_recording_shows_its_changes(path: Path, args: list[str], line: str) -> None:
    command = [sys.executable, "-m", "pinnace.cli.main", "timeline", str(path), *args]
    assert line in subprocess.run(command, capture_output=True, text=True, check=True).stdout
