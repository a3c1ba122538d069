"""Stale objects are removed: leases of dead servers, tokens that were not used for years."""

from __future__ import annotations

from datetime import timedelta

from tests.controllers.world import World

from pinnace.model.objects import Object
from pinnace.process.clock import to_rfc3339_micro
from pinnace.testing.clock import ManualClock

DAY = 86400
INVALID = "kubernetes.io/legacy-token-invalid-since"
LEASE = "coordination.k8s.io/v1/Lease"


def server_lease(name: str, renewed: str) -> Object:
    labels = {"apiserver.kubernetes.io/identity": "kube-apiserver"}
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": name, "namespace": "kube-system", "labels": labels},
        "spec": {"holderIdentity": name, "leaseDurationSeconds": 3600, "renewTime": renewed},
    }


async def test_the_lease_of_a_server_that_is_gone_goes(world: World, clock: ManualClock) -> None:
    await world.client.create(server_lease("gone", to_rfc3339_micro(clock.now())))
    await world.client.create(server_lease("alive", to_rfc3339_micro(clock.now() + timedelta(hours=3))))
    await world.settle()
    await clock.advance(3000)
    await world.settle()
    assert await world.client.get_or_none(LEASE, "gone", namespace="kube-system") is not None
    await clock.advance(4300)
    await world.settle()
    assert await world.client.get_or_none(LEASE, "gone", namespace="kube-system") is None
    assert await world.client.get_or_none(LEASE, "alive", namespace="kube-system") is not None


def legacy_token(name: str) -> Object:
    metadata = {"name": name, "namespace": "default", "annotations": {"kubernetes.io/service-account.name": "builder"}}
    return {"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/service-account-token", "metadata": metadata}


async def pass_days(clock: ManualClock, days: int) -> None:
    """Let it be so many days later. Only the last two pass: controllers look once a day."""
    clock.set(clock.now() + timedelta(days=days - 2))
    await clock.advance(2 * DAY)


async def test_unused_tokens_are_marked_after_a_year_and_deleted_after_another(
    world: World, clock: ManualClock
) -> None:
    name = "kube-apiserver-legacy-service-account-token-tracking"
    tracking = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "kube-system"}}
    await world.client.create({**tracking, "data": {"since": clock.now().date().isoformat()}})
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "builder", "namespace": "default"}}
    await world.client.create({**account, "secrets": [{"name": "old"}, {"name": "used"}]})
    for token_name in ("old", "used", "made-by-a-user"):
        await world.client.create(legacy_token(token_name))
    await world.settle()
    await pass_days(clock, 300)
    used = {"metadata": {"labels": {"kubernetes.io/legacy-token-last-used": clock.now().date().isoformat()}}}
    await world.client.patch("v1/Secret", "used", used)
    await world.settle()
    await pass_days(clock, 80)
    await world.settle()
    objects = {obj["metadata"]["name"]: obj["metadata"] for obj in await world.client.list("v1/Secret")}
    assert {name for name, metadata in objects.items() if INVALID in (metadata.get("labels") or {})} == {"old"}
    await pass_days(clock, 370)
    await world.settle()
    assert await world.client.get_or_none("v1/Secret", "old") is None
    assert await world.client.get_or_none("v1/Secret", "made-by-a-user") is not None
