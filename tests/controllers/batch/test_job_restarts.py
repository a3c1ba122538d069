"""A Job controller that dies after any write, and loses the answer to it, counts no pod twice and loses none."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from typing import Any

import pytest
from tests.controllers.batch.jobs import INDEX, JOB, POD, is_active, is_tracked, job
from tests.server.in_process import control_plane

from pinnace.client.client import Client
from pinnace.client.transport import Answer, ConnectionLost, Stream, Transport
from pinnace.cluster.control_plane import ControlPlane
from pinnace.cluster.controllers import controllers_of
from pinnace.cluster.in_process import InProcessTransport, in_process_client
from pinnace.model.objects import Object
from pinnace.model.users import User
from pinnace.process.clock import to_rfc3339
from pinnace.testing.clock import ManualClock

LIVES = 400
"""More than any of these Jobs needs."""


class Life:
    """The requests of one life of the controllers: after so many writes nothing gets through."""

    def __init__(self, plane: ControlPlane, writes: int) -> None:
        self._plane = plane
        self._left = writes
        self.ended = asyncio.Event()

    def transport_of(self, user: User) -> Transport:
        return _Mortal(InProcessTransport(self._plane.local(user)), self)

    def spend(self) -> None:
        """Count a write that the server has done. The last one's answer is lost."""
        self._left -= 1
        if self._left <= 0:
            self.ended.set()
            raise ConnectionLost("the controller died", was_sent=True)


class _Mortal:
    def __init__(self, inner: Transport, life: Life) -> None:
        self._inner = inner
        self._life = life

    async def request(self, method: str, target: str, body: bytes, headers: Mapping[str, str]) -> Answer:
        if self._life.ended.is_set():
            raise ConnectionLost("the controller is dead", was_sent=False)
        answer = await self._inner.request(method, target, body, headers)
        if method != "GET" and "/events" not in target:
            self._life.spend()
        return answer

    async def stream(self, target: str, headers: Mapping[str, str], *, silence: float) -> Stream | Answer:
        return await self._inner.stream(target, headers, silence=silence)

    async def close(self) -> None:
        await self._inner.close()


class Pods:
    """Ends the pods of a Job by chance, and remembers how each of them ended."""

    def __init__(self, client: Client, chance: random.Random, failures: float) -> None:
        self._client = client
        self._chance = chance
        self._failures = failures
        self.succeeded: dict[str, Object] = {}
        self.failed: dict[str, Object] = {}

    async def end_some(self) -> None:
        for pod in await self._client.list(POD, namespace="default"):
            if "deletionTimestamp" in pod["metadata"]:
                await self._client.delete(POD, pod["metadata"]["name"], grace_seconds=0)
            elif is_active(pod) and self._chance.random() < 0.6:
                await self._end(pod)

    async def _end(self, pod: Object) -> None:
        code = int(self._chance.random() < self._failures)
        now = to_rfc3339(self._client.clock.now())
        terminated = {"exitCode": code, "finishedAt": now}
        container = {"name": "main", "image": "main", "imageID": "", "ready": False, "restartCount": 0}
        status = {
            "phase": "Failed" if code else "Succeeded",
            "containerStatuses": [{**container, "state": {"terminated": terminated}}],
        }
        await self._client.patch(POD, pod["metadata"]["name"], {"status": status}, subresource="status")
        (self.failed if code else self.succeeded)[pod["metadata"]["uid"]] = pod


async def live(plane: ControlPlane, clock: ManualClock, writes: int) -> bool:
    """One life of the Job controller, until it dies or has nothing left to do; returns whether it died."""
    life = Life(plane, writes)
    manager = controllers_of(plane, None, clock=clock, transport_of=life.transport_of, only=("job-controller",))
    working = asyncio.create_task(manager.run())
    await manager.informers.synced()
    dying, settling = asyncio.create_task(life.ended.wait()), asyncio.create_task(manager.settle())
    await asyncio.wait((dying, settling), return_when=asyncio.FIRST_COMPLETED)
    for task in (dying, settling, working):
        task.cancel()
    await asyncio.gather(dying, settling, working, return_exceptions=True)
    return life.ended.is_set()


def is_finished(obj: Object) -> bool:
    conditions = (obj.get("status") or {}).get("conditions") or ()
    return any(
        condition["type"] in ("Complete", "Failed") and condition["status"] == "True" for condition in conditions
    )


CASES: dict[str, tuple[dict[str, Any], float]] = {
    "completions": ({"completions": 5, "parallelism": 3, "backoffLimit": 100}, 0.3),
    "any success": ({"parallelism": 3, "backoffLimit": 100}, 0.5),
    "too many failures": ({"completions": 5, "parallelism": 2, "backoffLimit": 2}, 0.8),
    "indexed": ({"completions": 5, "parallelism": 3, "completionMode": "Indexed", "backoffLimit": 100}, 0.3),
    "limit per index": (
        {"completions": 4, "parallelism": 4, "completionMode": "Indexed", "backoffLimitPerIndex": 1},
        0.5,
    ),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("writes", [1, 2, 3, 1000])
async def test_every_pod_counts_once_however_often_the_controller_dies(case: str, writes: int) -> None:
    spec, failures = CASES[case]
    clock = ManualClock()
    async with control_plane(clock=clock) as api:
        client = in_process_client(api.plane.local(), clock=clock)
        pods = Pods(client, random.Random(f"{case} {writes}"), failures)
        await client.create(job(**spec))
        deaths = 0
        for _ in range(LIVES):
            if await live(api.plane, clock, writes):
                deaths += 1
                continue
            if is_finished(await client.get(JOB, "work")):
                break
            await pods.end_some()
            await clock.advance(700)
        assert deaths or writes > 100
        obj = await client.get(JOB, "work")
        assert is_finished(obj)
        await check_counts(client, obj, pods)


async def check_counts(client: Client, obj: Object, pods: Pods) -> None:
    status = obj["status"]
    left = await client.list(POD, namespace="default")
    assert not any(is_tracked(pod) for pod in left)
    assert not any(is_active(pod) for pod in left)
    assert status["uncountedTerminatedPods"] == {}
    if obj["spec"].get("completionMode") == "Indexed":
        indexes = {pod["metadata"]["annotations"][INDEX] for pod in pods.succeeded.values()}
        assert status.get("succeeded", 0) == len(indexes)
    else:
        assert status.get("succeeded", 0) == len(pods.succeeded)
    stopped = [pod for pod in left if pod["metadata"]["uid"] not in pods.succeeded.keys() | pods.failed.keys()]
    counted = status.get("failed", 0) - len(pods.failed)
    assert 0 <= counted <= obj["spec"]["parallelism"]  # Those that were stopped with the Job have failed, too.
    if status["conditions"][-1]["type"] == "Complete":
        assert counted == 0
        assert not stopped
