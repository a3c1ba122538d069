"""A request that takes too long is answered with a timeout; watches and streams have no deadline."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.admission.webhook_server import allowed, webhook
from tests.server.in_process import CONFIG_MAPS, InProcess, Object, config_map, control_plane

from pinnace.cluster.settings import Settings
from pinnace.serving.deadlines import Deadlines
from pinnace.serving.local_streams import LocalStream

HOOKS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"


@dataclass(frozen=True)
class Slow:
    """A server whose writes of ConfigMaps hang until `let_go` is set."""

    api: InProcess
    arrived: asyncio.Event
    let_go: asyncio.Event


@asynccontextmanager
async def slow(directory: Path, settings: Settings) -> AsyncIterator[Slow]:
    arrived, let_go = asyncio.Event(), asyncio.Event()

    async def hang(request: Object) -> Object:
        arrived.set()
        await let_go.wait()
        return allowed(request)

    async with webhook(directory, hang) as hanging, control_plane(settings=settings) as api:
        rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["configmaps"]}
        hook = {
            "name": "slow.example.com",
            "clientConfig": hanging.client_config,
            "rules": [rule],
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            "timeoutSeconds": 30,
        }
        await api.made(HOOKS, {"metadata": {"name": "slow"}, "webhooks": [hook]})
        yield Slow(api, arrived, let_go)
        let_go.set()
        await api.plane.webhooks.close()


@pytest.fixture
async def hasty(tmp_path: Path) -> AsyncIterator[Slow]:
    """One whose requests have a second: enough for all that do not hang, however busy the machine is."""
    async with slow(tmp_path, Settings(request_timeout=1.0)) as server:
        yield server


async def test_a_request_that_takes_too_long_is_answered_with_504(hasty: Slow) -> None:
    api, arrived = hasty.api, hasty.arrived
    reply = await api.post(CONFIG_MAPS, config_map("late"))
    assert arrived.is_set()
    assert reply.status == 504
    assert {name: reply.json.get(name) for name in ("kind", "status", "reason", "code", "message")} == {
        "kind": "Status",
        "status": "Failure",
        "reason": "Timeout",
        "code": 504,
        "message": "Timeout: request did not complete within the allotted timeout",
    }
    assert (await api.get(f"{CONFIG_MAPS}/late")).status == 404
    assert 'code="504"' in api.plane.metrics.text()
    task = asyncio.current_task()
    assert task is not None and task.cancelling() == 0


async def test_a_client_may_be_more_impatient_than_the_server(tmp_path: Path) -> None:
    async with slow(tmp_path, Settings()) as server:
        assert (await server.api.post(f"{CONFIG_MAPS}?timeout=20ms", config_map("late"))).status == 504
        server.let_go.set()
        # More than the server grants is cut to that; nothing or less is the server's own.
        for number, timeout in enumerate(("5h", "0", "-3s", "1m30s", "")):
            made = await server.api.post(f"{CONFIG_MAPS}?timeout={timeout}", config_map(f"c{number}"))
            assert made.status == 201


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ("abc", 'invalid duration "abc"'),
        ("5", 'missing unit in duration "5"'),
        ("5x", 'unknown unit "x" in duration "5x"'),
        ("1s5", 'missing unit in duration "1s5"'),
        ("1%22s", 'unknown unit "\\"s" in duration "1\\"s"'),
        ("s", 'invalid duration "s"'),
    ],
)
@pytest.mark.parametrize("target", [CONFIG_MAPS, "/version"])
async def test_a_limit_that_is_none_is_refused_as_go_says(api: InProcess, target: str, given: str, why: str) -> None:
    reply = await api.get(f"{target}?timeout={given}")
    message = f"invalid timeout specified in the request URL - time: {why}"
    assert (reply.status, reply.message) == (400, message)


async def test_a_watch_goes_on(hasty: Slow) -> None:
    api = hasty.api
    stream = await api.plane.local().stream("/api/v1/namespaces?watch=1&timeout=abc")
    assert isinstance(stream, LocalStream)
    events = stream.__aiter__()
    await anext(events)
    # A request after the watch times out: so would the watch, if it had a deadline.
    assert (await api.post(CONFIG_MAPS, config_map("hangs"))).status == 504
    await api.made("/api/v1/namespaces", {"metadata": {"name": "late"}})
    async with asyncio.timeout(60):
        while b'"late"' not in await anext(events):
            pass
    await stream.close()


async def test_a_watch_lasts_as_long_as_the_server_wants_at_least() -> None:
    async with control_plane(settings=Settings(min_request_timeout=0.05)) as api:
        watch = await api.watch("/api/v1/namespaces?watch=1")
        assert {event["type"] for event in await watch.rest()} == {"ADDED"}


async def test_one_timer_stands_for_all() -> None:
    deadlines = Deadlines(0.05)

    async def work(seconds: float | None, needs: float) -> bool:
        deadline = deadlines.begin(seconds)
        try:
            await asyncio.sleep(needs)
        except asyncio.CancelledError:
            assert deadline.is_over
        finally:
            deadlines.end(deadline)
        await asyncio.sleep(0)  # Nothing of the cancellation is left.
        return deadline.is_over

    outcomes = await asyncio.gather(work(None, 9), work(None, 0), work(None, 9), work(0.001, 9), work(99, 9))
    assert list(outcomes) == [True, False, True, True, True]


async def test_a_task_that_others_cancel_stays_cancelled(hasty: Slow) -> None:
    api, arrived = hasty.api, hasty.arrived
    posting = asyncio.create_task(api.post(f"{CONFIG_MAPS}?timeout=30s", config_map("left")))
    await arrived.wait()
    posting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await posting


@pytest.mark.parametrize("text", ["1s" * 400_000, "1" * 800_000, "1x" * 400_000, "1s" * 64 + "."])
async def test_a_long_timeout_is_refused_unread(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def parse(text: str) -> None:
        pytest.fail(f"{len(text)} characters are parsed")

    async with control_plane() as api:
        assert (await api.get(f"{CONFIG_MAPS}?timeout=1h0m1.5s")).status == 200
        monkeypatch.setattr("pinnace.serving.deadlines.parse_duration", parse)
        reply = await api.get(f"{CONFIG_MAPS}?timeout={text}")
        assert (reply.status, len(reply.body) < 1_000) == (400, True)
