"""The zero values of objects, as Go writes them."""

from __future__ import annotations

import pytest

from pinnace.kinds.definitions import Definitions, minors
from pinnace.kinds.golang import empty_fields
from pinnace.model.objects import Kind
from pinnace.model.quantity import canonical
from pinnace.schema.golang.decode import Decoders


@pytest.mark.parametrize("minor", minors())
def test_an_empty_object_is_what_reading_nothing_comes_to(minor: str) -> None:
    definitions = Definitions.load(minor)
    decoders = Decoders(quantity=canonical, empty_fields=empty_fields.of_type)
    for kind in (Kind("", "v1", "Service"), Kind("apps", "v1", "DaemonSet"), Kind("", "v1", "Event")):
        schema = definitions.of_kind(kind)
        assert schema is not None
        read: dict[str, object] = {}
        assert decoders.of(schema)(read) == []
        assert read == empty_fields.empty(schema)


def test_fields_are_written_left_out_or_as_they_were_said() -> None:
    definitions = Definitions.load("1.36")
    schema = definitions.of_kind(Kind("apps", "v1", "DaemonSet"))
    assert schema is not None
    counts = ("currentNumberScheduled", "numberMisscheduled", "desiredNumberScheduled", "numberReady")
    message = {"spec": {"minReadySeconds": 0, "revisionHistoryLimit": 0}}
    Decoders(quantity=canonical, empty_fields=empty_fields.of_type).of(schema)(message)
    assert "minReadySeconds" not in message["spec"], "Go cannot tell zero from nothing here"
    assert message["spec"]["revisionHistoryLimit"] == 0, "Go has a pointer here"
    assert empty_fields.empty(schema)["status"] == dict.fromkeys(counts, 0)


def test_nothing_is_known_of_types_that_are_not_kubernetes_own() -> None:
    assert empty_fields.of_type("") == empty_fields.of_type("com.example.v1.Foo") == ((), frozenset())
