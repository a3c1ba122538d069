"""The dimensions of the protocol: every parameter that the OpenAPI document describes, the headers, and the path.

Each grows in four ways: letters, digits, a list with commas, and the same parameter many times.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Any

import orjson
from tests.server.in_process import CONFIG_MAPS, InProcess

from pinnace.serving.messages import IMPERSONATE, Peer, Request, RequestHead

CHARACTERS = 200_000
DOCUMENT = "/openapi/v3/api/v1"
_NAMES = {"{namespace}": "default", "{name}": "there", "{path}": "a"}
_FORMS: dict[str, Callable[[str, int], str]] = {
    "letters": lambda name, size: f"{name}={'a' * size}",
    "digits": lambda name, size: f"{name}={'0' * (size - 1)}1",
    "a list": lambda name, size: f"{name}={'a,' * (size // 2)}",
    "repeats": lambda name, size: "&".join([f"{name}=a"] * (size // (len(name) + 3))),
}
_BODIES = {"post": {"metadata": {"name": "new"}}, "put": {"metadata": {"name": "there"}}, "patch": {}}
_TYPES = {"patch": "application/merge-patch+json"}


@dataclass(frozen=True, slots=True)
class ProtocolDimension:
    """One part of a request. `target` and `headers` return it in a size."""

    name: str
    method: str
    target: Callable[[int], str]
    headers: Callable[[int], dict[str, str]] = lambda size: {}

    def __str__(self) -> str:
        return f"{self.method} {self.name}"

    async def send(self, api: InProcess, size: int) -> int:
        """Send the request, and return the status of the answer."""
        content_type = _TYPES.get(self.method, "application/json")
        headers = {"content-type": content_type, **self.headers(size)}
        raw = orjson.dumps(_BODIES[self.method]) if self.method in _BODIES else b""
        answer = await api.plane.local().request(self.method.upper(), self.target(size), raw, headers)
        return answer.status


async def walk_protocol(api: InProcess) -> list[ProtocolDimension]:
    document = (await api.get(DOCUMENT)).json
    return [*_parameters(document), *_headers(await known_headers(api)), *_paths()]


class _Recorder(dict[bytes, bytes]):
    """Headers that note which of them are read."""

    def __init__(self) -> None:
        super().__init__()
        self.read: set[bytes] = set()

    def get(self, name: bytes, default: Any = None) -> Any:
        self.read.add(name)
        return super().get(name, default)


async def known_headers(api: InProcess) -> list[str]:
    """Return the names of the headers that the server reads, and those of impersonation."""
    headers = _Recorder()
    for method, path in (("GET", CONFIG_MAPS), ("POST", CONFIG_MAPS), ("PATCH", f"{CONFIG_MAPS}/there")):
        request = Request(method, path, path, "", RequestHead(headers), b"{}", Peer(asyncio.BaseTransport()))
        answer = api.plane.api(request)
        if isinstance(answer, Awaitable):
            await answer
    named = {name.decode() for name in headers.read}
    return sorted(named | {IMPERSONATE.decode() + name for name in ("user", "group", "uid", "extra-scopes")})


def _parameters(document: dict[str, Any]) -> Iterator[ProtocolDimension]:
    """Yield the parameters of each method once: the code that reads them is that of the verb, not of the kind."""
    seen: set[tuple[str, str, bool]] = set()
    for path, item in document["paths"].items():
        for method in item.keys() & {"get", "post", "put", "patch", "delete"}:
            for parameter in (*item.get("parameters", ()), *item[method].get("parameters", ())):
                place = (method, parameter["name"], path.endswith("{name}"))
                if parameter["in"] != "query" or parameter["schema"]["type"] == "boolean" or place in seen:
                    continue
                seen.add(place)
                for form, text in _FORMS.items():
                    name = f"{path}?{parameter['name']} as {form}"
                    yield ProtocolDimension(name, method, _in_query(path, parameter["name"], text))


def _in_query(path: str, parameter: str, text: Callable[[str, int], str]) -> Callable[[int], str]:
    for placeholder, name in _NAMES.items():
        path = path.replace(placeholder, name)
    more = "" if parameter == "dryRun" else "&dryRun=All"
    return lambda size: f"{path}?{text(parameter, size)}{more}"


_HEADER_FORMS = {"letters": "a", "digits": "0", "a list": "a,", "parameters": ";a=1", "wildcards": "*/*,"}


def _headers(names: list[str]) -> Iterator[ProtocolDimension]:
    for header in (*names, "x-other"):
        for form, text in _HEADER_FORMS.items():
            yield ProtocolDimension(
                f"{header} as {form}",
                "get",
                lambda size: f"{CONFIG_MAPS}/there",
                lambda size, header=header, text=text: {header: text * (size // len(text))},  # type: ignore[misc]
            )


def _paths() -> Iterator[ProtocolDimension]:
    for form, text in {"letters": "a", "segments": "/a", "slashes": "/", "dots": "/..", "escapes": "%41"}.items():
        for method in ("get", "delete"):
            yield ProtocolDimension(
                f"path of {form}",
                method,
                lambda size, text=text: f"{CONFIG_MAPS}/{text * (size // len(text))}?dryRun=All",  # type: ignore[misc]
            )
