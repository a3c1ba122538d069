"""Claims of devices are made from templates for pods, and released after use."""

from __future__ import annotations

from tests.controllers.objects import POD, events_of, pod, run_pod
from tests.controllers.world import World

from pinnace.model.objects import Object

CLAIM, TEMPLATE = "resource.k8s.io/v1/ResourceClaim", "resource.k8s.io/v1/ResourceClaimTemplate"
FINALIZER = "resource.kubernetes.io/delete-protection"
GROUP = {"apiVersion": "resource.k8s.io/v1"}
REQUEST = {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.example.com"}}]}}


def template() -> Object:
    metadata = {"name": "gpu", "namespace": "default"}
    spec = {"metadata": {"labels": {"kind": "gpu"}}, "spec": REQUEST}
    return {**GROUP, "kind": "ResourceClaimTemplate", "metadata": metadata, "spec": spec}


def user(name: str = "web", *, node: str = "") -> Object:
    return pod(name, node=node, resourceClaims=[{"name": "device", "resourceClaimTemplateName": "gpu"}])


async def claims(world: World) -> list[Object]:
    await world.settle()
    return await world.client.list(CLAIM, namespace="default")


async def test_a_pod_gets_a_claim_of_its_own_and_says_so(world: World) -> None:
    await world.client.create(template())
    made = await world.client.create(user())
    (claim,) = await claims(world)
    assert claim["metadata"]["name"].startswith("web-device-")
    assert claim["metadata"]["labels"] == {"kind": "gpu"}
    assert claim["metadata"]["annotations"] == {"resource.kubernetes.io/pod-claim-name": "device"}
    (owner,) = claim["metadata"]["ownerReferences"]
    assert (owner["uid"], owner["controller"]) == (made["metadata"]["uid"], True)
    obj = await world.client.get(POD, "web", namespace="default")
    name = claim["metadata"]["name"]
    assert obj["status"]["resourceClaimStatuses"] == [{"name": "device", "resourceClaimName": name}]


async def test_a_template_that_is_missing_is_reported_and_waited_for(world: World) -> None:
    await world.client.create(user())
    assert await claims(world) == []
    events = await events_of(world, "FailedResourceClaimCreation")
    assert events[0]["message"].startswith('PodResourceClaim device: resource claim template "gpu"')
    await world.client.create(template())
    assert len(await claims(world)) == 1


async def test_a_claim_that_is_deleted_while_the_pod_waits_comes_again(world: World) -> None:
    await world.client.create(template())
    await world.client.create(user())
    (claim,) = await claims(world)
    await world.client.delete(CLAIM, claim["metadata"]["name"], namespace="default")
    (again,) = await claims(world)
    assert again["metadata"]["uid"] != claim["metadata"]["uid"]


async def allocate(world: World, claim: Object, *consumers: Object) -> None:
    """Allocate and reserve the claim, as a scheduler does."""
    claim = await world.client.get(CLAIM, claim["metadata"]["name"], namespace="default")
    claim["metadata"]["finalizers"] = [FINALIZER]
    claim = await world.client.update(claim)
    result = {"request": "gpu", "driver": "gpu.example.com", "pool": "n1", "device": "gpu-0"}
    allocation = {"devices": {"results": [result]}}
    reserved = [
        {"resource": "pods", "name": consumer["metadata"]["name"], "uid": consumer["metadata"]["uid"]}
        for consumer in consumers
    ]
    claim["status"] = {"allocation": allocation, "reservedFor": reserved}
    await world.client.update_status(claim)
    await world.settle()


async def test_a_claim_of_a_finished_pod_is_released_and_goes(world: World) -> None:
    await world.client.create(template())
    made = await world.client.create(user())
    (claim,) = await claims(world)
    await allocate(world, claim, made)
    (held,) = await claims(world)
    assert held["status"]["reservedFor"]
    await run_pod(world, "web", phase="Succeeded")
    assert await claims(world) == []


async def test_a_claim_that_users_share_is_released_by_each(world: World) -> None:
    shared = {**GROUP, "kind": "ResourceClaim", "metadata": {"name": "shared", "namespace": "default"}, "spec": REQUEST}
    claim = await world.client.create(shared)
    by_name = [{"name": "device", "resourceClaimName": "shared"}]
    first, second = [await world.client.create(pod(name, resourceClaims=by_name)) for name in ("one", "two")]
    await allocate(world, claim, first, second)
    await run_pod(world, "one", phase="Failed")
    (held,) = await claims(world)
    assert [consumer["name"] for consumer in held["status"]["reservedFor"]] == ["two"]
    assert "allocation" in held["status"]
    await world.client.delete(POD, "two", namespace="default", grace_seconds=0)
    (free,) = await claims(world)
    assert not (free.get("status") or {}).get("allocation")
    assert "finalizers" not in free["metadata"]


async def test_a_pod_that_was_bound_without_a_scheduler_reserves_its_claim(world: World) -> None:
    await world.client.create(template())
    await world.client.create(user())
    (claim,) = await claims(world)
    await allocate(world, claim)
    binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "web"}, "target": {"name": "n1"}}
    await world.client.create_below(POD, "web", "binding", binding, namespace="default")
    (held,) = await claims(world)
    assert [consumer["name"] for consumer in held["status"]["reservedFor"]] == ["web"]
