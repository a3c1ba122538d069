"""Lists can be narrowed by the fields that Kubernetes allows, and no others."""

from __future__ import annotations

import pytest

from pinnace.kinds import catalog
from pinnace.kinds.definitions import Definitions
from pinnace.kinds.runtime_config import RuntimeConfig
from pinnace.model.objects import Object
from pinnace.model.resources import Registry, Resource


@pytest.fixture(scope="module")
def registry() -> Registry:
    config = RuntimeConfig.parse("certificates.k8s.io/v1beta1=true")
    return Registry(catalog.resources(Definitions.load("1.36"), runtime_config=config))


def served(registry: Registry, api_version: str, plural: str) -> Resource:
    group, _, version = api_version.rpartition("/")
    result = registry.find(group, version, plural)
    assert result is not None
    return result


EVENT: Object = {
    "involvedObject": {"kind": "Pod", "name": "p"},
    "source": {"component": ""},
    "reportingComponent": "kubelet",
    "reason": "Started",
}


@pytest.mark.parametrize(
    ("api_version", "plural", "field", "obj", "value"),
    [
        pytest.param("v1", "pods", "spec.nodeName", {"spec": {"nodeName": "n"}}, "n", id="text"),
        pytest.param("v1", "pods", "spec.nodeName", {}, "", id="missing text"),
        pytest.param("v1", "pods", "spec.host", {"spec": {"nodeName": "n"}}, "n", id="a field's first name"),
        pytest.param("v1", "pods", "spec.hostNetwork", {"spec": {"hostNetwork": True}}, "true", id="boolean"),
        pytest.param("v1", "pods", "spec.hostNetwork", {"spec": {}}, "false", id="missing boolean"),
        pytest.param("v1", "nodes", "spec.unschedulable", {}, "false", id="nodes"),
        pytest.param("v1", "replicationcontrollers", "status.replicas", {}, "0", id="missing number"),
        pytest.param("batch/v1", "jobs", "status.successful", {"status": {"succeeded": 2}}, "2", id="jobs"),
        pytest.param("v1", "events", "source", EVENT, "kubelet", id="source falls back on the reporting component"),
        pytest.param("v1", "events", "involvedObject.name", EVENT, "p", id="event"),
        pytest.param("events.k8s.io/v1", "events", "regarding.name", EVENT, "p", id="event in its other group"),
        pytest.param("events.k8s.io/v1", "events", "reportingController", EVENT, "kubelet", id="reporting controller"),
        pytest.param("v1", "secrets", "type", {"type": "Opaque"}, "Opaque", id="secrets"),
        pytest.param("v1", "services", "spec.type", {"spec": {"type": "ClusterIP"}}, "ClusterIP", id="services"),
        pytest.param("v1", "namespaces", "status.phase", {"status": {"phase": "Active"}}, "Active", id="namespaces"),
    ],
)
def test_a_field_reads_as_text(
    registry: Registry, api_version: str, plural: str, field: str, obj: Object, value: str
) -> None:
    assert served(registry, api_version, plural).selectable[field](obj) == value


def test_only_these_kinds_have_fields_of_their_own(registry: Registry) -> None:
    modern = {resource.plural for resource in registry if resource.selectable and not resource.deprecation}
    assert modern == {
        "certificatesigningrequests",
        "clustertrustbundles",
        "events",
        "jobs",
        "namespaces",
        "nodes",
        "podcertificaterequests",
        "pods",
        "replicationcontrollers",
        "resourceslices",
        "secrets",
        "services",
    }


def test_the_two_groups_of_events_call_their_fields_differently(registry: Registry) -> None:
    core, new = served(registry, "v1", "events").selectable, served(registry, "events.k8s.io/v1", "events").selectable
    assert "involvedObject.kind" in core
    assert "involvedObject.kind" not in new
    assert "source" not in new
