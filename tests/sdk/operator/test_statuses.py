"""Which patch stores what a handler did to a status, and what is said if each call changes it."""

from __future__ import annotations

from typing import Any

import pytest
from tests.sdk.websites import Website, website

from pinnace.sdk import Context, CustomResource, Metadata, Model, Operator
from pinnace.sdk.operator.object_calls import CALLS
from pinnace.sdk.operator.statuses import status_changes
from pinnace.testing.cluster import Cluster

Object = dict[str, Any]


@pytest.mark.parametrize(
    ("stored", "before", "after", "message", "patch"),
    [
        ({"a": 1}, {"a": 1}, {"a": 1}, {"a": 1}, {}),
        ({"a": 1}, {"a": 1}, {"a": 2}, {"a": 2}, {"a": 2}),
        ({}, {"a": 0}, {"a": 0}, {}, {}),
        ({}, {"a": 0}, {"a": 0}, {"a": 0}, {"a": 0}),
        ({}, {"a": []}, {"a": [1]}, {}, {"a": [1]}),
        ({"a": 1}, {"a": 1}, {}, {}, {"a": None}),
        ({"other": 1, "a": 1}, {"a": 1}, {"a": 2}, {"a": 2}, {"a": 2}),
        ({"a": {"b": 1, "c": 1}}, {"a": {"b": 1}}, {"a": {"b": 2}}, {"a": {"b": 2}}, {"a": {"b": 2}}),
    ],
    ids=[
        *("nothing-changed", "a-value-changed", "a-default-that-was-not-set", "a-default-that-was-set"),
        *("a-list-changed-in-place", "a-field-removed", "unknown-fields-stay", "only-the-inner-change"),
    ],
)
def test_only_what_the_handler_did_is_stored(
    stored: Object, before: Object, after: Object, message: Object, patch: Object
) -> None:
    assert status_changes(stored, before, after, message) == patch


async def test_a_handler_that_calls_itself_by_its_status_is_reported_once(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    operator, calls = Operator("restless"), 0

    @operator.reconcile(Website)
    async def count(site: Website, ctx: Context) -> None:
        nonlocal calls
        calls += 1
        if calls <= 2 * CALLS:
            site.status.ready += 1

    await cluster.run(operator)
    await cluster.client.create(website())
    await cluster.settle()
    warned = [message for message in caplog.messages if "every call changes the status (ready)" in message]
    assert calls > 2 * CALLS
    assert len(warned) == 1 and f"{CALLS} calls" in warned[0]


async def test_a_status_that_follows_the_spec_is_not_reported(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    operator = Operator("calm")

    @operator.reconcile(Website)
    async def follow(site: Website, ctx: Context) -> None:
        site.status.ready = site.spec.replicas

    await cluster.run(operator)
    await cluster.client.create(website())
    for replicas in range(2, CALLS + 4):
        await cluster.client.patch("extensions.example.com/v1/Website", "blog", {"spec": {"replicas": replicas}})
        await cluster.settle()
    assert [message for message in caplog.messages if "every call changes" in message] == []


async def test_a_condition_without_the_field_names_the_field(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    class Bare(Model):
        ready: int = 0

    class Crate(CustomResource[None, Bare], group="example.com", version="v1"):
        """A crate."""

    operator = Operator("crates")

    @operator.reconcile(Crate, retries=0)
    async def reconcile(crate: Crate, ctx: Context) -> None:
        ctx.condition("Ready", True, reason="Up")

    await cluster.run(operator)
    await cluster.client.create(Crate(metadata=Metadata(name="a"), spec=None))
    await cluster.settle()
    assert "the status of Crate has no conditions; write in its class: conditions: Conditions" in caplog.text
