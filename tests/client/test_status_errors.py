"""Malformed errors of servers: each becomes an ApiError, never another exception."""

from __future__ import annotations

from typing import Any

import pytest

from pinnace.client.mapping import resource_rows
from pinnace.client.status_errors import error_of
from pinnace.client.transport import Answer
from pinnace.model import errors
from pinnace.model.errors import error_of_status

ODD: list[Any] = [
    None,
    0,
    1.5,
    -1,
    True,
    "x",
    "",
    [],
    [1],
    ["x"],
    [[]],
    {},
    {"a": 1},
    {"causes": "x"},
    {"causes": [1, "x", None]},
]


@pytest.mark.parametrize("field", ["details", "code", "reason", "message", "status"])
@pytest.mark.parametrize("reason", ["Invalid", "Conflict", "NotFound", "Forbidden", "Expired", "", "Odd"])
@pytest.mark.parametrize("value", ODD, ids=repr)
def test_any_status_gives_an_error(field: str, reason: str, value: Any) -> None:
    status = {"kind": "Status", "reason": reason, "code": 409, "details": {"name": "a"}, field: value}
    error = error_of_status(status)
    assert isinstance(error, errors.ApiError)
    assert isinstance(error.retry_after, int)


@pytest.mark.parametrize("name", ["retryAfterSeconds", "causes", "name", "kind"])
@pytest.mark.parametrize("value", ODD, ids=repr)
def test_any_details_give_an_error(name: str, value: Any) -> None:
    status = {"kind": "Status", "reason": "Invalid", "code": 422, "details": {name: value}}
    error = error_of_status(status)
    assert isinstance(error, errors.Invalid)
    assert isinstance(error.retry_after, int)


@pytest.mark.parametrize("body", [b"", b"\xff", b"[]", b"1", b'"x"', b"{", b'{"kind":"Status","details":[]}'])
def test_any_body_gives_an_error(body: bytes) -> None:
    assert error_of(Answer(503, {}, body)).code == 503


def test_numbers_that_are_well_formed_are_kept() -> None:
    error = error_of_status({"kind": "Status", "code": 429, "details": {"retryAfterSeconds": 7}})
    assert (type(error), error.retry_after) == (errors.TooManyRequests, 7)


@pytest.mark.parametrize("answer", [*ODD, {"resources": "x"}, {"resources": [None, 1, {}, {"name": "a"}, {"name": 1}]}])
def test_odd_discovery_has_no_resources(answer: Any) -> None:
    assert resource_rows(answer) == []


def test_odd_rows_of_discovery_are_left_out() -> None:
    good = {"name": "recipes", "kind": "Recipe", "verbs": ["get"], "namespaced": True}
    odd = [{"kind": "Recipe"}, {**good, "verbs": "get"}, {**good, "verbs": [1]}, {**good, "group": 1}]
    assert resource_rows({"resources": [*odd, good]}) == [good]
