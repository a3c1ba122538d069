"""The catalog serves exactly what a real server of the same minor serves, and the old versions after it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from pinnace.kinds import catalog
from pinnace.kinds.definitions import Definitions, minors
from pinnace.kinds.runtime_config import RuntimeConfig
from pinnace.model.objects import Kind
from pinnace.model.resources import Registry, Resource

DISCOVERY_1_36 = (Path(__file__).parent / "discovery_1_36.txt").read_text()
"""The discovery of a real kube-apiserver 1.36, in its order."""


@pytest.fixture(scope="module")
def definitions() -> Definitions:
    return Definitions.load("1.36")


def lines_of(resources: Iterable[Resource]) -> list[str]:
    lines: list[str] = []
    group_version = ""
    for resource in resources:
        if resource.kind.api_version != group_version:
            group_version = resource.kind.api_version
            lines.append(group_version)
        scope = "Namespaced" if resource.namespaced else "Cluster"
        short_names, categories = ",".join(resource.short_names) or "-", ",".join(resource.categories) or "-"
        lines.append(
            f"   {resource.plural} {resource.kind.name} {scope} {resource.singular} {short_names} {categories} "
            + ",".join(resource.verbs)
        )
        for sub in resource.subresources:
            own = (resource.group, resource.version) == (sub.kind.group, sub.kind.version)
            lines.append(
                f"      {sub.name} {'.' if own else sub.kind.api_version} {sub.kind.name} {','.join(sub.verbs)}"
            )
    return lines


def test_discovery_of_1_36_equals_that_of_a_real_server(definitions: Definitions) -> None:
    served = lines_of(catalog.resources(definitions, old_versions=False))
    assert served == DISCOVERY_1_36.splitlines()


def test_old_versions_come_after_every_modern_one(definitions: Definitions) -> None:
    modern = catalog.resources(definitions, old_versions=False)
    both = catalog.resources(definitions)
    assert [resource.kind for resource in both[: len(modern)]] == [resource.kind for resource in modern]
    assert {resource.kind.api_version for resource in both[len(modern) :]} == {
        "admissionregistration.k8s.io/v1beta1",
        "apiextensions.k8s.io/v1beta1",
        "apiregistration.k8s.io/v1beta1",
        "apps/v1beta1",
        "apps/v1beta2",
        "autoscaling/v2beta1",
        "autoscaling/v2beta2",
        "batch/v1beta1",
        "certificates.k8s.io/v1beta1",
        "coordination.k8s.io/v1beta1",
        "discovery.k8s.io/v1beta1",
        "events.k8s.io/v1beta1",
        "extensions/v1beta1",
        "networking.k8s.io/v1beta1",
        "node.k8s.io/v1beta1",
        "policy/v1beta1",
        "rbac.authorization.k8s.io/v1beta1",
        "scheduling.k8s.io/v1beta1",
        "storage.k8s.io/v1beta1",
    }


def test_old_versions_are_answered_with_kubernetes_warning(definitions: Definitions) -> None:
    registry = Registry(catalog.resources(definitions))
    old = registry.of_kind(Kind("batch", "v1beta1", "CronJob"))
    assert old is not None
    assert old.deprecation == (
        "batch/v1beta1 CronJob is deprecated in v1.21+, unavailable in v1.25+; use batch/v1 CronJob"
    )
    assert all(resource.deprecation for resource in registry if "beta" in resource.version)


@pytest.mark.parametrize("minor", minors())
def test_every_minor_has_a_schema_for_all_it_serves(minor: str) -> None:
    definitions = Definitions.load(minor)
    resources = catalog.resources(definitions)
    assert len(resources) > 90
    for resource in resources:
        assert resource.schema.properties.keys() >= {"apiVersion", "kind", "metadata"}, resource.kind
        (own,) = resource.schema.raw["x-kubernetes-group-version-kind"]
        assert (own["group"], own["version"], own["kind"]) == resource.kind


@pytest.mark.parametrize(
    ("minor", "on", "off"),
    [
        pytest.param("1.25", "flowcontrol.apiserver.k8s.io/v1beta2", "internal.apiserver.k8s.io/v1alpha1", id="1.25"),
        pytest.param("1.28", "flowcontrol.apiserver.k8s.io/v1beta3", "flowcontrol.apiserver.k8s.io/v1", id="1.28"),
        pytest.param("1.29", "flowcontrol.apiserver.k8s.io/v1", "flowcontrol.apiserver.k8s.io/v1beta2", id="1.29"),
        pytest.param("1.33", "networking.k8s.io/v1", "resource.k8s.io/v1beta2", id="1.33"),
        pytest.param("1.37", "storagemigration.k8s.io/v1", "scheduling.k8s.io/v1alpha3", id="1.37"),
    ],
)
def test_a_version_is_on_in_the_minors_that_turned_it_on(minor: str, on: str, off: str) -> None:
    served = {resource.kind.api_version for resource in catalog.resources(Definitions.load(minor), old_versions=False)}
    assert on in served
    assert off not in served


def test_a_version_that_is_off_can_be_asked_for(definitions: Definitions) -> None:
    config = RuntimeConfig.parse("resource.k8s.io/v1beta1=true")
    registry = Registry(catalog.resources(definitions, runtime_config=config))
    claims = registry.find("resource.k8s.io", "v1beta1", "resourceclaims")
    assert claims is not None
    assert claims.stored == Kind("resource.k8s.io", "v1", "ResourceClaim")
    assert claims.is_converted


def test_all_versions_of_a_kind_share_one_place_in_the_store(definitions: Definitions) -> None:
    places: dict[Kind, set[str]] = {}
    for resource in catalog.resources(definitions):
        places.setdefault(resource.stored, set()).add(resource.prefix)
    assert all(len(prefixes) == 1 for prefixes in places.values())
    assert places[Kind("", "v1", "Event")] == {"/registry/core/events/"}
    assert places[Kind("apps", "v1", "Deployment")] == {"/registry/apps/deployments/"}


def test_guests_of_the_extensions_group_answer_to_no_short_name(definitions: Definitions) -> None:
    guests = [resource for resource in catalog.resources(definitions) if resource.group == "extensions"]
    assert {resource.plural for resource in guests} == {
        "daemonsets",
        "deployments",
        "ingresses",
        "networkpolicies",
        "replicasets",
    }
    assert not any(resource.short_names or resource.categories for resource in guests)


def test_an_old_ingress_has_the_fields_of_its_time(definitions: Definitions) -> None:
    registry = Registry(catalog.resources(definitions))
    ingress = registry.find("extensions", "v1beta1", "ingresses")
    assert ingress is not None
    spec = ingress.schema.properties["spec"]
    assert "backend" in spec.properties
    assert "defaultBackend" not in spec.properties
    items = spec.properties["rules"].items
    assert items is not None
    path = items.properties["http"].properties["paths"].items
    assert path is not None
    assert path.properties["backend"].properties.keys() == {"resource", "serviceName", "servicePort"}
    assert path.properties["backend"].properties["servicePort"].is_int_or_string
    assert "pathType" not in path.required
