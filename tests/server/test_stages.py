"""Every way into the server runs the one list of stages, in one order."""

from __future__ import annotations

import asyncio
import inspect
import sys
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from types import FrameType

import orjson
from tests.server.in_process import config_map, control_plane

from pinnace.model.users import MASTERS, User
from pinnace.server.local import LocalApi, NoTransport
from pinnace.serving.messages import Answer, Peer, Request, RequestHead, split_target

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
ADMIN = User("admin", (MASTERS,))
STAGES = {
    "server/targets.py": {"parse": "parse"},
    "server/handler.py": {"authenticate": "authenticate", "_impersonate": "impersonate", "_count": "count"},
    "server/flowcontrol/flow_control.py": {"turn_at_once": "flow control"},
    "auth/authorization/authorizers.py": {"decide": "authorize"},
    "serving/deadlines.py": {"limit": "deadline"},
    "serving/verbs.py": {"run": "verb"},
    "server/verbs.py": {"read_at_once": "verb", "write_many": "verb"},
}
WIRE = ["parse", "authenticate", "flow control", "authorize", "verb", "count"]
IN_TIME = ["parse", "authenticate", "flow control", "authorize", "deadline", "verb", "count"]


@contextmanager
def recorded() -> Iterator[list[str]]:
    """Yield the stages in the order of their first calls."""
    order: list[str] = []

    def record(frame: FrameType, event: str, argument: object) -> None:
        file = frame.f_code.co_filename.partition("src/pinnace/")[2]
        stage = STAGES.get(file, {}).get(frame.f_code.co_name) if event == "call" else None
        if stage is not None and stage not in order:
            order.append(stage)

    sys.setprofile(record)
    try:
        yield order
    finally:
        sys.setprofile(None)


def request_of(method: str, target: str, body: object = None, headers: dict[bytes, bytes] | None = None) -> Request:
    head = {b"authorization": b"Bearer admin", b"content-type": b"application/merge-patch+json", **(headers or {})}
    content = b"" if body is None else orjson.dumps(body)
    return Request(method, target, *split_target(target), RequestHead(head), content, Peer(NoTransport()))


async def answered(answer: Answer | Awaitable[Answer]) -> Answer:
    result = await answer if isinstance(answer, Awaitable) else answer
    assert result.status < 300, result
    return result


async def test_a_write_a_read_and_a_batch_pass_the_stages_in_one_order() -> None:
    async with control_plane(tokens={"admin": ADMIN}) as cluster:
        api, local = cluster.plane.api, LocalApi(cluster.plane.api, ADMIN)
        await cluster.made(CONFIG_MAPS, config_map())
        path = f"{CONFIG_MAPS}/settings"
        for _ in range(2):
            await answered(api(request_of("GET", path)))

        with recorded() as write:
            await answered(api(request_of("PATCH", path, {"data": {"a": "b"}})))
        with recorded() as read:
            answer = api(request_of("GET", path))
        assert not inspect.isawaitable(answer), "a plain read takes no task"
        with recorded() as past:
            await answered(api(request_of("GET", f"{CONFIG_MAPS}?resourceVersion=1&resourceVersionMatch=NotOlderThan")))
        with recorded() as batch:
            assert await local.write_many("POST", CONFIG_MAPS, [config_map("a"), config_map("b")], {}) == [None, None]

    assert write == IN_TIME
    assert read == WIRE
    assert past == IN_TIME
    assert batch == [stage for stage in IN_TIME if stage != "authenticate"]


async def test_a_read_that_has_to_wait_goes_on_in_a_task_and_begins_nothing_again() -> None:
    async with control_plane(tokens={"admin": ADMIN}) as cluster:
        api = cluster.plane.api
        await cluster.made(CONFIG_MAPS, config_map())
        path = f"{CONFIG_MAPS}/settings"
        for _ in range(2):
            await answered(api(request_of("GET", path)))
        calls: list[str] = []

        def record(frame: FrameType, event: str, argument: object) -> None:
            is_stage = frame.f_code.co_filename.endswith(("server/targets.py", "server/handler.py"))
            if event == "call" and is_stage and frame.f_code.co_name in ("parse", "authenticate"):
                calls.append(frame.f_code.co_name)

        sys.setprofile(record)
        try:
            pending = api(
                request_of("GET", path, headers={b"impersonate-user": b"jane", b"impersonate-group": MASTERS.encode()})
            )
            assert inspect.isawaitable(pending)
            answer = await answered(asyncio.ensure_future(pending))
        finally:
            sys.setprofile(None)
    assert answer.status == 200
    assert calls == ["parse", "authenticate"]


async def test_a_batch_that_would_have_to_wait_or_is_not_allowed_as_a_whole_is_left_to_single_requests() -> None:
    async with control_plane() as cluster:
        without_roles = LocalApi(cluster.plane.api, User("jane"))
        assert await without_roles.write_many("POST", CONFIG_MAPS, [config_map("a")], {}) is None
        reply = await cluster.get(f"{CONFIG_MAPS}/a")
    assert reply.status == 404
