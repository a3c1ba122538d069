"""An object that nests too deep is refused, in whatever way it comes to be."""

from __future__ import annotations

import json

import pytest
from tests.server.in_process import APPLY, MERGE, OPERATIONS, InProcess, Object, control_plane

from pinnace.schema.golang.json_errors import MAX_DEPTH

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
THINGS = "/apis/deep.example.com/v1/namespaces/default/things"
DEFINITION: Object = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "things.deep.example.com"},
    "spec": {
        "group": "deep.example.com",
        "scope": "Namespaced",
        "names": {"plural": "things", "kind": "Thing"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
            }
        ],
    },
}


def nested(depth: int) -> str:
    return '{"a":' * (depth - 1) + "{}" + "}" * (depth - 1)


def thing(depth: int) -> str:
    """A thing whose brackets are `depth` deep."""
    head = '"apiVersion":"deep.example.com/v1","kind":"Thing","metadata":{"name":"one"}'
    return f'{{{head},"spec":{nested(depth - 1)}}}'


def grown() -> str:
    """Operations that are flat enough, but copy a deep part into itself."""
    path = "/spec" + "/a" * (MAX_DEPTH - 20)
    add = f'{{"op":"add","path":"/spec","value":{nested(MAX_DEPTH - 10)}}}'
    return f'[{add},{{"op":"copy","from":"/spec","path":"{path}"}}]'


async def test_the_deepest_body_is_stored_with_its_owners_and_a_deeper_one_is_refused() -> None:
    async with control_plane() as api:
        await api.made(DEFINITIONS, DEFINITION)
        await served(api)
        assert (await api.call("POST", THINGS, thing(MAX_DEPTH).encode())).status == 201
        stored = (await api.get(f"{THINGS}/one")).json
        assert stored["metadata"]["managedFields"]
        for method, target, body, content_type in (
            ("POST", THINGS, thing(MAX_DEPTH + 1), "application/json"),
            ("POST", THINGS, thing(MAX_DEPTH + 1), "application/yaml"),
            ("PUT", f"{THINGS}/one", thing(MAX_DEPTH + 1), "application/json"),
            ("PATCH", f"{THINGS}/one", thing(MAX_DEPTH + 1), MERGE),
            ("PATCH", f"{THINGS}/one?fieldManager=me&force=true", thing(MAX_DEPTH + 1), APPLY),
            ("PATCH", f"{THINGS}/one", grown(), OPERATIONS),
        ):
            reply = await api.call(method, target, body.encode(), content_type)
            assert (reply.status, "exceeded max depth" in reply.message) == (400, True), reply.body[:300]
        assert (await api.get(f"{THINGS}/one")).json == stored


async def served(api: InProcess) -> None:
    for _ in range(1000):
        if (await api.get(THINGS)).status == 200:
            return
    pytest.fail(json.dumps((await api.get(f"{DEFINITIONS}/things.deep.example.com")).json["status"]))
