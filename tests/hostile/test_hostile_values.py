"""Every parameter, header and path segment of a request may have any value: the answer is no failure of the server."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from urllib.parse import quote

import pytest
from tests.server.in_process import APPLY, CONFIG_MAPS, DEPLOYMENTS, JSON, MERGE, PODS, InProcess, control_plane

DIGITS = "9" * 5_000
"""Python's int() refuses so many with a ValueError."""
VALUES = (
    *(DIGITS, f"-{DIGITS}", f"1.{DIGITS}", f"1e{DIGITS}", f"{DIGITS}s", "1e999999999", "-1", "0", "", "nan", "-inf"),
    *("\u0663\u0663", "\uff11\uff12", "0x10", "1_000", "+5", " 5", "\x00", "\ud7ff", "a" * 20_000, "null", "{}", "[]"),
    *(
        "9999999999999999-12-31T00:00:00Z",
        "0000-00-00T00:00:00Z",
        "1" + "h1" * 60,
        "..",
        "/",
        "\\",
        "a=b",
        "a in (",
        "!",
    ),
    *(
        f"metadata.name={DIGITS}",
        ",".join(["a=b"] * 5_000),
        f"spec.nodeName={DIGITS}",
        "W10",
        "bnVsbA",
        "e30",
        "a in (",
    ),
)
PARAMETERS = (
    *("resourceVersion", "resourceVersionMatch", "limit", "continue", "labelSelector", "fieldSelector", "timeout"),
    *("timeoutSeconds", "allowWatchBookmarks", "sendInitialEvents", "pretty", "dryRun", "fieldManager", "force"),
    *("fieldValidation", "gracePeriodSeconds", "propagationPolicy", "orphanDependents", "includeObject", "container"),
    *("tailLines", "sinceSeconds", "sinceTime", "limitBytes", "ports", "command", "path"),
)
HEADERS = (
    *("accept", "content-type", "accept-encoding", "if-none-match", "user-agent", "impersonate-user", "upgrade"),
    *("impersonate-group", "impersonate-uid", "impersonate-extra-a", "authorization", "traceparent", "tracestate"),
    *("sec-websocket-protocol", "sec-websocket-key", "range", "expect", "audit-id", "connection"),
)
BODY = b'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"there"},"data":{"a":"c"}}'
REQUESTS = (
    *(("GET", target, b"", "") for target in (CONFIG_MAPS, f"{CONFIG_MAPS}/there", f"{PODS}/there/log", "/openapi/v3")),
    *(("GET", target, b"", "") for target in (f"{PODS}/there/portforward", f"{DEPLOYMENTS}/there/scale", "/metrics")),
    *(("POST", f"{CONFIG_MAPS}?dryRun=All", BODY, JSON), ("PUT", f"{CONFIG_MAPS}/there?dryRun=All", BODY, JSON)),
    *(("PATCH", f"{CONFIG_MAPS}/there?dryRun=All", BODY, content_type) for content_type in (MERGE, APPLY)),
    ("DELETE", f"{CONFIG_MAPS}?dryRun=All", b"", ""),
)
OTHER_METHODS = ("HEAD", "OPTIONS", "TRACE", "X")
EACH = 20
AS_KUBERNETES = 'strconv.ParseUint: parsing \\"'
"""Kubernetes answers 500 to a resourceVersion that is no number, outside of lists."""


@pytest.fixture
async def api() -> AsyncIterator[InProcess]:
    async with control_plane() as plane:
        await plane.made(CONFIG_MAPS, {"metadata": {"name": "there"}, "data": {}})
        await plane.made(PODS, {"metadata": {"name": "there"}, "spec": {"containers": [{"name": "c", "image": "i"}]}})
        yield plane


async def send(
    api: InProcess, method: str, target: str, body: bytes = b"", content_type: str = "", **more: str
) -> None:
    reply = await api.call(method, target, body or None, content_type, **more)
    is_failure = reply.status == 500 and AS_KUBERNETES not in reply.body.decode()
    assert not is_failure, (method, target[:200], more, reply.body[:300])


async def test_every_parameter_may_have_any_value(api: InProcess) -> None:
    rng = random.Random(1)
    for parameter in PARAMETERS * EACH:
        method, target, body, content_type = rng.choice(REQUESTS)
        query = quote(rng.choice(VALUES), errors="surrogatepass")
        mark = "&" if "?" in target else "?"
        await send(api, method, f"{target}{mark}{parameter}={query}", body, content_type)


async def test_every_header_may_have_any_value(api: InProcess) -> None:
    rng = random.Random(2)
    for header in HEADERS * EACH:
        method, target, body, content_type = rng.choice(REQUESTS)
        text = rng.choice(VALUES).encode(errors="replace").decode("latin-1")
        await send(api, method, target, body, **{"content_type": content_type, header: text})


async def test_every_segment_of_a_path_may_have_any_value(api: InProcess) -> None:
    rng = random.Random(3)
    for method, target, body, content_type in REQUESTS * EACH:
        path, _, query = target.partition("?")
        segments = path.split("/")
        segments[rng.randrange(1, len(segments))] = quote(rng.choice(VALUES), safe="", errors="surrogatepass")
        await send(api, method, f"{'/'.join(segments)}?{query}", body, content_type)


@pytest.mark.parametrize("method", OTHER_METHODS)
async def test_every_method_may_be_sent_anywhere(api: InProcess, method: str) -> None:
    for _, target, body, content_type in REQUESTS:
        await send(api, method, target, body, content_type)
