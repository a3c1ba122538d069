"""The records of handlers, and those about functions of the author that fail."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest
from tests.sdk.operator.test_turns_and_threads import reach
from tests.sdk.websites import Website, website

from pinnace.sdk import Context, Operator
from pinnace.sdk.operator.logs import JsonFormatter
from pinnace.testing.cluster import Cluster

CONFIG_MAP = "v1/ConfigMap"


async def test_a_handler_logs_fields_in_a_test_as_in_production(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    operator = Operator("logging")

    @operator.reconcile(Website)
    async def handle(site: Website, ctx: Context) -> None:
        ctx.log.info("%d of 100%% are reconciled", 7, ready=2, why="all up", name="web", logger="x", rate="5%")
        ctx.log.debug("not logged", ready=3)
        logging.getLogger(__name__).info("a logger of the module, too")
        ctx.log.log(logging.WARNING, "odd names", level=1, msg="m", self="s")

    await cluster.run(operator)
    await cluster.client.create(website())
    await cluster.settle()
    record, odd = (record for record in caplog.records if record.name == "logging")
    assert (odd.getMessage(), odd.filename) == ("default/blog: odd names level=1 msg=m self=s", "test_logs.py")
    text = 'default/blog: 7 of 100% are reconciled ready=2 why="all up" name=web logger=x rate=5%'
    assert record.getMessage() == text
    assert record.filename == "test_logs.py"
    assert "a logger of the module, too" in caplog.text
    line = json.loads(JsonFormatter().format(record))
    assert line["message"] == "default/blog: 7 of 100% are reconciled"
    assert (line["object"], line["handler"].rpartition(".")[2]) == ("default/blog", "handle")
    assert (line["ready"], line["why"], line["name"]) == (2, "all up", "web")
    assert (line["logger"], line["logger_"]) == ("logging", "x")


async def test_an_exception_is_logged_with_its_fields(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    operator = Operator("logging")

    @operator.reconcile(Website)
    async def handle(site: Website, ctx: Context) -> None:
        try:
            raise RuntimeError("no answer")
        except RuntimeError:
            ctx.log.exception("the service failed", attempts=3)

    await cluster.run(operator)
    await cluster.client.create(website())
    await cluster.settle()
    [record] = [record for record in caplog.records if record.name == "logging"]
    assert record.levelno == logging.ERROR
    assert record.getMessage() == "default/blog: the service failed attempts=3"
    assert "no answer" in json.loads(JsonFormatter().format(record))["exception"]


def of_site(obj: Any) -> Any:
    return {"text": "default/blog", "nothing": None, "wrong": [1]}.get(obj["metadata"]["name"]) or obj["data"]["site"]


@pytest.mark.parametrize("name", ["text", "nothing", "wrong"])
async def test_a_mapping_function_that_fails_is_named_and_the_objects_near_by_are_reconciled(
    cluster: Cluster, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    operator, calls = Operator("mapping"), list[str]()

    @operator.reconcile(Website, watches={CONFIG_MAP: of_site})
    async def handle(site: Website, ctx: Context) -> None:
        calls.append(site.name)

    manager = await cluster.run(operator)
    await cluster.client.create(website())
    await cluster.settle()
    assert calls == ["blog"]
    await cluster.client.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}})
    await cluster.settle()
    assert calls == ["blog", "blog"]
    assert f"mapping: the function of_site failed for ConfigMap default/{name}" in caplog.text
    assert 'pinnace_operator_function_errors_total{function="of_site"}' in manager.metrics.text()


async def test_a_predicate_that_fails_is_named_and_the_object_is_handled(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    operator, calls = Operator("choosing"), list[str]()

    def is_wanted(old: Any, new: Any) -> bool:
        return bool(new["spec"]["missing"])

    @operator.reconcile(Website, when=is_wanted)
    async def handle(site: Website, ctx: Context) -> None:
        calls.append(site.name)

    await cluster.run(operator)
    await cluster.client.create(website())
    await reach(lambda: calls == ["blog"])
    assert "is_wanted failed for Website default/blog" in caplog.text


def letters(site: Website) -> Any:
    return site.name  # A string is iterable, too.


def exits(site: Website) -> Any:
    raise SystemExit(3)


@pytest.mark.parametrize("function", [letters, exits])
async def test_an_index_function_that_fails_is_named_and_the_object_is_handled(
    cluster: Cluster, caplog: pytest.LogCaptureFixture, function: Any
) -> None:
    operator, calls = Operator("indexing"), list[str]()
    operator.index(Website)(function)

    @operator.reconcile(Website)
    async def handle(site: Website, ctx: Context) -> None:
        calls.append(f"{site.name} {len(ctx.indexed(Website, function.__name__, 'b'))}")

    manager = await cluster.run(operator)
    await cluster.client.create(website())
    await cluster.settle()
    assert calls == ["blog 0"]
    assert f"the function {function.__name__} failed for Website default/blog" in caplog.text
    assert f'pinnace_operator_function_errors_total{{function="{function.__name__}"}}' in manager.metrics.text()


def test_a_function_that_is_called_for_each_change_cannot_wait() -> None:
    async def waits(obj: Any) -> Any: ...

    operator = Operator("waiting")
    with pytest.raises(TypeError, match="waits is called for each change and must not wait"):
        operator.reconcile(Website, watches={CONFIG_MAP: waits})  # type: ignore[dict-item]
    with pytest.raises(TypeError, match="must not wait"):
        operator.index(Website)(waits)
    with pytest.raises(TypeError, match="must not wait"):
        operator.reconcile(Website, when=waits)  # type: ignore[arg-type]


async def test_a_result_without_effect_is_reported_once(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    operator = Operator("returning")

    @operator.reconcile(Website)
    async def handle(site: Website, ctx: Context) -> Any:
        return 30

    await cluster.run(operator)
    for name in ("blog", "shop"):
        await cluster.client.create(website(name))
    await cluster.settle()
    assert caplog.text.count("handle returned a int, which has no effect: write ctx.requeue(seconds)") == 1


@pytest.mark.parametrize("fights", [False, True], ids=["own writes", "another writer"])
async def test_an_endless_loop_through_a_child_is_reported_with_the_field(
    cluster: Cluster, caplog: pytest.LogCaptureFixture, fights: bool
) -> None:
    operator, calls = Operator("looping"), list[str]()

    @operator.reconcile(Website, owns=[CONFIG_MAP])
    async def handle(site: Website, ctx: Context) -> None:
        calls.append(site.name)
        if len(calls) > 40:
            return
        value = "fixed" if fights else str(len(calls))
        await ctx.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "child"}, "data": {"at": value}})
        if fights:
            await cluster.client.patch(CONFIG_MAP, "child", {"data": {"at": "other"}})

    await cluster.run(operator)
    await cluster.client.create(website())
    await cluster.settle()
    assert caplog.text.count("every call changes .data.at of ConfigMap default/child, and each change is") == 1
    events = [event for event in await cluster.client.list("v1/Event") if event["reason"] == "EndlessLoop"]
    assert [event["involvedObject"]["name"] for event in events] == ["blog"]


async def test_deleting_what_is_not_in_the_cache_sends_no_request(cluster: Cluster) -> None:
    operator = Operator("deleting")

    @operator.reconcile(Website, owns=[CONFIG_MAP])
    async def handle(site: Website, ctx: Context) -> None:
        if site.spec.replicas == 1:
            await ctx.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "extra"}})
        else:
            await ctx.delete(CONFIG_MAP, "extra")

    manager = await cluster.run(operator)
    await cluster.client.create(website(replicas=1))
    await cluster.settle()
    for replicas in (2, 3, 4):
        await cluster.client.patch("extensions.example.com/v1/Website", "blog", {"spec": {"replicas": replicas}})
        await cluster.settle()
    assert await cluster.client.get_or_none(CONFIG_MAP, "extra") is None
    deletions = sum(count for (method, _), count in manager.client.answers.items() if method == "DELETE")
    assert deletions == 1
