"""What has come for a reader: it waits for him, and whoever brings it waits while that is much."""

from __future__ import annotations

import asyncio

import pytest

from pinnace.server.streaming.byte_pipe import Inbox


async def test_whoever_brings_too_much_waits_until_half_is_read() -> None:
    inbox = Inbox(room=100)
    await inbox.feed(b"x" * 100)
    feeding = asyncio.ensure_future(inbox.feed(b"y" * 10))
    await asyncio.sleep(0)
    assert not feeding.done()
    assert await inbox.read(50) == b"x" * 50
    await asyncio.sleep(0)
    assert not feeding.done()
    assert await inbox.read(50) == b"x" * 50
    await feeding
    assert await inbox.read(50) == b"y" * 10


async def test_a_reader_waits_for_what_comes_and_then_finds_the_end() -> None:
    inbox = Inbox()
    reading = asyncio.ensure_future(inbox.read(3))
    await asyncio.sleep(0)
    await inbox.feed(b"hello")
    assert (await reading, await inbox.read(10)) == (b"hel", b"lo")
    inbox.end()
    assert (await inbox.read(10), await inbox.read(10)) == (b"", b"")
    await inbox.feed(b"too late")
    assert await inbox.read(10) == b""


async def test_a_connection_that_is_lost_is_told_after_what_had_come() -> None:
    inbox = Inbox()
    await inbox.feed(b"last words")
    inbox.end(ConnectionResetError("gone"))
    assert await inbox.read(100) == b"last words"
    with pytest.raises(ConnectionResetError, match="gone"):
        await inbox.read(100)


async def test_nobody_waits_for_a_reader_who_has_left() -> None:
    inbox = Inbox(room=10)
    feeding = asyncio.ensure_future(inbox.feed(b"x" * 100))
    await asyncio.sleep(0)
    inbox.discard()
    await feeding
    await inbox.feed(b"x" * 100)
    assert await inbox.read(10) == b""
