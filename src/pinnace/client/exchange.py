"""Send one request: retry it where that helps, decode the answer, and raise the error that it stands for."""

from __future__ import annotations

import asyncio
import logging
import re
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

import orjson

from pinnace.client.rates import RateLimiter
from pinnace.client.status_errors import error_of, retry_after_of
from pinnace.client.transport import (
    Answer,
    ConnectionLost,
    EventStream,
    Stream,
    Transport,
    Untrusted,
    batch_transport,
    watch_transport,
)
from pinnace.model import errors
from pinnace.model.objects import Object, ObjectEvent
from pinnace.process.backoff import Backoff
from pinnace.process.clock import AlarmClock

JSON = "application/json"
JSON_PATCH = "application/json-patch+json"
_WARNING = re.compile(r'299 \S+ "((?:[^"\\]|\\.)*)"')
_WARNINGS = 1000
_LOST = "<error>"
_log = logging.getLogger(__name__)

Parameters = Mapping[str, str | int | bool | None]
Opened = TypeVar("Opened")


def target_of(path: str, parameters: Parameters) -> str:
    """Return the path with its query. Parameters that are None, '' or False are left out; 0 is not."""
    sent = tuple(
        [
            (name, str(value).lower() if isinstance(value, bool) else str(value))
            for name, value in parameters.items()
            if value is not None and value != "" and value is not False
        ]
    )
    return f"{path}?{_encode_query(sent)}" if sent else path


@lru_cache(maxsize=256)
def _encode_query(parameters: tuple[tuple[str, str], ...]) -> str:
    """Return the query. Most requests of a client have one of a few."""
    return urlencode(parameters, quote_via=quote)


class Exchange:
    """Requests over one transport. The methods raise ApiError for an error of the server, and ConnectionLost."""

    def __init__(self, transport: Transport, *, clock: AlarmClock, retries: Retries, user_agent: str) -> None:
        self.transport = transport
        self._clock = clock
        self.retries = retries
        self.headers = {"accept": JSON, "user-agent": user_agent}
        self.answers: Counter[tuple[str, str]] = Counter()
        """The number of requests by method and status; "<error>" if there was no answer."""
        self._warned: set[str] = set()
        self.check_write: Callable[[], None] | None = None
        """Called before each write; an error that it raises stops the write."""
        self.limiter: RateLimiter | None = None

    async def read(self, target: str, *, accept: str = JSON) -> bytes:
        return (await self._send("GET", target, b"", {"accept": accept})).body

    async def fetch(self, target: str) -> Object:
        return decode_object(await self.read(target))

    async def write(self, method: str, target: str, body: object = None, *, content_type: str = JSON) -> Object:
        """Send a write, and return the object in its new state, or a Status."""
        return decode_object(await self.write_encoded(method, target, body, content_type=content_type))

    async def write_encoded(self, method: str, target: str, body: object, *, content_type: str = JSON) -> bytes:
        """Like `write`, with the answer as it was received."""
        sent = b"" if body is None else orjson.dumps(body, option=orjson.OPT_NON_STR_KEYS)
        answer = await self._send(method, target, sent, {"content-type": content_type} if sent else {})
        return answer.body

    async def write_many(self, method: str, target: str, objects: list[Object]) -> list[errors.ApiError | None] | None:
        """Create, change or delete objects at once where the transport can; None if each needs its own request."""
        batches = batch_transport(self.transport)
        if self.limiter is not None or batches is None:
            return None
        if self.check_write is not None:
            self.check_write()
        errs = await batches.write_many(method, target, objects, self.headers)
        success = "201" if method == "POST" else "200"
        for error in errs or ():
            self.answers[method, success if error is None else str(error.code)] += 1
        return errs

    @asynccontextmanager
    async def stream(self, target: str, *, accept: str = JSON, silence: float) -> AsyncIterator[Stream]:
        """Open one connection within a block. It is not retried: the caller knows where to resume."""
        stream = await self._open(self.transport.stream(target, {**self.headers, "accept": accept}, silence=silence))
        try:
            yield stream
        finally:
            await stream.close()

    @asynccontextmanager
    async def watch(self, target: str, *, accept: str, silence: float) -> AsyncIterator[EventStream]:
        """Like `stream`, for a watch: a server in this process need not encode its events."""
        watches = watch_transport(self.transport)
        headers = {**self.headers, "accept": accept}
        stream = await (
            self._open(self.transport.stream(target, headers, silence=silence))
            if watches is None
            else self._open(watches.watch(target, headers))
        )
        try:
            yield stream
        finally:
            await stream.close()

    async def _open(self, opening: Awaitable[Opened | Answer]) -> Opened:
        """Count the answer to a request for a stream; raise the error that it stands for."""
        try:
            stream = await opening
        except ConnectionLost:
            self.answers["GET", _LOST] += 1
            raise
        self.answers["GET", str(stream.status) if isinstance(stream, Answer) else "200"] += 1
        if isinstance(stream, Answer):
            raise error_of(stream)
        return stream

    async def _send(self, method: str, target: str, body: bytes, headers: Mapping[str, str]) -> Answer:
        sent = {**self.headers, **headers}
        is_read = method == "GET"
        if self.limiter is not None and (wait := self.limiter.reserve()):
            await self._clock.sleep(wait)
        if self.check_write is not None and not is_read:
            self.check_write()
        # Apply, replace and delete may be repeated without harm; a POST or a JSON patch may not.
        is_repeatable = method != "POST" and headers.get("content-type") != JSON_PATCH
        attempt = 0
        while True:
            attempt += 1
            try:
                answer = await self.transport.request(method, target, body, sent)
            except ConnectionLost as loss:
                self.answers[method, _LOST] += 1
                delay = self.retries.after_loss(loss, attempt=attempt, is_repeatable=is_repeatable)
                if delay is None:
                    raise
            else:
                self.answers[method, str(answer.status)] += 1
                delay = self.retries.after_answer(answer, attempt=attempt, is_read=is_read)
                if delay is None:
                    if "warning" in answer.headers:
                        self._warn(answer.headers["warning"])
                    if answer.status >= 400:
                        raise error_of(answer)
                    return answer
            await self._clock.sleep(delay)

    def _warn(self, header: str) -> None:
        """Log the server's warnings (a deprecated version, an ignored field), each once."""
        for text in _WARNING.findall(header):
            if text not in self._warned and len(self._warned) < _WARNINGS:
                self._warned.add(text)
                _log.warning("%s", re.sub(r"\\(.)", r"\1", text))


def decode_object(body: bytes) -> Object:
    """Return the object that a server answered with. Raise Unavailable for anything else."""
    try:
        decoded: Any = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise no_object(body, error) from error
    if not isinstance(decoded, dict):
        raise no_object(body, TypeError("expected a JSON object"))
    return decoded


def no_object(body: bytes, error: Exception) -> errors.Unavailable:
    """Return the error for an answer that is not JSON, such as a proxy's error page or a truncated line."""
    text = body[:200].decode("utf-8", "replace")
    return errors.Unavailable(f"the server did not answer with an object: {error}: {text}")


async def lines_of(stream: Stream) -> AsyncGenerator[bytes, None]:
    """Yield the complete lines of a stream, whatever its chunks. A last line without its end was truncated: skip it."""
    async for line in parts_of(stream):
        assert isinstance(line, bytes), "a Stream has no events beside its lines"
        yield line


async def parts_of(stream: EventStream) -> AsyncGenerator[bytes | ObjectEvent, None]:
    """Yield the complete lines of a watch, and its events that are not encoded as lines."""
    begun: list[bytes] = []
    events = 0
    async for chunk in stream:
        if isinstance(chunk, ObjectEvent):
            yield chunk
            events += 1
            del chunk  # It may be large, and the next one may be long in coming.
            if events % 64 == 0:
                await asyncio.sleep(0)  # After a burst all events are there: let other tasks run.
            continue
        *whole, rest = chunk.split(b"\n")
        if whole:
            begun.append(whole[0])
            whole[0] = b"".join(begun)
            begun.clear()
            for number, line in enumerate(whole, start=1):
                if line:
                    yield line
                if number % 256 == 0:
                    await asyncio.sleep(0)  # In process a long list is one chunk: let other tasks run.
        if rest:
            begun.append(rest)
        chunk = rest = line = b""
        whole.clear()


LONGEST_SECONDS = 60.0
"""The longest delay that a server may ask for."""
_BUSY = (502, 503, 504)


@dataclass(frozen=True, slots=True, kw_only=True)
class Retries:
    """The most attempts of a request, and the delays between them."""

    attempts: int = 6
    backoff: Backoff = field(default_factory=Backoff)

    def after_answer(self, answer: Answer, *, attempt: int, is_read: bool) -> float | None:
        """Return the seconds until the next attempt; None to return this answer."""
        if answer.status < 429 or attempt >= self.attempts:
            return None
        requested = retry_after_of(answer)
        if answer.status == 429 or (answer.status >= 500 and requested):
            # The server has not executed the request.
            return max(min(requested, LONGEST_SECONDS), self.backoff.delay(attempt))
        if is_read and answer.status in _BUSY:
            return self.backoff.delay(attempt)
        return None

    def after_loss(self, loss: ConnectionLost, *, attempt: int, is_repeatable: bool) -> float | None:
        """Return the same for a lost connection: a request that may have been executed is repeated only if harmless."""
        if attempt >= self.attempts or isinstance(loss, Untrusted) or (loss.was_sent and not is_repeatable):
            return None
        return self.backoff.delay(attempt)
