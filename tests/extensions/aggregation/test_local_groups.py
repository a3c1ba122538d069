"""APIServices of built-in and custom kinds."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.extensions.aggregated_server import GROUP, VERSION
from tests.extensions.aggregation.aggregating import (
    API_SERVICES,
    NAME,
    RECIPES,
    SERVICES,
    Aggregating,
    api_service,
    external_service,
    recipe,
)
from tests.extensions.definitions import DEFINITIONS, definition, reached, version

from pinnace.cluster.in_process import in_process_client


async def test_a_local_group_stays_local_until_an_api_service_leads_elsewhere(cluster: Aggregating) -> None:
    local = api_service(cluster.port, cluster.ca, service=None, caBundle=None)
    await cluster.made(API_SERVICES, local)
    result = await cluster.available("True")
    assert (result["reason"], (await cluster.get(RECIPES)).status) == ("Local", 404)
    assert cluster.kitchen.requests == []
    await cluster.made(SERVICES, external_service())
    present = (await cluster.get(f"{API_SERVICES}/{NAME}")).json
    present["spec"] = api_service(cluster.port, cluster.ca)["spec"]
    await cluster.put(f"{API_SERVICES}/{NAME}", present)
    await cluster.available("True", lambda condition: condition["reason"] == "Passed")
    assert (await cluster.get(RECIPES)).status == 200


async def test_a_version_beside_a_custom_kind_is_sorted_by_priority(cluster: Aggregating) -> None:
    await cluster.made(
        DEFINITIONS, definition("recipes", "Recipe", group=GROUP, versions=[version("v2", storage=True)])
    )
    await cluster.register(versionPriority=200)
    listed = [version["version"] for version in (await cluster.get(f"/apis/{GROUP}")).json["versions"]]
    assert listed == ["v1", "v2"]
    assert (await cluster.get(f"/apis/{GROUP}/v2/recipes")).json["kind"] == "RecipeList"
    assert cluster.kitchen.requests.count(f"/apis/{GROUP}/v2/recipes") == 0


async def test_a_custom_kind_is_answered_elsewhere_while_an_api_service_says_so(cluster: Aggregating) -> None:
    await cluster.register()
    await cluster.made(
        DEFINITIONS, definition("recipes", "Recipe", group=GROUP, versions=[version("v1", storage=True)])
    )
    await cluster.made(RECIPES, recipe("remote"))
    await cluster.delete(f"{API_SERVICES}/{NAME}")
    await cluster.available("True", lambda condition: condition["reason"] == "Local")
    await cluster.made(RECIPES, recipe("local"))
    assert (await cluster.get(RECIPES)).names == ["local"]
    # A delete would race with the server, which creates the APIService of a custom kind again.
    labels = {"kube-aggregator.kubernetes.io/automanaged": None}
    spec = api_service(cluster.port, cluster.ca)["spec"]
    await cluster.patch(f"{API_SERVICES}/{NAME}", {"metadata": {"labels": labels}, "spec": spec})
    await cluster.available("True", lambda condition: condition["reason"] == "Passed")
    assert (await cluster.get(RECIPES)).names == ["remote"]


async def test_custom_kinds_have_an_api_service_as_long_as_they_are_served(cluster: Aggregating) -> None:
    recipes = definition("recipes", "Recipe", group=GROUP, versions=[version("v1", storage=True)])
    await cluster.made(DEFINITIONS, recipes)
    await cluster.available("True")
    made = (await cluster.get(f"{API_SERVICES}/{NAME}")).json
    assert made["metadata"]["labels"] == {"kube-aggregator.kubernetes.io/automanaged": "true"}
    priorities = {"groupPriorityMinimum": 1000, "versionPriority": 100}
    assert made["spec"] == {"group": GROUP, "version": VERSION, **priorities}
    plain = (await cluster.get(f"{DEFINITIONS}/recipes.{GROUP}")).json
    plain["spec"]["versions"].append(version("v2"))
    plain["spec"]["versions"][0]["served"] = False
    await cluster.put(f"{DEFINITIONS}/recipes.{GROUP}", plain)

    async def moved() -> Any:
        statuses = [(await cluster.get(f"{API_SERVICES}/{each}.{GROUP}")).status for each in ("v1", "v2")]
        return statuses if statuses == [404, 200] else None

    await reached(moved)


async def test_built_in_api_services_that_are_labelled_automanaged_stay(cluster: Aggregating) -> None:
    label = {"metadata": {"labels": {"kube-aggregator.kubernetes.io/automanaged": "true"}}}
    for name in ("v1.", "v1.apps"):
        assert (await cluster.patch(f"{API_SERVICES}/{name}", label)).status == 200
    client = in_process_client(cluster.plane.local())
    task = asyncio.create_task(cluster.plane.aggregation.run_registration(client))
    recipes = definition("recipes", "Recipe", group=GROUP, versions=[version("v1", storage=True)])
    await cluster.made(DEFINITIONS, recipes)  # Its APIService tells that the registration has looked at all others.

    async def registered() -> Any:
        return (await cluster.get(f"{API_SERVICES}/{VERSION}.{GROUP}")).status == 200

    await reached(registered)
    assert not task.done()
    task.cancel()
    for name in ("v1.", "v1.apps"):
        assert (await cluster.get(f"{API_SERVICES}/{name}")).status == 200


async def test_api_services_that_are_labelled_automanaged_are_those_of_custom_kinds(cluster: Aggregating) -> None:
    client = in_process_client(cluster.plane.local())
    task = asyncio.create_task(cluster.plane.aggregation.run_registration(client))
    recipes = definition("recipes", "Recipe", group=GROUP, versions=[version("v1", storage=True)])
    await cluster.made(DEFINITIONS, recipes)
    own = f"{API_SERVICES}/{VERSION}.{GROUP}"

    async def priority() -> Any:
        obj = (await cluster.get(own)).json.get("spec") or {}
        return obj if obj.get("versionPriority") == 100 else None

    await reached(priority)
    assert (await cluster.patch(own, {"spec": {"versionPriority": 7}})).status == 200
    await reached(priority)
    made_up = api_service(cluster.port, cluster.ca, service=None, caBundle=None, group="made-up.example.com")
    made_up["metadata"] = {
        "name": "v1.made-up.example.com",
        "labels": {"kube-aggregator.kubernetes.io/automanaged": "true"},
    }
    await cluster.made(API_SERVICES, made_up)

    async def gone() -> Any:
        return True if (await cluster.get(f"{API_SERVICES}/v1.made-up.example.com")).status == 404 else None

    await reached(gone)
    task.cancel()
