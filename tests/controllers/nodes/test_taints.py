"""Reading the taints of nodes."""

from __future__ import annotations

from typing import Any

import pytest

from pinnace.client.snapshots import snapshot_of
from pinnace.controllers.nodes.taints import taints_in, taints_of
from pinnace.model.objects import Object


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"taints": [{"key": "a", "effect": "NoExecute"}, {"key": "b", "effect": "NoSchedule"}]}, ["a"]),
        ({"taints": None}, []),
        ({}, []),
    ],
    ids=["two effects", "null", "none"],
)
def test_the_taints_of_an_encoded_node_are_those_of_the_decoded_one(spec: Object, expected: list[str]) -> None:
    node: Any = {"metadata": {"name": "n"}, "spec": spec, "status": {"images": [{"names": ["x"]}]}}
    result = taints_in(snapshot_of(node), "NoExecute")
    assert [taint["key"] for taint in result] == expected
    assert result == taints_of(node, "NoExecute")
