"""One object, whatever version it is written or read in."""

from __future__ import annotations

import json
from copy import deepcopy
from pathlib import Path

import pytest

from pinnace.kinds import catalog
from pinnace.kinds.autoscaling.conversion import v1_to_v2, v2_to_v1
from pinnace.kinds.core import events
from pinnace.kinds.definitions import Definitions
from pinnace.kinds.runtime_config import RuntimeConfig
from pinnace.model.objects import Object
from pinnace.model.resources import Registry, Resource
from pinnace.schema.golang import decode

RECORDED: list[dict[str, Object]] = json.loads((Path(__file__).parent / "conversions_1_36.json").read_text())
"""The same objects in two versions each, as a real kube-apiserver 1.36 answers them."""
AUTOSCALERS = [pytest.param(pair["v1"], pair["v2"], id=pair["v1"]["metadata"]["name"]) for pair in RECORDED[:4]]
EVENTS = [pytest.param(pair["core"], pair["new"], id=pair["core"]["metadata"]["name"]) for pair in RECORDED[4:]]
DEVICES = RuntimeConfig(dict.fromkeys((f"resource.k8s.io/{name}" for name in ("v1beta1", "v1beta2", "v1alpha3")), True))


@pytest.fixture(scope="module")
def registry() -> Registry:
    return Registry(catalog.resources(Definitions.load("1.36"), runtime_config=DEVICES))


def served(registry: Registry, api_version: str, plural: str) -> Resource:
    group, _, version = api_version.rpartition("/")
    result = registry.find(group, version, plural)
    assert result is not None
    return result


def readable(autoscaler: Object) -> Object:
    """With the JSON in its annotations read, for the order of fields there says nothing."""
    read = deepcopy(autoscaler)
    annotations = read["metadata"].get("annotations", {})
    annotations.update({name: json.loads(value) for name, value in annotations.items()})
    read.pop("apiVersion")
    return read


@pytest.mark.parametrize(("v1", "v2"), AUTOSCALERS)
def test_an_autoscaler_reads_in_v1_as_from_a_real_server(v1: Object, v2: Object) -> None:
    assert readable(v2_to_v1(deepcopy(v2))) == readable(v1)


@pytest.mark.parametrize(("v1", "v2"), AUTOSCALERS)
def test_an_autoscaler_written_in_v1_loses_nothing_of_v2(v1: Object, v2: Object) -> None:
    written = v1_to_v2(deepcopy(v1))
    # As in Kubernetes, CPU utilization moves to the end, and an external metric's unknown value becomes zero.
    key = json.dumps
    assert sorted(written["spec"]["metrics"], key=key) == sorted(v2["spec"]["metrics"], key=key)
    assert {**written["spec"], "metrics": []} == {**v2["spec"], "metrics": []}
    assert written["metadata"] == v2["metadata"]
    assert written["status"].keys() == v2["status"].keys()


@pytest.mark.parametrize(("core", "new"), EVENTS)
def test_an_event_reads_in_both_groups_as_from_a_real_server(core: Object, new: Object) -> None:
    assert events.to_core(deepcopy(new)) | {"apiVersion": "v1"} == core
    assert events.from_core(deepcopy(core)) | {"apiVersion": "events.k8s.io/v1"} == new


ROUND_TRIPS: list[tuple[str, str, Object, Object]] = [
    (
        "extensions/v1beta1",
        "ingresses",
        {
            "spec": {
                "backend": {"serviceName": "a", "servicePort": 80},
                "rules": [
                    {
                        "http": {
                            "paths": [
                                {"pathType": "Prefix", "backend": {"serviceName": "b", "servicePort": "web"}},
                                {"pathType": "Exact", "backend": {"resource": {"kind": "Bucket", "name": "c"}}},
                            ]
                        }
                    },
                    {"host": "x.example"},
                ],
            }
        },
        {
            "spec": {
                "defaultBackend": {"service": {"name": "a", "port": {"number": 80}}},
                "rules": [
                    {
                        "http": {
                            "paths": [
                                {"pathType": "Prefix", "backend": {"service": {"name": "b", "port": {"name": "web"}}}},
                                {"pathType": "Exact", "backend": {"resource": {"kind": "Bucket", "name": "c"}}},
                            ]
                        }
                    },
                    {"host": "x.example"},
                ],
            }
        },
    ),
    (
        "discovery.k8s.io/v1beta1",
        "endpointslices",
        {
            "endpoints": [
                {"addresses": ["10.0.0.1"]},
                {
                    "addresses": ["10.0.0.2"],
                    "nodeName": "n",
                    "topology": {"topology.kubernetes.io/zone": "z", "kubernetes.io/hostname": "n", "rack": "r"},
                },
                {"addresses": ["10.0.0.3"], "nodeName": "n", "topology": {"kubernetes.io/hostname": "other"}},
            ]
        },
        {
            "endpoints": [
                {"addresses": ["10.0.0.1"]},
                {"addresses": ["10.0.0.2"], "nodeName": "n", "zone": "z", "deprecatedTopology": {"rack": "r"}},
                {
                    "addresses": ["10.0.0.3"],
                    "nodeName": "n",
                    "deprecatedTopology": {"kubernetes.io/hostname": "other"},
                },
            ]
        },
    ),
    (
        "policy/v1beta1",
        "poddisruptionbudgets",
        {"spec": {"selector": {}}},
        {
            "spec": {
                "selector": {
                    "matchExpressions": [
                        {"key": "pdb.kubernetes.io/deprecated-v1beta1-empty-selector-match", "operator": "Exists"}
                    ]
                }
            }
        },
    ),
    (
        "policy/v1beta1",
        "poddisruptionbudgets",
        {
            "spec": {
                "selector": {
                    "matchExpressions": [
                        {"key": "pdb.kubernetes.io/deprecated-v1beta1-empty-selector-match", "operator": "DoesNotExist"}
                    ]
                }
            }
        },
        {"spec": {"selector": {}}},
    ),
    (
        "resource.k8s.io/v1beta1",
        "resourceclaims",
        {
            "spec": {
                "devices": {
                    "requests": [
                        {"name": "a", "deviceClassName": "gpu", "count": 2, "allocationMode": "ExactCount"},
                        {"name": "b", "firstAvailable": [{"name": "c", "deviceClassName": "gpu"}]},
                    ]
                }
            }
        },
        {
            "spec": {
                "devices": {
                    "requests": [
                        {
                            "name": "a",
                            "exactly": {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 2},
                        },
                        {"name": "b", "firstAvailable": [{"name": "c", "deviceClassName": "gpu"}]},
                    ]
                }
            }
        },
    ),
    (
        "resource.k8s.io/v1beta1",
        "resourceclaimtemplates",
        {"spec": {"spec": {"devices": {"requests": [{"name": "a", "deviceClassName": "gpu"}]}}}},
        {"spec": {"spec": {"devices": {"requests": [{"name": "a", "exactly": {"deviceClassName": "gpu"}}]}}}},
    ),
    (
        "resource.k8s.io/v1beta1",
        "resourceslices",
        {"spec": {"nodeName": "n", "devices": [{"name": "a", "basic": {"attributes": {"x": {"int": 1}}}}]}},
        {"spec": {"nodeName": "n", "devices": [{"name": "a", "attributes": {"x": {"int": 1}}}]}},
    ),
    (
        "autoscaling/v2beta1",
        "horizontalpodautoscalers",
        {
            "metadata": {"name": "x"},
            "spec": {
                "metrics": [
                    {"type": "Resource", "resource": {"name": "cpu", "targetAverageUtilization": 50}},
                    {"type": "Pods", "pods": {"metricName": "q", "targetAverageValue": "1k"}},
                    {"type": "External", "external": {"metricName": "q", "targetValue": "3"}},
                ]
            },
        },
        {
            "metadata": {"name": "x"},
            "spec": {
                "metrics": [
                    {
                        "type": "Resource",
                        "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}},
                    },
                    {
                        "type": "Pods",
                        "pods": {"metric": {"name": "q"}, "target": {"type": "AverageValue", "averageValue": "1k"}},
                    },
                    {
                        "type": "External",
                        "external": {"metric": {"name": "q"}, "target": {"type": "Value", "value": "3"}},
                    },
                ]
            },
        },
    ),
]


@pytest.mark.parametrize(
    ("api_version", "plural", "old", "stored"),
    [pytest.param(*case, id=f"{case[0]}/{case[1]}-{index}") for index, case in enumerate(ROUND_TRIPS)],
)
def test_an_old_version_is_stored_as_todays_and_read_as_it_was_written(
    registry: Registry, api_version: str, plural: str, old: Object, stored: Object
) -> None:
    resource = served(registry, api_version, plural)
    assert resource.to_stored(deepcopy(old)) == stored
    assert resource.from_stored(deepcopy(stored)) == old


@pytest.mark.parametrize(
    ("api_version", "plural", "old", "stored"),
    [pytest.param(*case, id=f"{case[0]}/{case[1]}-{index}") for index, case in enumerate(ROUND_TRIPS)],
)
def test_the_schema_of_a_version_knows_the_fields_it_is_written_in(
    registry: Registry, api_version: str, plural: str, old: Object, stored: Object
) -> None:
    resource = served(registry, api_version, plural)
    todays = registry.of_kind(resource.stored)
    assert todays is not None
    assert decode.compile(resource.schema, quantity=str)(deepcopy(old)) == []
    assert decode.compile(todays.schema, quantity=str)(deepcopy(stored)) == []


def test_conversions_stand_an_object_with_nothing_in_it(registry: Registry) -> None:
    bare: list[Object] = [{}, {"metadata": {"name": "x"}}, {"metadata": {}, "spec": None, "status": None}]
    for resource in registry:
        for obj in bare:
            resource.from_stored(resource.to_stored(deepcopy(obj)))


def test_an_old_deployment_selects_its_own_pods_and_keeps_the_defaults_of_its_time(registry: Registry) -> None:
    written = served(registry, "extensions/v1beta1", "deployments").to_stored(
        {"metadata": {"name": "x"}, "spec": {"template": {"metadata": {"labels": {"app": "x"}}}}}
    )
    assert written["metadata"]["labels"] == {"app": "x"}
    assert written["spec"]["selector"] == {"matchLabels": {"app": "x"}}
    assert written["spec"]["strategy"] == {
        "type": "RollingUpdate",
        "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 1},
    }


def test_an_old_webhook_says_what_was_meant_when_it_said_nothing(registry: Registry) -> None:
    written = served(registry, "admissionregistration.k8s.io/v1beta1", "validatingwebhookconfigurations").to_stored(
        {"metadata": {"name": "x"}, "webhooks": [{"name": "a.b.c", "clientConfig": {}}]}
    )
    assert written["webhooks"] == [
        {
            "name": "a.b.c",
            "clientConfig": {},
            "failurePolicy": "Ignore",
            "matchPolicy": "Exact",
            "sideEffects": "Unknown",
            "timeoutSeconds": 30,
            "admissionReviewVersions": ["v1beta1"],
        }
    ]


def test_an_old_certificate_request_goes_to_the_signer_of_its_time(registry: Registry) -> None:
    written = served(registry, "certificates.k8s.io/v1beta1", "certificatesigningrequests").to_stored(
        {"metadata": {"name": "x"}, "spec": {"request": ""}, "status": {"conditions": [{"type": "Approved"}]}}
    )
    assert written["spec"]["signerName"] == "kubernetes.io/legacy-unknown"
    assert written["spec"]["usages"] == ["digital signature", "key encipherment"]
    assert written["status"]["conditions"] == [{"type": "Approved", "status": "True"}]


@pytest.mark.parametrize(
    ("minor", "version", "shares"),
    [
        pytest.param("1.25", "v1beta1", "assuredConcurrencyShares", id="both betas say assured"),
        pytest.param("1.26", "v1beta2", "assuredConcurrencyShares", id="v1beta3 is stored and says nominal"),
        pytest.param("1.29", "v1beta3", "nominalConcurrencyShares", id="v1 is stored and says nominal"),
    ],
)
def test_a_priority_level_survives_in_every_minor(minor: str, version: str, shares: str) -> None:
    registry = Registry(catalog.resources(Definitions.load(minor)))
    resource = served(registry, f"flowcontrol.apiserver.k8s.io/{version}", "prioritylevelconfigurations")
    level: Object = {"metadata": {"name": "x"}, "spec": {"type": "Limited", "limited": {shares: 7}}}
    assert resource.from_stored(resource.to_stored(deepcopy(level))) == level


def test_zero_shares_survive_v1beta3() -> None:
    registry = Registry(catalog.resources(Definitions.load("1.29")))
    resource = served(registry, "flowcontrol.apiserver.k8s.io/v1beta3", "prioritylevelconfigurations")
    stored: Object = {"metadata": {"name": "x"}, "spec": {"limited": {"nominalConcurrencyShares": 0}}}
    read = resource.from_stored(deepcopy(stored))
    assert read["metadata"]["annotations"] == {"flowcontrol.k8s.io/v1beta3-preserve-zero-concurrency-shares": ""}
    assert resource.to_stored(read) == stored


def test_the_one_priority_of_the_first_api_services_becomes_two() -> None:
    resource = next(
        served
        for served in catalog.resources(Definitions.load("1.36"))
        if served.plural == "apiservices" and served.version == "v1beta1"
    )
    assert "priority" in resource.schema.properties["spec"].properties
    stored = resource.to_stored({"spec": {"group": "g.example.com", "version": "v1", "priority": 1500}})
    assert stored["spec"] == {
        "group": "g.example.com",
        "version": "v1",
        "groupPriorityMinimum": 1500,
        "versionPriority": 1000,
    }
