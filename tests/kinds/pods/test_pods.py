"""Pods are defaulted, validated and changed as in Kubernetes."""

from __future__ import annotations

from typing import Any

import pytest
from tests.kinds.workload_answers import Record, answer_of, expected_answer, recorded
from tests.server.in_process import PODS, control_plane, pod

from pinnace.cluster.settings import Settings
from pinnace.kinds.pods.defaults import pull_policy
from pinnace.kinds.pods.resource_amounts import qos_class
from pinnace.kinds.pods.strategy import POD, grace_period
from pinnace.model.objects import Object


@recorded("pods")
def test_a_write_is_answered_as_kubernetes_answers_it(record: Record) -> None:
    assert answer_of(record) == expected_answer(record)


@pytest.mark.parametrize(
    ("spec", "status", "requested", "period"),
    [
        pytest.param({"terminationGracePeriodSeconds": 30}, {}, None, 0, id="nothing runs before it is scheduled"),
        pytest.param({"nodeName": "n", "terminationGracePeriodSeconds": 30}, {}, None, 30, id="its own period"),
        pytest.param({"nodeName": "n", "terminationGracePeriodSeconds": 30}, {}, 5, 5, id="what the caller asks"),
        pytest.param({"nodeName": "n"}, {}, -1, 1, id="never less than nothing"),
        pytest.param({"nodeName": "n"}, {"phase": "Failed"}, 30, 0, id="a failed pod ends at once"),
        pytest.param({"nodeName": "n"}, {"phase": "Succeeded"}, 30, 0, id="a finished pod ends at once"),
    ],
)
def test_a_deleted_pod_is_given_time_while_it_runs(
    spec: Object, status: Object, requested: int | None, period: int
) -> None:
    pod: Any = {"spec": spec, "status": status}
    assert grace_period(pod, requested) == period


def test_defaults_come_once() -> None:
    pod: Object = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "a", "image": "b"}]}}
    POD.default(pod)
    once = repr(pod)
    POD.default(pod)
    assert repr(pod) == once


@pytest.mark.parametrize(
    ("image", "policy"),
    [
        ("nginx", "Always"),
        ("nginx:latest", "Always"),
        ("registry.example:5000/team/nginx", "Always"),
        ("nginx:1.27", "IfNotPresent"),
        (f"nginx@sha256:{'a' * 64}", "IfNotPresent"),
        ("", "IfNotPresent"),
        ("Not An Image", "IfNotPresent"),
    ],
)
def test_the_latest_image_is_always_pulled(image: str, policy: str) -> None:
    assert pull_policy(image) == policy


def test_zero_requests_do_not_count_for_quality_of_service() -> None:
    assert qos_class({"containers": [{"name": "a", "resources": {"requests": {"cpu": "0"}}}]}) == "BestEffort"


async def test_the_options_of_a_mount_are_checked() -> None:
    made = pod("web")
    mounts = [
        {"name": "data", "mountPath": "/a", "bindMountOptions": ["noexec", "sync", "noexec"]},
        {"name": "files", "mountPath": "/b", "bindMountOptions": ["nodev"]},
    ]
    made["spec"]["containers"][0]["volumeMounts"] = mounts
    made["spec"]["volumes"] = [{"name": "data", "emptyDir": {}}, {"name": "files", "image": {"reference": "files:1"}}]
    async with control_plane(settings=Settings(feature_gates="VolumeBindMountOptions=true")) as api:
        answer = await api.post(PODS, made)
    place = "spec.containers[0].volumeMounts"
    assert [(cause["field"], cause["message"]) for cause in answer.json["details"]["causes"]] == [
        (f"{place}[0].bindMountOptions[1]", 'Unsupported value: "sync": supported values: "nodev", "noexec", "nosuid"'),
        (f"{place}[0].bindMountOptions[2]", 'Duplicate value: "noexec"'),
        (
            f"{place}[1].bindMountOptions",
            'Invalid value: ["nodev"]: bindMountOptions may not be used with image volumes',
        ),
    ]


async def test_the_owners_and_modes_of_volumes_and_the_mode_of_a_grpc_probe_are_checked() -> None:
    items = [{"key": "a", "path": "a", "user": -1}]
    names = [{"path": "name", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}, "user": -1}]
    token = {"path": "token", "expirationSeconds": 3600, "user": -1}
    sources = [{"serviceAccountToken": token}]
    made = pod("web")
    made["spec"]["volumes"] = [
        {"name": "empty", "emptyDir": {"mode": 0o2777}},
        {"name": "secret", "secret": {"secretName": "a", "defaultUser": -1, "items": items}},
        {"name": "map", "configMap": {"name": "a", "defaultUser": 1 << 31}},
        {"name": "down", "downwardAPI": {"items": names, "defaultUser": -1}},
        {"name": "all", "projected": {"sources": sources, "defaultUser": -1}},
    ]
    made["spec"]["serviceAccountName"] = "default"
    made["spec"]["containers"][0]["livenessProbe"] = {"grpc": {"port": 1, "mode": "mTLS"}}
    gates = "AtomicWriteVolumeUserFields=true,EmptyDirVolumeMode=true,GRPCContainerProbeTLS=true"
    async with control_plane(settings=Settings(feature_gates=gates)) as api:
        answer = await api.post(PODS, made)
    wrong = "must be between 0 and 2147483647, inclusive"
    assert [(cause["field"].removeprefix("spec."), cause["message"]) for cause in answer.json["details"]["causes"]] == [
        (
            "volumes[0].emptyDir.mode",
            "Invalid value: 1535: must be a number between 0 and 01777 (octal), both inclusive",
        ),
        ("volumes[1].secret.defaultUser", f"Invalid value: -1: {wrong}"),
        ("volumes[1].secret.items[0].user", f"Invalid value: -1: {wrong}"),
        ("volumes[2].configMap.defaultUser", f"Invalid value: 2147483648: {wrong}"),
        ("volumes[3].downwardAPI.defaultUser", f"Invalid value: -1: {wrong}"),
        ("volumes[3].downwardAPI.user", f"Invalid value: -1: {wrong}"),
        ("volumes[4].projected.defaultUser", f"Invalid value: -1: {wrong}"),
        ("volumes[4].projected.sources[0].serviceAccountToken.user", f"Invalid value: -1: {wrong}"),
        (
            "containers[0].livenessProbe.grpc.mode",
            'Unsupported value: "mTLS": supported values: "Plaintext", "TLS"',
        ),
    ]
