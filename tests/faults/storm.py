"""A connection on which all goes wrong that can."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import AsyncIterator, Mapping

import orjson

from pinnace.client.transport import Answer, ConnectionLost, Stream, Transport
from pinnace.model import errors


class Storm:
    """A transport on which all goes wrong that can, by chance, until it is calm."""

    def __init__(self, inner: Transport, chance: random.Random) -> None:
        self.inner = inner
        self.chance = chance
        self.is_calm = False
        self.is_down = False
        """The server is gone: nothing is answered."""
        self.errs: Counter[str] = Counter()
        self.streams: list[ShakyStream] = []

    async def request(self, method: str, target: str, body: bytes, headers: Mapping[str, str]) -> Answer:
        if self.is_down:
            raise ConnectionLost("no server listens there", was_sent=False)
        err = self._err() if method != "GET" or "watch" in target else ""
        if err == "refused":
            raise ConnectionLost("refused", was_sent=False)
        if err == "conflict":
            conflict = errors.Conflict("changed", group="", plural="configmaps", name="x")
            return Answer(409, {}, orjson.dumps(conflict.status))
        if err == "busy":
            return Answer(429, {"retry-after": "1"})
        answer = await self.inner.request(method, target, body, headers)
        if err == "lost answer":
            raise ConnectionLost("reset", was_sent=True)
        return answer

    async def stream(self, target: str, headers: Mapping[str, str], *, silence: float) -> Stream | Answer:
        if self.is_down or self._err() == "refused":
            raise ConnectionLost("refused", was_sent=False)
        stream = await self.inner.stream(target, headers, silence=silence)
        if isinstance(stream, Answer):
            return stream
        self.streams.append(ShakyStream(stream))
        return self.streams[-1]

    async def close(self) -> None: ...

    async def cut_all(self) -> None:
        """End every watch without a word."""
        for stream in self.streams:
            await stream.close()
        self.streams = []

    async def shake(self) -> None:
        """Cut some of the watches; some servers have forgotten what happened since."""
        for stream in self.streams:
            if self.chance.random() < 0.3:
                self.errs["cut"] += 1
                stream.last_words = self.chance.choice(["", "", "expired"])
                self.errs["expired"] += stream.last_words == "expired"
                await stream.close()
        self.streams = [stream for stream in self.streams if not stream.is_closed]

    def _err(self) -> str:
        if self.is_calm or self.chance.random() > 0.3:
            return ""
        err = self.chance.choice(["refused", "conflict", "busy", "lost answer"])
        self.errs[err] += 1
        return err


class ShakyStream:
    def __init__(self, inner: Stream) -> None:
        self.inner = inner
        self.is_closed = False
        self.last_words = ""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self.inner:
            yield chunk
        if self.last_words == "expired":
            status = errors.Expired("too old resource version").status
            yield orjson.dumps({"type": "ERROR", "object": status}) + b"\n"

    async def close(self) -> None:
        self.is_closed = True
        await self.inner.close()
