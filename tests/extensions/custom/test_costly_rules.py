"""Expensive rules of custom resources run in a thread, so that other requests do not wait."""

from __future__ import annotations

import threading

import pytest
from tests.extensions.definitions import BOATS, NUMBER, Cluster, boat, boats, shape, version
from tests.server.in_process import Object

from pinnace.schema.cel.program import Program
from pinnace.schema.cel.run import CelRun

COSTLY = [{"rule": f"self.all(x, self.all(y, x + y != {sum_}))", "message": f"no {sum_}"} for sum_ in range(1, 21)]
SIZES: Object = {"type": "array", "maxItems": 300, "items": NUMBER, "x-kubernetes-validations": COSTLY}


@pytest.fixture
def askers(monkeypatch: pytest.MonkeyPatch) -> list[threading.Thread]:
    """The threads in which rules were asked, in order."""
    seen: list[threading.Thread] = []
    evaluate_in = Program.evaluate_in

    def note(program: Program, run: CelRun) -> object:
        seen.append(threading.current_thread())
        return evaluate_in(program, run)

    monkeypatch.setattr(Program, "evaluate_in", note)
    return seen


async def test_rules_that_cost_much_are_asked_in_a_thread(cluster: Cluster, askers: list[threading.Thread]) -> None:
    await cluster.define(boats(version(schema=shape(sizes=SIZES))))
    askers.clear()
    await cluster.made(BOATS, boat("large", sizes=list(range(100, 200))))
    assert askers[-1] is not threading.main_thread()
    assert askers.count(threading.main_thread()) < len(COSTLY)  # It was given up there.


async def test_costly_rules_give_the_same_errors_as_immediate_ones(cluster: Cluster) -> None:
    await cluster.define(boats(version(schema=shape(sizes=SIZES))))
    refused = await cluster.post(BOATS, boat("large", sizes=[*range(100, 199), 1]))
    assert (refused.status, refused.json["details"]["causes"][0]["message"]) == (422, "Invalid value: no 2")
    assert len(refused.json["details"]["causes"]) == 1


async def test_rules_that_cost_little_are_asked_at_once(cluster: Cluster, askers: list[threading.Thread]) -> None:
    await cluster.define(boats(version(schema=shape(sizes=SIZES))))
    askers.clear()
    await cluster.made(BOATS, boat("small", sizes=[100, 200]))
    assert set(askers) == {threading.main_thread()}
