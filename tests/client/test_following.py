"""A followed kind never loses an event, whatever happens to the connection."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing

import orjson
import pytest
from tests.server.in_process import config_map, control_plane

from pinnace.client.client import Client
from pinnace.client.exchange import Retries
from pinnace.client.following import UNSUPPORTED_SECONDS, Event, Followed, FollowError, Progress, Restarted, Synced
from pinnace.client.transport import Answer, ConnectionLost, Stream, Transport
from pinnace.cluster.in_process import InProcessTransport
from pinnace.model import errors
from pinnace.model.objects import Object
from pinnace.process.backoff import Backoff
from pinnace.process.clock import Alarm
from pinnace.testing.clock import ManualClock


class RecordingClock(ManualClock):
    """Passes sleeps at once and notes how long they were."""

    def __init__(self) -> None:
        super().__init__()
        self.slept: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self._passed += seconds

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Alarm:
        self.slept.append(seconds)
        self._passed += seconds
        callback()
        return super().call_later(0, callback)


class FailingTransport:
    """A transport on which a test can make happen what happens to connections."""

    def __init__(self, inner: Transport) -> None:
        self.inner = inner
        self.targets: list[str] = []
        self.answers: list[Answer | ConnectionLost] = []
        """The next answers, instead of the server's."""
        self.open: list[CutStream] = []

    async def request(self, method: str, target: str, body: bytes, headers: Mapping[str, str]) -> Answer:
        self.targets.append(target)
        if self.answers:
            answer = self.answers.pop(0)
            if isinstance(answer, ConnectionLost):
                raise answer
            return answer
        return await self.inner.request(method, target, body, headers)

    async def stream(self, target: str, headers: Mapping[str, str], *, silence: float) -> Stream | Answer:
        self.targets.append(target)
        if self.answers:
            answer = self.answers.pop(0)
            if isinstance(answer, ConnectionLost):
                raise answer
            return answer
        stream = await self.inner.stream(target, headers, silence=silence)
        if isinstance(stream, Answer):
            return stream
        self.open.append(CutStream(stream))
        return self.open[-1]

    async def close(self) -> None: ...


class CutStream:
    def __init__(self, inner: Stream) -> None:
        self.inner = inner
        self.is_cut = False
        self.tail = b""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self.inner:
            for byte in range(0, len(chunk), 100):  # Cut anywhere, as sockets do.
                yield chunk[byte : byte + 100]
        if self.tail:
            yield self.tail
        if self.is_cut:
            raise ConnectionLost("cut", was_sent=True)

    async def close(self) -> None:
        await self.inner.close()

    async def cut(self) -> None:
        self.is_cut = True
        await self.inner.close()

    async def say_and_end(self, event: Object) -> None:
        self.tail = orjson.dumps(event) + b"\n"
        await self.inner.close()


class Scene:
    def __init__(self, inner: Transport) -> None:
        self.clock = RecordingClock()
        self.transport = FailingTransport(inner)
        retries = Retries(backoff=Backoff(jitter=0))
        self.client = Client(self.transport, clock=self.clock, retries=retries)
        self.quiet = Client(inner)
        """Writes past the errors."""


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    async with control_plane() as api:
        scene = Scene(InProcessTransport(api.plane.local()))
        await scene.client.kinds.find("v1/ConfigMap")
        scene.transport.targets.clear()
        yield scene


async def take_until_synced(events: AsyncGenerator[Followed, None]) -> list[str]:
    """The names that exist, and in the end that this was all."""
    assert isinstance(await anext(events), Restarted)
    names = []
    while isinstance(event := await anext(events), Event):
        names.append(event.snapshot.key.name)
    assert isinstance(event, Synced)
    return names


def named(event: Followed) -> str:
    assert isinstance(event, Event), event
    return f"{event.type} {event.snapshot.key.name}"


async def test_it_begins_with_everything_in_one_request(scene: Scene) -> None:
    await scene.quiet.create(config_map("a"))
    async with aclosing(scene.client.follow("v1/ConfigMap", namespace="default")) as events:
        assert await take_until_synced(events) == ["a"]
        await scene.quiet.create(config_map("b"))
        assert named(await anext(events)) == "ADDED b"
    assert len(scene.transport.targets) == 1
    assert "sendInitialEvents=true" in scene.transport.targets[0]


async def test_a_lost_connection_goes_on_where_it_was(scene: Scene) -> None:
    async with aclosing(scene.client.follow("v1/ConfigMap", namespace="default")) as events:
        await take_until_synced(events)
        await scene.transport.open[-1].cut()
        await scene.quiet.create(config_map("a"))
        await scene.quiet.delete("v1/ConfigMap", "a")
        assert isinstance(await anext(events), FollowError)
        assert [named(await anext(events)), named(await anext(events))] == ["ADDED a", "DELETED a"]


async def test_a_watch_that_the_server_ends_goes_on_at_once(scene: Scene) -> None:
    async with aclosing(scene.client.follow("v1/ConfigMap", namespace="default")) as events:
        await take_until_synced(events)
        await scene.transport.open[-1].inner.close()
        await scene.quiet.create(config_map("a"))
        assert named(await anext(events)) == "ADDED a"
    assert scene.clock.slept == []


async def test_a_forgotten_version_begins_anew(scene: Scene) -> None:
    async with aclosing(scene.client.follow("v1/ConfigMap", namespace="default")) as events:
        await take_until_synced(events)
        expired = errors.Expired("too old resource version: 1 (5)").status
        await scene.transport.open[-1].say_and_end({"type": "ERROR", "object": expired})
        await scene.quiet.create(config_map("a"))
        assert await take_until_synced(events) == ["a"]


async def test_an_unreachable_server_is_tried_more_and_more_rarely(scene: Scene) -> None:
    scene.transport.answers = [ConnectionLost("refused", was_sent=False) for _ in range(12)]
    async with aclosing(scene.client.follow("v1/ConfigMap", namespace="default")) as events:
        for _ in range(12):
            assert isinstance(await anext(events), Restarted)
            assert isinstance(await anext(events), FollowError)
        assert await take_until_synced(events) == []
    assert len(scene.clock.slept) == 12
    assert scene.clock.slept[0] <= 0.2
    assert 15.0 <= scene.clock.slept[-1] <= 30.0


@pytest.mark.parametrize(
    "error",
    [
        errors.Invalid([], group="meta.k8s.io", kind="ListOptions", name=""),
        errors.InternalError("the required storage feature RequestWatchProgress is disabled"),
    ],
    ids=["too old", "over an old etcd"],
)
async def test_servers_that_cannot_begin_a_watch_with_a_list_are_listed(scene: Scene, error: errors.ApiError) -> None:
    await scene.quiet.create(config_map("a"))
    scene.transport.answers = [Answer(error.code, {}, orjson.dumps(error.status))]
    async with aclosing(scene.client.follow("v1/ConfigMap", namespace="default")) as events:
        assert isinstance(await anext(events), Restarted)
        assert await take_until_synced(events) == ["a"]
        await scene.quiet.create(config_map("b"))
        assert named(await anext(events)) == "ADDED b"
    assert ["sendInitialEvents" in target for target in scene.transport.targets] == [True, False, False]


async def test_a_bookmark_moves_on_where_to_begin_again(scene: Scene) -> None:
    async with aclosing(scene.client.follow("v1/ConfigMap", namespace="default")) as events:
        await take_until_synced(events)
        mark = {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"resourceVersion": "90"}}
        await scene.transport.open[-1].say_and_end({"type": "BOOKMARK", "object": mark})
        assert await anext(events) == Progress("90")
        scene.transport.answers = [ConnectionLost("refused", was_sent=False)]
        await anext(events)
    assert "resourceVersion=90" in scene.transport.targets[-1]


async def test_a_kind_that_is_not_served_has_no_objects_until_it_is(scene: Scene) -> None:
    async with aclosing(scene.client.follow("example.com/v1/Website")) as events:
        assert isinstance(await anext(events), Restarted)
        assert await take_until_synced(events) == []
        assert isinstance(await anext(events), FollowError)


@pytest.mark.parametrize(
    ("answers", "waits"),
    [
        ([Answer(429, {"retry-after": "7"})], [7]),
        ([Answer(503), Answer(503)], [0.1, 0.2]),
        ([Answer(500, {"retry-after": "1"})], [1]),
        ([ConnectionLost("reset", was_sent=True)], [0.1]),
    ],
    ids=["too many requests", "busy", "asked to wait", "connection lost"],
)
async def test_reads_are_tried_again(scene: Scene, answers: list[Answer | ConnectionLost], waits: list[float]) -> None:
    scene.transport.answers = answers
    assert await scene.client.list("v1/ConfigMap", namespace="default") == []
    assert scene.clock.slept == waits


async def test_a_request_that_may_have_been_executed_is_not_repeated(scene: Scene) -> None:
    scene.transport.answers = [ConnectionLost("reset", was_sent=True)]
    with pytest.raises(ConnectionLost):
        await scene.client.create(config_map("a"))
    scene.transport.answers = [ConnectionLost("refused", was_sent=False)]
    await scene.client.create(config_map("a"))


@pytest.mark.parametrize("line", [b"<html>welcome</html>\n", b'{"type":"ADDED","object":{"metadata":{"name":7}}}\n'])
async def test_nonsense_is_no_reason_to_stop_following(scene: Scene, line: bytes) -> None:
    async with aclosing(scene.client.follow("v1/ConfigMap", namespace="default")) as events:
        await take_until_synced(events)
        scene.transport.open[-1].tail = line
        await scene.transport.open[-1].inner.close()
        failure = await anext(events)
        assert isinstance(failure, FollowError)
        assert "did not answer with an object" in str(failure.error)
        await scene.quiet.create(config_map("a"))
        assert named(await anext(events)) == "ADDED a"


async def test_a_page_that_is_no_object_is_reported_as_such(scene: Scene) -> None:
    for ask in (scene.client.list("v1/ConfigMap"), scene.client.get("v1/ConfigMap", "a")):
        scene.transport.answers = [Answer(200, {}, b"<html>welcome</html>")]
        with pytest.raises(errors.Unavailable, match="welcome"):
            await ask


async def test_it_is_given_up_in_the_end(scene: Scene) -> None:
    scene.transport.answers = [Answer(503, {}, b"<html>busy</html>")] * 6
    with pytest.raises(errors.Unavailable, match="the server answered 503: <html>busy</html>"):
        await scene.client.list("v1/ConfigMap")


async def test_a_kind_that_cannot_be_watched_is_listed_now_and_then(scene: Scene) -> None:
    async with aclosing(scene.client.follow("v1/ComponentStatus")) as events:
        assert isinstance(await anext(events), Restarted)  # It cannot be streamed either.
        for waits in range(2):
            assert "etcd-0" in await take_until_synced(events)
            assert isinstance(failure := await anext(events), FollowError)
            assert 'watch is not supported on resources of kind "componentstatuses"' in str(failure.error)
            assert scene.clock.slept == [UNSUPPORTED_SECONDS] * waits  # The server may have been wrong about it.
        assert [target for target in scene.transport.targets if "watch" in target] == []


async def test_a_kind_that_cannot_even_be_listed_has_no_objects(scene: Scene) -> None:
    async with aclosing(scene.client.follow("authorization.k8s.io/v1/SubjectAccessReview")) as events:
        seen = [await anext(events) for _ in range(4)]
    assert [type(event) for event in seen] == [Restarted, Restarted, Synced, FollowError]
