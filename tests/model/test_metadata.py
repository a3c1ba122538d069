"""Metadata is judged in Kubernetes' words, and the ordinary case is cheap."""

from __future__ import annotations

from typing import Any

import pytest

from pinnace.model import names
from pinnace.model.metadata import validate_metadata, validate_metadata_update

GOOD: dict[str, Any] = {
    "name": "web",
    "namespace": "default",
    "uid": "1",
    "resourceVersion": "7",
    "generation": 2,
    "creationTimestamp": "2026-01-01T00:00:00Z",
    "labels": {"app": "web", "app.kubernetes.io/name": "web"},
}
SUBDOMAIN = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
QUALIFIED = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
    "character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
OWNER = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "a", "uid": "1"}


def errors_of(metadata: dict[str, Any], *, namespaced: bool = True) -> list[str]:
    return [str(cause) for cause in validate_metadata({"metadata": metadata}, namespaced=namespaced)]


@pytest.mark.parametrize(
    ("change", "errs"),
    [
        ({}, []),
        ({"name": ""}, ["metadata.name: Required value: name or generateName is required"]),
        ({"name": "A"}, [f'metadata.name: Invalid value: "A": {SUBDOMAIN}']),
        ({"generateName": "web-"}, []),
        ({"generateName": "W-b-"}, [f'metadata.generateName: Invalid value: "W-b-": {SUBDOMAIN}']),
        ({"namespace": ""}, ["metadata.namespace: Required value"]),
        ({"namespace": "a.b"}, ['metadata.namespace: Invalid value: "a.b": must not contain dots']),
        ({"generation": -1}, ["metadata.generation: Invalid value: -1: must be greater than or equal to 0"]),
        ({"labels": {"a b": "c"}}, [f'metadata.labels: Invalid value: "a b": {QUALIFIED}']),
        ({"labels": {"a": "c" * 64}}, [f'metadata.labels: Invalid value: "{"c" * 64}": must be no more than 63 bytes']),
        ({"annotations": {"A.b/C": "any thing"}}, []),
        ({"annotations": {"a b": ""}}, [f'metadata.annotations: Invalid value: "a b": {QUALIFIED}']),
        (
            {"annotations": {"a": "é" * 131072}},
            ["metadata.annotations: Too long: may not be more than 262144 bytes"],
        ),
        ({"annotations": {"a": "x" * 262143}}, []),
        ({"finalizers": ["kubernetes", "example.com/a"]}, []),
        ({"finalizers": ["x.y/a b"]}, [f'metadata.finalizers: Invalid value: "x.y/a b": {QUALIFIED}']),
        (
            {"finalizers": ["kubernetes", "own"]},
            [
                'metadata.finalizers[1]: Invalid value: "own": name is neither a standard finalizer name nor is it '
                "fully qualified"
            ],
        ),
        (
            {"labels": {f"{'p' * 254}/x": "y"}},
            [
                f'metadata.labels: Invalid value: "{"p" * 254}/x": prefix part must be no more than 253 bytes',
            ],
        ),
        (
            {"finalizers": ["orphan", "foregroundDeletion"]},
            [
                'metadata.finalizers: Invalid value: ["orphan","foregroundDeletion"]: finalizer orphan and '
                "foregroundDeletion cannot be both set"
            ],
        ),
        ({"ownerReferences": [OWNER]}, []),
        (
            {"ownerReferences": [{}]},
            [
                "metadata.ownerReferences[0].apiVersion: Required value: must not be empty",
                "metadata.ownerReferences[0].kind: Required value: must not be empty",
                "metadata.ownerReferences[0].name: Required value: must not be empty",
                "metadata.ownerReferences[0].uid: Required value: must not be empty",
            ],
        ),
        (
            {"ownerReferences": [OWNER, {**OWNER, "apiVersion": "apps/"}]},
            ['metadata.ownerReferences[1].apiVersion: Invalid value: "apps/": must be <group>/<version> or <version>'],
        ),
        (
            {"ownerReferences": [{**OWNER, "controller": True}, {**OWNER, "name": "b", "controller": True}]},
            [
                'metadata.ownerReferences: Invalid value: [{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"a",'
                '"uid":"1","controller":true},{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"b","uid":"1",'
                '"controller":true}]: Only one reference can have Controller set to true. Found "true" in references '
                "for ReplicaSet/a and ReplicaSet/b"
            ],
        ),
        (
            {"managedFields": [{"manager": "m", "operation": "Delete", "fieldsType": "V2"}]},
            [
                'metadata.managedFields[0].operation: Invalid value: "Delete": must be `Apply` or `Update`',
                'metadata.managedFields[0].fieldsType: Invalid value: "V2": must be `FieldsV1`',
            ],
        ),
        (
            {"managedFields": [{"manager": "m" * 129, "operation": "Apply"}]},
            ["metadata.managedFields[0].manager: Too long: may not be more than 128 bytes"],
        ),
        (
            {"managedFields": [{"manager": "a\x07", "operation": "Apply"}]},
            ['metadata.managedFields[0].manager: Invalid value: "a\\a": invalid character U+0007 (at position 1)'],
        ),
    ],
)
def test_an_error_of_the_metadata_is_reported(change: dict[str, Any], errs: list[str]) -> None:
    assert errors_of({**GOOD, **change}) == errs


def test_a_cluster_wide_object_has_no_namespace() -> None:
    assert errors_of(GOOD, namespaced=False) == ["metadata.namespace: Forbidden: not allowed on this type"]


def test_a_custom_kind_may_use_a_finalizer_of_its_own() -> None:
    obj = {"metadata": {"name": "a", "finalizers": ["own"]}}
    assert not list(validate_metadata(obj, namespaced=False, qualified_finalizers=False))


def test_a_kind_says_what_its_names_look_like() -> None:
    obj = {"metadata": {"name": "system:node"}}
    assert not list(validate_metadata(obj, namespaced=False, name_rule=names.path_segment))


@pytest.mark.parametrize(
    ("change", "errs"),
    [
        ({}, []),
        ({"resourceVersion": ""}, ['metadata.resourceVersion: Invalid value: "": must be specified for an update']),
        ({"generation": 1}, ["metadata.generation: Invalid value: 1: must not be decremented"]),
        ({"generation": 3}, []),
        ({"name": "b"}, ['metadata.name: Invalid value: "b": field is immutable']),
        ({"namespace": "b"}, ['metadata.namespace: Invalid value: "b": field is immutable']),
        ({"uid": "2"}, ['metadata.uid: Invalid value: "2": field is immutable']),
        (
            {"deletionTimestamp": "2026-01-01T00:00:00Z"},
            ['metadata.deletionTimestamp: Invalid value: "2026-01-01T00:00:00Z": field is immutable'],
        ),
        (
            {"deletionGracePeriodSeconds": 3},
            ["metadata.deletionGracePeriodSeconds: Invalid value: 3: field is immutable"],
        ),
    ],
)
def test_a_successor_keeps_what_is_fixed(change: dict[str, Any], errs: list[str]) -> None:
    result = validate_metadata_update({"metadata": {**GOOD, **change}}, {"metadata": GOOD})
    assert [str(cause) for cause in result] == errs


def test_an_object_that_is_being_deleted_gets_no_new_finalizers() -> None:
    dying = {**GOOD, "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["a/b"]}
    errs = validate_metadata_update({"metadata": {**dying, "finalizers": ["c/d", "a/b"]}}, {"metadata": dying})
    assert [str(cause) for cause in errs] == [
        "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, found new "
        'finalizers []string{"c/d"}'
    ]
    assert not list(validate_metadata_update({"metadata": {**dying, "finalizers": []}}, {"metadata": dying}))
