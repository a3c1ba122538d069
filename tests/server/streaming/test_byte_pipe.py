"""A byte pipe: the reader waits for data, and the feeding task waits while it is full."""

from __future__ import annotations

import asyncio

import pytest

from pinnace.server.streaming.channels import BytePipe


async def test_a_writer_waits_until_half_of_a_full_pipe_is_read() -> None:
    pipe = BytePipe(room=100)
    await pipe.feed(b"x" * 100)
    feeding = asyncio.ensure_future(pipe.feed(b"y" * 10))
    await asyncio.sleep(0)
    assert not feeding.done()
    assert await pipe.read(50) == b"x" * 50
    await asyncio.sleep(0)
    assert not feeding.done()
    assert await pipe.read(50) == b"x" * 50
    await feeding
    assert await pipe.read(50) == b"y" * 10


async def test_a_reader_waits_for_what_comes_and_then_finds_the_end() -> None:
    pipe = BytePipe()
    reading = asyncio.ensure_future(pipe.read(3))
    await asyncio.sleep(0)
    await pipe.feed(b"hello")
    assert (await reading, await pipe.read(10)) == (b"hel", b"lo")
    pipe.end()
    assert (await pipe.read(10), await pipe.read(10)) == (b"", b"")
    await pipe.feed(b"too late")
    assert await pipe.read(10) == b""


async def test_a_connection_that_is_lost_is_reported_after_what_had_come() -> None:
    pipe = BytePipe()
    await pipe.feed(b"last words")
    pipe.end(ConnectionResetError("gone"))
    assert await pipe.read(100) == b"last words"
    with pytest.raises(ConnectionResetError, match="gone"):
        await pipe.read(100)


async def test_a_writer_does_not_wait_for_a_reader_that_has_left() -> None:
    pipe = BytePipe(room=10)
    feeding = asyncio.ensure_future(pipe.feed(b"x" * 100))
    await asyncio.sleep(0)
    pipe.discard()
    await feeding
    await pipe.feed(b"x" * 100)
    assert await pipe.read(10) == b""
