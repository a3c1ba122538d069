"""Clients that write, read, list and watch at several servers at once, and record what they did and saw."""

from __future__ import annotations

import asyncio
import random
import ssl
import time
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import aiohttp
import orjson
from tests.consistency.history import History, Listed, Read, Span, Version, Watched, Written

_PATH = "/api/v1/namespaces/default/configmaps"
_LABEL = "run"
_REQUEST_SECONDS = 20.0
_LAST = "last"
_ERRORS = (aiohttp.ClientError, TimeoutError, OSError)


class Reached(Protocol):
    """A server's address."""

    @property
    def url(self) -> str: ...


class Unanswered(Exception):
    """The request failed, and may or may not have happened. `after` is the answer's Retry-After, if there was one."""

    def __init__(self, reason: str, *, after: str = "", is_lost: bool = False) -> None:
        super().__init__(reason)
        self.after = after
        self.is_lost = is_lost


class Client:
    """Makes requests at one of several servers, another one each time."""

    def __init__(
        self, servers: list[Reached], token: str, *, seed: int, request_seconds: float = _REQUEST_SECONDS
    ) -> None:
        self._request_seconds = request_seconds
        self._servers = servers
        self._random = random.Random(seed)
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=context, limit=0), headers={"authorization": f"Bearer {token}"}
        )

    async def close(self) -> None:
        await self._session.close()

    async def call(self, method: str, target: str, body: Any = None, kind: str = "application/json") -> tuple[int, Any]:
        """Return status and answer. Raise Unanswered for 5xx, 429 and lost connections."""
        url = self._random.choice(self._servers).url + target
        data = None if body is None else orjson.dumps(body)
        timeout = aiohttp.ClientTimeout(total=self._request_seconds)
        try:
            async with self._session.request(
                method, url, data=data, headers={"content-type": kind}, timeout=timeout
            ) as answer:
                obj = orjson.loads(await answer.read())
                if answer.status >= 500 or answer.status == 429:
                    after = answer.headers.get("retry-after", "")
                    raise Unanswered(f"{answer.status} {obj.get('message')}", after=after)
                return answer.status, obj
        except (*_ERRORS, ValueError) as error:
            raise Unanswered(repr(error), is_lost=not isinstance(error, TimeoutError)) from error

    async def watch(self, since: int, show: Callable[[dict[str, Any]], None]) -> None:
        """Show the events of one connection until it ends."""
        url = self._random.choice(self._servers).url
        query = f"?watch=1&resourceVersion={since}&labelSelector={_LABEL}&allowWatchBookmarks=true"
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=5)
        try:
            async with self._session.get(url + _PATH + query, timeout=timeout) as answer:
                async for line in answer.content:
                    show(orjson.loads(line))
        except (*_ERRORS, ValueError):
            return


class RetryingClient(Client):
    """Retries as client-go does: an answer with Retry-After, and a read whose connection was lost."""

    MOST_RETRIES = 10

    def __init__(self, servers: list[Reached], token: str, *, seed: int) -> None:
        super().__init__(servers, token, seed=seed)
        self.failures: list[str] = []
        self.retries = 0

    async def call(self, method: str, target: str, body: Any = None, kind: str = "application/json") -> tuple[int, Any]:
        for turn in range(self.MOST_RETRIES + 1):
            try:
                return await super().call(method, target, body, kind)
            except Unanswered as error:
                if turn == self.MOST_RETRIES or not (error.after or (error.is_lost and method == "GET")):
                    self.failures.append(f"{method} {target}: {error}")
                    raise
                self.retries += 1
                await asyncio.sleep(float(error.after or 0))
        raise AssertionError("the last turn returns or raises")


class Workload:
    """A run on `keys` objects. Every value is written once."""

    def __init__(self, client: Client, run: str, *, keys: int = 8) -> None:
        self._client = client
        self._run = run
        self._keys = [f"{run}-k{number}" for number in range(keys)]
        self._values = 0
        self._stopped = asyncio.Event()
        self._last = 0
        self.history = History()

    async def start(self) -> None:
        """Begin at the revision of now."""
        self._since = await self._revision()
        self.history.audit = Watched(self._since)

    async def run(self, faults: Callable[[], Awaitable[None]], *, writers: int, readers: int, watchers: int) -> None:
        """Run all clients while the faults happen; end when all watches have seen everything."""
        async with asyncio.TaskGroup() as group:
            clients = [group.create_task(self._write(random.Random(number))) for number in range(writers)]
            clients += [group.create_task(self._read(random.Random(1000 + number))) for number in range(readers)]
            group.create_task(self._watch(self.history.audit))
            for _ in range(watchers):
                watch = Watched(self._since)
                self.history.watches.append(watch)
                group.create_task(self._watch(watch))
            await faults()
            self._stopped.set()
            await asyncio.wait(clients)  # The last write comes after all others.
            await self._finish()

    async def _finish(self) -> None:
        """Write one object more: the watches end when they have seen it."""
        async with asyncio.timeout(120):
            while True:
                try:
                    await self._put_last()
                    return
                except Unanswered:
                    await asyncio.sleep(0.1)

    async def _put_last(self) -> None:
        name = f"{self._run}-{_LAST}"
        _, obj = await self._client.call("POST", _PATH, self._object(name, "last"))
        if obj.get("reason") == "AlreadyExists":
            _, obj = await self._client.call("GET", f"{_PATH}/{name}")
        self._last = int(obj["metadata"]["resourceVersion"])

    # Writers.

    async def _write(self, chance: random.Random) -> None:
        while not self._stopped.is_set():
            key = chance.choice(self._keys)
            began = time.monotonic()
            try:
                status, obj = await self._client.call("GET", f"{_PATH}/{key}")
                self._note_read(began, key, status, obj)
                if status == 404:
                    await self._create(key)
                elif chance.random() < 0.2:
                    await self._delete(key, int(obj["metadata"]["resourceVersion"]))
                elif chance.random() < 0.5:
                    await self._replace(key, obj)
                else:
                    await self._patch(key)
            except Unanswered:
                self.history.open_writes += 1
                await asyncio.sleep(0.05)

    async def _create(self, key: str) -> None:
        value = self._value()
        began = time.monotonic()
        status, obj = await self._client.call("POST", _PATH, self._object(key, value))
        if status == 201:
            self._note_write(began, key, 0, int(obj["metadata"]["resourceVersion"]), value)

    async def _replace(self, key: str, obj: dict[str, Any]) -> None:
        value, expected = self._value(), int(obj["metadata"]["resourceVersion"])
        obj["data"] = {"v": value}
        began = time.monotonic()
        status, obj = await self._client.call("PUT", f"{_PATH}/{key}", obj)
        if status == 200:
            self._note_write(began, key, expected, int(obj["metadata"]["resourceVersion"]), value)

    async def _patch(self, key: str) -> None:
        value = self._value()
        began = time.monotonic()
        status, obj = await self._client.call(
            "PATCH", f"{_PATH}/{key}", {"data": {"v": value}}, "application/merge-patch+json"
        )
        if status == 200:
            self._note_write(began, key, None, int(obj["metadata"]["resourceVersion"]), value)

    async def _delete(self, key: str, expected: int) -> None:
        body = {"preconditions": {"resourceVersion": str(expected)}}
        began = time.monotonic()
        status, _ = await self._client.call("DELETE", f"{_PATH}/{key}", body)
        if status == 200:
            self._note_write(began, key, expected, 0, None)

    # Readers and watchers.

    async def _read(self, chance: random.Random) -> None:
        while not self._stopped.is_set():
            key = chance.choice(self._keys)
            try:
                if chance.random() < 0.5:
                    began = time.monotonic()
                    status, obj = await self._client.call("GET", f"{_PATH}/{key}")
                    self._note_read(began, key, status, obj)
                else:
                    await self._list(limit=chance.choice((0, 0, 3)))
            except Unanswered:
                await asyncio.sleep(0.05)

    async def _list(self, *, limit: int) -> None:
        versions: set[Version] = set()
        revision, token, pages = 0, "", 0
        began = ended = time.monotonic()
        while True:
            query = f"?labelSelector={_LABEL}&limit={limit}" + (f"&continue={token}" if token else "")
            status, page = await self._client.call("GET", _PATH + query)
            if status != 200:
                return
            if not pages:
                ended = time.monotonic()  # Later pages are of the same moment.
            pages += 1
            assert not revision or int(page["metadata"]["resourceVersion"]) == revision, "pages of two revisions"
            revision = int(page["metadata"]["resourceVersion"])
            versions.update(version for item in page["items"] if (version := self._version(item)) is not None)
            token = page["metadata"].get("continue", "")
            if not token:
                self.history.lists.append(Listed(Span(began, ended), revision, frozenset(versions), pages))
                return

    async def _watch(self, watch: Watched) -> None:
        """Watch until the last write was seen, at another server each time."""
        resume = watch.since

        def show(event: dict[str, Any]) -> None:
            nonlocal resume
            assert event["type"] != "ERROR", f"a watch from {resume} failed: {event}"
            resume = int(event["object"]["metadata"]["resourceVersion"])
            if event["type"] != "BOOKMARK" and (version := self._version(event["object"])) is not None:
                gone = event["type"] == "DELETED"
                watch.seen.append(Version(version.revision, version.key, None if gone else version.value))

        async with asyncio.TaskGroup() as group:
            while not (self._last and resume >= self._last):
                connection = group.create_task(self._client.watch(resume, show))
                while not connection.done() and not (self._last and resume >= self._last):
                    await asyncio.wait([connection], timeout=0.1)
                connection.cancel()
                await asyncio.sleep(0.02)

    # Records.

    async def _revision(self) -> int:
        _, obj = await self._client.call("GET", f"{_PATH}?limit=1")
        return int(obj["metadata"]["resourceVersion"])

    def _value(self) -> str:
        self._values += 1
        return f"v{self._values}"

    def _object(self, key: str, value: str) -> dict[str, Any]:
        return {"metadata": {"name": key, "labels": {_LABEL: self._run}}, "data": {"v": value}}

    def _version(self, obj: dict[str, Any]) -> Version | None:
        metadata = obj["metadata"]
        if metadata.get("labels", {}).get(_LABEL) != self._run:
            return None
        return Version(int(metadata["resourceVersion"]), metadata["name"], obj["data"]["v"])

    def _note_write(self, began: float, key: str, expected: int | None, revision: int, value: str | None) -> None:
        self.history.writes.append(Written(Span(began, time.monotonic()), key, expected, revision, value))

    def _note_read(self, began: float, key: str, status: int, obj: dict[str, Any]) -> None:
        if status in (200, 404):
            version = self._version(obj) if status == 200 else None
            self.history.reads.append(Read(Span(began, time.monotonic()), key, version))
