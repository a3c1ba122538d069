"""Plug-ins for namespaces that do not exist."""

from __future__ import annotations

from tests.admission.plugins.optional.running import NAMESPACES, running

from pinnace.testing.clock import ManualClock

REVIEW = {
    "metadata": {"namespace": "new"},
    "spec": {"user": "ada", "resourceAttributes": {"verb": "get", "resource": "pods", "namespace": "new"}},
}
REVIEWS = "/apis/authorization.k8s.io/v1/namespaces/new/localsubjectaccessreviews"


async def test_a_missing_namespace_is_created_for_its_first_object() -> None:
    async with running("NamespaceAutoProvision", clock=ManualClock()) as server:
        maps = f"{NAMESPACES}/new/configmaps"
        dry = await server.post(f"{maps}?dryRun=All", {"metadata": {"name": "a"}})
        assert (dry.status, dry.message) == (404, 'namespaces "new" not found')
        assert (await server.post(maps, {"metadata": {"name": "a"}})).status == 201
        assert (await server.get(f"{NAMESPACES}/new")).json["status"] == {"phase": "Active"}
        assert (await server.post(maps, {"metadata": {"name": "b"}})).status == 201


async def test_a_namespace_that_cannot_be_created_is_the_error_of_the_write() -> None:
    async with running("NamespaceAutoProvision") as server:
        refused = await server.post(f"{NAMESPACES}/Not_valid/configmaps", {"metadata": {"name": "a"}})
        assert refused.status == 403, refused.body
        assert 'configmaps "a" is forbidden: Namespace "Not_valid" is invalid: metadata.name' in refused.message


async def test_namespaces_must_exist_for_writes_and_reviews() -> None:
    async with running("NamespaceExists", disabled=frozenset(("NamespaceLifecycle",))) as server:
        refused = await server.post(f"{NAMESPACES}/new/configmaps", {"metadata": {"name": "a"}})
        assert (refused.status, refused.message) == (404, 'namespaces "new" not found')
        assert (await server.post(REVIEWS, REVIEW)).message == 'namespaces "new" not found'
        assert (await server.post(f"{NAMESPACES}/default/configmaps", {"metadata": {"name": "a"}})).status == 201
        assert (await server.post(NAMESPACES, {"metadata": {"name": "new"}})).status == 201
        assert (await server.post(REVIEWS, REVIEW)).status == 201
