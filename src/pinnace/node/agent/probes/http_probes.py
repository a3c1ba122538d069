"""One HTTP probe: the request as kubelet sends it, its redirects, and no byte of a pod's text out of its place."""

from __future__ import annotations

import asyncio
import functools
import re
import ssl
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from urllib.parse import quote, urljoin, urlsplit

from pinnace.model.typed_objects import HTTPGetAction, HTTPHeader
from pinnace.process.byte_streams import ByteReader, Duplex

_MAX_ANSWER = 64 << 10
_MAX_BODY, _DIGITS = 10 << 10, 20
_MOST_REDIRECTS = 10
_REDIRECTS = frozenset((301, 302, 303, 307, 308))
_PRINTABLE = "".join(map(chr, range(0x21, 0x7F)))
_PORTS = {"http": 80, "https": 443}
_control = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_status = re.compile(rb"HTTP/\d\.\d ([1-9]\d\d)(?: |$)")
Connect = Callable[[str, int], Awaitable[Duplex]]


@dataclass(frozen=True, slots=True)
class HttpOutcome:
    code: int
    body: str = ""
    """The beginning of the body of a redirect that was not followed."""


async def probe_http(stated: HTTPGetAction, address: str, port: int, connect: Connect) -> HttpOutcome:
    """Return the outcome in the end; that of a redirect if it leads to another host, which is not followed.

    `address` is the host that the probe names, else that of the pod. Raise OSError or ValueError if there is no answer.
    """
    url = _url(stated, address, port)
    for _ in range(_MOST_REDIRECTS):
        outcome, url = await _ask(url, stated.get("httpHeaders") or (), connect)
        if not url:
            return outcome
    raise ValueError(f"stopped after {_MOST_REDIRECTS} redirects")


def request_head(url: str, stated: Iterable[HTTPHeader]) -> bytes:
    """Return the request for a URL with the stated headers. Raise ValueError for a value with control characters."""
    parts = urlsplit(url)
    headers: list[tuple[str, str]] = []
    for header in stated:
        name, value = header["name"], header.get("value") or ""
        if _control.search(value):
            raise ValueError(f'net/http: invalid header field value for "{name}"')
        headers.append((name, value))
    names = {name.lower(): value for name, value in headers}
    host = names.get("host") or parts.netloc
    if "user-agent" not in names:
        headers.append(("User-Agent", "kube-probe/pinnace"))
    if "accept" not in names:
        headers.append(("Accept", "*/*"))
    sent = [(name, value) for name, value in headers if value and name.lower() not in ("host", "connection")]
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    lines = [f"GET {target} HTTP/1.1", f"Host: {host}", *(f"{name}: {value}" for name, value in sent)]
    return "\r\n".join([*lines, "Connection: close", "", ""]).encode()


def _url(stated: HTTPGetAction, address: str, port: int) -> str:
    host = f"[{address}]" if ":" in address else address
    path = _printable(str(stated.get("path") or "/"))
    return f"{stated.get('scheme', 'HTTP').lower()}://{host}:{port}/{path.removeprefix('/')}"


def _printable(text: str) -> str:
    """Encode all that would end a line or a word of the request."""
    return quote(text, safe=_PRINTABLE)


async def _ask(url: str, headers: Iterable[HTTPHeader], connect: Connect) -> tuple[HttpOutcome, str]:
    """Return one answer, and the URL to ask next; empty if the answer leads nowhere else on its host."""
    head = request_head(url, headers)
    parts = urlsplit(url)
    reader, writer = await connect(parts.hostname or "", parts.port or _PORTS[parts.scheme])
    try:
        if parts.scheme == "https":
            assert isinstance(writer, asyncio.StreamWriter)
            await writer.start_tls(any_certificate(), server_hostname=None)
        writer.write(head)
        await writer.drain()
        answer, body = await _read_head(reader)
        match = _status.match(answer)
        if match is None:
            raise ValueError("malformed HTTP response")
        lines = [line.partition(b":") for line in answer.split(b"\r\n")[1:]]
        values = {name.lower(): value.strip() for name, _, value in reversed(lines)}
        code, location = int(match[1]), values.get(b"location", b"").decode("latin-1")
        following = _followed(url, location) if code in _REDIRECTS and location else ""
        if 300 <= code < 400 and not following:
            body = await _read_body(reader, body, values.get(b"content-length", b""))
    finally:
        writer.close()
    return HttpOutcome(code, body.decode(errors="replace")), following


def _followed(url: str, location: str) -> str:
    """Return the URL of a redirect; empty if it leads to another host."""
    target = urljoin(url, _printable(location))
    parts = urlsplit(target)
    return target if parts.hostname == urlsplit(url).hostname and parts.scheme in _PORTS else ""


async def _read_head(reader: ByteReader) -> tuple[bytes, bytes]:
    """Return the head of an answer, and what has come of its body."""
    data = b""
    while b"\r\n\r\n" not in data and len(data) < _MAX_ANSWER:
        chunk = await reader.read(4096)
        if not chunk:
            break
        data += chunk
    head, _, body = data.partition(b"\r\n\r\n")
    return head, body


async def _read_body(reader: ByteReader, data: bytes, stated: bytes) -> bytes:
    """Read on until the stated length, the end, or the most that an Event tells."""
    length = min(int(stated), _MAX_BODY) if stated.isdigit() and len(stated) < _DIGITS else _MAX_BODY
    while len(data) < length and (chunk := await reader.read(length - len(data))):
        data += chunk
    return data[:length]


@functools.cache
def any_certificate(*protocols: str) -> ssl.SSLContext:
    """Return the TLS of a probe, which verifies no certificate, as kubelet's. `protocols` are offered to the server."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    if protocols:
        context.set_alpn_protocols(protocols)
    return context
