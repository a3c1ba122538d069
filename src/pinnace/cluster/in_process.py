"""A client's way to a server of the same process: no socket, no copies."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping

from pinnace.client.client import Client
from pinnace.client.transport import Answer, Stream
from pinnace.model.clock import AlarmClock
from pinnace.server.local import LocalApi, LocalStream
from pinnace.server.messages import Response


class InProcessTransport:
    """Carries a client's requests to a `LocalApi`. There is no connection that could be lost."""

    def __init__(self, api: LocalApi) -> None:
        self._api = api

    async def request(self, method: str, target: str, body: bytes, headers: Mapping[str, str]) -> Answer:
        return _answer_of(await self._api.request(method, target, body, headers))

    async def stream(self, target: str, headers: Mapping[str, str], *, silence: float) -> Stream | Answer:
        stream = await self._api.stream(target, headers)
        return _answer_of(stream) if isinstance(stream, Response) else _InProcessStream(stream)

    async def close(self) -> None:
        """Nothing to close."""


class _InProcessStream:
    def __init__(self, stream: LocalStream) -> None:
        self._stream = stream

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._stream.__aiter__()

    async def close(self) -> None:
        self._stream.close()


def in_process_client(
    api: LocalApi, *, clock: AlarmClock | None = None, namespace: str = "default", field_manager: str = "pinnace"
) -> Client:
    """A client of a server in this process, as the user of `api`."""
    return Client(InProcessTransport(api), clock=clock, namespace=namespace, field_manager=field_manager)


def _answer_of(response: Response) -> Answer:
    body = response.body if isinstance(response.body, bytes) else b"".join(response.body)
    if isinstance(response.headers, bytes):
        lines = [line.partition(b": ") for line in response.headers.split(b"\r\n") if line]
        pairs = [(name, value) for name, _, value in lines]
    else:
        pairs = list(response.headers)
    headers: dict[str, str] = {}
    for raw_name, raw_value in pairs:  # A header may come more than once.
        name, value = raw_name.decode().lower(), raw_value.decode()
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return Answer(response.status, headers, body)
