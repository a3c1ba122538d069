"""The control endpoint: forks, faults, clock and history over HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any

import orjson
import pytest
import yaml

from pinnace.client.http import HttpTransport
from pinnace.client.kubeconfig import access_of
from pinnace.client.kubeconfig_files import kubeconfig_of
from pinnace.client.transport import ConnectionLost
from pinnace.cluster.settings import Settings
from pinnace.testing.cluster import running_cluster
from pinnace.testing.control.endpoint import ControlledCluster, running_with_control

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"


class Caller:
    """Sends requests to one server with the credentials of a kubeconfig."""

    def __init__(self, kubeconfig: dict[str, Any]) -> None:
        self.transport = HttpTransport(access_of(kubeconfig))

    async def send(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """Return the status and the body of the answer, decoded if it is JSON."""
        data = b"" if body is None else body if isinstance(body, bytes) else orjson.dumps(body)
        headers = {"content-type": "application/json", "user-agent": "caller"}
        answer = await self.transport.request(method, path, data, headers)
        is_json = answer.headers.get("content-type", "").startswith("application/json")
        return answer.status, orjson.loads(answer.body) if is_json else answer.body.decode()

    async def call(self, method: str, path: str, body: Any = None) -> Any:
        """As `send`, for a request that succeeds."""
        status, answer = await self.send(method, path, body)
        assert status in (200, 201), answer
        return answer


@asynccontextmanager
async def calling(kubeconfig: dict[str, Any]) -> AsyncIterator[Caller]:
    caller = Caller(kubeconfig)
    try:
        yield caller
    finally:
        await caller.transport.close()


@pytest.fixture
async def controlled() -> AsyncIterator[ControlledCluster]:
    async with running_with_control(Settings()) as result:
        yield result


@pytest.fixture
async def caller(controlled: ControlledCluster) -> AsyncIterator[Caller]:
    async with calling(kubeconfig_of(controlled.access)) as result:
        yield result


def config_map(name: str = "settings") -> dict[str, Any]:
    return {"metadata": {"name": name}, "data": {"color": "blue"}}


async def test_a_fork_is_served_at_an_address_of_its_own(caller: Caller) -> None:
    await caller.call("POST", CONFIG_MAPS, config_map())
    made = await caller.call("POST", "/control/forks", {"name": "first"})
    async with calling(yaml.safe_load(made["kubeconfig"])) as fork:
        assert (await fork.call("GET", f"{CONFIG_MAPS}/settings"))["data"] == {"color": "blue"}
        await fork.call("DELETE", f"{CONFIG_MAPS}/settings")
        assert (await fork.send("GET", f"{CONFIG_MAPS}/settings"))[0] == 404
        assert await caller.call("GET", f"{CONFIG_MAPS}/settings")
        again = await fork.call("POST", "/control/forks")
        async with calling(yaml.safe_load(again["kubeconfig"])) as second:
            assert (await second.send("GET", f"{CONFIG_MAPS}/settings"))[0] == 404
            await second.call("POST", CONFIG_MAPS, config_map("in-the-second"))
        assert (await fork.send("GET", f"{CONFIG_MAPS}/in-the-second"))[0] == 404
    listed = await caller.call("GET", "/control/forks")
    assert [item["name"] for item in listed["items"]] == ["first"]


async def test_a_deleted_fork_does_not_listen_any_more(caller: Caller) -> None:
    made = await caller.call("POST", "/control/forks")
    await caller.call("DELETE", f"/control/forks/{made['name']}")
    async with calling(yaml.safe_load(made["kubeconfig"])) as fork:
        with pytest.raises(ConnectionLost):
            await fork.send("GET", "/api/v1/namespaces")
    assert await caller.call("GET", "/control/forks") == {"items": []}


async def test_controllers_work_in_a_fork(caller: Caller) -> None:
    made = await caller.call("POST", "/control/forks")
    async with calling(yaml.safe_load(made["kubeconfig"])) as fork:
        await fork.call("POST", "/api/v1/namespaces", {"metadata": {"name": "shop"}})
        await fork.call("POST", "/control/settle", {"quiet": 0.0})
        result = await fork.call("GET", "/api/v1/namespaces/shop/configmaps/kube-root-ca.crt")
        assert result["data"]["ca.crt"].startswith("-----BEGIN")


async def test_a_fault_happens_to_the_next_request_and_is_reported(caller: Caller) -> None:
    rule = await caller.call("POST", "/control/faults", {"fault": "conflict", "resource": "configmaps", "times": 1})
    assert (rule["id"], rule["count"]) == (1, 0)
    status, answer = await caller.send("POST", CONFIG_MAPS, config_map())
    assert (status, answer["reason"]) == (409, "Conflict")
    await caller.call("POST", CONFIG_MAPS, config_map())
    report = await caller.call("GET", "/control/faults")
    assert (report["items"][0]["count"], report["items"][0]["lifted"]) == (1, True)
    (injected,) = report["injected"]
    assert (injected["fault"], injected["verb"], injected["key"], injected["client"]) == (
        "conflict",
        "create",
        "default/settings",
        "caller",
    )


EVERY_FAULT = [
    {"fault": "error", "code": 503},
    {"fault": "too-many-requests", "retryAfter": 7},
    {"fault": "timeout", "committed": True},
    {"fault": "latency", "seconds": 1},
    {"fault": "stale-reads", "resource": "configmaps"},
    {"fault": "lose-lease", "holder": "other"},
    {"fault": "cut-watch", "probability": 0.5, "seed": 3},
    {"fault": "delay-events", "seconds": 0.5},
    {"fault": "withhold-events", "name": "a*"},
    {"fault": "fail-webhook", "name": "hook"},
]


@pytest.mark.parametrize("body", EVERY_FAULT, ids=lambda body: str(body["fault"]))
async def test_every_fault_can_be_added_and_lifted(
    controlled: ControlledCluster, caller: Caller, body: dict[str, Any]
) -> None:
    rule = await caller.call("POST", "/control/faults", {**body, "user": "someone-else"})
    assert not rule["lifted"]
    assert (await caller.call("DELETE", f"/control/faults/{rule['id']}"))["lifted"]
    controlled.cluster.faults.rules.clear()


async def test_a_rule_holds_until_all_are_lifted(caller: Caller) -> None:
    await caller.call("POST", "/control/faults", {"fault": "error", "code": 500, "verb": "create"})
    for _ in range(2):
        assert (await caller.send("POST", CONFIG_MAPS, config_map()))[0] == 500
    await caller.call("DELETE", "/control/faults")
    await caller.call("POST", CONFIG_MAPS, config_map())


async def test_time_passes_by_itself_stops_and_jumps(caller: Caller) -> None:
    first = datetime.fromisoformat((await caller.call("GET", "/control/clock"))["now"])
    paused = await caller.call("POST", "/control/clock", {"paused": True})
    stood = datetime.fromisoformat(paused["now"])
    assert stood > first
    later = await caller.call("POST", "/control/clock", {"advance": 90})
    assert datetime.fromisoformat(later["now"]) == stood + timedelta(seconds=90)
    moved = await caller.call("POST", "/control/clock", {"now": "2030-01-01T00:00:00Z", "advance": 1})
    assert datetime.fromisoformat(moved["now"]) == datetime.fromisoformat("2030-01-01T00:00:01+00:00")
    assert not (await caller.call("POST", "/control/clock", {"paused": False}))["paused"]


async def test_cron_jobs_run_when_the_clock_jumps(caller: Caller) -> None:
    pod = {"restartPolicy": "Never", "containers": [{"name": "a", "image": "a"}]}
    spec = {"schedule": "0 * * * *", "jobTemplate": {"spec": {"template": {"spec": pod}}}}
    await caller.call("POST", "/control/clock", {"now": "2030-01-01T00:30:00Z"})
    await caller.call(
        "POST", "/apis/batch/v1/namespaces/default/cronjobs", {"metadata": {"name": "hourly"}, "spec": spec}
    )
    await caller.call("POST", "/control/clock", {"advance": 3600})
    jobs = await caller.call("GET", "/apis/batch/v1/namespaces/default/jobs")
    assert len(jobs["items"]) == 1


async def test_events_expire_when_the_clock_jumps(caller: Caller) -> None:
    involved = {"kind": "ConfigMap", "namespace": "default", "name": "a"}
    event = {"metadata": {"name": "old"}, "involvedObject": involved, "reason": "Seen", "type": "Normal"}
    await caller.call("POST", "/api/v1/namespaces/default/events", event)
    await caller.call("POST", "/control/clock", {"advance": 2 * 3600})
    assert (await caller.send("GET", "/api/v1/namespaces/default/events/old"))[0] == 404


async def test_history_has_each_version_with_its_writer(caller: Caller) -> None:
    await caller.call("POST", CONFIG_MAPS, config_map())
    changed = {**config_map(), "data": {"color": "red"}}
    await caller.call("PUT", f"{CONFIG_MAPS}/settings", changed)
    await caller.call("DELETE", f"{CONFIG_MAPS}/settings")
    result = await caller.call("GET", "/control/history?resource=configmaps&namespace=default&name=settings")
    assert [(item["action"], item["verb"], item["user"], item["client"]) for item in result["items"]] == [
        ("created", "create", "admin", "caller"),
        ("updated", "update", "admin", "caller"),
        ("deleted", "delete", "admin", "caller"),
    ]
    assert result["items"][1]["difference"] == ['data.color: "blue" → "red"']
    text = await caller.call("GET", "/control/timeline?name=settings")
    assert "updated configmaps default/settings by caller" in text
    page = await caller.call("GET", "/control/timeline?name=settings&format=html")
    assert page.startswith("<!doctype html>")


async def test_settle_reports_a_cluster_that_does_not_come_to_rest(
    controlled: ControlledCluster, caller: Caller
) -> None:
    await caller.call("POST", CONFIG_MAPS, config_map())
    status, answer = await caller.send("POST", "/control/settle", {"quiet": 5, "timeout": 0.05})
    assert (status, answer["reason"]) == (504, "Timeout")
    assert "the last change: " in answer["message"]


@pytest.mark.parametrize(
    ("method", "path", "body", "code", "message"),
    [
        ("POST", "/control/faults", {"fault": "earthquake"}, 400, "expected one of conflict, error"),
        ("POST", "/control/faults", {}, 400, "found None"),
        ("POST", "/control/faults", {"fault": "conflict", "color": "red"}, 400, "conflict has no field color"),
        ("POST", "/control/faults", {"fault": "conflict", "times": "x"}, 400, "times: expected int, found 'x'"),
        ("POST", "/control/faults", {"fault": "conflict", "times": True}, 400, "times: expected int"),
        ("POST", "/control/faults", {"fault": "conflict", "probability": 2}, 400, "from 0 to 1, not 2"),
        ("POST", "/control/faults", {"fault": "error", "code": 418}, 400, "500, 503 or 504, not 418"),
        ("POST", "/control/faults", {"fault": "latency"}, 400, "latency needs the field seconds"),
        ("POST", "/control/faults", [1], 400, "not a JSON object"),
        ("POST", "/control/faults", b"{", 400, "not JSON"),
        ("DELETE", "/control/faults/7", None, 404, 'faults "7" not found'),
        ("POST", "/control/clock", {}, 400, "the clock has the fields advance, now and paused, found none"),
        ("POST", "/control/clock", {"advance": -1}, 400, "not negative, found -1"),
        ("POST", "/control/clock", {"advance": 1, "speed": 2}, 400, "found speed"),
        ("POST", "/control/clock", {"now": "yesterday"}, 400, "expected a time such as 2026-01-01T00:00:00Z"),
        ("POST", "/control/clock", {"paused": 1}, 400, "expected true or false"),
        ("POST", "/control/forks", {"name": 1}, 400, "expected a text"),
        ("DELETE", "/control/forks/none", None, 404, 'forks "none" not found'),
        ("GET", "/control/nonsense", None, 404, "the control endpoint has no /control/nonsense"),
        ("PUT", "/control/clock", {}, 405, ""),
    ],
)
async def test_bad_requests_are_refused(
    caller: Caller, method: str, path: str, body: Any, code: int, message: str
) -> None:
    status, answer = await caller.send(method, path, body)
    assert (status, message in answer["message"]) == (code, True), answer


async def test_a_name_that_is_taken_is_refused(caller: Caller) -> None:
    await caller.call("POST", "/control/forks", {"name": "one"})
    status, answer = await caller.send("POST", "/control/forks", {"name": "one"})
    assert (status, answer["reason"]) == (409, "AlreadyExists")


async def test_only_administrators_may_use_it(controlled: ControlledCluster, caller: Caller) -> None:
    config = kubeconfig_of(controlled.access)
    config["users"][0]["user"] = {}
    async with calling(config) as stranger:
        status, _ = await stranger.send("POST", "/control/forks")
    assert status in (401, 403)
    await caller.call("POST", "/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "robot"}})
    token = await caller.call("POST", "/api/v1/namespaces/default/serviceaccounts/robot/token", {"spec": {}})
    config["users"][0]["user"] = {"token": token["status"]["token"]}
    async with calling(config) as robot:
        status, answer = await robot.send("POST", "/control/forks")
        assert (status, "system:masters" in answer["message"]) == (403, True)
    assert await caller.call("GET", "/control/forks") == {"items": []}


async def test_other_clusters_have_no_control_endpoint() -> None:
    async with running_cluster(over_http=True) as plain:
        wire = await plain.open_socket()
        async with calling(kubeconfig_of(wire.access)) as caller:
            assert (await caller.send("GET", "/control/clock"))[0] == 404
