"""Every kind is described as kubectl describes it, word for word."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from tests.cli.kubectl_twin import Twin
from tests.clients.kubectl_command import Kubectl, kubectl_binary
from tests.clients.server_process import ServerProcess

OBJECTS = Path(__file__).parent / "described_objects.yaml"


@pytest.fixture(scope="module")
def twin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Twin]:
    """A cluster in which nothing happens by itself, with an object or more of each kind."""
    binary = kubectl_binary()
    directory = tmp_path_factory.mktemp("described")
    server = ServerProcess.start(directory, "--ephemeral", "--no-controllers")
    try:
        kubectl = Kubectl(binary, server.await_kubeconfig(), directory, "default")
        kubectl(f"apply -f {OBJECTS}")
        for document in yaml.safe_load_all(OBJECTS.read_text()):
            if "status" in document:
                named = f"{document['kind']}.{_version_and_group(document)} {document['metadata']['name']}"
                status = json.dumps({"status": document["status"]})
                kubectl(f"patch {named} --subresource=status --type=merge -p '{status}'")
        yield Twin(kubectl)
    finally:
        server.stop()


def _version_and_group(document: dict[str, str]) -> str:
    group, _, version = document["apiVersion"].rpartition("/")
    return f"{version}.{group}"


KINDS = [
    "job",
    "cronjob",
    "ingress",
    "endpoints",
    "endpointslice",
    "service",
    "pv",
    "pvc",
    "storageclass",
    "role",
    "clusterrole twin-pages",
    "clusterrole admin",
    "clusterrole system:discovery",
    "rolebinding",
    "clusterrolebinding twin-nobody",
    "hpa",
    "pdb",
    "resourcequota",
    "limitrange",
    "event",
    "crd gadgets.twin.example.com",
    "namespace default",
]


@pytest.mark.parametrize("kind", KINDS)
def test_both_describe_it_the_same(kind: str, twin: Twin) -> None:
    # Without being asked, newer kubectls do not show the events of several objects; older ones do.
    assert twin.say_the_same(f"describe {kind} --show-events=true").code == 0


def test_events_of_several_objects_are_shown_to_who_asks(twin: Twin) -> None:
    assert "Events:" not in twin("describe job").stdout
    assert "Events:" not in twin("describe job indexed --show-events=false").stdout
    assert twin("describe job --show-events").stdout.count("Events:") == 3


def test_a_schedule_is_told_with_its_time_zone(twin: Twin) -> None:
    """Which older kubectls do not tell."""
    assert "\nTime Zone:                     Europe/Berlin\n" in twin("describe cronjob nightly").stdout
    assert "\nTime Zone:                     <unset>\n" in twin("describe cronjob bare").stdout


@pytest.mark.parametrize(
    "named",
    [
        "job indexed",
        "ingress site",
        "pvc data",
        "hpa full",
        "pdb least",
        "storageclass fast",
        "hpa.v1.autoscaling full",
        "resourcequota amounts",
    ],
)
def test_one_object_is_described_with_its_events(named: str, twin: Twin) -> None:
    said = twin.say_the_same(f"describe {named}").stdout
    assert ("Events:" in said) == (not named.startswith("resourcequota"))
