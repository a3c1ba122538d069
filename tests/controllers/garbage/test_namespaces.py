"""A namespace that is deleted goes with all that is in it, or says what holds it up."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from tests.controllers.world import WIDGET, World, config_map, widget
from tests.server.in_process import pod, service

from pinnace.client.client import Client
from pinnace.controllers.garbage.namespaces import Remains, with_conditions
from pinnace.model import errors
from pinnace.model.objects import Object
from pinnace.process.clock import SystemClock

NAMESPACE = "v1/Namespace"


class NoonClock(SystemClock):
    def now(self) -> datetime:
        return datetime(2026, 1, 1, 12, tzinfo=UTC)


def condition(obj: Object, type: str) -> dict[str, Any]:
    current: dict[str, Any] = next(condition for condition in obj["status"]["conditions"] if condition["type"] == type)
    return current


async def test_everything_in_it_goes_custom_kinds_too(world: World) -> None:
    await world.define_widgets()
    await world.namespace("shop")
    for obj in (config_map("a"), widget("w"), pod("p"), service("s")):
        obj["metadata"]["namespace"] = "shop"
        await world.client.create(obj)
    await world.client.create(config_map("kept"))
    await world.settle()
    await world.client.delete(NAMESPACE, "shop")
    await world.settle()
    assert await world.client.get_or_none(NAMESPACE, "shop") is None
    for kind in ("v1/ConfigMap", WIDGET, "v1/Pod", "v1/Service", "v1/ServiceAccount"):
        assert await world.names(kind, "shop") == set()
        assert await world.client.list(kind, namespace="shop") == []
    assert await world.names("v1/ConfigMap") == {"kept"}


async def test_a_finalizer_in_it_blocks_and_the_conditions_say_which(world: World) -> None:
    await world.namespace("shop")
    for name in ("a", "b"):
        await world.client.create(config_map(name, namespace="shop", finalizers=("example.com/hold",)))
    await world.settle()
    await world.client.delete(NAMESPACE, "shop")
    await world.settle()
    shop = await world.client.get(NAMESPACE, "shop")
    assert shop["status"]["phase"] == "Terminating"
    assert [condition["type"] for condition in shop["status"]["conditions"]] == [
        "NamespaceDeletionDiscoveryFailure",
        "NamespaceDeletionGroupVersionParsingFailure",
        "NamespaceDeletionContentFailure",
        "NamespaceContentRemaining",
        "NamespaceFinalizersRemaining",
    ]
    remaining = condition(shop, "NamespaceContentRemaining")
    assert (remaining["status"], remaining["reason"]) == ("True", "SomeResourcesRemain")
    assert remaining["message"] == "Some resources are remaining: configmaps. has 2 resource instances"
    held = condition(shop, "NamespaceFinalizersRemaining")
    assert (held["status"], held["reason"]) == ("True", "SomeFinalizersRemain")
    assert held["message"] == (
        "Some content in the namespace has finalizers remaining: example.com/hold in 2 resource instances"
    )
    fine = condition(shop, "NamespaceDeletionContentFailure")
    assert (fine["status"], fine["reason"]) == ("False", "ContentDeleted")
    for name in ("a", "b"):
        await world.client.patch("v1/ConfigMap", name, {"metadata": {"finalizers": None}}, namespace="shop")
    await world.settle()
    assert await world.client.get_or_none(NAMESPACE, "shop") is None


async def test_pods_go_first_and_the_rest_waits_for_them(world: World) -> None:
    await world.namespace("shop")
    held = pod("held")
    held["metadata"] |= {"namespace": "shop", "finalizers": ["example.com/hold"]}
    await world.client.create(held)
    await world.client.create(config_map("needed", namespace="shop"))
    await world.client.delete(NAMESPACE, "shop")
    await world.settle()
    assert await world.names("v1/ConfigMap", "shop") == {"needed"}
    shop = await world.client.get(NAMESPACE, "shop")
    message = "Some resources are remaining: pods. has 1 resource instances"
    assert condition(shop, "NamespaceContentRemaining")["message"] == message
    await world.client.patch("v1/Pod", "held", {"metadata": {"finalizers": None}}, namespace="shop")
    await world.settle()
    assert await world.client.get_or_none(NAMESPACE, "shop") is None


async def test_the_finalizer_of_another_keeps_the_empty_namespace(world: World) -> None:
    shop = await world.namespace("shop")
    shop["spec"]["finalizers"].append("example.com/mine")
    await world.client.update(shop, subresource="finalize")
    await world.client.delete(NAMESPACE, "shop")
    await world.settle()
    shop = await world.client.get(NAMESPACE, "shop")
    assert shop["spec"]["finalizers"] == ["example.com/mine"]
    assert await world.client.list("v1/ServiceAccount", namespace="shop") == []
    shop["spec"]["finalizers"] = []
    await world.client.update(shop, subresource="finalize")
    assert await world.client.get_or_none(NAMESPACE, "shop") is None


async def test_a_refusal_is_reported_and_tried_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    await world.namespace("shop")
    await world.client.create(config_map("a", namespace="shop"))
    await world.settle()
    allowed = Client.delete_collection

    async def refuse(self: Client, kind: Any, **options: Any) -> None:
        if kind.name == "ConfigMap":
            raise errors.Forbidden("not today", plural="configmaps")
        await allowed(self, kind, **options)

    monkeypatch.setattr(Client, "delete_collection", refuse)
    await world.client.delete(NAMESPACE, "shop")
    await world.settle()
    shop = await world.client.get(NAMESPACE, "shop")
    failure = condition(shop, "NamespaceDeletionContentFailure")
    assert (failure["status"], failure["reason"]) == ("True", "ContentDeletionFailed")
    assert failure["message"] == (
        "Failed to delete all resource types, 1 remaining: configmaps is forbidden: not today"
    ), failure["message"]


def test_conditions_change_their_time_only_with_their_status() -> None:
    namespace: Any = {"metadata": {"name": "shop"}, "status": {"phase": "Terminating"}}
    clock = NoonClock()
    assert with_conditions(namespace, Remains(), clock)
    assert not with_conditions(namespace, Remains(), clock)
    for known in namespace["status"]["conditions"]:
        known["lastTransitionTime"] = "then"
    remains = Remains()
    remains.undiscovered = {"example.com/v1": "the server is currently unable to handle the request"}
    assert with_conditions(namespace, remains, clock)
    failure = condition(namespace, "NamespaceDeletionDiscoveryFailure")
    assert failure == {
        "type": "NamespaceDeletionDiscoveryFailure",
        "status": "True",
        "reason": "DiscoveryFailed",
        "message": "Discovery failed for some groups, 1 failing: unable to retrieve the complete list of server APIs: "
        "example.com/v1: the server is currently unable to handle the request",
        "lastTransitionTime": "2026-01-01T12:00:00Z",
    }
    assert condition(namespace, "NamespaceContentRemaining")["lastTransitionTime"] == "then"
