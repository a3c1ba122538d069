"""The Accept header decides the media type of the answer."""

from __future__ import annotations

import pytest

from pinnace.model import errors
from pinnace.serving.request.negotiation import Accepted, negotiate

JSON, YAML, PROTOBUF = "application/json", "application/yaml", "application/vnd.kubernetes.protobuf"


@pytest.mark.parametrize(
    ("accept", "answer"),
    [
        ("", Accepted()),
        ("*/*", Accepted()),
        (YAML, Accepted(is_yaml=True)),
        ("text/html, */*;q=0.1", Accepted()),
        (f"{PROTOBUF},{JSON}", Accepted(is_protobuf=True)),
        (f"{PROTOBUF};stream=watch", Accepted(is_protobuf=True)),
        (f"{PROTOBUF};pretty=1", Accepted(is_protobuf=True)),
        (f"{PROTOBUF};q=0.5,{JSON}", Accepted()),
        (f"{PROTOBUF};as=Table;g=meta.k8s.io;v=v1,{JSON};as=Table;g=meta.k8s.io;v=v1", Accepted("Table", "v1")),
        (f"{PROTOBUF};as=PartialObjectMetadata;g=meta.k8s.io;v=v1beta1,{JSON}", Accepted()),
        ("application/json;q=0.1,application/yaml;q=0.9", Accepted(is_yaml=True)),
        (
            f"{JSON};as=Table;g=meta.k8s.io;v=v1,{JSON};as=Table;v=v1beta1;g=meta.k8s.io,{JSON}",
            Accepted("Table", "v1"),
        ),
        (f"{JSON};as=Table;v=v1beta1;g=meta.k8s.io", Accepted("Table", "v1beta1")),
        (f"{JSON} ; as=Table ; g=meta.k8s.io ; v=v1", Accepted("Table", "v1")),
        ("*/*;as=Table;g=meta.k8s.io;v=v1", Accepted("Table", "v1")),
        (f"{YAML};as=Table;g=meta.k8s.io;v=v1", Accepted("Table", "v1", is_yaml=True)),
        (f"{JSON};as=PartialObjectMetadata;g=meta.k8s.io;v=v1", Accepted("PartialObjectMetadata", "v1")),
        (
            f"{PROTOBUF};as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,{JSON};as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,{JSON}",
            Accepted("PartialObjectMetadataList", "v1", is_protobuf=True),
        ),
        (f"{JSON};as=Foo;g=meta.k8s.io;v=v1,{JSON}", Accepted()),
        (f"{JSON};pretty=1", Accepted(is_pretty=True)),
        (f"{JSON};stream=watch", Accepted()),
        (f"{JSON};q=abc", Accepted()),
    ],
)
def test_the_best_answer_we_have_is_chosen(accept: str, answer: Accepted) -> None:
    assert negotiate(accept) == answer


@pytest.mark.parametrize(
    "accept",
    [
        "text/html",
        f"{PROTOBUF};as=Table;g=meta.k8s.io;v=v1",
        "garbage",
        f"{JSON};as=Table",
        f"{JSON};as=Table;g=foo;v=v1",
        f"{JSON};as=Foo;g=meta.k8s.io;v=v1",
    ],
)
def test_an_unknown_media_type_is_refused(accept: str) -> None:
    with pytest.raises(errors.NotShownSo) as caught:
        negotiate(accept)
    assert caught.value.code == 406
    assert f"application/json, application/yaml, {PROTOBUF}" in caught.value.message


def test_an_object_without_a_message_is_json_and_its_metadata_are_protobuf() -> None:
    assert negotiate(f"{PROTOBUF},{JSON}", has_message=False) == Accepted()
    metadata = f"{PROTOBUF};as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
    assert negotiate(metadata, has_message=False) == Accepted("PartialObjectMetadata", "v1", is_protobuf=True)
    with pytest.raises(errors.NotShownSo):
        negotiate(PROTOBUF, has_message=False)
