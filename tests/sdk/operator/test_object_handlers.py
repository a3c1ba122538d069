"""Fields, daemons, predicates, selectors, sources, shared resources and the causes of calls."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable
from typing import Any

import aiohttp
import pytest
from tests.sdk.operator.test_turns_and_threads import reach
from tests.sdk.websites import Website, deployment_of, service_of, website

from pinnace.sdk import (
    Caches,
    Condition,
    Conditions,
    Context,
    CustomResource,
    Field,
    HookRequest,
    Key,
    Model,
    Operator,
    Permanent,
    Retry,
    Select,
    Shared,
    generation_changed,
)
from pinnace.testing.cluster import Cluster

WEBSITE = "extensions.example.com/v1/Website"
BLOG = Key("default", "blog")
Object = dict[str, Any]


class DatabaseSpec(Model):
    storage: str = "1Gi"


class DatabaseStatus(Model):
    conditions: Conditions = Field(default_factory=list)


class Database(CustomResource[DatabaseSpec, DatabaseStatus], group="data.example.com", version="v1"):
    """A database with conditions."""


def database(name: str = "db") -> Object:
    metadata = {"name": name, "namespace": "default"}
    return {"apiVersion": "data.example.com/v1", "kind": "Database", "metadata": metadata, "spec": {}}


def config_map(name: str, **labels: str) -> Object:
    metadata: Object = {"name": name, "namespace": "default", "labels": labels}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}


def conditions_of(obj: Object) -> dict[str, str]:
    return {one["type"]: one["message"] for one in (obj.get("status") or {}).get("conditions", ())}


# Retries


async def test_a_retry_keeps_the_finalizer_and_says_why_without_a_traceback(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    operator = Operator("dropping")
    is_dropped = False

    @operator.on_delete(Database)
    async def drop(db: Database, ctx: Context) -> None:
        if not is_dropped:
            raise Retry(after=30, reason="a backup is running", event="BackupRunning")

    await cluster.run(operator)
    await cluster.client.create(database())
    await cluster.settle()
    with caplog.at_level(logging.INFO):
        await cluster.client.delete(Database, "db")
        await cluster.settle()
    held = await cluster.client.get("data.example.com/v1/Database", "db")
    assert held["metadata"]["finalizers"] == ["data.example.com/dropping"]
    assert conditions_of(held) == {"Reconciling": "a backup is running"}
    events = await cluster.client.list("v1/Event", namespace="default")
    assert [(one["type"], one["reason"], one["message"]) for one in events] == [
        ("Normal", "BackupRunning", "a backup is running")
    ]
    assert "a backup is running" in caplog.text
    assert "Traceback" not in caplog.text
    is_dropped = True
    await cluster.advance(31)
    assert await cluster.client.get_or_none(Database, "db") is None


async def test_requeue_in_on_delete_keeps_the_object_until_a_later_call(cluster: Cluster) -> None:
    operator = Operator("draining")
    calls: list[str] = []

    @operator.on_delete(Website)
    def drain(site: Website, ctx: Context) -> None:
        calls.append(ctx.trigger)
        if len(calls) < 3:
            ctx.requeue(10)

    await cluster.run(operator)
    await cluster.client.create(website())
    await cluster.settle()
    await cluster.client.delete(WEBSITE, "blog")
    await cluster.settle()
    assert len(calls) == 1
    assert await cluster.client.get_or_none(WEBSITE, "blog")
    await cluster.advance(25)
    assert calls == ["deleted"] * 3
    assert await cluster.client.get_or_none(WEBSITE, "blog") is None


async def test_the_reason_for_a_retry_leaves_the_status_after_a_success(cluster: Cluster) -> None:
    operator = Operator("waiting")
    is_up = False

    @operator.reconcile(Database)
    async def reconcile(db: Database, ctx: Context) -> None:
        if not is_up:
            raise Retry(after=5, reason="not up yet")
        ctx.condition("Ready", True, reason="Up", message="up")

    await cluster.run(operator)
    await cluster.client.create(database())
    await cluster.settle()
    assert conditions_of(await cluster.client.get("data.example.com/v1/Database", "db")) == {
        "Reconciling": "not up yet"
    }
    is_up = True
    await cluster.advance(6)
    assert conditions_of(await cluster.client.get("data.example.com/v1/Database", "db")) == {"Ready": "up"}


async def test_a_handler_gives_up_after_its_retries_until_the_object_changes(cluster: Cluster) -> None:
    operator = Operator("giving-up")
    calls = 0

    @operator.reconcile(Website, retries=2)
    async def reconcile(site: Website, ctx: Context) -> None:
        nonlocal calls
        calls += 1
        raise RuntimeError("no")

    await cluster.run(operator)
    await cluster.client.create(website())
    await cluster.advance(3600)
    assert calls == 3
    events = await cluster.client.list("v1/Event", namespace="default")
    assert "gave up after 2 retries: RuntimeError: no" in [one["message"] for one in events]
    await cluster.client.patch(WEBSITE, "blog", {"spec": {"replicas": 5}})
    await cluster.settle()
    assert calls == 4


async def test_the_event_of_a_permanent_error_has_the_reason_that_was_chosen(cluster: Cluster) -> None:
    operator = Operator("strict")

    @operator.reconcile(Website)
    async def reconcile(site: Website, ctx: Context) -> None:
        raise Permanent("there is no such repository", event="RepositoryNotFound")

    await cluster.run(operator)
    await cluster.client.create(website())
    await cluster.settle()
    (event,) = await cluster.client.list("v1/Event", namespace="default")
    assert (event["reason"], event["message"]) == ("RepositoryNotFound", "there is no such repository")


# Finalizers


async def test_a_finalizer_is_taken_back_from_an_object_that_no_longer_matches(cluster: Cluster) -> None:
    operator = Operator("selective")
    cleaned: list[str] = []

    @operator.on_delete(Website, labels="team=web")
    async def clean_up(site: Website, ctx: Context) -> None:
        cleaned.append(site.name)

    await cluster.run(operator)
    site = website()
    site["metadata"]["labels"] = {"team": "web"}
    await cluster.client.create(site)
    await cluster.client.create(website("other"))
    await cluster.settle()
    assert (await cluster.client.get(WEBSITE, "blog"))["metadata"]["finalizers"] == ["extensions.example.com/selective"]
    assert "finalizers" not in (await cluster.client.get(WEBSITE, "other"))["metadata"]
    await cluster.client.patch(WEBSITE, "blog", {"metadata": {"labels": {"team": "shop"}}})
    await cluster.settle()
    assert "finalizers" not in (await cluster.client.get(WEBSITE, "blog"))["metadata"]
    assert cleaned == []


@pytest.mark.parametrize("selector", ["", "team=web"], ids=["no on_delete", "another selector"])
async def test_a_start_takes_back_the_finalizers_that_nothing_needs_and_says_which(
    cluster: Cluster, caplog: pytest.LogCaptureFixture, selector: str
) -> None:
    held = website()
    held["metadata"]["finalizers"] = ["extensions.example.com/newer", "example.com/others"]
    operator = Operator("newer", kinds=[Website])

    @operator.reconcile(Website)
    async def reconcile(site: Website, ctx: Context) -> None: ...

    if selector:

        @operator.on_delete(Website, labels=selector)
        async def clean_up(site: Website, ctx: Context) -> None: ...

    for definition in operator.crds():
        await cluster.client.create(definition)
    await cluster.settle()
    await cluster.client.create(held)
    with caplog.at_level(logging.INFO):
        await cluster.run(operator)
        await cluster.settle()
        await reach(lambda: "took back the finalizer" in caplog.text)
    assert (await cluster.client.get(WEBSITE, "blog"))["metadata"]["finalizers"] == ["example.com/others"]
    assert "took back the finalizer extensions.example.com/newer of 1 Website objects" in caplog.text
    assert "default/blog" in caplog.text


# Predicates, selectors, namespaces, indexes


async def test_predicates_select_the_changes_that_count_everywhere(cluster: Cluster) -> None:
    operator = Operator("choosy")
    calls: list[str] = []

    @operator.reconcile(
        Website,
        when=generation_changed,
        owns=[Select("apps/v1/Deployment", when=generation_changed)],
        watches={Select("v1/ConfigMap", when=lambda old, new: old is None): lambda obj: [BLOG]},
    )
    async def reconcile(site: Website, ctx: Context) -> None:
        calls.append(ctx.trigger)
        await ctx.apply(deployment_of(site))

    await cluster.run(operator)
    await cluster.client.create(website())
    await cluster.settle()
    calls.clear()
    await cluster.client.patch(WEBSITE, "blog", {"metadata": {"labels": {"a": "b"}}})
    await cluster.client.patch("apps/v1/Deployment", "blog", {"metadata": {"labels": {"a": "b"}}}, namespace="default")
    await cluster.settle()
    assert calls == []
    await cluster.client.patch(WEBSITE, "blog", {"spec": {"replicas": 2}})
    await cluster.settle()
    assert calls[0] == "changed"
    calls.clear()
    await cluster.client.create(config_map("news"))
    await cluster.settle()
    await cluster.client.patch("v1/ConfigMap", "news", {"data": {"a": "b"}}, namespace="default")
    await cluster.settle()
    assert calls == ["related"]


async def test_only_the_selected_objects_of_an_owned_kind_are_in_memory(cluster: Cluster) -> None:
    operator = Operator("frugal")
    selected = Select("v1/Secret", labels="app=frugal", metadata_only=True)
    calls: list[str] = []

    @operator.reconcile(Website, owns=[selected])
    async def reconcile(site: Website, ctx: Context) -> None:
        calls.append(ctx.trigger)
        metadata = {"name": site.name, "labels": {"app": "frugal"}}
        await ctx.apply({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": {"password": "x"}})

    manager = await cluster.run(operator)
    await cluster.client.create(
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "big", "namespace": "default"}}
    )
    await cluster.client.create(website())
    await cluster.settle()
    (informer,) = [one for one in manager.informers if one.scope.kind.name == "Secret"]
    (snapshot,) = informer.cache.snapshots()
    assert snapshot.key == BLOG
    assert set(snapshot.object) == {"apiVersion", "kind", "metadata"}
    calls.clear()
    await cluster.client.delete("v1/Secret", "blog", namespace="default")
    await cluster.settle()
    assert "related" in calls
    assert await cluster.client.get("v1/Secret", "blog", namespace="default")


async def test_several_namespaces_are_watched_and_no_others(cluster: Cluster) -> None:
    operator = Operator("local", namespace=["one", "two"])
    seen: list[str] = []

    @operator.index(Website)
    def by_repo(site: Website) -> Iterable[str]:
        return [site.spec.git_repo]

    @operator.reconcile(Website, owns=["v1/Service"])
    async def reconcile(site: Website, ctx: Context) -> None:
        seen.append(f"{site.namespace} {len(ctx.indexed(Website, 'by_repo', site.spec.git_repo))}")
        await ctx.apply(service_of(site))

    for name in ("one", "two", "three"):
        await cluster.client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    await cluster.run(operator)
    for name in ("one", "two", "three"):
        site = website()
        site["metadata"]["namespace"] = name
        await cluster.client.create(site)
        await cluster.settle()
    assert {one.split()[0] for one in seen} == {"one", "two"}
    assert "two 2" in seen
    seen.clear()
    await cluster.client.delete("v1/Service", "blog", namespace="two")
    await cluster.settle()
    assert {one.split()[0] for one in seen} == {"two"}


async def test_a_mapping_function_finds_objects_by_an_index(cluster: Cluster) -> None:
    operator = Operator("mapping")
    calls: list[str] = []

    @operator.index(Website)
    def by_config(site: Website) -> list[str]:
        return [site.metadata.labels.get("config", "")]

    def sites_of(config: Object, caches: Caches) -> set[Key]:
        return caches.keys(Website, "by_config", config["metadata"]["name"])

    @operator.reconcile(Website, watches={"v1/ConfigMap": sites_of})
    async def reconcile(site: Website, ctx: Context) -> None:
        calls.append(site.name)

    await cluster.run(operator)
    for name, config in (("one", "red"), ("two", "blue")):
        site = website(name)
        site["metadata"]["labels"] = {"config": config}
        await cluster.client.create(site)
    await cluster.settle()
    calls.clear()
    await cluster.client.create(config_map("blue"))
    await cluster.settle()
    assert calls == ["two"]


async def test_an_unknown_index_is_named_with_the_nearest(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    operator = Operator("misspelt")

    @operator.index(Website)
    def by_repo(site: Website) -> list[str]:
        return []

    @operator.reconcile(Website)
    async def reconcile(site: Website, ctx: Context) -> None:
        ctx.indexed(Website, "by_repos", "x")

    await cluster.run(operator)
    await cluster.client.create(website())
    await cluster.settle()
    assert "Website has no index by_repos; did you mean by_repo?" in caplog.text


# Fields and causes


async def test_each_change_of_a_field_is_handled_once_also_across_restarts(cluster: Cluster) -> None:
    seen: list[tuple[Any, Any]] = []

    def sizing() -> Operator:
        operator = Operator("sizing")

        @operator.on_field(Website, "spec.replicas")
        async def resize(site: Website, ctx: Context, old: int | None, new: int) -> None:
            seen.append((old, new))
            if len(seen) == 2:
                raise RuntimeError("try again")
            site.status.ready = new

        return operator

    stopped = asyncio.Event()

    async def run_until_stopped() -> None:
        async with sizing().running(cluster.client) as manager:
            cluster.managers.append(manager)
            await stopped.wait()
        cluster.managers.remove(manager)

    await cluster.client.create(Website.crd())
    await cluster.settle()
    task = asyncio.create_task(run_until_stopped())
    await cluster.client.create(website())
    await reach(lambda: len(seen) == 1)
    await cluster.settle()
    await cluster.client.patch(WEBSITE, "blog", {"metadata": {"labels": {"a": "b"}}})
    await cluster.client.patch(WEBSITE, "blog", {"spec": {"replicas": 2}})
    await cluster.advance(5)
    assert seen == [(None, 1), (1, 2), (1, 2)]
    stopped.set()
    await task
    await cluster.client.patch(WEBSITE, "blog", {"spec": {"replicas": 3}})
    await cluster.run(sizing())
    await cluster.settle()
    assert seen[3:] == [(2, 3)]
    assert (await cluster.client.get(WEBSITE, "blog"))["status"] == {"ready": 3}


async def test_a_handler_knows_what_happened(cluster: Cluster) -> None:
    operator = Operator("curious")
    causes: list[str] = []
    failed: set[str] = set()

    @operator.reconcile(Website, owns=["v1/Service"])
    async def reconcile(site: Website, ctx: Context) -> None:
        causes.append(ctx.trigger)
        await ctx.apply(service_of(site))
        if not failed:
            failed.add(site.name)
            raise RuntimeError("once")
        if site.name == "blog":
            ctx.requeue(60)

    await cluster.client.create(Website.crd())
    await cluster.settle()
    await cluster.client.create(website("old"))
    await cluster.run(operator)
    await cluster.advance(1)
    assert causes[:2] == ["resumed", "resumed"]  # The repeated call has the cause of the first.
    causes.clear()
    await cluster.client.create(website())
    await cluster.settle()
    assert causes[0] == "created"
    causes.clear()
    await cluster.client.patch(WEBSITE, "blog", {"spec": {"replicas": 2}})
    await cluster.settle()
    await cluster.client.delete("v1/Service", "blog", namespace="default")
    await cluster.settle()
    assert causes[:2] == ["changed", "related"]
    causes.clear()
    await cluster.advance(61)
    assert causes == ["requeued"]


# DaemonTasks


async def test_a_daemon_runs_for_each_object_until_it_is_deleted_or_no_longer_matches(cluster: Cluster) -> None:
    operator = Operator("following")
    log: list[str] = []

    @operator.daemon(Website, labels="follow=yes")
    async def follow(site: Website, ctx: Context) -> None:
        log.append(f"start {site.name}")
        try:
            while True:
                await ctx.sleep(60)
                log.append(f"tick {site.name}")
        finally:
            log.append(f"end {site.name}")

    @operator.on_delete(Website)
    async def clean_up(site: Website, ctx: Context) -> None:
        log.append(f"clean {site.name}")

    await cluster.run(operator)
    for name in ("one", "two"):
        site = website(name)
        site["metadata"]["labels"] = {"follow": "yes"}
        await cluster.client.create(site)
        await cluster.settle()
    await cluster.client.create(website("three"))
    await cluster.client.patch(WEBSITE, "one", {"spec": {"replicas": 2}})
    await cluster.settle()
    await cluster.advance(61)
    assert log == ["start one", "start two", "tick one", "tick two"]
    await cluster.client.patch(WEBSITE, "one", {"metadata": {"labels": {"follow": "no"}}})
    await cluster.client.delete(WEBSITE, "two")
    await cluster.settle()
    await reach(lambda: "clean two" in log)
    assert sorted(log[4:]) == ["clean two", "end one", "end two"]
    assert log.index("end two") < log.index("clean two")


async def test_a_daemon_that_fails_is_started_again_and_one_that_returns_is_over(cluster: Cluster) -> None:
    operator = Operator("restless")
    starts = 0

    @operator.daemon(Website)
    async def work(site: Website, ctx: Context) -> None:
        nonlocal starts
        starts += 1
        if starts == 1:
            raise RuntimeError("broken")

    await cluster.run(operator)
    await cluster.client.create(website())
    await cluster.settle()
    await reach(lambda: starts == 1)
    await cluster.advance(5)
    await reach(lambda: starts == 2)
    await cluster.client.patch(WEBSITE, "blog", {"spec": {"replicas": 2}})
    await cluster.advance(3600)
    assert starts == 2


# Shared resources and sources


class Session:
    def __init__(self) -> None:
        self.is_open = True


class Pool:
    def __init__(self, session: Session) -> None:
        self.session = session


async def test_handlers_share_typed_resources_that_open_and_close_with_the_operator(cluster: Cluster) -> None:
    operator = Operator("sharing")
    session, log = Session(), list[str]()

    @operator.startup
    async def open_session() -> AsyncIterator[Session]:
        yield session
        session.is_open = False

    @operator.startup
    def open_pool(shared: Shared) -> Pool:
        return Pool(shared[Session])

    @operator.shutdown
    async def close(shared: Shared) -> None:
        log.append(f"closed {shared[Pool].session.is_open}")

    @operator.reconcile(Website)
    async def reconcile(site: Website, ctx: Context) -> None:
        log.append(f"open {ctx.shared[Pool].session.is_open}")
        ctx.shared[Condition]

    async with operator.running(cluster.client) as manager:
        cluster.managers.append(manager)
        await cluster.client.create(website())
        await cluster.settle()
        cluster.managers.remove(manager)
        (run,) = manager.controllers[0].why(BLOG)
    assert log == ["open True", "closed True"]
    assert not session.is_open
    assert run.error == "LookupError: no @operator.startup function returns a Condition; they return Session, Pool"


async def test_events_outside_of_the_cluster_cause_reconciles(cluster: Cluster) -> None:
    operator = Operator("hearing")
    outside: asyncio.Queue[str] = asyncio.Queue()
    calls: list[str] = []

    @operator.source(Website)
    async def messages() -> AsyncIterator[Key]:
        while True:
            text = await outside.get()
            if text == "broken":
                raise RuntimeError("the broker is gone")
            yield Key("default", text)

    @operator.source(Website, path="/hooks/git")
    def pushed(request: HookRequest) -> list[Key]:
        if request.headers.get("x-token") != "secret":
            raise ValueError("who are you?")
        return [Key("default", request.body.decode())]

    @operator.reconcile(Website)
    async def reconcile(site: Website, ctx: Context) -> None:
        calls.append(ctx.trigger)

    manager = await cluster.run(operator, metrics_port=0)
    await cluster.client.create(website())
    await cluster.settle()
    calls.clear()
    outside.put_nowait("blog")
    await reach(lambda: len(calls) == 1)
    outside.put_nowait("broken")
    outside.put_nowait("blog")
    while len(calls) < 2:
        await cluster.advance(1)
    url = f"http://127.0.0.1:{manager.metrics_port}/hooks/git"
    async with aiohttp.ClientSession() as session:
        async with session.post(url, data=b"blog") as answer:
            assert (answer.status, await answer.text()) == (400, "who are you?")
        async with session.post(url, data=b"blog", headers={"X-Token": "secret"}) as answer:
            assert answer.status == 202
    await reach(lambda: len(calls) == 3)
    assert calls == ["requeued"] * 3


# Writes


async def test_a_new_object_with_three_children_settles_with_the_fewest_writes(cluster: Cluster) -> None:
    operator = Operator("thrifty")
    calls = 0

    @operator.reconcile(Website, owns=["apps/v1/Deployment", "v1/Service", "v1/ConfigMap"])
    async def reconcile(site: Website, ctx: Context) -> None:
        nonlocal calls
        calls += 1
        await ctx.apply(deployment_of(site))
        await ctx.apply(service_of(site))
        await ctx.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": site.name}, "data": {"a": "b"}})
        site.status.ready = 1

    user = cluster.client_as("system:admin", "system:masters")
    await cluster.run(operator, client=user)
    before = dict(user.answers)
    await cluster.client.create(website())
    await cluster.settle()
    await cluster.add_nodes(1)
    await cluster.settle()
    # The other requests are reads, and the operator's reviews of its own permissions.
    writes = {key: n - before.get(key, 0) for key, n in user.answers.items() if key[0] not in ("GET", "POST")}
    assert {key: n for key, n in writes.items() if n} == {("PATCH", "201"): 3, ("PATCH", "200"): 1}
    assert calls > 2


async def test_an_apply_is_sent_again_after_someone_has_changed_its_fields_and_not_after_a_restart(
    cluster: Cluster,
) -> None:
    def keeping() -> Operator:
        operator = Operator("keeping")

        @operator.reconcile(Website, owns=["apps/v1/Deployment", "v1/Service"])
        async def reconcile(site: Website, ctx: Context) -> None:
            await ctx.apply(deployment_of(site))
            await ctx.apply(service_of(site))

        return operator

    user = cluster.client_as("system:admin", "system:masters")
    async with keeping().running(user) as manager:
        cluster.managers.append(manager)
        await cluster.client.create(website())
        await cluster.settle()
        await cluster.client.patch("apps/v1/Deployment", "blog", {"spec": {"replicas": 7}}, namespace="default")
        await cluster.settle()
        assert (await cluster.client.get("apps/v1/Deployment", "blog", namespace="default"))["spec"]["replicas"] == 1
        cluster.managers.remove(manager)
    before = dict(user.answers)
    await cluster.run(keeping(), client=user, install=False)
    await cluster.settle()
    assert {key: n for key, n in user.answers.items() if key[0] == "PATCH" and n != before.get(key)} == {}
    await cluster.client.patch(WEBSITE, "blog", {"spec": {"replicas": 2}})
    await cluster.settle()
    assert (await cluster.client.get("apps/v1/Deployment", "blog", namespace="default"))["spec"]["replicas"] == 2


async def test_changing_more_than_the_status_is_refused(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    operator = Operator("careless")

    @operator.reconcile(Website)
    async def reconcile(site: Website, ctx: Context) -> None:
        site.spec.replicas = 5

    await cluster.run(operator)
    await cluster.client.create(website())
    await cluster.settle()
    assert "reconcile has changed spec of default/blog, but only the status is stored" in caplog.text


async def test_the_clock_of_a_handler_is_the_clock_of_the_test(cluster: Cluster) -> None:
    operator = Operator("punctual")
    times: list[object] = []

    @operator.timer(Website, seconds=60)
    def tick(site: Website, ctx: Context) -> None:
        times.append(ctx.now())

    await cluster.run(operator)
    await cluster.client.create(website())
    await cluster.settle()
    assert times == [cluster.clock.now()]
