"""Whether this machine becomes a node of its cluster."""

from __future__ import annotations

import socket

import pytest

from pinnace.node import this_machine
from pinnace.node.this_machine import NO_NODE, NoNode, become_node

NAME = socket.gethostname().lower()


@pytest.fixture(autouse=True)
def capable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(this_machine, "missing_for_pods", lambda: "")
    monkeypatch.delenv(NO_NODE, raising=False)


@pytest.mark.parametrize(
    ("wanted", "is_useful", "name"),
    [(None, True, NAME), (None, False, ""), (True, True, NAME), (True, False, NAME), (False, True, "")],
)
def test_the_user_decides_and_without_a_choice_the_use(wanted: bool | None, is_useful: bool, name: str) -> None:
    assert become_node(wanted, is_useful=is_useful) == name


@pytest.mark.parametrize(("value", "name"), [("1", ""), ("0", NAME), ("", NAME)])
def test_the_environment_forbids_a_node_unless_the_user_wants_it(
    value: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(NO_NODE, value)
    assert become_node(None, is_useful=True) == name
    assert become_node(True, is_useful=True) == NAME


def test_a_machine_that_cannot_run_pods_is_no_node(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(this_machine, "missing_for_pods", lambda: "namespaces are refused")
    with pytest.raises(NoNode, match="namespaces are refused"):
        become_node(None, is_useful=True)
    assert become_node(False, is_useful=True) == ""
