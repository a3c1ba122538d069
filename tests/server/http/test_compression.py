"""gzip responses are correct for all beginnings and pieces, and a shared piece is compressed once."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Awaitable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pinnace.serving import compression
from pinnace.serving.compression import CompressedPiece, GzipCache, compress_piece, join_compressed

LIST = b'{"metadata":{"name":"a"}},' * 20_000


@pytest.fixture
def packings(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows with each end that is packed."""
    counted: list[int] = []

    def counting(end: bytes) -> CompressedPiece:
        counted.append(len(end))
        return compress_piece(end)

    monkeypatch.setattr(compression, "compress_piece", counting)
    return counted


async def unzipped(zipped: list[bytes] | Awaitable[list[bytes]]) -> bytes:
    return gzip.decompress(b"".join(zipped if isinstance(zipped, list) else await zipped))


@given(begin=st.binary(max_size=300), rest=st.lists(st.binary(max_size=3000), max_size=4))
@example(begin=b"", rest=[])
@example(begin=b"x" * 70_000, rest=[b"y" * 70_000, b"", b"z"])
def test_a_beginning_and_pieces_make_a_whole(begin: bytes, rest: list[bytes]) -> None:
    compressed = join_compressed(begin, [compress_piece(piece) for piece in rest])
    assert gzip.decompress(b"".join(compressed)) == begin + b"".join(rest)


async def test_an_answer_is_not_compressed_again_though_another_begins_with_it(packings: list[int]) -> None:
    zipper = GzipCache()
    assert await unzipped(zipper.compress([b"first,", LIST])) == b"first," + LIST
    again = zipper.compress([b"second,", LIST])
    assert isinstance(again, list), "nothing is left to wait for"
    assert await unzipped(again) == b"second," + LIST
    assert packings == [len(LIST)]


async def test_concurrent_requests_share_one_result_and_one_that_leaves_spoils_nothing(packings: list[int]) -> None:
    zipper = GzipCache()
    asking = [asyncio.ensure_future(unzipped(zipper.compress([b"%d," % number, LIST]))) for number in range(5)]
    await asyncio.sleep(0)
    asking.pop().cancel()
    assert await asyncio.gather(*asking) == [b"%d," % number + LIST for number in range(4)]
    assert packings == [len(LIST)]


async def test_memory_is_bounded_and_what_was_asked_for_longest_ago_is_forgotten(packings: list[int]) -> None:
    zipper = GzipCache(most_bytes=3 * len(LIST))
    lists = [LIST + b"%d" % number for number in range(8)]
    for body in (*lists, lists[-1], lists[0]):
        assert await unzipped(zipper.compress([b"", body])) == body
    assert len(packings) == 9


async def test_one_that_could_not_be_packed_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(end: bytes) -> CompressedPiece:
        raise MemoryError

    zipper = GzipCache()
    with monkeypatch.context() as failing:
        failing.setattr(compression, "compress_piece", refuse)
        with pytest.raises(MemoryError):
            await unzipped(zipper.compress([b"", LIST]))
    assert await unzipped(zipper.compress([b"", LIST])) == LIST
