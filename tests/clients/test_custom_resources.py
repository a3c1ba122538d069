"""kubectl and other clients with kinds that users define: the manifests of notes as they are written, and more."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kr8s
import pytest
from kr8s.asyncio import api as connect
from kr8s.asyncio.objects import new_class
from kubernetes import dynamic
from kubernetes.client import ApiClient
from lightkube import Client, KubeConfig
from lightkube.generic_resource import create_namespaced_resource
from lightkube.models.meta_v1 import ObjectMeta
from tests.clients.kubectl_command import Kubectl
from tests.extensions.webhook import Webhook, refuse, serving

NOTES = Path(__file__).parent / "notes"

SHIPS = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: ships.clients.example.com
spec:
  group: clients.example.com
  scope: Namespaced
  names: {plural: ships, singular: ship, kind: Ship, shortNames: [sh], categories: [fleet]}
  versions:
  - name: v1
    served: true
    storage: true
    subresources:
      status: {}
      scale: {specReplicasPath: .spec.crew, statusReplicasPath: .status.aboard, labelSelectorPath: .status.selector}
    additionalPrinterColumns:
    - {name: Crew, type: integer, jsonPath: .spec.crew}
    - {name: Ready, type: string, jsonPath: '.status.conditions[?(@.type=="Ready")].status'}
    selectableFields: [{jsonPath: .spec.port}]
    schema:
      openAPIV3Schema:
        description: A ship of the fleet.
        type: object
        required: [spec]
        properties:
          spec:
            description: What the ship is to be.
            type: object
            required: [port]
            x-kubernetes-validations:
            - {rule: self.port == oldSelf.port, message: a ship keeps its home port}
            properties:
              port: {type: string, pattern: '^[A-Z]', description: Where it comes home to.}
              crew: {type: integer, minimum: 0, default: 3}
              sails:
                type: array
                x-kubernetes-list-type: map
                x-kubernetes-list-map-keys: [name]
                items: {type: object, required: [name], properties: {name: {type: string}, area: {type: integer}}}
          status: {type: object, x-kubernetes-preserve-unknown-fields: true}
"""
SHIP = """
apiVersion: clients.example.com/v1
kind: Ship
metadata: {name: NAME}
spec: {port: Bergen}
"""


def ship(name: str = "gannet") -> str:
    return SHIP.replace("NAME", name)


@pytest.fixture
def ships(kubectl: Kubectl) -> Iterator[Kubectl]:
    """kubectl, where ships are defined."""
    kubectl("apply -f -", stdin=SHIPS)
    kubectl("wait --for=condition=Established crd/ships.clients.example.com --timeout=120s")
    yield kubectl
    kubectl("delete crd ships.clients.example.com --timeout=120s")


@pytest.fixture
def clean(kubectl: Kubectl) -> Iterator[Kubectl]:
    """kubectl, and no definitions left behind."""
    yield kubectl
    names = ("alices.k106.com", "alices.iamslash.com", "websites.extensions.example.com")
    kubectl(f"delete crd {' '.join(names)} --ignore-not-found --timeout=120s")


# The notes.


@pytest.mark.usefixtures("only_pinnace")
@pytest.mark.parametrize("verb", ["create", "apply"])
@pytest.mark.parametrize(
    ("definition", "manifest", "resource", "name", "field"),
    [
        ("alice-definition-v1beta1", "alice-of-v1beta1", "ac", "my-custom-resource", "This is my value"),
        ("alice-definition", "alice", "alices", "my-custom-resource", "This is my value"),
        ("website-definition", "website", "ws", "kubia", "https://github.com/luksa/kubia-website-example.git"),
    ],
    ids=["v1beta1", "v1", "v1 without versions"],
)
def test_a_kind_of_the_notes_is_defined_and_used(
    clean: Kubectl, verb: str, definition: str, manifest: str, resource: str, name: str, field: str
) -> None:
    kubectl = clean
    assert "created" in kubectl(f"{verb} -f {NOTES / definition}.yaml")
    assert "created" in kubectl(f"{verb} -f {NOTES / manifest}.yaml")
    assert kubectl(f"get {resource}").split()[:3] == ["NAME", "AGE", name]
    assert field in kubectl(f"describe {resource} {name}")
    assert "deleted" in kubectl(f"delete -f {NOTES / manifest}.yaml")
    assert "No resources found" in kubectl.outcome(f"get {resource}").stderr
    assert "deleted" in kubectl(f"delete -f {NOTES / definition}.yaml --timeout=120s")


def test_a_kind_of_the_notes_is_explained_and_its_rules_are_held(clean: Kubectl) -> None:
    clean(f"apply -f {NOTES / 'alice-definition'}.yaml")
    assert "myvalue\t<string> -required-" in clean("explain alice.spec")
    wrong = (NOTES / "alice.yaml").read_text().replace("myvalue", "other")
    assert 'unknown field "spec.other"' in clean.failure("apply -f -", stdin=wrong)
    missing = "apiVersion: k106.com/v1alpha1\nkind: Alice\nmetadata: {name: x}\n"
    assert "spec: Required value" in clean.failure("apply -f -", stdin=missing)


@pytest.mark.usefixtures("only_pinnace")
@pytest.mark.parametrize(
    ("manifest", "resource"),
    [
        ("scheduled-pod", "pod/custom-scheduled-pod"),
        ("job", "job/job-hello-world"),
        ("cronjob-v1beta1", "cronjob/cronjob-example"),
        ("daemonset", "daemonset/daemonset-example"),
        ("statefulset", "statefulset/statefulset-example service/statefulset-service"),
        ("website-controller", "deployment/website-controller"),
        ("website-api-service", "apiservice/v1alpha1.extensions.example.com"),
    ],
)
def test_the_other_manifests_of_the_notes_are_applied(kubectl: Kubectl, manifest: str, resource: str) -> None:
    kubectl(f"apply -f {NOTES / manifest}.yaml")
    kubectl(f"get {resource}")
    kubectl(f"delete -f {NOTES / manifest}.yaml --wait=false")


def test_a_manifest_of_the_notes_with_metadata_only_is_refused_with_the_missing_fields(kubectl: Kubectl) -> None:
    error = kubectl.failure(f"apply -f {NOTES / 'pod-without-spec'}.yaml")
    assert 'The Pod "nginx" is invalid: spec.containers: Required value' in error


# kubectl.


def test_kubectl_prints_the_columns_and_selects_by_fields(ships: Kubectl) -> None:
    ships("apply -f -", stdin=ship())
    ships("apply -f -", stdin=ship("heron").replace("Bergen", "Oslo"))
    lines = ships("get sh").splitlines()
    assert lines[0].split() == ["NAME", "CREW", "READY"]
    assert lines[1].split()[:2] == ["gannet", "3"]
    assert ships("get ships --field-selector spec.port=Oslo -o name").split() == ["ship.clients.example.com/heron"]
    assert len(ships("get fleet -o name").split()) == 2


def test_kubectl_scales_a_custom_kind(ships: Kubectl) -> None:
    ships("apply -f -", stdin=ship())
    ships("scale ship/gannet --replicas=7")
    assert ships.json("get ship gannet")["spec"]["crew"] == 7
    ships('patch ship gannet --subresource=status --type=merge -p \'{"status":{"aboard":7,"selector":"on=gannet"}}\'')
    scale = ships.json("get ship gannet --subresource=scale")
    assert (scale["spec"], scale["status"]) == ({"replicas": 7}, {"replicas": 7, "selector": "on=gannet"})


def test_kubectl_edits_a_custom_kind_in_every_way(ships: Kubectl) -> None:
    ships("create -f -", stdin=ship())
    ships("label ship gannet tier=one")
    ships("annotate ship gannet note=two")
    ships('patch ship gannet --type=merge -p \'{"spec":{"crew":5}}\'')
    ships('patch ship gannet --type=json -p \'[{"op":"add","path":"/spec/sails","value":[{"name":"jib"}]}]\'')
    main = ship().replace("{port: Bergen}", "{port: Bergen, sails: [{name: main, area: 9}]}")
    ships("apply --server-side --force-conflicts -f -", stdin=main)
    gannet = ships.json("get ship gannet")
    assert [sail["name"] for sail in gannet["spec"]["sails"]] == ["jib", "main"]
    assert gannet["metadata"]["labels"] == {"tier": "one"}
    assert "a ship keeps its home port" in ships.failure(
        'patch ship gannet --type=merge -p \'{"spec":{"port":"Oslo"}}\''
    )
    assert "spec.port" in ships.failure("apply -f -", stdin=ship("tern").replace("Bergen", "bergen"))


def test_kubectl_explains_waits_and_deletes(ships: Kubectl) -> None:
    assert "Where it comes home to." in ships("explain ship.spec.port")
    ships("apply -f -", stdin=ship())
    ready = '{"status":{"conditions":[{"type":"Ready","status":"True"}]}}'
    ships(f"patch ship gannet --subresource=status --type=merge -p '{ready}'")
    ships("wait --for=condition=Ready ship/gannet --timeout=120s")
    ships("delete ship gannet --timeout=120s")
    assert "not found" in ships.failure("get ship gannet")


async def test_kubectl_uses_any_version_that_a_webhook_knows(kubectl: Kubectl) -> None:
    async with serving() as webhook:
        await asyncio.to_thread(kubectl, "apply -f -", stdin=json.dumps(two_versions(webhook)))
        try:
            await asyncio.to_thread(_use_both_versions, kubectl)
            webhook.answer = refuse
            await asyncio.to_thread(_use_the_stored_version, kubectl)
        finally:
            await asyncio.to_thread(kubectl, "delete crd boats.clients.example.com --timeout=120s")


def _use_both_versions(kubectl: Kubectl) -> None:
    first, second = "boats.v1.clients.example.com", "boats.v2.clients.example.com"
    kubectl("apply -f -", stdin=json.dumps(boat_of("v1", "gannet", size=3)))
    kubectl("apply -f -", stdin=json.dumps(boat_of("v2", "teal", length=4)))
    assert kubectl(f"get {first}").split() == ["NAME", "SIZE", "gannet", "3", "teal", "4"]
    assert kubectl(f"get {second}").split() == ["NAME", "LENGTH", "gannet", "3", "teal", "4"]
    assert kubectl(f"get {second} --field-selector spec.length=4 -o name").split() == ["boat.clients.example.com/teal"]
    kubectl(f"scale {second}/gannet --replicas=7")
    assert kubectl(f"get {first} gannet -o jsonpath={{.spec}}") == '{"size":7}'
    kubectl("apply -f -", stdin=json.dumps(boat_of("v2", "gannet", length=8)))
    applied = kubectl("apply --server-side --force-conflicts -f -", stdin=json.dumps(boat_of("v1", "gannet", size=9)))
    assert "serverside-applied" in applied
    assert kubectl(f"get {second} gannet -o jsonpath={{.spec.length}}") == "9"


def _use_the_stored_version(kubectl: Kubectl) -> None:
    """Requests that need no conversion go on without the webhook; the others fail with its reason."""
    patch = json.dumps({"spec": {"size": 5}})
    assert "patched" in kubectl(f"patch boats.v1.clients.example.com teal --type=merge -p '{patch}'")
    assert "this boat has sunk" in kubectl.failure("get boats.v2.clients.example.com teal")
    assert "this boat has sunk" in kubectl.failure("get boats.v2.clients.example.com")
    assert "teal" in kubectl("get boats.v1.clients.example.com")


def boat_of(version: str, name: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": f"clients.example.com/{version}",
        "kind": "Boat",
        "metadata": {"name": name},
        "spec": spec,
    }


def two_versions(webhook: Webhook) -> dict[str, Any]:
    """Boats whose size v2 calls their length."""

    def version(name: str, field: str) -> dict[str, Any]:
        spec = {"type": "object", "properties": {field: {"type": "integer"}}}
        return {
            "name": name,
            "served": True,
            "storage": name == "v1",
            "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}},
            "selectableFields": [{"jsonPath": f".spec.{field}"}],
            "additionalPrinterColumns": [{"name": field.title(), "type": "integer", "jsonPath": f".spec.{field}"}],
            "subresources": {"scale": {"specReplicasPath": f".spec.{field}", "statusReplicasPath": ".status.count"}},
        }

    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "boats.clients.example.com"},
        "spec": {
            "group": "clients.example.com",
            "scope": "Namespaced",
            "names": {"plural": "boats", "singular": "boat", "kind": "Boat"},
            "versions": [version("v1", "size"), version("v2", "length")],
            "conversion": webhook.conversion(),
        },
    }


def test_every_error_of_a_definition_is_reported_at_once(kubectl: Kubectl) -> None:
    wrong = SHIPS.replace("type: integer, minimum: 0", "type: float, minimum: 0").replace("kind: Ship,", "kind: S hip,")
    error = kubectl.failure("apply -f -", stdin=wrong.replace("[name]\n", "[missing]\n"))
    assert "spec.names.kind" in error
    assert "x-kubernetes-list-map-keys" in error
    assert 'Unsupported value: "float"' in error


# Dynamic clients.


def test_the_dynamic_client_of_kubernetes_uses_a_custom_kind(ships: Kubectl, api_client: ApiClient) -> None:
    client = dynamic.DynamicClient(api_client)  # type: ignore[no-untyped-call]
    resource = client.resources.get(api_version="clients.example.com/v1", kind="Ship")
    body = {
        "apiVersion": "clients.example.com/v1",
        "kind": "Ship",
        "metadata": {"name": "gannet"},
        "spec": {"port": "Oslo"},
    }
    made = resource.create(body=body, namespace=ships.namespace)
    assert made.spec.crew == 3
    resource.patch(
        name="gannet",
        namespace=ships.namespace,
        body={"spec": {"crew": 4}},
        content_type="application/merge-patch+json",
    )
    resource.status.patch(
        name="gannet",
        namespace=ships.namespace,
        body={"status": {"aboard": 4}},
        content_type="application/merge-patch+json",
    )
    listed = resource.get(namespace=ships.namespace).items
    assert [(boat.metadata.name, boat.spec.crew, boat.status.aboard) for boat in listed] == [("gannet", 4, 4)]
    resource.delete(name="gannet", namespace=ships.namespace)


def test_lightkube_uses_a_custom_kind(ships: Kubectl, kubeconfig: Path) -> None:
    kind = create_namespaced_resource("clients.example.com", "v1", "Ship", "ships")
    with Client(KubeConfig.from_file(kubeconfig), namespace=ships.namespace, field_manager="test") as client:
        made = client.create(kind(metadata=ObjectMeta(name="gannet"), spec={"port": "Oslo"}))
        assert made.spec["crew"] == 3
        client.apply(kind(metadata=ObjectMeta(name="gannet"), spec={"port": "Oslo", "crew": 9}), force=True)
        assert [boat.spec["crew"] for boat in client.list(kind)] == [9]
        client.delete(kind, "gannet")


@pytest.mark.filterwarnings("ignore:Kubernetes version .* is not supported")
async def test_kr8s_uses_a_custom_kind(ships: Kubectl, kubeconfig: Path) -> None:
    api = await connect(kubeconfig=str(kubeconfig), namespace=ships.namespace)
    kind: Any = new_class("Ship", "clients.example.com/v1", namespaced=True)
    gannet = await kind({"metadata": {"name": "gannet"}, "spec": {"port": "Oslo"}}, api=api)
    await gannet.create()
    await gannet.patch({"spec": {"crew": 8}})
    assert (await kind.get("gannet", api=api)).spec.crew == 8
    await gannet.delete()
    with pytest.raises(kr8s.NotFoundError):
        await kind.get("gannet", api=api, timeout=1)


def test_a_definition_is_known_to_kubectl_once_it_is_established(kubectl: Kubectl) -> None:
    kubectl("apply -f -", stdin=SHIPS)
    try:
        kubectl("wait --for=condition=Established crd/ships.clients.example.com --timeout=120s")
        assert "ships" in kubectl("api-resources --api-group=clients.example.com -o name")
    finally:
        kubectl("delete crd ships.clients.example.com --timeout=120s")
