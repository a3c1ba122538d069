"""HTTP extenders of a configuration: what they are asked, and what follows from their answers, errors and silence."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web
from tests.testing.both_ways import cluster

from pinnace.reconcile.manager import Manager
from pinnace.scheduler.configuration import InvalidConfiguration, load
from pinnace.scheduler.extenders.extender import ExtenderError, Extenders
from pinnace.scheduler.extenders.settings import ExtenderSettings, parse_extenders
from pinnace.scheduler.scheduler import Scheduler
from pinnace.testing.cluster import Cluster

__all__ = ["cluster"]

POD: Any = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "p", "namespace": "default", "uid": "u"},
    "spec": {"schedulerName": "extended", "containers": [{"name": "c", "image": "i"}]},
}


class Recorder:
    """An extender that answers as a test wants, and keeps what it was asked."""

    def __init__(self, **answers: Any) -> None:
        self.requests: list[tuple[str, Any]] = []
        self.answers = answers

    async def answer(self, request: web.Request) -> web.Response:
        verb = request.match_info["verb"]
        body = await request.json()
        self.requests.append((verb, body))
        answer = self.answers[verb]
        if isinstance(answer, asyncio.Event):
            await answer.wait()
        if isinstance(answer, int):
            return web.Response(status=answer)
        return web.json_response(answer(body) if callable(answer) else answer)


@asynccontextmanager
async def listening(recorder: Recorder) -> AsyncIterator[str]:
    app = web.Application()
    app.router.add_post("/{verb}", recorder.answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/"
    finally:
        await runner.cleanup()


def node(name: str) -> Any:
    return {"metadata": {"name": name}}


def extenders(*written: Any) -> Extenders:
    return Extenders(parse_extenders(written), node)


async def test_whole_nodes_are_sent_and_refusals_are_kept_with_their_reasons() -> None:
    recorder = Recorder(
        filter={
            "Nodes": {"items": [node("a")]},
            "FailedNodes": {"b": "too hot", "c": "too cold"},
            "FailedAndUnresolvableNodes": {"c": "never"},
        }
    )
    async with listening(recorder) as url, extenders({"urlPrefix": url, "filterVerb": "filter"}) as extender:
        kept = await extender.filter(POD, ["a", "b", "c"])
    assert (list(kept.names), kept.failed, kept.unresolvable) == (["a"], {"b": "too hot"}, {"c": "never"})
    [(verb, body)] = recorder.requests
    assert verb == "filter"
    assert body == {
        "Pod": POD,
        "Nodes": {"metadata": {}, "items": [node("a"), node("b"), node("c")]},
        "NodeNames": None,
    }


async def test_an_extender_with_a_cache_gets_names_and_may_answer_in_any_case() -> None:
    recorder = Recorder(filter={"nodenames": ["b"], "failedNodes": {"a": "no"}}, prioritize=[{"host": "b", "score": 7}])
    written = {
        "filterVerb": "filter",
        "prioritizeVerb": "prioritize",
        "weight": 3,
        "nodeCacheCapable": True,
    }
    async with listening(recorder) as url, extenders({"urlPrefix": url, **written}) as extender:
        kept = await extender.filter(POD, ["a", "b"])
        assert await extender.prioritize(POD, ["b"]) == {"b": 7 * 3 * 10}
    assert list(kept.names) == ["b"]
    assert recorder.requests[0][1]["NodeNames"] == ["a", "b"]


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (500, "failed filter with extender at URL"),
        ({"Error": "out of order"}, "out of order"),
        ({"NodeNames": ["z"]}, 'claims a filtered node "z" which is not found in the input node list'),
        (asyncio.Event(), "did not answer within 0.2 s"),
        ([1, 2], "sent a wrong answer: expected a JSON object, found list"),
        ({"NodeNames": 5}, "sent a wrong answer: expected a list in NodeNames, found 5"),
        ({"NodeNames": [{"a": 1}]}, "sent a wrong answer: expected a string in NodeNames, found dict"),
        ({"Nodes": {"items": [{}]}}, "sent a wrong answer: expected an object in metadata, found None"),
        ({"NodeNames": ["a"], "FailedNodes": ["b"]}, "sent a wrong answer: expected an object in FailedNodes"),
        ({"NodeNames": ["z" * 5_000_000]}, 'claims a filtered node "zzz'),
    ],
    ids=[
        "status",
        "error",
        "unknown node",
        "silence",
        "a list",
        "a number for names",
        "objects for names",
        "nodes without metadata",
        "a list of failures",
        "a name without end",
    ],
)
@pytest.mark.parametrize("ignorable", [False, True])
async def test_an_extender_that_fails_fails_the_pod_unless_it_is_ignorable(
    answer: Any, message: str, ignorable: bool
) -> None:
    timeout = "200ms" if isinstance(answer, asyncio.Event) else "60s"
    written = {"filterVerb": "filter", "httpTimeout": timeout, "ignorable": ignorable, "nodeCacheCapable": True}
    async with listening(Recorder(filter=answer)) as url, extenders({"urlPrefix": url, **written}) as extender:
        if ignorable:
            assert list((await extender.filter(POD, ["a"])).names) == ["a"]
        else:
            with pytest.raises(ExtenderError, match=message.replace("(", r"\(")) as error:
                await extender.filter(POD, ["a"])
            assert len(str(error.value)) < 2000, "it becomes the message of a condition"


async def test_pods_without_its_resources_are_not_sent_to_an_extender() -> None:
    recorder = Recorder(filter={"NodeNames": []})
    managed = [{"name": "example.com/fpga", "ignoredByScheduler": True}]
    written = {"filterVerb": "filter", "managedResources": managed, "nodeCacheCapable": True}
    async with listening(recorder) as url, extenders({"urlPrefix": url, **written}) as extender:
        assert list((await extender.filter(POD, ["a"])).names) == ["a"]
        assert recorder.requests == []
        container = {"name": "c", "resources": {"limits": {"example.com/fpga": "1"}}}
        wanting: Any = {**POD, "spec": {"containers": [container]}}
        assert list((await extender.filter(wanting, ["a"])).names) == []


@pytest.mark.parametrize(
    "answer", [500, {"a": 1}, [5], [{"Host": "a", "Score": 10**40}], [{"Host": [], "Score": 1}], [{"Score": "much"}]]
)
async def test_scores_of_an_extender_that_fails_are_left_out(answer: Any) -> None:
    written = {"prioritizeVerb": "prioritize", "weight": 1}
    async with listening(Recorder(prioritize=answer)) as url, extenders({"urlPrefix": url, **written}) as extender:
        assert await extender.prioritize(POD, ["a"]) == {}


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ([{}], r"extenders\[0\].urlPrefix"),
        ([{"urlPrefix": "http://x", "prioritizeVerb": "p"}], "must have a positive weight"),
        ([{"urlPrefix": "http://x", "bindVerb": "b"}] * 2, "only one extender can implement bind"),
        ([{"urlPrefix": "http://x", "httpTimeout": "soon"}], "httpTimeout"),
        ([{"urlPrefix": "http://x", "managedResources": [{"name": "cpu"}]}], "managedResources"),
    ],
)
def test_a_wrong_extender_is_refused_with_its_field(written: list[Any], message: str) -> None:
    config = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
    with pytest.raises(InvalidConfiguration, match=message):
        load({**config, "extenders": written})


def test_ignorable_extenders_are_asked_last() -> None:
    parsed = parse_extenders([{"urlPrefix": "http://a", "ignorable": True}, {"urlPrefix": "http://b"}])
    assert [extender.url_prefix for extender in parsed] == ["http://b", "http://a"]
    assert parsed[0] == ExtenderSettings("http://b", weight=0)


# In a cluster


def configuration(url: str, **written: Any) -> Any:
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [{"schedulerName": "extended"}],
        "extenders": [{"urlPrefix": url, **written}],
    }


async def start(cluster: Cluster, config: Any) -> None:
    manager = Manager(cluster.client, name="extended")
    scheduler = Scheduler(manager, cluster.client, configuration=load(config))
    manager.add(scheduler.controller)
    await cluster.keep(manager.running(), name="extended")


async def test_the_scheduler_follows_the_filter_and_the_scores_of_an_extender(cluster: Cluster) -> None:
    recorder = Recorder(
        filter=lambda body: {
            "NodeNames": [name for name in body["NodeNames"] if name != "node-0"],
            "FailedNodes": {"node-0": "not this one"},
        },
        prioritize=[{"Host": "node-2", "Score": 10}],
    )
    await cluster.add_nodes(3)
    async with listening(recorder) as url:
        verbs = {"filterVerb": "filter", "prioritizeVerb": "prioritize", "weight": 100, "nodeCacheCapable": True}
        await start(cluster, configuration(url, **verbs))
        await cluster.client.create({**POD, "metadata": {"name": "p"}})
        await cluster.settle()
        assert (await cluster.client.get("v1/Pod", "p"))["spec"]["nodeName"] == "node-2"
    assert recorder.requests[0][1]["Pod"]["metadata"]["name"] == "p"


async def test_a_pod_that_an_extender_refuses_everywhere_waits_with_its_reasons(cluster: Cluster) -> None:
    refused = {"NodeNames": [], "FailedNodes": {"node-0": "not today", "node-1": "not today"}}
    await cluster.add_nodes(2)
    async with listening(Recorder(filter=refused)) as url:
        await start(cluster, configuration(url, filterVerb="filter", nodeCacheCapable=True))
        await cluster.client.create({**POD, "metadata": {"name": "p"}})
        await cluster.settle()
        [condition] = (await cluster.client.get("v1/Pod", "p"))["status"]["conditions"]
        assert condition["message"].startswith("0/2 nodes are available: 2 not today.")


async def test_an_extender_that_binds_is_asked_to_bind(cluster: Cluster) -> None:
    recorder = Recorder(bind={"Error": ""})
    await cluster.add_nodes(1)
    async with listening(recorder) as url:
        await start(cluster, configuration(url, bindVerb="bind"))
        created = await cluster.client.create({**POD, "metadata": {"name": "p"}})
        await cluster.settle()
    expected = {"PodName": "p", "PodNamespace": "default", "PodUID": created["metadata"]["uid"], "Node": "node-0"}
    assert recorder.requests == [("bind", expected)]


@pytest.mark.parametrize("answer", ["silence", [1, 2, 3], 500], ids=["silence", "nonsense", "an error"])
async def test_a_pod_outlives_an_extender_that_fails_and_others_go_on_meanwhile(cluster: Cluster, answer: Any) -> None:
    recorder = Recorder(filter=asyncio.Event() if answer == "silence" else answer)
    await cluster.add_nodes(2)
    async with listening(recorder) as url:
        managed = [{"name": "example.com/thing", "ignoredByScheduler": True}]
        verbs = {"filterVerb": "filter", "nodeCacheCapable": True, "httpTimeout": "1s", "managedResources": managed}
        await start(cluster, configuration(url, **verbs))
        thing = {"requests": {"example.com/thing": "1"}, "limits": {"example.com/thing": "1"}}
        for name, resources in (("managed", thing), ("plain", {})):
            spec = {**POD["spec"], "containers": [{"name": "c", "image": "i", "resources": resources}]}
            await cluster.client.create({**POD, "metadata": {"name": name}, "spec": spec})
        await cluster.settle()
        assert (await cluster.client.get("v1/Pod", "plain"))["spec"].get("nodeName")
        failed = await cluster.client.get("v1/Pod", "managed")
        assert [condition["reason"] for condition in failed["status"]["conditions"]] == ["SchedulerError"]
        recorder.answers["filter"] = {"NodeNames": ["node-1"]}
        for _ in range(10):  # On a busy machine a good answer may be late, too.
            await cluster.advance(15)
            if node := (await cluster.client.get("v1/Pod", "managed"))["spec"].get("nodeName"):
                break
        assert node == "node-1"
