"""What a client accepts decides how it is answered."""

from __future__ import annotations

import pytest

from pinnace.model import errors
from pinnace.server.request.negotiation import Answer, negotiate

JSON, YAML, PROTOBUF = "application/json", "application/yaml", "application/vnd.kubernetes.protobuf"


@pytest.mark.parametrize(
    ("accept", "answer"),
    [
        ("", Answer()),
        ("*/*", Answer()),
        (YAML, Answer(is_yaml=True)),
        ("text/html, */*;q=0.1", Answer()),
        (f"{PROTOBUF},{JSON}", Answer()),
        ("application/json;q=0.1,application/yaml;q=0.9", Answer(is_yaml=True)),
        (
            f"{JSON};as=Table;g=meta.k8s.io;v=v1,{JSON};as=Table;v=v1beta1;g=meta.k8s.io,{JSON}",
            Answer("Table", "v1"),
        ),
        (f"{JSON};as=Table;v=v1beta1;g=meta.k8s.io", Answer("Table", "v1beta1")),
        (f"{JSON} ; as=Table ; g=meta.k8s.io ; v=v1", Answer("Table", "v1")),
        ("*/*;as=Table;g=meta.k8s.io;v=v1", Answer("Table", "v1")),
        (f"{YAML};as=Table;g=meta.k8s.io;v=v1", Answer("Table", "v1", is_yaml=True)),
        (f"{JSON};as=PartialObjectMetadata;g=meta.k8s.io;v=v1", Answer("PartialObjectMetadata", "v1")),
        (
            f"{PROTOBUF};as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,{JSON};as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,{JSON}",
            Answer("PartialObjectMetadataList", "v1"),
        ),
        (f"{JSON};as=Foo;g=meta.k8s.io;v=v1,{JSON}", Answer()),
        (f"{JSON};pretty=1", Answer(is_pretty=True)),
        (f"{JSON};stream=watch", Answer()),
        (f"{JSON};q=abc", Answer()),
    ],
)
def test_the_best_answer_we_have_is_chosen(accept: str, answer: Answer) -> None:
    assert negotiate(accept) == answer


@pytest.mark.parametrize(
    "accept",
    [
        "text/html",
        PROTOBUF,
        "garbage",
        f"{JSON};as=Table",
        f"{JSON};as=Table;g=foo;v=v1",
        f"{JSON};as=Foo;g=meta.k8s.io;v=v1",
    ],
)
def test_what_we_cannot_answer_is_refused(accept: str) -> None:
    with pytest.raises(errors.NotShownSo) as caught:
        negotiate(accept)
    assert caught.value.code == 406
    assert "application/json, application/yaml" in caught.value.message
    assert (PROTOBUF in caught.value.message) == (accept != PROTOBUF), "which is not to be had after all"
