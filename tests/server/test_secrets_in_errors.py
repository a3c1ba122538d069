"""Errors about a Secret contain neither stored nor sent values."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.server.in_process import APPLY, MERGE, OPERATIONS, STRATEGIC, InProcess

SECRETS = "/api/v1/namespaces/default/secrets"
STORED, SENT = "aHVudGVyMg==", "c3dvcmRmaXNo"

BROKEN: dict[str, tuple[str, Any, int]] = {
    "a merge": (MERGE, {"data": {"p": {SENT: 1}}}, 422),
    "a strategic merge": (STRATEGIC, {"stringData": {"p": [SENT]}}, 422),
    "operations": (OPERATIONS, [{"op": "add", "path": "/data/p", "value": {SENT: 1}}], 422),
    "operations that leave the rest": (OPERATIONS, [{"op": "add", "path": "/immutable", "value": SENT}], 422),
    "a test that fails": (OPERATIONS, [{"op": "test", "path": "/data/p", "value": SENT}], 422),
    "another kind": (MERGE, {"kind": "ConfigMap"}, 422),
    "an apply of a list": (APPLY, {"data": {"p": [SENT]}}, 500),
    "an apply of an object": (APPLY, {"stringData": {"p": {"q": SENT}}}, 500),
}


@pytest.mark.parametrize("form", BROKEN)
async def test_a_patch_that_breaks_a_secret_is_refused_without_quoting_it(api: InProcess, form: str) -> None:
    await api.made(SECRETS, {"metadata": {"name": "a"}, "data": {"p": STORED}})
    content_type, patch, status = BROKEN[form]
    if content_type == APPLY:
        patch |= {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}}
    reply = await api.patch(f"{SECRETS}/a?fieldManager=me", patch, content_type)
    assert (reply.status, reply.json["kind"]) == (status, "Status")
    text = json.dumps(reply.json)
    assert STORED not in text and SENT not in text


async def test_the_error_still_names_the_expected_type(api: InProcess) -> None:
    applied = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}, "data": {"p": [SENT]}}
    reply = await api.patch(f"{SECRETS}/a?fieldManager=me", applied, APPLY)
    assert ".data.p: expected string, got <secret contents redacted>" in reply.json["message"]


async def test_the_patch_of_anything_else_is_quoted_as_by_kubernetes(api: InProcess) -> None:
    await api.made("/api/v1/namespaces/default/configmaps", {"metadata": {"name": "a"}})
    reply = await api.patch("/api/v1/namespaces/default/configmaps/a", {"data": {"p": ["seen"]}}, STRATEGIC)
    assert (reply.status, "map[data:map[p:[seen]]]" in reply.json["message"]) == (422, True)
