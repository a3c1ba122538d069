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

from pinnace.cli.describe.parts import long_time

OBJECTS = Path(__file__).parent / "described_objects.yaml"
VOLUMES = Path(__file__).parent / "described_volumes.yaml"


@pytest.fixture(scope="module")
def twin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Twin]:
    """A cluster in which nothing happens by itself, with an object or more of each kind."""
    binary = kubectl_binary()
    directory = tmp_path_factory.mktemp("described")
    server = ServerProcess.start(directory, "--ephemeral", "--no-controllers")
    try:
        kubectl = Kubectl(binary, server.await_kubeconfig(), directory, "default")
        kubectl(f"apply --server-side -f {OBJECTS} -f {VOLUMES}")
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
    "clusterrolebinding twin-unbound",
    "hpa",
    "pdb",
    "resourcequota",
    "limitrange",
    "event",
    "crd gadgets.twin.example.com",
    "namespace default",
    "replicationcontroller",
    "priorityclass",
    "ingressclass",
    "networkpolicy",
    "csinode",
    "certificatesigningrequest",
    "pod volumes",
]


@pytest.mark.parametrize("kind", KINDS)
def test_both_describe_it_the_same(kind: str, twin: Twin) -> None:
    # Without being asked, newer kubectls do not show the events of several objects; older ones do.
    assert twin.say_the_same(f"describe {kind} --show-events=true").code == 0


def test_events_of_several_objects_are_shown_to_who_asks(twin: Twin) -> None:
    assert "Events:" not in twin("describe job").stdout
    assert "Events:" not in twin("describe job indexed --show-events=false").stdout
    assert twin("describe job --show-events").stdout.count("Events:") == 3


def test_a_schedule_is_reported_with_its_time_zone(twin: Twin) -> None:
    """Which older kubectls do not tell."""
    assert "\nTime Zone:                     Europe/Berlin\n" in twin("describe cronjob nightly").stdout
    assert "\nTime Zone:                     <unset>\n" in twin("describe cronjob bare").stdout


NEWER = {
    "servicecidr second": f"""\
Name:         second
Labels:       a=b
Annotations:  <none>
CIDRs:        10.99.0.0/24, 2001:db8::/64
Status:
Conditions:
  Type   Status  LastTransitionTime               Reason  Message
  ----   ------  ------------------               ------  -------
  Ready  True    {long_time("2026-01-01T10:00:00Z")}  Fine    it is ready
Events:  <none>
""",
    "ipaddress 10.99.0.8": """\
Name:         10.99.0.8
Labels:       <none>
Annotations:  <none>
Parent Reference:
  Group:      example.com
  Resource:   gates
  Namespace:  \n  Name:       gate
Events:       <none>
""",
    "volumeattributesclass gold": """\
Name:         gold
Annotations:  <none>
DriverName:   disk.example.com
Parameters:   iops=1000,throughput=50
Events:       <none>
""",
}


@pytest.mark.parametrize("named", NEWER)
def test_kinds_unknown_to_older_kubectls_are_described_as_by_newer_ones(named: str, twin: Twin) -> None:
    """Older ones ask for beta versions, which are not served any more."""
    theirs = twin.kubectl.outcome(f"describe {named}")
    message = twin(f"describe {named}").stdout
    assert message == NEWER[named]
    assert theirs.code != 0 or theirs.stdout == message


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
    output = twin.say_the_same(f"describe {named}").stdout
    assert ("Events:" in output) == (not named.startswith("resourcequota"))
