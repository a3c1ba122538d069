"""The output queue of one connection, without a client."""

from __future__ import annotations

import asyncio
from typing import cast

from pinnace.server.http.response_queue import LARGE, SLICE, TURN, LargeResponseQueue, OutputQueue
from pinnace.server.http.tls_transport import RECORD


class Bottomless:
    """A transport whose client takes all that it gets, at once."""

    def __init__(self) -> None:
        self.taken: list[bytes] = []

    def write(self, data: bytes | memoryview) -> None:
        self.taken.append(bytes(data))

    def get_write_buffer_size(self) -> int:
        return 0


def _output(transport: Bottomless) -> OutputQueue:
    output: list[OutputQueue] = []

    def go_on() -> None:
        output[0].resume()

    output.append(OutputQueue(cast(asyncio.Transport, transport), go_on))
    return output[0]


async def test_others_get_their_turn_though_a_client_takes_everything_at_once() -> None:
    transport = Bottomless()
    output = _output(transport)
    whole = bytes(range(256)) * (2 * TURN // 256) + b"end"
    output.write_all([whole])
    assert len(transport.taken) == TURN // SLICE
    assert not output.is_free
    output.write(b", and more")
    drained = asyncio.ensure_future(output.drain())
    await asyncio.sleep(0)
    assert len(transport.taken) == 2 * TURN // SLICE
    await drained
    assert output.is_free
    assert output.buffered == 0
    assert b"".join(transport.taken) == whole + b", and more"


async def test_output_dropped_between_two_turns_is_not_written() -> None:
    transport = Bottomless()
    output = _output(transport)
    output.write_all([bytes(2 * TURN)])
    output.drop()
    await asyncio.sleep(0)
    assert len(transport.taken) == TURN // SLICE


async def test_small_writes_are_joined_and_filled_up_from_a_large_one() -> None:
    transport = Bottomless()
    output = _output(transport)
    pieces = [b"head", b"begin", b"x" * LARGE, b"y" * (SLICE + LARGE), b"end", b"."]
    output.write_all(list(pieces))
    assert [len(record) for record in transport.taken] == [RECORD, LARGE, SLICE, LARGE - RECORD + 9 + 4]
    assert b"".join(transport.taken) == b"".join(pieces)


async def test_held_output_is_sent_on_release_with_its_first_record_filled() -> None:
    transport = Bottomless()
    output = _output(transport)
    large = bytes(range(256)) * (LARGE // 128)
    for small in (b"head", b"x" * RECORD, b"x" * (RECORD + 1)):
        assert output.hold(small, large)
        assert transport.taken == []
        assert not output.is_free
        assert not output.is_waiting
        assert output.buffered == len(small) + len(large)
        assert output.release() == len(small) + len(large)
        assert b"".join(transport.taken) == small + large
        assert len(transport.taken) == 2
        assert len(transport.taken[0]) % RECORD == 0
        assert output.is_free
        assert output.release() == 0
        transport.taken.clear()


async def test_output_behind_held_output_stays_behind_it() -> None:
    transport = Bottomless()
    output = _output(transport)
    assert output.hold(b"one", bytes(LARGE))
    output.write(b"two")
    assert not output.hold(b"three", bytes(LARGE))
    drained = asyncio.ensure_future(output.drain())
    output.release()
    await drained
    assert b"".join(transport.taken) == b"one" + bytes(LARGE) + b"twothree" + bytes(LARGE)


async def test_a_very_large_held_answer_is_sent_in_turns() -> None:
    transport = Bottomless()
    output = _output(transport)
    assert output.hold(b"head", bytes(2 * TURN))
    output.release()
    assert not output.is_free
    assert output.is_waiting
    await output.drain()
    assert b"".join(transport.taken) == b"head" + bytes(2 * TURN)


def test_nothing_is_held_for_who_is_gone() -> None:
    transport = Bottomless()
    output = _output(transport)
    output.hold(b"head", bytes(LARGE))
    output.drop()
    assert output.release() == 0
    assert not output.hold(b"head", bytes(LARGE))
    assert transport.taken == []
    assert output.buffered == 0


class Full(Bottomless):
    """A transport that is full after each write, until it is asked to go on."""

    def __init__(self) -> None:
        super().__init__()
        self.output = _output(self)

    def write(self, data: bytes | memoryview) -> None:
        super().write(data)
        self.output.is_paused = True


def test_a_large_answer_waits_while_the_client_reads_only_the_one_before() -> None:
    transport = Full()
    output = transport.output
    output.hold(b"head", bytes(LARGE))
    assert output.release() == RECORD
    assert [len(record) for record in transport.taken] == [RECORD]
    assert output.is_waiting
    assert output.buffered == LARGE + 4 - RECORD
    output.resume()
    assert b"".join(transport.taken) == b"head" + bytes(LARGE)


class Waiting:
    """A connection with so much to send."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.is_sent = False

    def release(self) -> int:
        self.is_sent = True
        return self.size


async def test_others_are_heard_before_what_is_held_is_sent_and_again_after_some_of_it() -> None:
    loop = asyncio.get_running_loop()
    large_responses, waiting = LargeResponseQueue(loop), [Waiting(TURN // 2) for _ in range(5)]
    sent: list[int] = []

    def look() -> None:
        sent.append(sum(part.is_sent for part in waiting))

    loop.call_soon(look)
    for part in waiting:
        large_responses.hold(part.release)
    assert not any(part.is_sent for part in waiting)
    for _ in range(4):
        await asyncio.sleep(0)
        look()
    assert sent == [0, 2, 4, 5, 5]


class Broken(Waiting):
    def release(self) -> int:
        raise RuntimeError("no transport")


async def test_one_that_cannot_be_sent_holds_up_no_other() -> None:
    loop, reported = asyncio.get_running_loop(), []
    loop.set_exception_handler(lambda _, context: reported.append(context["exception"]))
    large_responses, good = LargeResponseQueue(loop), [Waiting(1), Waiting(1)]
    for part in (good[0], Broken(1), good[1]):
        large_responses.hold(part.release)
    for _ in range(3):
        await asyncio.sleep(0)
    assert [part.is_sent for part in good] == [True, True]
    assert [str(error) for error in reported] == ["no transport"]
