"""What waits to be written to one client, without the client."""

from __future__ import annotations

import asyncio
from typing import cast

from pinnace.server.outgoing import LARGE, SLICE, TURN, Outgoing
from pinnace.server.tls import RECORD


class Bottomless:
    """A transport whose client takes all that it gets, at once."""

    def __init__(self) -> None:
        self.taken: list[bytes] = []

    def write(self, data: bytes | memoryview) -> None:
        self.taken.append(bytes(data))

    def get_write_buffer_size(self) -> int:
        return 0


def _outgoing(transport: Bottomless) -> Outgoing:
    outgoing: list[Outgoing] = []

    def go_on() -> None:
        outgoing[0].resume()

    outgoing.append(Outgoing(cast(asyncio.Transport, transport), go_on))
    return outgoing[0]


async def test_others_get_their_turn_though_a_client_takes_everything_at_once() -> None:
    transport = Bottomless()
    outgoing = _outgoing(transport)
    whole = bytes(range(256)) * (2 * TURN // 256) + b"end"
    outgoing.write_all([whole])
    assert len(transport.taken) == TURN // SLICE
    assert not outgoing.is_free
    outgoing.write(b", and more")
    drained = asyncio.ensure_future(outgoing.drained())
    await asyncio.sleep(0)
    assert len(transport.taken) == 2 * TURN // SLICE
    await drained
    assert outgoing.is_free
    assert outgoing.buffered == 0
    assert b"".join(transport.taken) == whole + b", and more"


async def test_what_is_lost_between_two_turns_is_not_written() -> None:
    transport = Bottomless()
    outgoing = _outgoing(transport)
    outgoing.write_all([bytes(2 * TURN)])
    outgoing.drop()
    await asyncio.sleep(0)
    assert len(transport.taken) == TURN // SLICE


async def test_what_is_small_goes_together_and_takes_what_fills_a_record_of_what_is_large() -> None:
    transport = Bottomless()
    outgoing = _outgoing(transport)
    pieces = [b"head", b"begin", b"x" * LARGE, b"y" * (SLICE + LARGE), b"end", b"."]
    outgoing.write_all(list(pieces))
    assert [len(one) for one in transport.taken] == [RECORD, LARGE, SLICE, LARGE - RECORD + 9 + 4]
    assert b"".join(transport.taken) == b"".join(pieces)


async def test_what_is_before_something_large_fills_a_record_with_it() -> None:
    transport = Bottomless()
    outgoing = _outgoing(transport)
    large = bytes(range(256)) * (LARGE // 128)
    for small in (b"head", b"x" * RECORD, b"x" * (RECORD + 1)):
        outgoing.write_before(small, large)
        assert b"".join(transport.taken) == small + large
        assert len(transport.taken) == 2
        assert len(transport.taken[0]) % RECORD == 0
        transport.taken.clear()
    outgoing.write_before(b"head", bytes(2 * TURN))
    assert len(transport.taken) == TURN // SLICE + 1
    outgoing.write_before(b"next", large)  # Which waits its turn.
    await outgoing.drained()
    assert b"".join(transport.taken) == b"head" + bytes(2 * TURN) + b"next" + large


class Full(Bottomless):
    """A transport that is full after each write, until it is asked to go on."""

    def __init__(self) -> None:
        super().__init__()
        self.outgoing = _outgoing(self)

    def write(self, data: bytes | memoryview) -> None:
        super().write(data)
        self.outgoing.is_paused = True


def test_what_is_large_waits_if_the_client_takes_no_more_than_what_is_before_it() -> None:
    transport = Full()
    outgoing = transport.outgoing
    outgoing.write_before(b"head", bytes(LARGE))
    assert [len(one) for one in transport.taken] == [RECORD]
    assert outgoing.buffered == LARGE + 4 - RECORD
    outgoing.resume()
    assert b"".join(transport.taken) == b"head" + bytes(LARGE)
