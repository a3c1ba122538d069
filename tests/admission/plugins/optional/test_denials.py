"""Plug-ins that refuse what the API permits."""

from __future__ import annotations

from tests.admission.plugins.optional.running import NAMESPACES, running
from tests.server.in_process import PODS, SERVICES, pod

SERVICE = {"metadata": {"name": "a"}, "spec": {"ports": [{"port": 80}], "externalIPs": ["192.0.2.1", "192.0.2.2"]}}


async def test_always_deny_refuses_each_write_also_reviews_but_no_reads() -> None:
    async with running("AlwaysDeny") as server:
        refused = await server.post(NAMESPACES, {"metadata": {"name": "a"}})
        denied = "admission control is denying all modifications"
        assert (refused.status, refused.message) == (403, f'namespaces "a" is forbidden: {denied}')
        review = {"spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}}
        answer = await server.post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", review)
        assert (answer.status, answer.message.endswith(denied)) == (403, True)
        assert (await server.get(NAMESPACES)).status == 200


async def test_new_external_addresses_of_services_are_denied() -> None:
    async with running() as server:
        assert (await server.post(SERVICES, SERVICE)).status == 201
    async with running("DenyServiceExternalIPs") as server:
        refused = await server.post(SERVICES, SERVICE)
        why = "Use of external IPs is denied by admission control"
        assert (refused.status, refused.message) == (403, f'services "a" is forbidden: {why}')
        await server.made(SERVICES, {**SERVICE, "spec": {"ports": [{"port": 80}]}})
        refused = await server.patch(f"{SERVICES}/a", {"spec": {"externalIPs": ["192.0.2.1"]}})
        assert refused.status == 403
        assert (await server.patch(f"{SERVICES}/a", {"metadata": {"labels": {"a": "b"}}})).status == 200


async def test_required_anti_affinity_reaches_no_further_than_a_node() -> None:
    def keeping_apart(name: str, key: str) -> dict[str, object]:
        term = {"topologyKey": key, "labelSelector": {"matchLabels": {"a": "b"}}}
        rule = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
        return pod(name, affinity={"podAntiAffinity": rule})

    async with running("LimitPodHardAntiAffinityTopology") as server:
        refused = await server.post(PODS, keeping_apart("a", "zone"))
        assert (refused.status, refused.message) == (
            403,
            'pods "a" is forbidden: affinity.PodAntiAffinity.RequiredDuringScheduling has TopologyKey zone but only '
            "key kubernetes.io/hostname is allowed",
        )
        assert (await server.post(PODS, keeping_apart("a", "kubernetes.io/hostname"))).status == 201
