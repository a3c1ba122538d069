"""StorageVersionMigrations: what is stored of a resource is rewritten in its storage version, as in Kubernetes 1.37."""

from __future__ import annotations

import pytest
from tests.controllers.world import WIDGET, World, config_map, widget, widget_definition

from pinnace.model.objects import Object
from pinnace.reconcile.conditions import condition
from pinnace.testing.clock import ManualClock

MIGRATION = "storagemigration.k8s.io/v1/StorageVersionMigration"
DEFINITION = "apiextensions.k8s.io/v1/CustomResourceDefinition"
WIDGETS = "widgets.example.com"


def migration(name: str, resource: str, group: str = "") -> Object:
    return {
        "apiVersion": "storagemigration.k8s.io/v1",
        "kind": "StorageVersionMigration",
        "metadata": {"name": name},
        "spec": {"resource": {"group": group, "resource": resource}},
    }


async def conditions(world: World, name: str) -> dict[str, tuple[str, str, str]]:
    obj = await world.client.get(MIGRATION, name)
    known = (obj.get("status") or {}).get("conditions") or ()
    return {each["type"]: (each["status"], each["reason"], each["message"]) for each in known}


async def migrate(
    world: World, resource: str, group: str = "", *, name: str = "all"
) -> dict[str, tuple[str, str, str]]:
    await world.client.create(migration(name, resource, group))
    await world.settle()
    return await conditions(world, name)


async def store_widgets_as_v2(world: World) -> None:
    """Define widgets that are stored as v1, make some, and store them as v2 from now on."""
    definition = widget_definition()
    first = definition["spec"]["versions"][0]
    definition["spec"]["versions"] = [first, {**first, "name": "v2", "storage": False}]
    await world.client.create(definition)
    await world.served(WIDGET)
    for number in range(3):
        await world.client.create(widget(f"widget-{number}"))
    versions = [{**first, "storage": False}, {**first, "name": "v2"}]
    await world.client.patch(DEFINITION, WIDGETS, {"spec": {"versions": versions}})
    await world.settle()


ENDED = ("False", "MigrationCompleted", "Migration completed")
SUCCEEDED = ("True", "StorageVersionMigrationSucceeded", "Migration completed")


async def test_the_old_version_of_a_custom_kind_can_be_removed_afterwards(world: World) -> None:
    await store_widgets_as_v2(world)
    assert (await world.client.get(DEFINITION, WIDGETS))["status"]["storedVersions"] == ["v1", "v2"]
    assert await migrate(world, "widgets", "example.com") == {"Running": ENDED, "Succeeded": SUCCEEDED}
    definition = await world.client.get(DEFINITION, WIDGETS)
    assert definition["status"]["storedVersions"] == ["v2"]
    migrating = condition(definition, "StorageMigrating")
    assert migrating is not None
    message = "The migration has succeeded and the stored versions have been updated"
    assert (migrating["status"], migrating["reason"], migrating["message"]) == ("False", "MigrationSucceeded", message)
    versions = [version for version in definition["spec"]["versions"] if version["name"] == "v2"]
    await world.client.patch(DEFINITION, WIDGETS, {"spec": {"versions": versions}})
    await world.served("example.com/v2/Widget")
    assert len(await world.client.list("example.com/v2/Widget")) == 3


async def test_objects_in_the_storage_version_are_left_as_they_are(world: World) -> None:
    before = await world.client.create(config_map("settings"))
    assert (await migrate(world, "configmaps"))["Succeeded"] == SUCCEEDED
    assert (await world.client.get("v1/ConfigMap", "settings"))["metadata"] == before["metadata"]
    done = await world.client.get(MIGRATION, "all")
    assert int(done["status"]["resourceVersion"]) >= int(before["metadata"]["resourceVersion"])


async def test_migrations_of_one_resource_run_one_after_the_other(world: World) -> None:
    await store_widgets_as_v2(world)
    for name in ("first", "second"):
        await world.client.create(migration(name, "widgets", "example.com"))
    await world.settle()
    versions = []
    for name in ("first", "second"):
        assert await conditions(world, name) == {"Running": ENDED, "Succeeded": SUCCEEDED}
        versions.append(int((await world.client.get(MIGRATION, name))["status"]["resourceVersion"]))
    assert versions == sorted(versions)


async def test_a_resource_that_no_server_has_fails_after_a_minute(world: World, clock: ManualClock) -> None:
    assert list(await migrate(world, "nothings", "example.com")) == ["Running"]
    for _ in range(8):
        await clock.advance(60)
        await world.settle()
    failure = ("True", "StorageVersionMigrationFailed", "resource does not exist in discovery")
    assert await conditions(world, "all") == {"Running": ENDED, "Failed": failure}


async def test_a_resource_that_cannot_be_written_fails_at_once(world: World) -> None:
    failed = (await migrate(world, "componentstatuses"))["Failed"]
    detail = 'resource "/v1, Resource=componentstatuses" does not support discovery operations: [update patch list]'
    assert failed == ("True", "StorageVersionMigrationFailed", detail)


async def test_a_refused_object_fails_the_migration_and_keeps_the_stored_versions(world: World) -> None:
    await store_widgets_as_v2(world)
    await refuse_updates_of_widgets(world)
    assert (await migrate(world, "widgets", "example.com"))["Running"] == ENDED
    status, reason, message = (await conditions(world, "all"))["Failed"]
    assert (status, reason) == ("True", "StorageVersionMigrationFailed")
    assert message.startswith("3/3 not yet migrated. migration encountered unhandled error: ")
    assert "never again" in message
    assert (await world.client.get(DEFINITION, WIDGETS))["status"]["storedVersions"] == ["v1", "v2"]


async def refuse_updates_of_widgets(world: World) -> None:
    group = "admissionregistration.k8s.io/v1"
    rule = {"apiGroups": ["example.com"], "apiVersions": ["*"], "operations": ["UPDATE"], "resources": ["widgets"]}
    policy = {
        "apiVersion": group,
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": "never"},
        "spec": {
            "matchConstraints": {"resourceRules": [rule]},
            "validations": [{"expression": "false", "message": "never again"}],
        },
    }
    await world.client.create(policy)
    await world.client.create(
        {
            "apiVersion": group,
            "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": {"name": "never"},
            "spec": {"policyName": "never", "validationActions": ["Deny"]},
        }
    )
    await world.settle()


@pytest.mark.parametrize("name", ["absent", "all"])
async def test_a_deleted_migration_leaves_its_place_to_the_next(world: World, name: str) -> None:
    await world.client.create(migration("all", "widgets", "example.com"))  # It waits for its resource.
    await world.client.create(migration("next", "widgets", "example.com"))
    await world.settle()
    if name == "all":
        await world.client.delete(MIGRATION, "all")
    await world.settle()
    assert ("Running" in await conditions(world, "next")) == (name == "all")


async def test_a_version_in_the_status_that_is_no_number_fails_the_migration(world: World) -> None:
    created = await world.client.create(migration("odd", "configmaps"))
    running = {
        "type": "Running",
        "status": "True",
        "reason": "a",
        "message": "",
        "lastTransitionTime": created["metadata"]["creationTimestamp"],
    }
    status = {"conditions": [running], "resourceVersion": "9" * 5000 + "x"}
    await world.client.patch(MIGRATION, "odd", {"status": status}, subresource="status")
    await world.settle()
    conditions = (await world.client.get(MIGRATION, "odd"))["status"]["conditions"]
    assert [item["status"] for item in conditions if item["type"] == "Failed"] == ["True"]
