"""Random definitions and objects are answered as a real kube-apiserver 1.36 answered them.

Each line of kubernetes_answers.jsonl holds the versions of a definition and what was said of it, or a schema and what
was said of objects: the code, the causes in order of their fields, the warnings, and what would have been stored.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from tests.extensions.definitions import BOATS, DEFINITIONS, Cluster, boats, version
from tests.server.in_process import Object, Reply

ANSWERS = [json.loads(line) for line in Path(__file__).with_name("kubernetes_answers.jsonl").read_text().splitlines()]
OF_DEFINITIONS = [answer for answer in ANSWERS if "definition" in answer]
OF_OBJECTS = [answer for answer in ANSWERS if "objects" in answer]


def answer_of(reply: Reply) -> Object:
    """An answer in the terms of the records."""
    result: Object = {"code": reply.status}
    if reply.status >= 300:
        causes = (reply.json.get("details") or {}).get("causes") or []
        message = [[cause.get("field", ""), cause.get("reason", ""), cause.get("message", "")] for cause in causes]
        result["causes"] = sorted([field, reason, _without_numbers(text)] for field, reason, text in message)
        if not message:
            result["message"] = reply.message
    if warnings := reply.header("warning"):
        result["warnings"] = sorted(warnings)
    return result


def _without_numbers(text: str) -> str:
    """Kubernetes numbers the types of rules at random."""
    return re.sub(r"selfType\d+", "selfType", text)


def recorded(record: Object, *but: str) -> Object:
    return {name: value for name, value in record.items() if name not in but}


@pytest.mark.parametrize("record", OF_DEFINITIONS, ids=map(str, range(len(OF_DEFINITIONS))))
async def test_a_definition_is_answered_alike(cluster: Cluster, record: Any) -> None:
    wanted = boats()
    wanted["spec"]["versions"] = record["definition"]
    assert answer_of(await cluster.post(f"{DEFINITIONS}?dryRun=All", wanted)) == recorded(record, "definition")


@pytest.mark.parametrize("record", OF_OBJECTS, ids=map(str, range(len(OF_OBJECTS))))
async def test_an_object_is_answered_alike(cluster: Cluster, record: Any) -> None:
    await cluster.define(boats(version(schema=record["schema"])))
    for obj in record["objects"]:
        strictness = f"&fieldValidation={obj['validation']}" if obj["validation"] else ""
        body = {"apiVersion": "example.com/v1", "kind": "Boat", "metadata": {"name": "x"}, "spec": obj["object"]}
        reply = await cluster.post(f"{BOATS}?dryRun=All{strictness}", body)
        assert answer_of(reply) == recorded(obj, "object", "validation", "spec", "owned"), obj["object"]
        if reply.status == 201:
            assert reply.json.get("spec") == obj["spec"]
            assert reply.json["metadata"]["managedFields"][0]["fieldsV1"] == obj["owned"]
