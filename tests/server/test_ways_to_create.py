"""Every way that creates something needs the verbs that the real server asks for.

`ways_to_create_1_36.jsonl` holds requests and the answers of Kubernetes 1.36 to a user with the named verbs on the
named resource, and on nothing else: the status, and for a refusal the verb and the resource that it names.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from tests.server.in_process import DEPLOYMENTS, MERGE, PODS, InProcess, Object, Reply, control_plane, deployment, pod

from pinnace.model.users import User, authenticated

WAYS = [json.loads(line) for line in Path(__file__).with_name("ways_to_create_1_36.jsonl").read_text().splitlines()]
RBAC = "/apis/rbac.authorization.k8s.io/v1"
USER = authenticated(User("door-user"))
NAMESPACE = "/api/v1/namespaces/default"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
BINDING = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRoleBinding",
    "metadata": {"name": "door"},
    "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "door"},
    "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "door-user"}],
}
CUSTOM = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "xs.doors.io"},
    "spec": {
        "group": "doors.io",
        "scope": "Namespaced",
        "names": {"plural": "xs", "kind": "X"},
        "versions": [
            {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {"type": "object"}}}
        ],
    },
}


async def prepare(api: InProcess) -> None:
    """Create the objects that the requests are about."""
    role: Object = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "door"}}
    await api.made(f"{RBAC}/clusterroles", role)
    await api.made(f"{RBAC}/clusterrolebindings", BINDING)
    await api.made(PODS, pod("old"))
    await api.made(DEPLOYMENTS, deployment("old", replicas=0))
    for plural, kind, name in (("configmaps", "ConfigMap", "old"), ("serviceaccounts", "ServiceAccount", "default")):
        await api.post(f"{NAMESPACE}/{plural}", {"apiVersion": "v1", "kind": kind, "metadata": {"name": name}})
    await api.made(DEFINITIONS, CUSTOM)


async def grant(api: InProcess, way: Object, verbs: list[str]) -> None:
    rules = [{"apiGroups": [way["group"]], "resources": [way["resource"]], "verbs": verbs}] if verbs else []
    await api.call("PATCH", f"{RBAC}/clusterroles/door", {"rules": rules}, MERGE)


def short(reply: Reply) -> str:
    """The status, and for a refusal the verb and resource, as they are recorded."""
    named = re.search(r'cannot (\w+) resource "([^"]+)"', reply.message) if reply.status == 403 else None
    return f"{reply.status} {named[1]} {named[2]}" if named else str(reply.status)


@pytest.mark.parametrize("way", WAYS, ids=[way["way"] for way in WAYS])
async def test_a_way_to_create_needs_the_verbs_that_kubernetes_asks_for(way: dict[str, Any]) -> None:
    results: dict[str, str] = {}
    path = way["path"].partition("?")[0]
    async with control_plane() as api:
        await prepare(api)
        user = InProcess(api.plane, USER)
        for verbs in way["answers"]:
            await grant(api, way, [] if verbs == "nothing" else verbs.split("+"))
            if "/new" in path and way["resource"].count("/") == 0:
                await api.delete(path.removesuffix("/status").removesuffix("/scale"))
            await api.delete(f"{NAMESPACE}/configmaps/new")
            results[verbs] = short(await user.call(way["method"], way["path"], way["body"], way["content_type"]))
    assert results == way["answers"]
