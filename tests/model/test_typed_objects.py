"""The types of built-in kinds: what a type checker accepts, and what they are at run time."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import pinnace.sdk.kinds
from pinnace.client.mapping import kind_from
from pinnace.model import typed_objects
from pinnace.model.objects import Kind
from pinnace.model.typed_objects import Deployment, EventsEvent, Pod, PodSpec
from pinnace.testing.cluster import Cluster

ROOT = Path(__file__).parents[2]

SNIPPET = """
from pinnace.client.client import Client
from pinnace.sdk.kinds import Deployment, Pod, PodStatus

async def read(client: Client) -> None:
    deployment = await client.get(Deployment, "web")
    print(deployment["spec"]["replicas"])
    print(deployment["spec"]["replcias"])  # wrong: replcias
    print((deployment.get("status") or {}).get("readyReplicas", 0))
    print((deployment.get("status") or {}).get("readyReplica", 0))  # wrong: readyReplica
    deployment["spec"].setdefault("pause", True)  # wrong: pause
    deployment["spec"].pop("minReadySeconds", None)
    changed: Deployment = {**deployment, "status": {"replica": 1}}  # wrong: replica
    print((await client.update(changed))["spec"]["template"]["spec"]["containers"][0]["image"])
    for pod in await client.list(Pod, labels="app=web"):
        print((await client.update_status(pod))["metadata"].get("label"))  # wrong: label

def phase(status: PodStatus) -> str:
    return status.get("phase", "")
"""


def test_a_misspelt_field_of_a_built_in_kind_fails_the_check(tmp_path: Path) -> None:
    file = tmp_path / "snippet.py"
    file.write_text(SNIPPET)
    wrong = {
        (number, line.rpartition("# wrong: ")[2])
        for number, line in enumerate(SNIPPET.splitlines(), 1)
        if "# wrong: " in line
    }
    options = ["--strict", "--follow-imports=silent", "--cache-dir", str(tmp_path / "cache")]
    command = [sys.executable, "-m", "mypy", *options, str(file)]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=280)
    reported = [line for line in ran.stdout.splitlines() if ": error: " in line]
    for number, field in wrong:
        assert any(f":{number}: " in line and f'"{field}"' in line for line in reported), (number, field, ran.stdout)
    assert len(reported) == len(wrong), ran.stdout


def test_the_written_types_are_those_of_the_definitions() -> None:
    command = [sys.executable, "tools/typed_objects.py", "--check"]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert (ran.returncode, ran.stdout) == (0, ""), ran.stderr


def test_each_type_exists_at_run_time() -> None:
    stub = Path(typed_objects.__file__).with_suffix(".pyi").read_text()
    names = re.findall(r"^(?:class )?(\w+)(?:\(TypedDict|\ = TypedDict\()", stub, re.MULTILINE)
    assert len(names) > 600
    for name in names:
        typed = getattr(typed_objects, name)
        assert issubclass(typed, dict)
        of_sdk = getattr(pinnace.sdk.kinds, name)  # A class of its own, which names its schema where it is a field.
        assert issubclass(of_sdk, typed) and of_sdk.__name__ == name
        assert of_sdk is getattr(pinnace.sdk.kinds, name)
        assert getattr(of_sdk, "built_in", None) == getattr(typed, "built_in", None)
    with pytest.raises(AttributeError, match="Deploiment"):
        _ = typed_objects.Deploiment  # type: ignore[attr-defined]


def test_a_type_names_its_kind_and_makes_plain_dicts() -> None:
    assert kind_from(Deployment) == Kind("apps", "v1", "Deployment")
    assert kind_from(EventsEvent) == Kind("events.k8s.io", "v1", "Event")
    assert type(Pod(metadata={"name": "web"}, spec={"containers": []})) is dict
    assert PodSpec is dict
    with pytest.raises(TypeError, match="is no class of a kind"):
        kind_from(PodSpec)


async def test_a_client_reads_and_writes_objects_by_their_type(cluster: Cluster) -> None:
    client = cluster.client
    made: Pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "web", "labels": {"app": "web"}},
        "spec": {"containers": [{"name": "main", "image": "nginx:1"}]},
    }
    created = await client.create(made)
    assert created["spec"]["containers"][0].get("terminationMessagePath") == "/dev/termination-log"
    (listed,) = await client.list(Pod, labels="app=web")
    assert type(listed) is dict
    changed = await client.patch(Pod, "web", {"metadata": {"labels": {"app": "db"}}})
    assert changed["metadata"]["labels"] == {"app": "db"}
    assert [pod["metadata"]["name"] async for pod in client.each(Pod)] == ["web"]
    await client.delete(Pod, "web", grace_seconds=0)
    assert await client.get_or_none(Pod, "web") is None
