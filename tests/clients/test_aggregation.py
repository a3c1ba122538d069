"""An aggregated API server in a process of its own, used through kubectl as if its kinds were built in."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.clients.kubectl_command import Kubectl
from tests.extensions.aggregated_server import GROUP, VERSION
from tests.free_ports import free_port

from pinnace.auth.certificates.authority import issue, new_ca

API_SERVICE = f"apiservice/{VERSION}.{GROUP}"
TRUST = "extension-apiserver-authentication"
SOUP = f"""
apiVersion: {GROUP}/{VERSION}
kind: Recipe
metadata: {{name: soup}}
spec: {{minutes: 20}}
"""

pytestmark = pytest.mark.usefixtures("only_pinnace")


class Kitchen:
    """The aggregated server; it can be stopped before its time."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture
def kitchen(kubectl: Kubectl, tmp_path: Path) -> Iterator[Kitchen]:
    """The server, registered and available. It takes requests of the front proxy only."""
    kubectl(f"wait --for=create -n kube-system configmap/{TRUST} --timeout=120s")
    trust = kubectl.json(f"get -n kube-system configmap {TRUST}")["data"]
    ca, port = new_ca(name="kitchen-ca"), free_port()
    pair = issue(ca, common_name="kitchen", server_names=(f"kitchen.{kubectl.namespace}.svc",))
    certificate, key, client_ca = tmp_path / "kitchen.crt", tmp_path / "kitchen.key", tmp_path / "proxy-ca.crt"
    certificate.write_bytes(pair.certificate_pem)
    key.write_bytes(pair.key_pem)
    client_ca.write_text(trust["requestheader-client-ca-file"])
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.extensions.aggregated_server", str(port), certificate, key, client_ca],
        cwd=Path(__file__).parents[2],
    )
    try:
        kubectl("create service externalname kitchen --external-name localhost")
        kubectl("apply -f -", stdin=api_service(kubectl.namespace, port, ca.certificate_pem))
        kubectl(f"wait --for=condition=Available {API_SERVICE} --timeout=120s")
        yield Kitchen(process)
    finally:
        kubectl(f"delete {API_SERVICE} --ignore-not-found")
        process.kill()
        process.wait()


def api_service(namespace: str, port: int, ca: bytes) -> str:
    return json.dumps(
        {
            "apiVersion": "apiregistration.k8s.io/v1",
            "kind": "APIService",
            "metadata": {"name": f"{VERSION}.{GROUP}"},
            "spec": {
                "group": GROUP,
                "version": VERSION,
                "groupPriorityMinimum": 1500,
                "versionPriority": 15,
                "service": {"namespace": namespace, "name": "kitchen", "port": port},
                "caBundle": base64.b64encode(ca).decode(),
            },
        }
    )


@pytest.mark.usefixtures("kitchen")
def test_objects_of_an_aggregated_server_are_applied_got_explained_and_deleted(kubectl: Kubectl) -> None:
    assert kubectl("apply -f -", stdin=SOUP) == f"recipe.{GROUP}/soup created\n"
    changed = SOUP.replace("20", "30")
    assert kubectl("apply -f -", stdin=changed) == f"recipe.{GROUP}/soup configured\n"
    assert kubectl.json("get rcp soup")["spec"] == {"minutes": 30}
    assert kubectl("get recipes -o name") == f"recipe.{GROUP}/soup\n"
    assert "How long it cooks." in kubectl("explain recipe.spec.minutes")
    assert f"recipes   rcp          {GROUP}/v1   true         Recipe" in kubectl(f"api-resources --api-group {GROUP}")
    assert kubectl("delete recipe soup") == f'recipe.{GROUP} "soup" deleted\n'
    assert "True" in kubectl(f"get {API_SERVICE}")


@pytest.mark.usefixtures("kitchen")
def test_openapi_v2_explains_the_kinds_of_an_aggregated_server(kubectl: Kubectl) -> None:
    assert "Recipe says how a dish is made." in kubectl("explain recipe --output plaintext-openapiv2")
    assert "KIND:" in kubectl("explain pod --output plaintext-openapiv2")


@pytest.mark.usefixtures("kitchen")
def test_objects_of_an_aggregated_server_are_watched(kubectl: Kubectl) -> None:
    kubectl("apply -f -", stdin=SOUP)
    watch = kubectl.start("get recipes --watch -o 'jsonpath={.spec.minutes}{\"\\n\"}'")
    try:
        assert watch.stdout is not None
        assert watch.stdout.readline() == "20\n"
        for minutes in (21, 22):
            kubectl(f'patch recipe soup --type merge -p \'{{"spec":{{"minutes":{minutes}}}}}\'')
        while watch.stdout.readline() != "22\n":
            assert watch.poll() is None
    finally:
        watch.terminate()
        watch.wait()


def test_a_dead_server_takes_nothing_else_with_it(kubectl: Kubectl, kitchen: Kitchen) -> None:
    kubectl("apply -f -", stdin=SOUP)
    kubectl("create namespace leaving-kitchen")
    kubectl("create configmap left -n leaving-kitchen")
    kitchen.stop()
    assert "service unavailable" in kubectl.failure("get recipes")
    kubectl(f"annotate {API_SERVICE} looked=at")
    kubectl("label service kitchen looked=at")
    kubectl(f"wait --for=condition=Available=False {API_SERVICE} --timeout=120s")
    refused = kubectl.failure("get recipes")
    assert "FailedDiscoveryCheck" in refused and "connection refused" in refused
    assert "False (FailedDiscoveryCheck)" in kubectl(f"get {API_SERVICE}")
    assert kubectl("get configmaps -n leaving-kitchen -o name") != ""
    kubectl("create configmap more")
    kubectl("delete namespace leaving-kitchen --wait=false")
    kubectl("wait --for=delete configmap/left -n leaving-kitchen --timeout=120s")
    kubectl("wait --for=condition=NamespaceDeletionDiscoveryFailure namespace/leaving-kitchen --timeout=120s")
    conditions = {
        condition["type"]: condition
        for condition in kubectl.json("get namespace leaving-kitchen")["status"]["conditions"]
    }
    undiscovered = conditions["NamespaceDeletionDiscoveryFailure"]
    assert undiscovered["reason"] == "DiscoveryFailed"
    assert undiscovered["message"].startswith(
        "Discovery failed for some groups, 1 failing: unable to retrieve the complete list of server APIs: "
        f"{GROUP}/{VERSION}: "
    )
    assert conditions["NamespaceDeletionContentFailure"]["status"] == "False"
    assert conditions["NamespaceContentRemaining"]["status"] == "False"
    assert "configmaps" in kubectl("api-resources")
    metrics = kubectl("get --raw /metrics")
    assert f'aggregator_unavailable_apiservice{{name="{VERSION}.{GROUP}"}} 1' in metrics
    kubectl(f"delete {API_SERVICE}")
    kubectl("wait --for=delete namespace/leaving-kitchen --timeout=120s")
