"""Headers that were parsed before are not parsed again, and mean what the parser says."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pinnace.server.http.request_parser import NEVER, HeaderCache, RequestParser
from pinnace.server.local import NoTransport
from pinnace.serving.limits import Limits
from pinnace.serving.messages import Peer, Request, RequestHead, Response

FIRST = (
    b"POST /api/v1/namespaces/default/configmaps?fieldManager=me HTTP/1.1\r\nHost: here\r\nAccept: application/json\r\n"
    b"Authorization: Bearer secret\r\nContent-Length: 5\r\nContent-Type: application/json\r\n\r\nhello"
)

Seen = tuple[object, ...]


class Listening:
    """Notes down what is asked and what is refused."""

    def __init__(self) -> None:
        self.seen: list[Seen] = []

    def handle_request(self, request: Request, keep: bool, chunks: bool) -> None:
        head = request.head
        fields = [getattr(head, name) for name in head.__slots__]
        target = (request.method, request.target, request.path, request.raw_query)
        self.seen.append((*target, *fields, request.body, request.upgrade, keep, chunks))

    def reject(self, answer: Response) -> None:
        self.seen.append((answer.status, answer.body))

    def expect_continue(self) -> None:
        self.seen.append(("expecting",))

    def begin_upgrade(self) -> None:
        self.seen.append(("upgraded",))


def read(header_cache: HeaderCache, *pieces: bytes, limits: Limits | None = None) -> list[Seen]:
    """Return the calls of the parser for these pieces, and its state at the end."""
    listening, loop = Listening(), asyncio.new_event_loop()
    try:
        parser = RequestParser(
            listening, Peer(NoTransport()), header_cache=header_cache, limits=limits or Limits(), loop=loop
        )
        for piece in pieces:
            parser.feed(piece)
        is_in_body, is_waited_for = parser.is_in_body and parser.is_reading, parser.deadline != NEVER
        return [*listening.seen, (parser.is_reading, parser.is_last, is_in_body, is_waited_for)]
    finally:
        loop.close()


def knowing(*requests: bytes) -> HeaderCache:
    header_cache = HeaderCache()
    for request in requests:
        read(header_cache, request)
    return header_cache


def is_known(header_cache: HeaderCache, request: bytes) -> bool:
    return header_cache.read(request, 1 << 20) is not None


def test_the_second_request_is_read_from_memory() -> None:
    header_cache = HeaderCache()
    assert not is_known(header_cache, FIRST)
    first = read(header_cache, FIRST)
    assert is_known(header_cache, FIRST)
    assert read(header_cache, FIRST) == first == read(HeaderCache(), FIRST)


@pytest.mark.parametrize(
    "other",
    [
        FIRST.replace(b"5\r\n", b"7\r\n").replace(b"hello", b"goodbye"),
        FIRST.replace(b"/configmaps?fieldManager=me", b"/secrets"),
        FIRST.replace(b"POST", b"DELETE"),
        FIRST.replace(b"/configmaps?", b'/"<>\\^`{|}~?%zz?/&'),
        FIRST.replace(b"Content-Length: 5\r\n", b"Content-Length: 005\r\n"),
        FIRST.replace(b"Content-Length: 5\r\n", b"Content-Length: 0\r\n").replace(b"hello", b""),
    ],
)
def test_neither_the_body_nor_what_is_asked_for_makes_a_difference(other: bytes) -> None:
    header_cache = knowing(FIRST)
    assert is_known(header_cache, other)
    assert read(header_cache, other) == read(HeaderCache(), other)


@pytest.mark.parametrize(
    "other",
    [
        FIRST + b"GET / HTTP/1.1\r\n",  # Something follows.
        FIRST[:-1],  # The body has not all come.
        FIRST.replace(b"secret", b"Secret"),
        FIRST.replace(b"Content-Length: 5", b"Content-Length: 5, 5"),
        FIRST.replace(b"Content-Length: 5", b"Content-Length: +5"),
        FIRST.replace(b"Content-Length: 5", b"Content-Length: "),
        FIRST.replace(b"Content-Length: 5", b"Content-Length: %b" % (b"1" * 5000)),  # More than Python reads.
        FIRST.replace(b"Content-Length: 5", b"Content-Length: 5\r\n 5"),
        FIRST.replace(b"Content-Length: 5\r\n", b"Content-Length: 5\r\nContent-Length: 5\r\n"),
        FIRST.replace(b"Content-Length: 5\r\n", b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n"),
        FIRST.replace(b"Content-Length: 5\r\n", b""),
        FIRST.replace(b"HTTP/1.1", b"HTTP/1.0"),
        FIRST.replace(b"POST", b"post"),
        FIRST.replace(b"POST", b"PROPFIND"),
        FIRST.replace(b"/api", b"/%zz"),
        FIRST.replace(b"/api", b"//evil"),
        FIRST.replace(b"/api", b"http://evil/api"),
        FIRST.replace(b"?fieldManager", b"#fieldManager"),
        FIRST.replace(b"?fieldManager", b"?field HTTP/1.1 Manager"),
        FIRST.replace(b"?fieldManager", b"?\x80"),
        FIRST.replace(b"\r\n", b"\n"),
        FIRST.replace(b"here\r\n", b"here\n\nGET /evil HTTP/1.1\r\n"),
        FIRST.replace(b"Host: here\r\n", b"Host: here\r\n \r\n"),
    ],
)
def test_a_head_that_differs_is_read_by_the_parser(other: bytes) -> None:
    assert read(knowing(FIRST), other) == read(HeaderCache(), other)


@pytest.mark.parametrize(
    "header",
    [
        b"Connection: close",
        b"Connection: keep-alive, close",
        b"Expect: 100-continue",
        b"Upgrade: websocket",
        b"Upgrade: websocket\r\nConnection: Upgrade",
    ],
)
def test_headers_about_the_connection_are_read_each_time(header: bytes) -> None:
    request = b"GET / HTTP/1.1\r\nHost: here\r\n" + header + b"\r\n\r\n"
    header_cache = knowing(request)
    assert not is_known(header_cache, request)
    assert read(header_cache, request) == read(HeaderCache(), request)


@pytest.mark.parametrize(
    "body",
    [
        b"content-length: 5\r\n\r\nhello",
        b"CONTENT-LENGTH: 5\r\n\r\nhello",
        b"Content-Length:5\r\n\r\nhello",
        b"Content-Length:  5\r\n\r\nhello",
        b"Content-Length: 5 \r\n\r\nhello",
        b"Content-Length: 00000000000005\r\n\r\nhello",
        b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    ],
)
def test_a_body_belongs_to_its_request_however_its_length_is_reported(body: bytes) -> None:
    request = b"POST / HTTP/1.1\r\nHost: here\r\n" + body
    head = request[: request.index(b"\r\n\r\n") + 4]
    header_cache = knowing(request)
    assert read(header_cache, request) == read(HeaderCache(), request)
    assert read(header_cache, head, request[len(head) :]) == read(HeaderCache(), request)
    assert read(header_cache, head) == read(HeaderCache(), head)


def test_the_length_of_one_body_is_not_reported_others() -> None:
    for request in (FIRST, FIRST.replace(b"5\r\n", b"7\r\n").replace(b"hello", b"goodbye")):
        for header_cache in (knowing(FIRST), HeaderCache()):
            assert b"content-length" not in heads_of(header_cache, request)
    assert b"content-length" not in heads_of(HeaderCache(), FIRST.replace(b"HTTP/1.1", b"HTTP/1.0"))


def heads_of(header_cache: HeaderCache, request: bytes) -> dict[bytes, bytes]:
    (_, _, _, _, *fields), _ = read(header_cache, request)
    headers = fields[RequestHead.__slots__.index("headers")]
    assert isinstance(headers, dict)
    return headers


def test_each_value_of_a_header_that_came_more_than_once_is_remembered() -> None:
    request = b"GET / HTTP/1.1\r\nHost: here\r\nImpersonate-Group: a\r\nX: y\r\nImpersonate-Group: b\r\n\r\n"
    header_cache = knowing(request)
    known = header_cache.read(request, 0)
    assert known is not None
    assert [value for name, value in known[4].pairs() if name == b"impersonate-group"] == [b"a", b"b"]


def test_two_requests_that_came_together_are_not_taken_for_one_another() -> None:
    own = b"GET /mine HTTP/1.1\r\nHost: here\r\nAuthorization: Bearer mine\r\n\r\n"
    other = own.replace(b"mine", b"yours")
    for request in (own, other):
        assert read(knowing(own + other), request) == read(HeaderCache(), request)


@pytest.mark.parametrize("body", [b"\r\n", b"Content-Length: 12\r\n\r\nhello, there"], ids=["none", "some"])
def test_a_head_in_pieces_is_not_taken_for_one_of_its_pieces(body: bytes) -> None:
    request = b"GET / HTTP/1.1\r\nHost: here\r\nX: yes\r\n" + body
    for at in range(1, len(request)):
        header_cache = HeaderCache()
        assert read(header_cache, request[:at], request[at:]) == read(HeaderCache(), request)
        for end in range(at - 4, at + 1):
            part = request[: max(end, 0)] + b"\r\n\r\n"
            assert read(header_cache, part) == read(HeaderCache(), part)


def test_a_body_that_looks_like_a_known_request_is_a_body() -> None:
    head = b"POST / HTTP/1.1\r\nHost: here\r\nContent-Length: %d\r\n\r\n" % len(FIRST)
    assert read(knowing(FIRST), head, FIRST) == read(HeaderCache(), head + FIRST)
    half = head[:-2]
    assert read(knowing(FIRST), half, FIRST) == read(HeaderCache(), half + FIRST)


def test_nothing_is_answered_after_the_last_request_though_its_headers_are_known() -> None:
    last = b"GET / HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n"
    assert read(knowing(FIRST), last, FIRST) == read(HeaderCache(), last, FIRST)
    assert len(read(knowing(FIRST), last, FIRST)) == 2


@pytest.mark.parametrize(
    ("authorization", "token"),
    [(b"Bearer t", "t"), (b"bEARER  t ", "t"), (b"Bearer ", None), (b"Basic t", None), (b"Bearert", None), (b"", None)],
)
def test_a_token_authenticates_its_user(authorization: bytes, token: str | None) -> None:
    assert RequestHead({b"authorization": authorization}).bearer == token


@pytest.mark.parametrize(
    ("name", "does"),
    [(b"impersonate-user", True), (b"impersonate-extra-scopes", True), (b"x-impersonate-user", False)],
)
def test_each_impersonation_header_alone_is_an_impersonation(name: bytes, does: bool) -> None:
    assert RequestHead({name: b"bob"}).impersonates is does


def test_one_that_a_body_is_too_large_for_is_refused_though_its_headers_are_known() -> None:
    limits = Limits(body=4)
    assert read(knowing(FIRST), FIRST, limits=limits) == read(HeaderCache(), FIRST, limits=limits)


def test_bytes_behind_an_earlier_request_are_not_taken_for_the_first() -> None:
    get = b"GET / HTTP/1.1\r\nHost: here\r\n\r\n"
    assert not is_known(knowing(get + FIRST), FIRST)
    assert read(knowing(get + FIRST), get, FIRST, get) == read(HeaderCache(), get, FIRST, get)


def test_memory_is_bounded() -> None:
    header_cache = HeaderCache()
    for number in range(3000):
        read(header_cache, b"GET / HTTP/1.1\r\nHost: here\r\nX: %d\r\n\r\n" % number)
    assert is_known(header_cache, b"GET / HTTP/1.1\r\nHost: here\r\nX: 2999\r\n\r\n")
    assert not is_known(header_cache, b"GET / HTTP/1.1\r\nHost: here\r\nX: 0\r\n\r\n")
    large = b"GET / HTTP/1.1\r\nHost: here\r\nX: %b\r\n\r\n" % (b"x" * 5000)
    read(header_cache, large)
    assert not is_known(header_cache, large)


@given(
    at=st.integers(0, len(FIRST)),
    gone=st.integers(0, 4),
    put=st.sampled_from(
        [b"", b"\r", b"\n", b"\r\n", b"\r\n\r\n", b" ", b":", b"0", b"5", b"%", b"?", b"\x80", b"X: y\r\n"]
    ),
)
@example(at=len(FIRST) - 5, gone=0, put=b"\r\n\r\n")
def test_a_known_request_that_was_tampered_with_means_what_the_parser_says(at: int, gone: int, put: bytes) -> None:
    other = FIRST[:at] + put + FIRST[at + gone :]
    assert read(knowing(FIRST), other) == read(HeaderCache(), other)
    assert read(knowing(FIRST, other), other, FIRST) == read(HeaderCache(), other, FIRST)


def test_requests_that_are_remembered_whole_are_neither_too_many_nor_too_long() -> None:
    header_cache = HeaderCache()
    get = FIRST.replace(b"POST", b"GET").replace(b"Content-Length: 5\r\n", b"").removesuffix(b"hello")
    targets = [get.replace(b"fieldManager=me", b"limit=%d" % number) for number in range(3000)]
    for target in targets:
        assert read(header_cache, target) == read(HeaderCache(), target) == read(header_cache, target)
    long = get.replace(b"fieldManager=me", b"labelSelector=%b" % (b"x" * 5000))
    assert read(header_cache, long) == read(HeaderCache(), long) == read(header_cache, long)
    assert len(header_cache._whole) <= 1000
    assert max(map(len, header_cache._whole)) <= 4096
