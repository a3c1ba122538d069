"""Conditions, finalizers, owners and events: what reconcilers write most."""

from __future__ import annotations

import asyncio

import pytest
from tests.server.in_process import config_map

from pinnace.client.client import Client
from pinnace.model import errors
from pinnace.model.objects import Object
from pinnace.reconcile.conditions import condition, is_true, set_condition
from pinnace.reconcile.events import EventRecorder
from pinnace.reconcile.finalizers import ensure_finalizer, is_being_deleted, remove_finalizer
from pinnace.reconcile.owners import set_owner
from pinnace.testing.clock import ManualClock

KIND = "v1/ConfigMap"
FINALIZER = "example.com/cleanup"


async def test_a_condition_changes_its_time_only_with_its_status(clock: ManualClock) -> None:
    obj: Object = {"metadata": {"name": "a", "generation": 1}}
    assert set_condition(obj, "Ready", False, reason="Starting", clock=clock)
    first = condition(obj, "Ready")
    assert first == {
        "type": "Ready",
        "status": "False",
        "reason": "Starting",
        "message": "",
        "observedGeneration": 1,
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    await clock.advance(60)
    assert not set_condition(obj, "Ready", False, reason="Starting", clock=clock)
    obj["metadata"]["generation"] = 2
    assert set_condition(obj, "Ready", "False", reason="Waiting", clock=clock)
    assert first["observedGeneration"] == 2
    assert first["lastTransitionTime"] == "2026-01-01T00:00:00Z"
    assert set_condition(obj, "Ready", True, reason="Up", clock=clock)
    assert first["lastTransitionTime"] == "2026-01-01T00:01:00Z"
    assert is_true(obj, "Ready")


async def test_a_finalizer_holds_an_object_until_it_is_removed(client: Client) -> None:
    made = await client.create(config_map("a", finalizers=["example.com/other"]))
    held = await ensure_finalizer(client, made, FINALIZER)
    assert held["metadata"]["finalizers"] == ["example.com/other", FINALIZER]
    assert await ensure_finalizer(client, held, FINALIZER) == held
    leaving = await client.delete(KIND, "a")
    assert is_being_deleted(leaving)
    await remove_finalizer(client, leaving, FINALIZER)
    left = await client.get(KIND, "a")
    assert left["metadata"]["finalizers"] == ["example.com/other"]
    await remove_finalizer(client, left, FINALIZER)
    await remove_finalizer(client, left, "example.com/other")
    await remove_finalizer(client, left, "example.com/other")  # It is gone by now, which is no error.
    with pytest.raises(errors.NotFound):
        await client.get(KIND, "a")


async def test_an_object_has_one_controller_in_its_own_namespace(client: Client) -> None:
    first, second = await client.create(config_map("one")), await client.create(config_map("two"))
    obj = config_map("owned", namespace="default")
    set_owner(obj, first)
    set_owner(obj, first)
    assert [owner["name"] for owner in obj["metadata"]["ownerReferences"]] == ["one"]
    with pytest.raises(ValueError, match="controlled by ConfigMap one already"):
        set_owner(obj, second)
    with pytest.raises(ValueError, match="same namespace"):
        set_owner(config_map("far", namespace="kube-system"), first)


async def test_events_are_counted_and_floods_held_back(client: Client, clock: ManualClock) -> None:
    recorder = EventRecorder(client, "tester")
    about = await client.create(config_map("a"))
    task = asyncio.create_task(recorder.run())
    for _ in range(3):
        recorder.record(about, "Normal", "Made", "it was made")
    recorder.record(about, "Warning", "Late", "it is late")
    await recorder.idle()
    events = {event["reason"]: event for event in await client.list("v1/Event", namespace="default")}
    assert {reason: event["count"] for reason, event in events.items()} == {"Made": 3, "Late": 1}
    assert events["Made"]["source"] == {"component": "tester"}
    for number in range(100):
        recorder.record(about, "Normal", "Flood", f"number {number}")
    await recorder.idle()
    flood = [event for event in await client.list("v1/Event", namespace="default") if event["reason"] == "Flood"]
    combined = [event for event in flood if event["message"].startswith("(combined from similar events): number ")]
    assert len(flood) == 9 + 1
    assert [event["count"] for event in combined] == [21 - 9]
    await clock.advance(301)
    recorder.record(about, "Normal", "Made", "it was made")
    recorder.record(about, "Normal", "Flood", "one too many")
    await recorder.idle()
    events = {event["reason"]: event for event in await client.list("v1/Event", namespace="default")}
    assert events["Made"]["count"] == 4
    assert len(await client.list("v1/Event", namespace="default")) == 2 + 10
    task.cancel()


async def test_an_event_that_has_expired_is_said_anew(client: Client) -> None:
    recorder = EventRecorder(client, "tester")
    about = await client.create(config_map("a"))
    task = asyncio.create_task(recorder.run())
    recorder.record(about, "Normal", "Made", "it was made")
    await recorder.idle()
    await client.delete_collection("v1/Event", namespace="default")
    recorder.record(about, "Normal", "Made", "it was made")
    await recorder.idle()
    assert [event["count"] for event in await client.list("v1/Event", namespace="default")] == [1]
    task.cancel()
