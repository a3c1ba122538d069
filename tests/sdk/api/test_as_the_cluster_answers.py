"""The same requests to a served kind and to that kind as a custom resource: the same codes, reasons and messages."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import orjson
from tests.sdk.recipes import PARTIAL, TABLE, RecipeSpec, RecipeStatus, kitchen

from pinnace.kinds.golang.field_numbers import decode_answer
from pinnace.schema.golang.protobuf import PREFIX
from pinnace.sdk import CustomResource
from pinnace.sdk.resources.custom_resource import definition_of
from pinnace.serving.messages import header_block
from pinnace.testing.cluster import Cluster

MERGE, JSON_PATCH = "application/merge-patch+json", "application/json-patch+json"
STRATEGIC, APPLY = "application/strategic-merge-patch+json", "application/apply-patch+yaml"
SERVED, STORED = "kitchen.example.com", "cuisine.example.com"
RECIPES = "/namespaces/default/recipes"
SOUP = f"{RECIPES}/soup"


class Stored(
    CustomResource[RecipeSpec, RecipeStatus],
    group=STORED,
    version="v1",
    kind="Recipe",
    short_names=["rcp"],
    columns=[".spec.minutes", ".status.cooked"],
    selectable=[".spec.dish"],
):
    """How a dish is made."""


@dataclass(frozen=True)
class Ask:
    """One request, below the group version."""

    method: str
    path: str
    body: Any = None
    type: str = "application/json"
    accept: str = "application/json"


@dataclass
class Answered:
    """An answer without what differs between two servers: group, revisions, uids and times."""

    status: int
    body: Any
    warnings: list[str] = field(default_factory=list)


def recipe(name: str = "soup", /, metadata: Any = None, **fields: Any) -> Any:
    named = {"name": name, **(metadata or {})}
    return {"apiVersion": "GROUP/v1", "kind": "Recipe", "metadata": named, "spec": {}, **fields}


DEEP = (
    '{"apiVersion":"GROUP/v1","kind":"Recipe","metadata":{"name":"deep"},"spec":'
    + '{"a":' * 11_000
    + "1"
    + "}" * 11_001
)

REQUESTS = [
    Ask("POST", RECIPES, recipe(spec={"minutes": 5, "steps": ["cut"]})),
    Ask("POST", RECIPES, recipe()),
    Ask("POST", RECIPES, recipe("stew", metadata={"labels": {"a": "b"}})),
    Ask("POST", RECIPES, recipe("other", metadata={"resourceVersion": "5"})),
    Ask("POST", RECIPES, recipe("other", metadata={"namespace": "elsewhere"})),
    Ask("POST", RECIPES, recipe("Not A Name")),
    Ask("POST", RECIPES, {**recipe("other"), "kind": "Pod"}),
    Ask("POST", RECIPES, {**recipe("other"), "apiVersion": "v1"}),
    Ask("POST", RECIPES, "{"),
    Ask("POST", RECIPES, "[]"),
    Ask("POST", RECIPES, DEEP),
    Ask("POST", RECIPES, recipe("other"), type="application/x-unknown"),
    Ask("POST", f"{RECIPES}?dryRun=Some", recipe("other")),
    Ask("POST", f"{RECIPES}?dryRun=All", recipe("other")),
    Ask("POST", f"{RECIPES}?fieldValidation=Loose", recipe("other")),
    Ask("POST", f"{RECIPES}?fieldValidation=Strict", recipe("other", spec={"colour": "red"})),
    Ask(
        "POST",
        f"{RECIPES}?fieldValidation=Strict",
        '{"apiVersion":"GROUP/v1","kind":"Recipe","kind":"Recipe","metadata":{"name":"twice"}}',
    ),
    Ask("POST", f"{RECIPES}?fieldValidation=Warn&dryRun=All", recipe("other", spec={"colour": "red"})),
    Ask("POST", f"{RECIPES}?fieldManager={'x' * 200}", recipe("other")),
    Ask("POST", RECIPES, recipe("other", spec={"minutes": 0})),
    Ask("POST", RECIPES, recipe("other", spec={"minutes": "x", "steps": [1]})),
    Ask("POST", RECIPES, recipe("other", spec=None)),
    Ask(
        "POST",
        RECIPES,
        "apiVersion: GROUP/v1\nkind: Recipe\nmetadata: {name: flan}\nspec: {minutes: 3}\n",
        "application/yaml",
    ),
    Ask("GET", SOUP),
    Ask("GET", f"{RECIPES}/missing"),
    Ask("GET", SOUP, accept=PARTIAL),
    Ask("GET", SOUP, accept=TABLE),
    Ask("GET", SOUP, accept="application/vnd.kubernetes.protobuf"),
    Ask("GET", SOUP, accept="text/html"),
    Ask("GET", f"{SOUP}?resourceVersion=abc"),
    Ask("GET", f"{SOUP}/status"),
    Ask("GET", f"{SOUP}/scale"),
    Ask("GET", f"{SOUP}/nothing"),
    Ask("GET", RECIPES),
    Ask("GET", "/recipes"),
    Ask("GET", RECIPES, accept=PARTIAL.replace("Metadata;", "MetadataList;")),
    Ask("GET", RECIPES, accept=PARTIAL),
    Ask("GET", RECIPES, accept=TABLE),
    Ask("GET", f"{RECIPES}?includeObject=None", accept=TABLE),
    Ask("GET", f"{RECIPES}?includeObject=Nonsense", accept=TABLE),
    Ask("GET", f"{RECIPES}?limit=1"),
    Ask("GET", f"{RECIPES}?limit=x"),
    Ask("GET", f"{RECIPES}?limit=-1"),
    Ask("GET", f"{RECIPES}?continue=nonsense"),
    Ask("GET", f"{RECIPES}?labelSelector=a%3Db"),
    Ask("GET", f"{RECIPES}?labelSelector=a%3D%3D%3Db"),
    Ask("GET", f"{RECIPES}?fieldSelector=spec.dish%3Dplate"),
    Ask("GET", f"{RECIPES}?fieldSelector=spec.minutes%3D5"),
    Ask("GET", f"{RECIPES}?resourceVersion=0&resourceVersionMatch=NotOlderThan"),
    Ask("GET", f"{RECIPES}?resourceVersionMatch=Exact"),
    Ask("GET", f"{RECIPES}?resourceVersion=1&resourceVersionMatch=Nearly"),
    Ask("GET", f"{RECIPES}?resourceVersion=abc"),
    Ask("GET", f"{RECIPES}?sendInitialEvents=true"),
    Ask("GET", f"{RECIPES}?watch=1&sendInitialEvents=true"),
    Ask("GET", f"{RECIPES}?watch=1&resourceVersionMatch=Exact&resourceVersion=1"),
    Ask("GET", f"{RECIPES}?watch=1&labelSelector=%3D"),
    Ask("GET", f"{RECIPES}?timeout=nonsense"),
    Ask("PUT", SOUP, recipe()),
    Ask("PUT", SOUP, recipe(metadata={"resourceVersion": "1"})),
    Ask("PUT", SOUP, recipe(metadata={"resourceVersion": "x"})),
    Ask("PUT", SOUP, recipe("stew")),
    Ask("PUT", SOUP, recipe(metadata={"namespace": "elsewhere"})),
    Ask("PUT", f"{RECIPES}/missing", recipe("missing", metadata={"resourceVersion": "1"})),
    Ask("PUT", RECIPES, recipe()),
    Ask("PATCH", SOUP, {"spec": {"minutes": 7}}, MERGE),
    Ask("PATCH", SOUP, {"spec": {"minutes": 0}}, MERGE),
    Ask("PATCH", SOUP, {"metadata": {"uid": "other"}}, MERGE),
    Ask("PATCH", SOUP, {"metadata": {"resourceVersion": "1"}}, MERGE),
    Ask("PATCH", SOUP, [], MERGE),
    Ask("PATCH", SOUP, [{"op": "add", "path": "/spec/steps/-", "value": "boil"}], JSON_PATCH),
    Ask("PATCH", SOUP, [{"op": "test", "path": "/spec/minutes", "value": 99}], JSON_PATCH),
    Ask("PATCH", SOUP, [{"op": "jump", "path": "/spec"}], JSON_PATCH),
    Ask("PATCH", SOUP, {}, JSON_PATCH),
    Ask("PATCH", SOUP, {"spec": {"minutes": 7}}, STRATEGIC),
    Ask("PATCH", SOUP, {"spec": {"minutes": 7}}, "application/json"),
    Ask("PATCH", f"{SOUP}?force=true", {"spec": {"minutes": 7}}, MERGE),
    Ask("PATCH", f"{RECIPES}/missing", {"spec": {"minutes": 7}}, MERGE),
    Ask("PATCH", SOUP, recipe(spec={"minutes": 8}), APPLY),
    Ask("PATCH", f"{SOUP}?fieldManager=ann", recipe(spec={"minutes": 8}), APPLY),
    Ask("PATCH", f"{SOUP}?fieldManager=ann&force=true", recipe(spec={"minutes": 8}), APPLY),
    Ask("PATCH", f"{SOUP}?fieldManager=bob", recipe(spec={"minutes": 9}), APPLY),
    Ask("PATCH", f"{SOUP}?fieldManager=bob", recipe(metadata={"managedFields": []}), APPLY),
    Ask("PATCH", f"{RECIPES}/new?fieldManager=ann", recipe("new", spec={"minutes": 4}), APPLY),
    Ask("PATCH", f"{SOUP}/status?fieldManager=cook", recipe(status={"cooked": 2}), APPLY),
    Ask("PATCH", f"{SOUP}/status", {"status": {"cooked": 3}, "spec": {"minutes": 99}}, MERGE),
    Ask("PATCH", f"{SOUP}/status", {"status": {"cooked": "x"}}, MERGE),
    Ask("PATCH", f"{SOUP}?dryRun=All", {"spec": {"minutes": 50}}, MERGE),
    Ask("GET", SOUP),
    Ask("POST", SOUP, recipe()),
    Ask("GET", "/nothing"),
    Ask("GET", "/namespaces/default/nothing/x"),
    Ask("DELETE", f"{SOUP}?dryRun=All"),
    Ask("DELETE", SOUP, {"preconditions": {"uid": "other"}}),
    Ask("DELETE", SOUP, {"preconditions": {"resourceVersion": "1"}}),
    Ask("DELETE", SOUP, {"propagationPolicy": "Sideways"}),
    Ask("DELETE", SOUP, {"kind": "Pod", "apiVersion": "v1"}),
    Ask("DELETE", SOUP, {"propagationPolicy": "Foreground"}),
    Ask("DELETE", f"{RECIPES}/missing"),
    Ask("DELETE", f"{RECIPES}?labelSelector=a%3Db"),
    Ask("DELETE", f"{RECIPES}?fieldSelector=spec.minutes%3D1"),
    Ask("DELETE", f"{RECIPES}/new"),
]


async def test_each_request_is_answered_as_for_a_custom_resource(cluster: Cluster) -> None:
    await cluster.run(kitchen())
    await cluster.client.create(definition_of(Stored))
    await cluster.settle()
    differences = []
    for ask in REQUESTS:
        served, stored = await send(cluster, SERVED, ask), await send(cluster, STORED, ask)
        if served != stored:
            differences.append(f"{ask}\n  served: {served}\n  stored: {stored}")
    assert not differences, "\n".join(differences)


async def send(cluster: Cluster, group: str, ask: Ask) -> Answered:
    text = ask.body if isinstance(ask.body, str) else "" if ask.body is None else orjson.dumps(ask.body).decode()
    headers = {"accept": ask.accept, "content-type": ask.type, "user-agent": "test/1"}
    target = f"/apis/{group}/v1{ask.path}"
    answer = await cluster.plane.local().request(ask.method, target, text.replace("GROUP", group).encode(), headers)
    whole = answer.body if isinstance(answer.body, bytes) else b"".join(answer.body)
    if whole.startswith(PREFIX):
        whole = orjson.dumps(decode_answer(whole))
    body = whole.decode().replace(group.partition(".")[0], "GROUP")
    try:
        parsed = orjson.loads(body)
    except orjson.JSONDecodeError:
        parsed = body
    block = answer.headers if isinstance(answer.headers, bytes) else header_block(answer.headers)
    lines = block.decode().replace(group, "GROUP").split("\r\n")
    warnings = [line for line in lines if line.lower().startswith("warning: ")]
    return Answered(answer.status, _without_state(parsed), warnings)


_UID = re.compile(r"[0-9a-f]{8}-[0-9a-f-]{27}")
_NUMBERS = re.compile(r"\b\d{1,20}\b")
_STATE = ("resourceVersion", "uid", "creationTimestamp", "deletionTimestamp", "time", "continue")


def _without_state(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_state(item) for item in value]
    if not isinstance(value, dict):
        return value
    rest = {name: _without_state(item) for name, item in value.items() if name not in _STATE}
    if value.get("kind") == "Status" and isinstance(value.get("message"), str):
        rest["message"] = _NUMBERS.sub("N", _UID.sub("UID", value["message"]))
    if value.get("kind") == "Recipe" and "spec" in rest:  # The class stores the defaults of its lists and its status.
        rest = {"status": {"cooked": 0}, **rest, "spec": {"steps": [], **rest["spec"]}}
    if value.get("kind") == "Table":
        rest["rows"] = [{**row, "cells": row["cells"][:-2]} for row in rest["rows"]]
    return rest
