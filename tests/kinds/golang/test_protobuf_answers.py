"""Answers in protobuf are equal to those of a real server, which were recorded with the same objects as JSON."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from pinnace.kinds.golang.field_numbers import decode_answer, encode_answer
from pinnace.schema.golang.protobuf_encoding import NoProtobuf

ANSWERS = [json.loads(line) for line in Path(__file__).with_name("protobuf_answers.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("answer", ANSWERS, ids=lambda answer: answer["name"])
def test_an_answer_has_the_bytes_of_a_real_server(answer: dict[str, Any]) -> None:
    assert encode_answer(answer["object"]) == base64.b64decode(answer["protobuf"])


def test_an_answer_is_read_as_the_object_that_it_was() -> None:
    pod = next(answer["object"] for answer in ANSWERS if answer["name"] == "Pod")
    assert decode_answer(encode_answer(pod)) == pod


@pytest.mark.parametrize("kind", ["Boat", "BoatList", "List"])
def test_a_kind_without_a_message_is_refused(kind: str) -> None:
    with pytest.raises(NoProtobuf, match=f"{kind} of example.com/v1 has no protobuf message"):
        encode_answer({"apiVersion": "example.com/v1", "kind": kind})
