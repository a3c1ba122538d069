"""The status of a pod is validated as in Kubernetes."""

from __future__ import annotations

from typing import Any

import pytest

from pinnace.kinds.pods.status import validate_pod_status
from pinnace.model.objects import Object


def errors_of(status: Object, **spec: Any) -> list[str]:
    resources = {"requests": {"example.com/gpu": "1"}, "claims": [{"name": "gpu", "request": "fast"}]}
    container = {"name": "main", "image": "web:1", "resources": resources}
    pod: Any = {"metadata": {"name": "web"}, "spec": {"containers": [container], **spec}}
    new: Any = {**pod, "status": status}
    old: Any = {**pod, "status": {}}
    return [str(cause) for cause in validate_pod_status(new, old)]


@pytest.mark.parametrize(
    ("user", "wrong"),
    [
        ({"uid": 0, "gid": 2**31 - 1, "supplementalGroups": [1]}, []),
        ({"uid": -1, "gid": 0}, [("uid", -1)]),
        ({"uid": 0, "gid": 2**31, "supplementalGroups": [5, -1]}, [("gid", 2**31), ("supplementalGroups[1]", -1)]),
    ],
)
@pytest.mark.parametrize("field", ["containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"])
def test_the_user_of_a_container_is_validated(field: str, user: Object, wrong: list[tuple[str, int]]) -> None:
    assert errors_of({field: [{"name": "main", "user": {"linux": user}}]}) == [
        f"status.{field}[0].user.linux.{place}: Invalid value: {value}: must be between 0 and 2147483647, inclusive"
        for place, value in wrong
    ]


def test_windows_containers_have_no_linux_user() -> None:
    statuses = {"containerStatuses": [{"name": "main", "user": {"linux": {"uid": -1, "gid": 0}}}]}
    assert errors_of(statuses, os={"name": "windows"}) == [
        "status.containerStatuses[0].user.linux: Forbidden: cannot be set for a windows pod"
    ]


@pytest.mark.parametrize(
    ("device", "wrong"),
    [
        ({"name": "example.com/gpu"}, []),
        ({"name": "claim:gpu/fast"}, []),
        (
            {"name": "example.com/tpu"},
            ['name: Invalid value: "example.com/tpu": must match one of the container\'s resource requests'],
        ),
        (
            {"name": "claim:gpu"},
            [
                'name: Invalid value: "claim:gpu": must match one of the container\'s resource claims in a format '
                "'claim:<claimName>/<request>' or 'claim:<claimName>' if request is empty"
            ],
        ),
        (
            {
                "name": "example.com/gpu",
                "resources": [
                    {"resourceID": "0", "health": "Healthy", "message": ""},
                    {"resourceID": "0", "health": "Ill", "message": "x" * 1025},
                ],
            },
            [
                "resources[0].message: Required value: must be non-empty if specified",
                'resources[1].health: Unsupported value: "Ill": supported values: "Healthy", "Unhealthy", "Unknown"',
                "resources[1].message: Too long: may not be more than 1024 bytes",
                'resources[1].resourceID: Duplicate value: "0"',
            ],
        ),
    ],
)
def test_only_requested_devices_have_a_health(device: Object, wrong: list[str]) -> None:
    where = "status.containerStatuses[0].allocatedResourcesStatus[0]"
    statuses = {"containerStatuses": [{"name": "main", "allocatedResourcesStatus": [device]}]}
    assert errors_of(statuses) == [f"{where}.{err}" for err in wrong]


def test_ephemeral_containers_have_no_devices() -> None:
    statuses = {"ephemeralContainerStatuses": [{"name": "debug", "allocatedResourcesStatus": [{"name": "a"}]}]}
    assert errors_of(statuses) == [
        "status.ephemeralContainerStatuses[0].allocatedResourcesStatus: "
        "Forbidden: must not be specified in container status"
    ]


def test_the_pods_addresses_come_before_those_of_its_host() -> None:
    errs = errors_of({"podIPs": [{"ip": "a"}, {"ip": "::1"}], "hostIPs": [{"ip": "b"}]})
    assert [error.partition(" ")[0] for error in errs] == [
        "status.podIPs[0]:",
        "status.podIPs:",
        "status.podIPs:",
        "status.hostIPs[0].ip:",
        "status.hostIPs[0]:",
    ]
    assert "Internal error: failed to check for dual stack with error:invalid IP[0]: a" in errs[1]


def _mapped(container: str = "main", resource: str = "example.com/gpu", request: str = "r") -> Object:
    return {"containerName": container, "resourceName": resource, "requestName": request}


@pytest.mark.parametrize(
    ("claimed", "fields"),
    [
        ({"requestMappings": [_mapped()], "resourceClaimName": "made"}, []),
        ({}, ["requestMappings", "resourceClaimName"]),
        ({"requestMappings": [_mapped("other")], "resourceClaimName": "made"}, ["requestMappings[0].containerName"]),
        (
            {"requestMappings": [_mapped(resource="cpu")], "resourceClaimName": "made"},
            ["requestMappings[0].resourceName"],
        ),
        ({"requestMappings": [_mapped(request="A")], "resourceClaimName": "made"}, ["requestName"]),
        (
            {"requestMappings": [_mapped(), _mapped()], "resourceClaimName": "A B"},
            [
                "requestMappings[1].containerName",
                "requestMappings[1].resourceName",
                "requestMappings[1].requestName",
                "resourceClaimName",
            ],
        ),
    ],
)
def test_the_claim_for_extended_resources_stands_for_what_containers_ask_for(
    claimed: Object, fields: list[str]
) -> None:
    errs = errors_of({"extendedResourceClaimStatus": claimed})
    assert [err.partition(": ")[0] for err in errs] == [f"status.extendedResourceClaimStatus.{f}" for f in fields]
