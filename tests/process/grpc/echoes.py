"""A service for the tests of gRPC."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pinnace.process.grpc.errors import GrpcCode, GrpcError
from pinnace.process.grpc.messages import Message, flag, integer, integers, maybe_text, message, messages, pairs, text
from pinnace.process.grpc.methods import Method
from pinnace.process.grpc.server import Answers, GrpcServer


@dataclass(frozen=True, slots=True, kw_only=True)
class Part(Message):
    name: str = text(1)
    size: int = integer(2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Whole(Message):
    name: str = text(1)
    parts: Sequence[Part] = messages(2, Part)
    labels: Mapping[str, str] = pairs(3)
    sizes: Sequence[int] = integers(4)
    first: Part | None = message(5, Part)
    is_last: bool = flag(6)
    note: str | None = maybe_text(7)


ECHO = Method("test.Echoes", "Echo", Whole, Whole)
COUNT = Method("test.Echoes", "Count", Part, Part, streams=True)
FAIL = Method("test.Echoes", "Fail", Part, Part)
HANG = Method("test.Echoes", "Hang", Part, Part)
MISSING = Method("test.Echoes", "Missing", Part, Part)


class Echoes:
    """Its `cancelled` is set when a call of Hang has ended without an answer."""

    def __init__(self) -> None:
        self.hanging = asyncio.Event()
        self.cancelled = asyncio.Event()

    async def echo(self, request: Whole) -> Whole:
        return request

    async def count(self, request: Part) -> AsyncGenerator[Part, None]:
        for number in range(request.size):
            yield Part(name=request.name, size=number)

    async def fail(self, request: Part) -> Part:
        if request.name:
            raise GrpcError(GrpcCode.NOT_FOUND, request.name)
        raise RuntimeError("a fault of the author")

    async def hang(self, request: Part) -> Part:
        self.hanging.set()
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            self.cancelled.set()
        return request


@asynccontextmanager
async def serving(path: Path, *, largest_message: int = 4 << 20) -> AsyncIterator[Echoes]:
    service = Echoes()
    methods: dict[Method[Any, Any], Answers] = {
        ECHO: service.echo,
        COUNT: service.count,
        FAIL: service.fail,
        HANG: service.hang,
    }
    server = GrpcServer(methods, largest_message=largest_message)
    await server.open(path)
    try:
        yield service
    finally:
        await server.close()
