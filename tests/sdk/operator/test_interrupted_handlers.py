"""An exception of a handler is its own failure: no other handler ends, and the operator goes on."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from tests.sdk.operator.databases import WEBSITE
from tests.sdk.operator.test_turns_and_threads import reach
from tests.sdk.websites import Website, website

import pinnace
from pinnace.model import errors
from pinnace.model.objects import Key, Object
from pinnace.sdk import Context, Operator
from pinnace.testing.cluster import Cluster

_SOURCES = Path(pinnace.__file__).parents[1]
_PROGRAM = """
import asyncio
from pinnace.sdk.operator.process import run_until_signal

async def work():
    task = asyncio.ensure_future(asyncio.sleep(3600))
    asyncio.get_running_loop().call_soon(task.cancel)
    await task

asyncio.run(run_until_signal(work()))
"""


async def await_a_cancelled_task() -> None:
    task = asyncio.ensure_future(asyncio.sleep(3600))
    asyncio.get_running_loop().call_soon(task.cancel)
    await task


def _interrupt(kind: str) -> None:
    raise {"exit": SystemExit(3), "interrupt": KeyboardInterrupt(), "cancel": asyncio.CancelledError()}[kind]


@pytest.mark.parametrize("kind", ["exit", "interrupt", "cancel"])
async def test_a_reconcile_and_a_daemon_are_called_again(cluster: Cluster, kind: str) -> None:
    operator, calls = Operator("restless"), Counter[str]()

    @operator.reconcile(Website)
    async def reconcile(site: Website, ctx: Context) -> None:
        calls[f"reconcile {site.name}"] += 1
        if calls["reconcile blog"] == 1 and site.name == "blog":
            _interrupt(kind)

    @operator.daemon(Website)
    async def follow(site: Website, ctx: Context) -> None:
        calls["daemon"] += 1
        if calls["daemon"] == 1:
            _interrupt(kind)
        await asyncio.Event().wait()

    await cluster.run(operator)
    await cluster.client.create(website())
    await cluster.settle()
    await cluster.advance(5)
    await reach(lambda: calls["daemon"] == 2)
    await reach(lambda: calls["reconcile blog"] > 1)
    await cluster.client.create(website("other"))
    await cluster.settle()
    assert calls["reconcile other"] == 1


async def test_a_reconcile_that_awaits_a_cancelled_task_is_called_again(cluster: Cluster) -> None:
    operator, calls = Operator("patient"), 0

    @operator.reconcile(Website)
    async def reconcile(site: Website, ctx: Context) -> None:
        nonlocal calls
        calls += 1
        if calls == 1:
            await await_a_cancelled_task()

    await cluster.run(operator)
    await cluster.client.create(website())
    await cluster.settle()
    await cluster.advance(1)
    await reach(lambda: calls == 2)
    events = await cluster.client.list("v1/Event", namespace="default")
    assert any("it was cancelled, although its owner goes on" in event["message"] for event in events)


@pytest.mark.parametrize("kind", ["exit", "interrupt", "cancel"])
async def test_mapping_and_index_functions_end_no_watch(cluster: Cluster, kind: str) -> None:
    operator, names = Operator("mapping"), []

    def keys_of(obj: Object) -> list[Key]:
        if obj["metadata"]["name"] == "bad":
            _interrupt(kind)
        return [Key("default", "blog")]

    def values_of(obj: Object) -> list[str]:
        if obj["metadata"]["name"] == "bad":
            _interrupt(kind)
        return ["value"]

    operator.index("v1/ConfigMap", name="by-value")(values_of)

    @operator.reconcile(Website, watches={"v1/ConfigMap": keys_of})
    async def reconcile(site: Website, ctx: Context) -> None:
        names.append(site.name)

    await cluster.run(operator)
    await cluster.client.create(website())
    await cluster.settle()
    for name in ("bad", "good"):
        metadata = {"name": name, "namespace": "default"}
        await cluster.client.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})
        await cluster.settle()
    assert len(names) >= 2


@pytest.mark.parametrize("kind", ["exit", "interrupt", "cancel"])
async def test_a_webhook_handler_answers_with_an_error_and_the_next_call_works(cluster: Cluster, kind: str) -> None:
    operator = Operator("checking")

    @operator.validate(Website)
    async def check(site: Website) -> None:
        if site.name == "bad":
            _interrupt(kind)

    await cluster.run(operator)
    with pytest.raises(errors.ApiError, match=r"Interrupted: it (raised|was cancelled)"):
        await cluster.client.create(website("bad"))
    await cluster.client.create(website("good"))
    assert await cluster.client.get_or_none(WEBSITE, "bad") is None


def test_a_process_whose_work_ends_as_cancelled_has_failed() -> None:
    command = [sys.executable, "-c", _PROGRAM]
    environment = {"PYTHONPATH": str(_SOURCES), "PATH": "/usr/bin:/bin"}
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert ended.returncode != 0
    assert "was cancelled, although no signal has stopped it" in ended.stderr
