"""A new edition of a definition that breaks objects or clients is answered with warnings, or refused where asked."""

from __future__ import annotations

import pytest
from tests.extensions.definitions import DEFINITIONS, NUMBER, TEXT, Cluster, boats, shape, version
from tests.server.in_process import Object

TARGET = f"{DEFINITIONS}/boats.example.com"
STRICT = {"annotations": {"pinnace.dev/compatibility": "strict"}}

BREAKS: list[tuple[Object, Object, str]] = [
    (shape(size=NUMBER, name=TEXT), shape(size=NUMBER), "v1 spec.name: the field is removed"),
    (shape(size=NUMBER), shape(size=TEXT), "v1 spec.size: the type string is narrower than integer"),
    (
        shape(kind={**TEXT, "enum": ["a", "b"]}),
        shape(kind={**TEXT, "enum": ["a"]}),
        'spec.kind: the allowed values no longer include "b"',
    ),
    (shape(size=NUMBER), shape(size={**NUMBER, "maximum": 3}), "v1 spec.size: maximum is 3, and there was none"),
    (shape(name=TEXT), shape(name={**TEXT, "pattern": "^a"}), 'v1 spec.name: the pattern is "^a", and there was none'),
    (
        shape(name=TEXT),
        shape(name={**TEXT, "maxLength": 9, "x-kubernetes-validations": [{"rule": "self != ''"}]}),
        "v1 spec.name: there is a new rule: self != ''",
    ),
]
BREAK_IDS = ["removed", "type", "enum", "maximum", "pattern", "rule"]


async def rewrite(cluster: Cluster, schema: Object) -> tuple[int, str]:
    present = (await cluster.get(TARGET)).json
    present["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = schema
    reply = await cluster.put(TARGET, present)
    return reply.status, " ".join(reply.header("warning")).replace('\\"', '"') + reply.message


@pytest.mark.parametrize(("before", "after", "message"), BREAKS, ids=BREAK_IDS)
async def test_an_incompatible_schema_is_reported(
    cluster: Cluster, before: Object, after: Object, message: str
) -> None:
    await cluster.define(boats(version(schema=before)))
    status, text = await rewrite(cluster, after)
    assert status == 200
    assert message in text


@pytest.mark.parametrize(("before", "after", "message"), BREAKS, ids=BREAK_IDS)
async def test_a_breaking_change_is_refused_where_the_definition_asks_for_it(
    cluster: Cluster, before: Object, after: Object, message: str
) -> None:
    await cluster.define(boats(version(schema=before), metadata=STRICT))
    status, text = await rewrite(cluster, after)
    assert status == 422
    assert message in text


@pytest.mark.parametrize("edition", ["the old", "the new"])
async def test_it_takes_a_write_of_its_own_to_open_the_gate(cluster: Cluster, edition: str) -> None:
    await cluster.define(boats(version(schema=shape(name=TEXT)), metadata=STRICT if edition == "the old" else {}))
    present = (await cluster.get(TARGET)).json
    present["metadata"]["annotations"] = {} if edition == "the old" else STRICT["annotations"]
    broken = {**present, "spec": boats(version(schema=shape(size=NUMBER)))["spec"]}
    reply = await cluster.put(TARGET, broken)
    assert reply.status == 422 and "v1 spec.name: the field is removed" in reply.message
    if edition == "the old":
        opened = (await cluster.put(TARGET, present)).json
        reply = await cluster.put(TARGET, {**opened, "spec": broken["spec"]})
        assert reply.status == 200 and "v1 spec.name: the field is removed" in " ".join(reply.header("warning"))


async def test_a_widening_change_is_not_reported(cluster: Cluster) -> None:
    narrow = shape(size={**NUMBER, "maximum": 3}, kind={**TEXT, "enum": ["a"]})
    await cluster.define(boats(version(schema=narrow), metadata=STRICT))
    status, text = await rewrite(cluster, shape(size={"type": "number"}, kind=TEXT, name=TEXT))
    assert (status, text) == (200, "")
