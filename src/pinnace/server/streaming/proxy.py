"""The proxy subresources: forward requests to a pod, to a pod behind a service, or to a node."""

from __future__ import annotations

import asyncio
import ipaddress
import random
import re
import ssl
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple
from urllib.parse import quote, urlsplit

from pinnace.kinds.validation.addresses import is_address
from pinnace.model import errors
from pinnace.model.objects import Object
from pinnace.process.byte_streams import Duplex, ProxyResponse
from pinnace.server.streaming.relay import HOP_BY_HOP, forwarded_for, forwarded_headers, relay
from pinnace.server.streaming.tunnel import UpstreamExchange
from pinnace.serving.messages import Answer, Request, Response, StreamingResponse
from pinnace.serving.request.call import Call

_GATHERED_AT_MOST = 1 << 20
_WRITTEN_HERE = frozenset((b"content-length", b"date"))

_PLAIN = "/:@!$&'()*+,;=~"
"""Characters that are not quoted in a path."""


Link = Callable[[str], str]


class ProxyTarget(NamedTuple):
    """The target in a proxy URL: scheme, name of the object, and port."""

    scheme: str
    name: str
    port: str


def parse_target(call: Call) -> ProxyTarget:
    """Parse `name`, `name:port` or `scheme:name:port`. Raise BadRequest."""
    match call.name.split(":"):
        case [name]:
            target = ProxyTarget("", name, "")
        case [name, port]:
            target = ProxyTarget("", name, port)
        case [scheme, name, port]:
            target = ProxyTarget(scheme, name, port)
        case _:
            target = ProxyTarget("", "", "")
    if target.name and target.scheme in ("", "http", "https"):
        return target
    raise errors.BadRequest(f'invalid {call.resource.singular} request "{call.name}"')


def path_below_proxy(call: Call) -> str:
    """Return the part of the URL after /proxy, still quoted."""
    raw = urlsplit(call.request.target).path if "://" in call.request.target else call.request.target.partition("?")[0]
    before = 7 if call.resource.namespaced else 5  # /api/v1/namespaces/x/pods/y/proxy and /api/v1/nodes/y/proxy
    return "".join(f"/{part}" for part in raw.split("/")[before + 1 :])


def redirect_to_slash(call: Call) -> Response | None:
    """Return a redirect from /proxy to /proxy/, where relative links work; None if not needed."""
    if path_below_proxy(call) or call.request.method not in ("GET", "HEAD") or call.request.upgrade:
        return None
    query = f"?{call.request.raw_query}" if call.request.raw_query else ""
    return Response(301, ((b"Location", f"{quote(call.request.path, safe=_PLAIN)}/{query}".encode()),))


async def check_reachable(host: str) -> None:
    """Raise BadRequest for loopback and link-local addresses: they would bypass the cluster's access control."""
    try:
        addresses = {host} if is_address(host) else {info[4][0] for info in await _resolve(host)}
    except OSError as error:
        raise errors.BadRequest(f"lookup {host}: {error}") from None
    if not addresses or not all(_is_global(str(address)) for address in addresses):
        raise errors.BadRequest("address not allowed")


async def _resolve(host: str) -> Sequence[tuple[Any, ...]]:
    return await asyncio.get_running_loop().getaddrinfo(host, None) if host else ()


def _is_global(address: str) -> bool:
    ip = ipaddress.ip_address(address.partition("%")[0])
    is_broadcast = ip == ipaddress.ip_address("255.255.255.255")
    return not (ip.is_loopback or ip.is_multicast or ip.is_link_local or ip.is_unspecified or is_broadcast)


def choose_endpoint(
    service: str, port_name: str, endpoints: Object, pods: Callable[[str], Object | None]
) -> tuple[Object, int]:
    """Choose a ready pod of a service, and its port. Raise Unavailable if there is none."""
    subsets = list(endpoints.get("subsets") or ())
    if not subsets:
        raise errors.Unavailable(f'no endpoints available for service "{service}"')
    random.shuffle(subsets)
    for subset in subsets:
        ports = [port for port in subset.get("ports") or () if (port.get("name") or "") == port_name]
        addresses = list(subset.get("addresses") or ())
        random.shuffle(addresses)
        for address in addresses if ports else ():
            target = address.get("targetRef") or {}
            pod = pods(target.get("name", "")) if target.get("kind", "Pod") == "Pod" else None
            if pod is not None and address.get("ip") in _addresses(pod):
                return pod, int(ports[0]["port"])
    raise errors.Unavailable(f'no endpoints available for service "{service}"')


def _addresses(pod: Object) -> list[str]:
    status = pod.get("status") or {}
    return [ip.get("ip", "") for ip in status.get("podIPs") or ()] or [status.get("podIP", "")]


def port_of(target: ProxyTarget, pod: Object) -> int:
    """Return the port of the target, or else the pod's first. Raise BadRequest."""
    text = target.port
    if not text:
        declared = (port for container in pod["spec"].get("containers") or () for port in container.get("ports") or ())
        first = next(declared, None)
        text = str(first["containerPort"]) if first is not None else "443" if target.scheme == "https" else "80"
    if not (text.isascii() and text.isdigit() and 0 < int(text[:6]) < 1 << 16):
        raise errors.BadRequest(f"expected a port from 1 to 65535, found {text!r}")
    return int(text)


async def pass_to_pod(call: Call, target: ProxyTarget, connection: Duplex, host: str) -> Answer:
    """Forward the request over the connection, and return the pod's answer. Raise OSError."""
    if target.scheme == "https":
        connection = await _start_tls(connection)
    exchange = UpstreamExchange(connection)
    request = call.request
    query = f"?{request.raw_query}" if request.raw_query else ""
    upgrade = request.headers.get(b"upgrade", b"") if request.upgrade else b""
    try:
        path = (path_below_proxy(call) or "/") + query
        headers = headers_for(request, host)
        await exchange.ask(request.method, path, headers, request.body, upgrade=upgrade)
    except BaseException:
        exchange.close()
        raise
    prefix = request.path[: len(request.path) - len(path_below_proxy(call))] if path_below_proxy(call) else request.path
    front = request.headers.get(b"host", b"").decode("latin-1")
    return await pass_back(exchange, request, link=partial(_link_through_proxy, prefix, host, front))


async def _start_tls(connection: Duplex) -> Duplex:
    writer = connection.writer
    if not isinstance(writer, asyncio.StreamWriter):
        raise ConnectionError("TLS is not supported over this node's connection; use the scheme http")
    # Certificates of pods have no verifiable name: Kubernetes does not check them either.
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    await writer.start_tls(context)
    return connection


def headers_for(request: Request, host: str) -> list[tuple[bytes, bytes]]:
    """Return the client's headers without hop-by-hop headers and credentials, and with X-Forwarded-*."""
    headers = [(name, value) for name, value in forwarded_headers(request) if name != b"content-length"]
    if b"host" not in request.headers:
        headers.append((b"host", host.encode()))
    if forwarded := forwarded_for(request):
        headers.append((b"X-Forwarded-For", forwarded.encode()))
    headers.append((b"X-Forwarded-Uri", quote(request.path, safe=_PLAIN).encode()))
    headers.append((b"X-Forwarded-Host", request.headers.get(b"host", b"")))
    return headers


async def pass_back(answer: ProxyResponse, request: Request, *, link: Link | None = None) -> Answer:
    """Return the answer of a pod or node for the client: whole if it is short, streamed otherwise.

    `link` rewrites the addresses in its redirects and pages.
    """
    if answer.status == 101 and isinstance(answer, UpstreamExchange):
        return answer.takeover()
    headers = list(_kept_headers(answer.headers, link))
    length = _header(answer, b"content-length")
    is_page = link is not None and _header(answer, b"content-type").lower().startswith(b"text/html")
    if is_page and length.isdigit() and int(length) <= LARGEST_PAGE and not _header(answer, b"content-encoding"):
        return await _rewrite_page(answer, headers, link or str)
    is_short = length.isdigit() and int(length) <= _GATHERED_AT_MOST
    if not is_short and request.method != "HEAD" and answer.status not in (204, 304):
        return StreamingResponse(answer.status, headers, partial(relay, answer))
    try:
        return Response(answer.status, headers, b"".join([piece async for piece in answer.chunks()]))
    finally:
        answer.close()


async def _rewrite_page(answer: ProxyResponse, headers: list[tuple[bytes, bytes]], link: Link) -> Response:
    try:
        page = b"".join([piece async for piece in answer.chunks()])
    finally:
        answer.close()
    # In a thread: a page may be long.
    return Response(answer.status, headers, await asyncio.to_thread(rewrite_links, page, link))


def _header(answer: ProxyResponse, wanted: bytes) -> bytes:
    return next((value for name, value in answer.headers if name.lower() == wanted), b"")


def _kept_headers(headers: Sequence[tuple[bytes, bytes]], link: Link | None) -> Iterable[tuple[bytes, bytes]]:
    for name, value in headers:
        lowered = name.lower()
        if lowered in HOP_BY_HOP or lowered in _WRITTEN_HERE:
            continue
        if lowered == b"location" and link is not None:
            value = link(value.decode("latin-1")).encode("latin-1", "replace")
        yield name, value


def _link_through_proxy(prefix: str, host: str, front: str, location: str) -> str:
    """Rewrite a redirect or link of the pod to itself, so that it leads through the proxy.

    The pod may call itself by the `host` that we connect to, or by the one in the client's request, `front`.
    """
    try:
        parts = urlsplit(location)
    except ValueError:
        return location
    if parts.netloc and parts.netloc not in (host, front):
        return location
    if not parts.path.startswith("/") or parts.path.startswith(prefix):
        return location
    rest = (f"?{parts.query}" if parts.query else "") + (f"#{parts.fragment}" if parts.fragment else "")
    where = f"{parts.scheme}://{front}" if parts.netloc == front != "" else ""
    return f"{where}{quote(prefix, safe=_PLAIN)}{parts.path}{rest}"


LARGEST_PAGE = 4 << 20
"""Larger pages are not rewritten."""

# Bounded, so that a page of open quotes costs no more than its length times this.
_VALUE = rb"\"[^\"]{0,1024}\"|'[^']{0,1024}'"
_TAG = re.compile(rb"<!--|<([A-Za-z][A-Za-z0-9]{0,20})((?:[^<>\"']|%b){0,2048})>" % _VALUE, re.DOTALL)
_ATTRIBUTE = re.compile(rb"(\s)([A-Za-z]{1,20})(\s*=\s*)(%b|[^\s>\"']{1,1024})" % _VALUE)
_LINKS: dict[bytes, frozenset[bytes]] = {
    tag: frozenset(attributes.split())
    for tag, attributes in {
        b"a": b"href",
        b"applet": b"codebase",
        b"area": b"href",
        b"audio": b"src",
        b"base": b"href",
        b"blockquote": b"cite",
        b"body": b"background",
        b"button": b"formaction",
        b"command": b"icon",
        b"del": b"cite",
        b"embed": b"src",
        b"form": b"action",
        b"frame": b"longdesc src",
        b"head": b"profile",
        b"html": b"manifest",
        b"iframe": b"longdesc src",
        b"img": b"longdesc src usemap",
        b"input": b"src usemap formaction",
        b"ins": b"cite",
        b"link": b"href",
        b"object": b"classid codebase data usemap",
        b"q": b"cite",
        b"script": b"src",
        b"source": b"src",
        b"video": b"poster src",
    }.items()
}
_OPAQUE = frozenset((b"script", b"style", b"textarea", b"title"))
"""The content of these is text, even if it looks like tags."""


def rewrite_links(page: bytes, link: Callable[[str], str]) -> bytes:
    """Return the page with every link replaced by the result of `link`."""
    parts: list[bytes] = []
    at = 0
    while (tag := _TAG.search(page, at)) is not None:
        parts.append(page[at : tag.start()])
        name = (tag[1] or b"").lower()
        parts.append(_rewrite_tag(tag, _LINKS[name], link) if name in _LINKS else tag[0])
        at = tag.end()
        if name in _OPAQUE or not name:
            end = page.find(b"</" + tag[1] if name else b"-->", at)
            parts.append(page[at : end if end >= 0 else len(page)])
            at = end if end >= 0 else len(page)
    parts.append(page[at:])
    return b"".join(parts)


def _rewrite_tag(tag: re.Match[bytes], links: frozenset[bytes], link: Callable[[str], str]) -> bytes:
    def replace(attribute: re.Match[bytes]) -> bytes:
        space, name, equals, value = attribute.groups()
        if name.lower() not in links:
            return attribute[0]
        quote = value[:1] if value[:1] in (b'"', b"'") else b""
        text = value[1:-1] if quote else value
        new = link(text.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")
        return b"%b%b%b%b%b%b" % (space, name, equals, quote, new, quote)

    return b"<%b%b>" % (tag[1], _ATTRIBUTE.sub(replace, tag[2]))
