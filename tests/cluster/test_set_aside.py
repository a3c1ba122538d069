"""An object whose reconcile holds the event loop is set aside; the rest goes on, also after a restart."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.controllers.workloads.objects import REPLICA_SET, workload
from tests.server.in_process import InProcess, Object
from tests.waiting import PAUSE_SECONDS, SECONDS

from pinnace.cluster.cluster import running
from pinnace.cluster.settings import Settings
from pinnace.controllers.workloads.replica_sets import ReplicaSets
from pinnace.model.objects import Key
from pinnace.model.typed_objects import ReplicaSet, ReplicaSetStatus
from pinnace.reconcile import set_aside
from pinnace.reconcile.failures import Retry
from pinnace.reconcile.set_aside import AsideFile, AsideRecord, SetAside
from pinnace.testing.clock import ManualClock

pytestmark = pytest.mark.stalls(reason="reconciles hold the loop on purpose")

SETS = "/apis/apps/v1/namespaces/default/replicasets"
EVENTS = "/api/v1/namespaces/default/events"


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(set_aside, "LONGEST_TURN", 1.0)


def spin(name: str) -> None:
    """Compute without end for the evil object, and go on after any error, as careless code does."""
    while name == "evil":
        with suppress(Exception):
            sum(range(100))


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The ReplicaSets that were reconciled; the controller never ends with that named evil."""
    results: list[str] = []
    read = ReplicaSets._status_of

    def read_or_spin(self: ReplicaSets, replica_set: ReplicaSet, pods: Any) -> ReplicaSetStatus:
        results.append(replica_set["metadata"]["name"])
        spin(results[-1])
        return read(self, replica_set, pods)

    monkeypatch.setattr(ReplicaSets, "_status_of", read_or_spin)
    return results


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(SECONDS):
        while not await condition():
            await asyncio.sleep(PAUSE_SECONDS)


def replica_set(name: str) -> Object:
    return workload(REPLICA_SET, name, replicas=2)


@asynccontextmanager
async def cluster_on(directory: Path) -> AsyncIterator[InProcess]:
    async with running(Settings(data_dir=directory)) as cluster:
        yield InProcess(cluster.plane)


async def is_served(api: InProcess, name: str) -> bool:
    obj = (await api.get(f"{SETS}/{name}")).json
    return bool(obj.get("status", {}).get("replicas") == 2)


async def names_evil(api: InProcess) -> bool:
    return "set-aside/replicaset:default/evil" in (await api.get("/readyz?verbose")).body.decode()


async def test_a_reconcile_without_end_is_ended_and_its_object_set_aside(tmp_path: Path, calls: list[str]) -> None:
    async with cluster_on(tmp_path) as api:
        await api.made(SETS, replica_set("evil"))
        await api.made(SETS, replica_set("good"))
        await until(lambda: is_served(api, "good"))
        assert calls.count("evil") == 1
        assert await names_evil(api)
        assert (await api.get("/readyz")).status == 200
        assert 'pinnace_set_aside{controller="replicaset"} 1' in (await api.get("/metrics")).body.decode()

        async def is_reported() -> bool:
            events = (await api.get(EVENTS)).json["items"]
            return any(event["involvedObject"]["name"] == "evil" and event["reason"] == "SetAside" for event in events)

        await until(is_reported)
        await api.patch(f"{SETS}/evil", {"metadata": {"labels": {"changed": "yes"}}})
        await api.made(SETS, replica_set("later"))
        await until(lambda: is_served(api, "later"))
        assert calls.count("evil") == 1
    # The next server does not stall on it when it starts.
    async with cluster_on(tmp_path) as api:
        await api.made(SETS, replica_set("after-the-restart"))
        await until(lambda: is_served(api, "after-the-restart"))
        assert calls.count("evil") == 1
        assert await names_evil(api)


async def test_a_server_that_starts_with_such_an_object_becomes_ready(tmp_path: Path, calls: list[str]) -> None:
    async with running(Settings(data_dir=tmp_path, controllers=False, scheduler=False)) as cluster:
        await InProcess(cluster.plane).made(SETS, replica_set("evil"))
    async with cluster_on(tmp_path) as api:
        await api.made(SETS, replica_set("good"))
        await until(lambda: is_served(api, "good"))
        await until(lambda: names_evil(api))
        assert calls.count("evil") == 1


# The judgment, without signals


class Judged:
    """Reconciles that hold the loop as long as a test says."""

    def __init__(self, aside: SetAside) -> None:
        self.aside = aside
        self.turn = 0
        self.calls: list[Key] = []

    def reconcile(self, seconds: float) -> Callable[[Key], Any]:
        async def run(key: Key) -> None:
            self.calls.append(key)
            self.turn += 1
            set_aside.judge_long_turn(self.turn, seconds, None)

        return self.aside.guard("tester", run)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def judged(clock: ManualClock) -> Judged:
    return Judged(SetAside(clock))


EVIL, GOOD = Key("default", "evil"), Key("default", "good")


async def test_three_long_turns_within_five_minutes_set_an_object_aside(judged: Judged, clock: ManualClock) -> None:
    reconcile = judged.reconcile(0.9)
    for _ in range(3):
        await reconcile(EVIL)
    with pytest.raises(Retry, match="held the event loop") as raised:
        await reconcile(EVIL)
    assert raised.value.after == pytest.approx(300)
    assert len(judged.calls) == 3
    await reconcile(GOOD)
    await clock.advance(301)
    await reconcile(EVIL)


async def test_rare_long_turns_are_no_reason(judged: Judged, clock: ManualClock) -> None:
    reconcile = judged.reconcile(0.9)
    for _ in range(6):
        await reconcile(EVIL)
        await clock.advance(151)
    assert len(judged.calls) == 6


async def test_each_time_is_longer_up_to_hours(judged: Judged, clock: ManualClock) -> None:
    waits = []
    for _ in range(9):
        with pytest.raises(Retry) as raised:
            await judged.reconcile(11.0)(EVIL)
        waits.append(round(raised.value.after / 60))
        await clock.advance(raised.value.after + 1)
    assert waits == [5, 10, 20, 40, 80, 160, 240, 240, 240]


async def test_a_controller_that_holds_the_loop_with_many_objects_is_set_aside(
    judged: Judged, clock: ManualClock
) -> None:
    for number in range(3):
        with pytest.raises(Retry):
            await judged.reconcile(11.0)(Key("default", f"evil-{number}"))
    with pytest.raises(Retry, match="more than 30 s"):
        await judged.reconcile(0.0)(GOOD)
    assert GOOD not in judged.calls
    assert {str(record) for record in judged.aside.present()} >= {"tester", "tester:default/evil-0"}
    await clock.advance(301)
    await judged.reconcile(0.0)(GOOD)


async def test_a_reconcile_that_is_over_is_not_judged(judged: Judged) -> None:
    late: list[asyncio.Task[None]] = []
    released = asyncio.Event()

    async def linger() -> None:
        await released.wait()
        set_aside.judge_long_turn(1, 60.0, None)

    async def reconcile(key: Key) -> None:
        late.append(asyncio.create_task(linger()))

    await judged.aside.guard("tester", reconcile)(EVIL)
    released.set()
    await late[0]
    assert list(judged.aside.present()) == []


@pytest.mark.parametrize("text", ["", "{", "[1]", '[{"controller": 1}]', "null"])
def test_a_damaged_file_sets_nothing_aside(tmp_path: Path, text: str) -> None:
    path = tmp_path / "set-aside.json"
    path.write_text(text)
    assert AsideFile(path).load() == []


def test_records_are_read_as_they_were_written(tmp_path: Path) -> None:
    record = AsideRecord("c", "default", "evil", datetime.now(UTC) + timedelta(hours=1), 2, "it held the loop")
    file = AsideFile(tmp_path / "set-aside.json")
    file.save([record])
    assert file.load() == [record]
    assert json.loads((tmp_path / "set-aside.json").read_text())[0]["name"] == "evil"


def test_a_full_disk_ends_nothing(tmp_path: Path) -> None:
    record = AsideRecord("c", "default", "evil", datetime.now(UTC), 1, "")
    AsideFile(tmp_path / "missing" / "set-aside.json").save([record])


# Code that keeps state for others


async def test_code_of_the_server_is_not_ended() -> None:
    source = "def work(frames):\n    import sys\n    frames.append(sys._getframe())\n"
    frames: list[Any] = []
    names: dict[str, Any] = {}
    exec(compile(source, "/x/pinnace/serving/cache/fanout.py", "exec"), names)
    names["work"](frames)
    assert not set_aside._may_be_ended(frames[0])
    exec(compile(source, "/x/pinnace/controllers/batch/jobs.py", "exec"), names)
    names["work"](frames)
    assert set_aside._may_be_ended(frames[1])
