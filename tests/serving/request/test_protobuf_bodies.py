"""Protobuf bodies are accepted like JSON, and rejected with the messages of a real server."""

from __future__ import annotations

import pytest
from tests.schema.golang.protobuf_samples import Sample, sample, samples

from pinnace.kinds.definitions import Definitions
from pinnace.model import errors
from pinnace.model.objects import Kind
from pinnace.model.quantity import canonical
from pinnace.schema.golang.decode import Decoders
from pinnace.serving.request import body as bodies
from pinnace.serving.request.body import PROTOBUF, Body

DEFINITIONS = Definitions.load("1.36")
DECODERS = Decoders(quantity=canonical)
NAMESPACE = Kind("", "v1", "Namespace")
KNOWN = {NAMESPACE, Kind("", "v1", "Pod"), Kind("apps", "v1", "Deployment")}
CREATED = [sample for sample in samples() if sample.obj["kind"] != "DeleteOptions"]


def _read(body: bytes, kind: Kind = NAMESPACE) -> Body:
    return bodies.read(body, PROTOBUF, kind=kind, is_known=KNOWN.__contains__, look_for_repeats=True)


def _kind_of(actual: Sample) -> Kind:
    return Kind.parse(actual.obj["apiVersion"], actual.obj["kind"])


@pytest.mark.parametrize("actual", CREATED, ids=lambda actual: actual.name)
def test_a_body_is_read_and_fits_the_schema(actual: Sample) -> None:
    kind = _kind_of(actual)
    schema = DEFINITIONS.of_kind(kind)
    assert schema is not None
    body = _read(actual.body, kind)
    assert bodies.decode(body, DECODERS.of(schema), kind=kind, validation="Strict") == []
    assert body.obj == actual.obj


def test_a_body_that_says_no_kind_is_of_the_kind_that_the_url_serves() -> None:
    assert _read(b"k8s\0\x12\x02\x0a\x00").obj == {"kind": "Namespace", "apiVersion": "v1"}


def test_fields_younger_than_the_server_are_not_reported() -> None:
    deployment = sample("kubectl create deployment")
    old = DECODERS.of(DEFINITIONS.schema("io.k8s.api.core.v1.ConfigMap"))
    body = _read(deployment.body, _kind_of(deployment))
    assert bodies.decode(body, old, kind=_kind_of(deployment), validation="Strict") == []
    assert "spec" not in body.obj


@pytest.mark.parametrize(
    ("body", "err"),
    [
        (b"k8s\0", "the object provided is unrecognized (must be of type Namespace): empty body (6b387300)"),
        (b"k8s\0\xff", "the object provided is unrecognized (must be of type Namespace): unexpected EOF (6b387300ff)"),
        (
            b"k8s\0\x0a\x0f\x0a\x02v1\x12\x09Namespace\x12\x02\x0a\x05",
            'Namespace in version "v1" cannot be handled as a Namespace: unexpected EOF',
        ),
        (
            b"k8s\0\x0a\x0f\x0a\x02v1\x12\x09Namespace\x12\x02\x09\x05",
            'Namespace in version "v1" cannot be handled as a Namespace: proto: wrong wireType = 1 for field '
            "ObjectMeta",
        ),
        (
            b"k8s\0\x0a\x09\x0a\x02v1\x12\x03Foo\x12\x02\x0a\x00",
            'Foo in version "v1" cannot be handled as a Namespace: no kind "Foo" is registered for version "v1" in '
            'scheme "pkg/api/legacyscheme/scheme.go:30"',
        ),
        (
            b"k8s\0\x0a\x09\x0a\x02v1\x12\x03Pod\x12\x02\x0a\x00",
            'Pod in version "v1" cannot be handled as a Namespace: converting (v1.Pod) to (core.Namespace): unknown '
            "conversion",
        ),
    ],
)
def test_an_object_of_another_type_is_refused(body: bytes, err: str) -> None:
    with pytest.raises(errors.BadRequest) as caught:
        _read(body)
    assert caught.value.message == err


def test_json_inside_a_message_nests_within_bounds() -> None:
    deep = b'{"a":' * 300 + b"1" + b"}" * 300
    raw = b"\x0a" + _length(deep) + deep
    revision = b"\x12" + _length(raw) + raw
    body = b"k8s\0\x12" + _length(revision) + revision
    with pytest.raises(errors.BadRequest, match="exceeded max depth"):
        _read(body, Kind("apps", "v1", "ControllerRevision"))


def _length(data: bytes) -> bytes:
    return bytes((len(data) & 127 | 128, len(data) >> 7))


def test_custom_kinds_take_no_protobuf() -> None:
    with pytest.raises(errors.UnsupportedMediaType) as caught:
        _read(b"k8s\0\x12\x02\x0a\x00", Kind("boats.example.com", "v1", "Boat"))
    assert caught.value.message.endswith("application/json, application/yaml")


def test_options_of_a_deletion_are_read() -> None:
    options = sample("how to delete")
    assert bodies.read_untyped(options.body, PROTOBUF) == options.obj
    assert bodies.read_untyped(b"k8s\0\x12\x02\x08\x05", PROTOBUF) == {"gracePeriodSeconds": 5}


@pytest.mark.parametrize(
    ("body", "err"),
    [
        (b"k8s\0\x12\x02\x0a\x05", "proto: wrong wireType = 2 for field GracePeriodSeconds"),
    ],
)
def test_invalid_delete_options_are_refused(body: bytes, err: str) -> None:
    with pytest.raises(errors.BadRequest) as caught:
        bodies.read_untyped(body, PROTOBUF)
    assert caught.value.message == err


def test_the_kind_of_other_options_is_left_to_the_caller() -> None:
    body = b"k8s\0\x0a\x09\x0a\x02v1\x12\x03Pod\x12\x02\x08\x05"
    assert bodies.read_untyped(body, PROTOBUF) == {"kind": "Pod", "apiVersion": "v1"}


@pytest.mark.parametrize(
    ("body", "err"),
    [
        (b"", "empty data"),
        (b"abc", "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]"),
        (b'{"kind": 1}', "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]"),
        (b"k8s\0", "empty body"),
    ],
)
def test_protobuf_of_another_origin_is_a_bad_request(body: bytes, err: str) -> None:
    with pytest.raises(errors.BadRequest) as refused:
        _read(body)
    assert refused.value.message.startswith(f"the object provided is unrecognized (must be of type Namespace): {err} (")
    with pytest.raises(errors.BadRequest) as refused:
        bodies.read_untyped(body, PROTOBUF)
    assert refused.value.message == err
