"""Controllers over a real server in this process, in time that the test owns."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.client.connecting import WAYS, connected
from tests.server.in_process import config_map, deployment

from pinnace.client.client import Client
from pinnace.model import errors
from pinnace.model.objects import Key, Object
from pinnace.reconcile.controller import Controller, Result
from pinnace.reconcile.failures import Permanent
from pinnace.reconcile.manager import Manager
from pinnace.reconcile.owners import owner_reference, set_owner
from pinnace.reconcile.predicates import generation_changed, spec_changed
from pinnace.testing.clock import ManualClock

KIND = "v1/ConfigMap"


class Seen:
    """A reconcile that notes its calls, and does what a test tells it to."""

    def __init__(self) -> None:
        self.keys: list[str] = []
        self.result: Result | None = None
        self.error: Exception | None = None

    async def __call__(self, key: Key) -> Result | None:
        self.keys.append(key.name)
        if self.error is not None:
            raise self.error
        return self.result


def controller_of(seen: Seen, manager: Manager, *, workers: int = 1) -> Controller:
    controller = Controller("test", seen, workers=workers).for_(KIND, namespace="default")
    manager.add(controller)
    return controller


@pytest.fixture(params=WAYS)
async def any_client(request: pytest.FixtureRequest) -> AsyncIterator[Client]:
    async with connected(request.param) as client:
        yield client


async def test_it_brings_about_what_is_wanted_and_repairs_it(any_client: Client) -> None:
    """A ConfigMap for each Deployment, as an operator would keep it."""
    manager = Manager(any_client)
    deployments = manager.cache("apps/v1/Deployment", namespace="default")

    async def reconcile(key: Key) -> None:
        owner = deployments.get(key)
        if owner is None:
            return
        wanted = config_map(f"for-{key.name}", {"replicas": str(owner["spec"]["replicas"])}, namespace=key.namespace)
        set_owner(wanted, owner)
        await manager.client.apply(wanted)

    controller = Controller("copier", reconcile, workers=3)
    controller.for_("apps/v1/Deployment", namespace="default").owns(KIND, namespace="default")
    manager.add(controller)
    async with asyncio.timeout(60), manager.running():
        await any_client.create(deployment("web", replicas=2))
        await manager.settle()
        assert (await any_client.get(KIND, "for-web"))["data"] == {"replicas": "2"}
        await any_client.scale("apps/v1/Deployment", "web", 5)
        await manager.settle()
        assert (await any_client.get(KIND, "for-web"))["data"] == {"replicas": "5"}
        await any_client.delete(KIND, "for-web")
        await manager.settle()
        assert (await any_client.get(KIND, "for-web"))["data"] == {"replicas": "5"}
        last = controller.why(Key("default", "web"))
        assert any("ConfigMap default/for-web was deleted" in str(reason) for run in last for reason in run.reasons)


async def test_every_object_is_looked_at_once_at_the_start(client: Client) -> None:
    seen, manager = Seen(), Manager(client)
    controller_of(seen, manager, workers=4)
    for name in ("a", "b", "c"):
        await client.create(config_map(name))
    async with manager.running():
        await manager.settle()
        assert sorted(seen.keys) == ["a", "b", "c"]


async def test_changes_come_before_the_objects_of_the_start(client: Client) -> None:
    seen, manager = Seen(), Manager(client)
    controller = controller_of(seen, manager)
    for number in range(3):
        await client.create(config_map(f"old{number}"))
    async with manager.running():
        await manager.settle()
    seen.keys.clear()
    for number in range(3):
        controller.enqueue(Key("default", f"old{number}"), "resync", priority=-100)
    controller.enqueue(Key("default", "new"), "now")
    async with manager.running():
        await manager.settle()
    assert seen.keys == ["new", "old0", "old1", "old2"]


async def test_a_key_is_never_worked_on_twice_at_once(client: Client) -> None:
    manager = Manager(client)
    at_work: Counter[Key] = Counter()
    calls = 0
    begun, release = asyncio.Event(), asyncio.Event()

    async def reconcile(key: Key) -> None:
        nonlocal calls
        calls += 1
        at_work[key] += 1
        assert at_work[key] == 1
        begun.set()
        await release.wait()
        at_work[key] -= 1

    manager.add(Controller("test", reconcile, workers=4).for_(KIND, namespace="default"))
    await client.create(config_map("a"))
    async with manager.running():
        informer = manager.informer(KIND, namespace="default")
        await begun.wait()
        for number in range(5):
            await client.patch(KIND, "a", {"data": {"n": str(number)}})
        await informer.catch_up()
        assert at_work[Key("default", "a")] == 1
        release.set()
        await manager.settle()
    assert calls == 2  # Once, and once more for all that happened meanwhile.


async def test_an_error_is_retried_logged_and_counted_and_stops_no_other_object(
    client: Client, clock: ManualClock
) -> None:
    manager = Manager(client, name="tester")
    calls: Counter[str] = Counter()

    async def reconcile(key: Key) -> None:
        calls[key.name] += 1
        if key.name == "bad" and calls["bad"] < 4:
            raise RuntimeError("no such luck")

    controller = Controller("test", reconcile).for_(KIND, namespace="default")
    manager.add(controller)
    async with manager.running():
        await client.create(config_map("bad"))
        await client.create(config_map("good"))
        await manager.settle()
        assert calls == {"bad": 1, "good": 1}
        for _ in range(3):
            await clock.advance(1)
            await manager.settle()
        assert calls["bad"] == 4
        (event,) = await client.list("v1/Event", namespace="default")
        assert (event["type"], event["reason"], event["count"]) == ("Warning", "ReconcileFailed", 3)
        assert event["message"] == "RuntimeError: no such luck"
        assert event["involvedObject"]["name"] == "bad"
        assert (event["source"]["component"], event["reportingComponent"]) == ("tester", "tester")
        metrics = manager.metrics
        assert metrics.value("controller_runtime_reconcile_errors_total", controller="test") == 3
        assert metrics.value("controller_runtime_reconcile_total", controller="test", result="success") == 2
        assert 'workqueue_retries_total{name="test",controller="test"} 3' in metrics.text()
        runs = controller.why(Key("default", "bad"))
        outcomes = [(run.outcome, [str(reason) for reason in run.reasons]) for run in runs]
        assert outcomes[0] == ("success", ["retry"])
        assert outcomes[-1][0] == "error"


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(errors.Conflict("changed", group="", plural="configmaps", name="a"), id="a conflict"),
        pytest.param(errors.NotFound(group="", plural="configmaps", name="a"), id="deleted meanwhile"),
    ],
)
async def test_a_lost_race_is_tried_again_without_a_word(
    client: Client, clock: ManualClock, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    seen, manager = Seen(), Manager(client)
    seen.error = error
    controller_of(seen, manager)
    async with manager.running():
        await client.create(config_map("a"))
        await manager.settle()
        seen.error = None
        await clock.advance(1)
        await manager.settle()
        assert seen.keys == ["a", "a"]
        assert await client.list("v1/Event") == []
    assert "failed at" not in caplog.text


async def test_that_another_object_is_missing_is_reported(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    seen, manager = Seen(), Manager(client)
    seen.error = errors.NotFound(group="", plural="services", name="a")
    controller_of(seen, manager)
    async with manager.running():
        await client.create(config_map("a"))
        await manager.settle()
    assert "test failed at default/a" in caplog.text


async def test_where_it_fails_is_reported_once_and_that_it_does_each_time(
    client: Client, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    seen, manager = Seen(), Manager(client)
    controller_of(seen, manager)
    async with manager.running():
        for luck in ("no", "no", "bad"):
            seen.error = RuntimeError(f"{luck} luck")
            if not seen.keys:
                await client.create(config_map("a"))
            else:
                await clock.advance(10)  # More than any wait between the first few tries, which chance makes longer.
            await manager.settle()
    message = [record for record in caplog.records if "failed at default/a" in record.getMessage()]
    assert [str(record.exc_info[1]) for record in message if record.exc_info] == ["no luck", "bad luck"]
    assert message[1].exc_info is None and message[1].getMessage().endswith(": RuntimeError: no luck")


async def test_that_a_namespace_is_being_deleted_is_one_calm_line(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    await client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}})
    for name in ("a", "b", "c"):
        await client.create(config_map(name, namespace="shop"))
    await client.delete("v1/Namespace", "shop")  # No controller empties it here.
    manager = Manager(client)

    async def reconcile(key: Key) -> None:
        await client.create(config_map(f"for-{key.name}", namespace=key.namespace))

    controller = manager.add(Controller("test", reconcile).for_(KIND, namespace="shop"))
    async with manager.running():
        await manager.settle()
        assert controller.queue.delayed == 3
    (message,) = [record for record in caplog.records if record.name == "pinnace.reconcile.failures"]
    assert (message.levelname, message.exc_info) == ("INFO", None)
    assert message.getMessage().endswith("in namespace shop because it is being terminated")
    assert await client.list("v1/Event", namespace="shop") == []


async def test_a_field_that_another_manager_owns_is_reported(client: Client, clock: ManualClock) -> None:
    seen, manager = Seen(), Manager(client)
    seen.error = errors.ApplyConflict('Apply failed with 1 conflict: conflict with "kubectl": .data.a', [])
    controller_of(seen, manager)
    async with manager.running():
        await client.create(config_map("a"))
        await manager.settle()
        (event,) = await client.list("v1/Event")
        assert 'conflict with "kubectl"' in event["message"]


async def test_a_permanent_error_is_not_retried(client: Client, clock: ManualClock) -> None:
    seen, manager = Seen(), Manager(client)
    seen.error = Permanent("the size must be a number")
    controller = controller_of(seen, manager)
    async with manager.running():
        await client.create(config_map("a"))
        await manager.settle()
        await clock.advance(5000)
        await manager.settle()
        assert seen.keys == ["a"]
        assert controller.queue.delayed == 0


async def test_a_reconcile_can_ask_to_be_called_again(client: Client, clock: ManualClock) -> None:
    seen, manager = Seen(), Manager(client)
    seen.result = Result(requeue_after=30)
    controller_of(seen, manager)
    async with manager.running():
        await client.create(config_map("a"))
        await manager.settle()
        await clock.advance(29)
        await manager.settle()
        assert seen.keys == ["a"]
        await clock.advance(2)
        await manager.settle()
        assert seen.keys == ["a", "a"]


async def test_everything_is_looked_at_again_where_that_is_asked_for(client: Client, clock: ManualClock) -> None:
    seen, manager = Seen(), Manager(client)
    manager.add(Controller("test", seen, resync=60).for_(KIND, namespace="default"))
    await client.create(config_map("a"))
    async with manager.running():
        await manager.settle()
        await clock.advance(67)
        await manager.settle()
        assert seen.keys == ["a", "a"]


@pytest.mark.parametrize(
    "predicate", [{"when": generation_changed}, {"when_encoded": spec_changed}], ids=["decoded", "encoded"]
)
async def test_predicates_say_which_changes_count(client: Client, predicate: dict[str, Any]) -> None:
    seen, manager = Seen(), Manager(client)
    manager.add(Controller("test", seen).for_("apps/v1/Deployment", **predicate))
    async with manager.running():
        await client.create(deployment("web"))
        await manager.settle()
        await client.patch("apps/v1/Deployment", "web", {"metadata": {"labels": {"a": "b"}}})
        await manager.settle()
        assert seen.keys == ["web"]
        await client.scale("apps/v1/Deployment", "web", 7)
        await manager.settle()
        assert seen.keys == ["web", "web"]


async def test_other_kinds_can_concern_ours(client: Client) -> None:
    seen, manager = Seen(), Manager(client)

    def used_by(secret: Object) -> list[Key]:
        return [Key("default", name) for name in secret["metadata"].get("annotations", {}).values()]

    manager.add(Controller("test", seen).for_(KIND, namespace="default").watches("v1/Secret", used_by))
    async with manager.running():
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "annotations": {"by": "one"}}}
        await client.create(secret)
        await manager.settle()
        assert seen.keys == ["one"]
        await client.patch("v1/Secret", "s", {"metadata": {"annotations": {"by": "two"}}})
        await manager.settle()
        assert sorted(seen.keys[1:]) == ["one", "two"]  # The one it left is concerned, too.


async def test_owners_without_a_namespace_are_found(client: Client) -> None:
    seen, manager = Seen(), Manager(client)
    manager.add(Controller("test", seen).for_("v1/Namespace").owns(KIND))
    owner = await client.get("v1/Namespace", "default")
    async with manager.running():
        await manager.settle()
        seen.keys.clear()
        await client.create(config_map("owned", ownerReferences=[owner_reference(owner, block_deletion=False)]))
        await manager.settle()
        assert seen.keys == ["default"]


async def test_a_reconcile_sees_its_own_writes(client: Client) -> None:
    """Without them it would make one more each time that it is called before the watch has told."""
    manager = Manager(client)
    cache = manager.cache(KIND, namespace="default")

    async def reconcile(key: Key) -> None:
        for _ in range(3):
            if not cache.list(namespace="default"):
                made = config_map(namespace="default", generateName="copy-")
                del made["metadata"]["name"]
                await manager.client.create(made)

    manager.add(Controller("test", reconcile).for_("v1/Namespace"))
    async with manager.running():
        await manager.settle()
    assert len(await client.list(KIND, namespace="default")) == 1


async def test_stopping_lets_a_reconcile_finish(client: Client) -> None:
    manager = Manager(client)
    begun, release, finished = asyncio.Event(), asyncio.Event(), False

    async def reconcile(key: Key) -> None:
        nonlocal finished
        begun.set()
        await release.wait()
        finished = True

    manager.add(Controller("test", reconcile).for_(KIND, namespace="default"))
    await client.create(config_map("a"))
    async with manager.running():
        await begun.wait()
        asyncio.get_running_loop().call_later(0.05, release.set)  # Long after the stop has begun.
    assert finished


async def test_a_reconcile_that_does_not_finish_is_cancelled(client: Client) -> None:
    manager = Manager(client)
    begun, was_cancelled = asyncio.Event(), False

    async def reconcile(key: Key) -> None:
        nonlocal was_cancelled
        begun.set()
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            was_cancelled = True
            raise

    controller = manager.add(Controller("test", reconcile).for_(KIND, namespace="default"))
    controller.grace = 0.01
    await client.create(config_map("a"))
    async with asyncio.timeout(60), manager.running():
        await begun.wait()
    assert was_cancelled


async def test_controllers_can_join_while_others_run(client: Client) -> None:
    manager, seen = Manager(client), Seen()
    async with manager.running():
        await client.create(config_map("a"))
        controller_of(seen, manager)
        await manager.settle()
        assert seen.keys == ["a"]


async def test_keys_enqueued_before_the_controller_is_added_wait_for_it(client: Client) -> None:
    manager, seen = Manager(client), Seen()
    controller = Controller("test", seen)
    controller.enqueue(Key("", "early"), "start")
    async with manager.running():
        assert seen.keys == []
        manager.add(controller)
        await manager.settle()
    assert seen.keys == ["early"]


async def test_a_controller_must_be_added_before_it_runs() -> None:
    with pytest.raises(RuntimeError, match="added to a manager first"):
        await Controller("test", Seen()).run()
