"""A list takes seats by its size and a write by the watches that it wakes, as in kube-apiserver."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest
from tests.server.conftest import fill
from tests.server.flowcontrol.test_flow_control import ALL, Held, level, schema
from tests.server.in_process import CONFIG_MAPS, PODS, TABLE, InProcess

from pinnace.model.authorization import Action
from pinnace.model.users import AUTHENTICATED, MASTERS, User
from pinnace.server.flowcontrol.flow_control import FlowControl, TurnedAway
from pinnace.server.flowcontrol.work_estimates import WorkEstimate, WorkEstimator
from pinnace.server.handler import Handler
from pinnace.server.local import NoTransport
from pinnace.serving.cache.fanout import Fanout
from pinnace.serving.messages import Peer, Request, RequestHead
from pinnace.serving.request.call import Call, parse_call
from pinnace.store.memory import MemoryStore

BOB = User("bob", (AUTHENTICATED,))
LIST = Action("list", "", "", "pods", "", "default", "", "v1")


class Stored(Fanout):
    """Objects of 1,000 bytes each."""

    def __init__(self, count: int = 0, watches: int = 0) -> None:
        super().__init__(MemoryStore())
        self._count = count
        self._watches = watches

    def size(self, prefix: str) -> tuple[int, int]:
        return self._count, 1000 * self._count

    def watch_count(self, prefix: str, namespace: str) -> int:
        return self._watches


def call(api: InProcess, target: str, method: str = "GET") -> Call:
    path, _, query = target.partition("?")
    request = Request(method, target, path, query, RequestHead({}), b"", Peer(NoTransport()))
    parsed = parse_call(request, path.split("/")[1:], api.plane.registry, BOB)
    assert parsed is not None
    return parsed


@pytest.mark.parametrize(
    ("count", "query", "most", "seats"),
    [
        (0, "", 0, 1),
        (100, "", 0, 1),
        (101, "", 0, 2),
        (450, "", 0, 5),
        (10_000, "", 0, 10),
        (10_000, "", 4, 4),
        (10_000, "?limit=500", 0, 5),
        (10_000, "?limit=500&labelSelector=a%3Db", 0, 5),
        (10_000, "?fieldSelector=metadata.name%3Done", 0, 1),
        (10_000, "?resourceVersion=7&limit=1200", 0, 12),
        (10_000, "?resourceVersion=7&resourceVersionMatch=Exact", 0, 100),
        (10_000, "?continue=abc&limit=500", 0, 5),
        (10_000, "?continue=abc&limit=500&labelSelector=a%3Db", 0, 50),
        (10_000, "?limit=x", 7, 7),
        (10_000, "?watch=1", 0, 10),
        (10_000, "?watch=1&resourceVersion=7", 0, 1),
        (10_000, "?watch=1&resourceVersion=7&sendInitialEvents=true", 0, 10),
    ],
)
def test_a_list_takes_a_seat_for_each_100_kilobytes(
    api: InProcess, count: int, query: str, most: int, seats: int
) -> None:
    assert WorkEstimator(Stored(count)).estimate(call(api, PODS + query), most).seats == seats


@pytest.mark.parametrize(
    ("watches", "most", "work"),
    [
        (9, 0, WorkEstimate(1)),
        (10, 0, WorkEstimate(1, 0.005)),
        (41, 0, WorkEstimate(5, 0.005)),
        (400, 0, WorkEstimate(10, 0.02)),
        (400, 4, WorkEstimate(4, 0.05)),
    ],
)
def test_a_write_takes_a_seat_for_each_ten_watches(api: InProcess, watches: int, most: int, work: WorkEstimate) -> None:
    assert WorkEstimator(Stored(0, watches)).estimate(call(api, f"{PODS}/one", "PUT"), most) == work


def control(stored: Stored, *, seats: int = 10, **response: Any) -> FlowControl:
    limited = {"nominalConcurrencyShares": 10, "limitResponse": response or {"type": "Reject"}}
    levels = Held(level("rest", type="Limited", limited=limited))
    return FlowControl(
        Held(schema("all", "rest", ALL, precedence=9)), levels, seats=seats, estimator=WorkEstimator(stored)
    )


async def test_a_wide_request_waits_until_all_its_seats_are_free(api: InProcess) -> None:
    queuing = {"queues": 4, "handSize": 1, "queueLengthLimit": 9}
    flow = control(Stored(150), seats=20, type="Queue", queuing=queuing)
    wide = call(api, PODS)
    turns = [await flow.take_turn(BOB, LIST, wide) for _ in range(10)]  # Two seats each: no seat is free.
    later = [asyncio.create_task(flow.take_turn(BOB, LIST, each)) for each in (wide, None)]
    await asyncio.sleep(0)
    assert not any(task.done() for task in later)
    for turn in turns[:2]:
        turn.end()
    ends = [await task for task in later]
    [level] = flow.levels
    assert (level.requests, level.executing) == (10, 19)
    for turn in (*turns[2:], *ends):
        turn.end()
    assert (level.requests, level.executing) == (0, 0)


async def test_a_request_wider_than_its_level_runs_alone(api: InProcess) -> None:
    flow, wide = control(Stored(10_000), seats=5), call(api, PODS)
    first = await flow.take_turn(BOB, LIST, wide)
    with pytest.raises(TurnedAway):
        await flow.take_turn(BOB, LIST, wide)
    first.end()
    (await flow.take_turn(BOB, LIST, wide)).end()


async def test_the_events_of_a_write_keep_its_seats_for_a_moment(api: InProcess) -> None:
    flow, write = control(Stored(0, 80)), call(api, f"{PODS}/one", "PUT")
    turn = await flow.take_turn(BOB, LIST, write)
    [level] = flow.levels
    assert level.executing == 8
    turn.end()
    assert level.executing == 8
    async with asyncio.timeout(60):
        while level.executing:
            await asyncio.sleep(0.001)


@pytest.mark.parametrize(
    ("groups", "width"), [((AUTHENTICATED,), 8), ((MASTERS, AUTHENTICATED), 0)], ids=["user", "admin"]
)
async def test_a_large_table_takes_more_seats_and_an_administrator_none(
    api: InProcess, groups: tuple[str, ...], width: int
) -> None:
    await fill(api, 120, size=8000)
    rule = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"]}
    await api.made("/apis/rbac.authorization.k8s.io/v1/clusterroles", {"metadata": {"name": "r"}, "rules": [rule]})
    await api.made(
        "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
        {
            "metadata": {"name": "r"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "r"},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "bob"}],
        },
    )
    bob = InProcess(api.plane, User("bob", groups))
    listing = asyncio.create_task(bob.get(CONFIG_MAPS, accept=TABLE))
    most = 0
    while not listing.done():
        await asyncio.sleep(0)
        limited = [level for level in cast(Handler, api.plane.api)._flow_control.levels if not level.is_exempt]
        most = max(most, *(level.executing for level in limited))
    assert listing.result().status == 200
    assert most == width
