"""Exchanges with other servers stay within their limits, whatever these answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from aiohttp import web

from pinnace.process.outbound import OutboundClient, OutboundFailed, OutboundTimeout, OutboundTooLarge, exchange

LARGEST = 1000


async def answer(request: web.BaseRequest) -> web.StreamResponse:
    match request.path:
        case "/endless":
            stream = web.StreamResponse()
            await stream.prepare(request)
            while True:
                await stream.write(b"x" * LARGEST)
        case "/silent":
            await asyncio.Event().wait()
        case "/redirect":
            raise web.HTTPFound("/small")
        case "/cookie":
            response = web.Response(text=request.headers.get("Cookie", ""))
            response.set_cookie("session", "1")
            return response
    return web.Response(body=b"x" * LARGEST, headers={"Link": '<http://127.0.0.1/next>; rel="next"'})


@pytest.fixture
async def url() -> AsyncIterator[str]:
    server = web.Server(answer)
    runner = web.ServerRunner(server, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    await runner.cleanup()


async def test_a_whole_answer_is_returned_with_its_next_page(url: str) -> None:
    result = await exchange("GET", f"{url}/small", largest=LARGEST, seconds=60)
    assert (result.status, result.body, result.next_link) == (200, b"x" * LARGEST, "http://127.0.0.1/next")


@pytest.mark.parametrize(("path", "largest"), [("/small", LARGEST - 1), ("/endless", LARGEST)])
async def test_a_body_that_is_too_large_is_not_read_on(url: str, path: str, largest: int) -> None:
    with pytest.raises(OutboundTooLarge):
        await exchange("GET", url + path, largest=largest, seconds=60)


async def test_a_server_that_does_not_answer_is_left(url: str) -> None:
    with pytest.raises(OutboundTimeout):
        await exchange("GET", f"{url}/silent", largest=LARGEST, seconds=0.05)


@pytest.mark.parametrize(("redirects", "status"), [(0, 302), (1, 200)])
async def test_redirects_are_followed_only_where_they_are_allowed(url: str, redirects: int, status: int) -> None:
    result = await exchange("GET", f"{url}/redirect", largest=LARGEST, seconds=60, redirects=redirects)
    assert result.status == status


async def test_cookies_are_not_kept(url: str) -> None:
    client = OutboundClient(largest=LARGEST, seconds=60)
    try:
        await client.request("GET", f"{url}/cookie")
        assert (await client.request("GET", f"{url}/cookie")).body == b""
    finally:
        await client.close()


@pytest.mark.parametrize("address", ["http://127.0.0.1:1/", "http://[::1", "gopher://127.0.0.1/"])
async def test_a_server_that_cannot_be_reached_is_a_failure(address: str) -> None:
    with pytest.raises(OutboundFailed):
        await exchange("GET", address, largest=LARGEST, seconds=60)
