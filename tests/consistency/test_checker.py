"""The checker finds each kind of inconsistency in a history that has it, and none in one that has not."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.consistency.checker import violations
from tests.consistency.history import History, Listed, Read, Span, Version, Watched, Written

A1, A2, B3, A4, C5, A6 = (
    Version(1, "a", "1"),
    Version(2, "a", "2"),
    Version(3, "b", "3"),
    Version(4, "a", None),
    Version(5, "c", "5"),
    Version(6, "a", "6"),
)


def good() -> History:
    return History(
        audit=Watched(0, [A1, A2, B3, A4, C5, A6]),
        writes=[
            Written(Span(1, 2), "a", 0, 1, "1"),
            Written(Span(3, 4), "a", 1, 2, "2"),
            Written(Span(3, 6), "b", 0, 3, "3"),
            Written(Span(7, 8), "a", 2, 0, None),
            Written(Span(9, 10), "c", None, 5, "5"),
            Written(Span(11, 12), "a", 0, 6, "6"),
        ],
        reads=[
            Read(Span(2.5, 2.6), "a", A1),
            Read(Span(4.5, 4.6), "a", A2),
            Read(Span(0, 4.5), "a", A1),
            Read(Span(8.5, 8.6), "a", None),
            Read(Span(0, 1.5), "b", None),
            Read(Span(13, 14), "a", A6),
        ],
        lists=[Listed(Span(6.5, 6.6), 3, frozenset((A2, B3))), Listed(Span(10.5, 10.6), 5, frozenset((B3, C5)), 2)],
        watches=[Watched(0, [A1, A2, B3]), Watched(2, [B3, A4, C5]), Watched(6)],
    )


def test_a_consistent_history_has_no_violation() -> None:
    assert violations(good()) == []


def change(edit: Callable[[History], object]) -> History:
    history = good()
    edit(history)
    return history


@pytest.mark.parametrize(
    ("history", "expected"),
    [
        pytest.param(
            change(lambda h: h.writes.append(Written(Span(12, 13), "d", 0, 7, "7"))),
            "an acknowledged write is lost",
            id="lost write",
        ),
        pytest.param(
            change(lambda h: h.writes.__setitem__(1, Written(Span(3, 4), "a", 0, 2, "2"))),
            "lost update",
            id="two creates of one key",
        ),
        pytest.param(
            change(lambda h: h.writes.__setitem__(5, Written(Span(11, 12), "a", 2, 6, "6"))),
            "lost update",
            id="update of a deleted object",
        ),
        pytest.param(
            change(lambda h: h.writes.__setitem__(1, Written(Span(3, 4), "a", 1, 2, "other"))),
            "an acknowledged write is lost",
            id="another value",
        ),
        pytest.param(
            change(lambda h: h.writes.__setitem__(3, Written(Span(7, 8), "a", 1, 0, None))),
            "lost or wrong deletion",
            id="deletion of an older version",
        ),
        pytest.param(
            change(lambda h: h.writes.__setitem__(4, Written(Span(12.5, 13), "c", None, 5, "5"))),
            "began after revision 6",
            id="revisions run backwards",
        ),
        pytest.param(
            change(lambda h: h.reads.append(Read(Span(4.5, 5), "a", A1))), "stale read", id="read of an older version"
        ),
        pytest.param(
            change(lambda h: h.reads.append(Read(Span(13, 14), "a", A2))), "stale read", id="read of a deleted object"
        ),
        pytest.param(
            change(lambda h: h.reads.append(Read(Span(4.5, 5), "a", None))), "stale read", id="object not found"
        ),
        pytest.param(
            change(lambda h: h.reads.append(Read(Span(4.5, 5), "a", Version(2, "a", "9")))),
            "never written",
            id="invented value",
        ),
        pytest.param(
            change(lambda h: h.reads.append(Read(Span(1, 1.5), "a", A6))), "written later", id="read from the future"
        ),
        pytest.param(
            change(lambda h: h.lists.append(Listed(Span(10.5, 10.6), 3, frozenset((A2, B3))))),
            "stale list",
            id="stale list",
        ),
        pytest.param(
            change(lambda h: h.lists.append(Listed(Span(6.5, 6.6), 3, frozenset((A1, B3)), 2))),
            "is not the state",
            id="pages of two states",
        ),
        pytest.param(
            change(lambda h: h.lists.append(Listed(Span(6.5, 6.6), 3, frozenset((B3,))))),
            "is not the state",
            id="incomplete list",
        ),
        pytest.param(change(lambda h: h.watches.append(Watched(0, [A1, B3]))), "gap", id="gap in a watch"),
        pytest.param(
            change(lambda h: h.watches.append(Watched(0, [A1, A1, A2]))), "duplicate", id="change shown twice"
        ),
        pytest.param(change(lambda h: h.watches.append(Watched(0, [A2, A1]))), "order", id="changes out of order"),
        pytest.param(
            change(lambda h: h.watches.append(Watched(1, [A1, A2]))), "duplicate", id="change before the start"
        ),
        pytest.param(
            change(lambda h: h.audit.seen.__setitem__(slice(0, 2), [A2, A1])),
            "the audit shows",
            id="audit out of order",
        ),
        pytest.param(change(lambda h: h.audit.seen.remove(B3)), "lost", id="audit with a gap"),
    ],
)
def test_each_inconsistency_is_found(history: History, expected: str) -> None:
    assert any(expected in violation for violation in violations(history)), violations(history)
