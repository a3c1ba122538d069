"""A migration leaves nothing stored in an older version, and says so."""

from __future__ import annotations

import json

import pytest
from tests.extensions.definitions import BOATS, DEFINITIONS, Cluster, boat, boats, version

from pinnace.cluster.in_process import in_process_client
from pinnace.extensions.custom.migration import CannotMigrate, migrate_storage
from pinnace.model import errors

NAME = "boats.example.com"


async def stored_twice(cluster: Cluster) -> None:
    """Three boats stored as v1, of which v2 is to be stored now."""
    await cluster.define(boats(version("v1", storage=True), version("v2")))
    for number in range(3):
        await cluster.made(BOATS, boat(f"boat-{number}", size=number))
    present = (await cluster.get(f"{DEFINITIONS}/{NAME}")).json
    for stored in present["spec"]["versions"]:
        stored["storage"] = stored["name"] == "v2"
    assert (await cluster.put(f"{DEFINITIONS}/{NAME}", present)).status == 200


def stored_versions(cluster: Cluster) -> set[str]:
    cache = cluster.plane.fanout.cache("/registry/example.com/boats/")
    return {json.loads(entry.body)["apiVersion"] for entry in cache.entries.values()}


async def test_every_object_is_rewritten_and_the_old_version_struck(cluster: Cluster) -> None:
    await stored_twice(cluster)
    assert stored_versions(cluster) == {"example.com/v1"}
    done = await migrate_storage(in_process_client(cluster.plane.local()), NAME)
    assert (done.objects, done.version, done.dropped) == (3, "v2", ("v1",))
    assert stored_versions(cluster) == {"example.com/v2"}
    present = (await cluster.get(f"{DEFINITIONS}/{NAME}")).json
    assert present["status"]["storedVersions"] == ["v2"]
    present["spec"]["versions"] = [version for version in present["spec"]["versions"] if version["name"] == "v2"]
    assert (await cluster.put(f"{DEFINITIONS}/{NAME}", present)).status == 200


async def test_objects_keep_their_generation_and_their_owners(cluster: Cluster) -> None:
    await stored_twice(cluster)
    before = (await cluster.get(f"{BOATS}/boat-1")).json["metadata"]
    await migrate_storage(in_process_client(cluster.plane.local()), NAME)
    after = (await cluster.get(f"{BOATS}/boat-1")).json["metadata"]
    assert (after["generation"], after["managedFields"]) == (before["generation"], before["managedFields"])


async def test_a_definition_that_is_not_there_or_serves_nothing_cannot_be_migrated(cluster: Cluster) -> None:
    client = in_process_client(cluster.plane.local())
    with pytest.raises(errors.NotFound):
        await migrate_storage(client, NAME)
    await cluster.define(boats())
    present = (await cluster.get(f"{DEFINITIONS}/{NAME}")).json
    present["spec"]["versions"][0]["served"] = False
    assert (await cluster.put(f"{DEFINITIONS}/{NAME}", present)).status == 200
    with pytest.raises(CannotMigrate, match="serves no version"):
        await migrate_storage(client, NAME)
