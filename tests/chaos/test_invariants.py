"""Each invariant of the chaos suite can be violated, and the schedule is that of its seed."""

from __future__ import annotations

import pytest
from tests.chaos.invariants import (
    READY_AGAIN_SECONDS,
    UNREADY_SECONDS,
    Beat,
    Outage,
    PodView,
    Sample,
    Workload,
    forgotten_lives,
    lost_writes,
    overlapping_lives,
    unrecovered,
    untrue_conditions,
)
from tests.chaos.schedule import TARGETS, Abilities, Kind, Schedule, targets_of

ALL = Abilities(fills_disks=True, moves_clocks=True)


def beats(lives: str) -> list[Beat]:
    return [Beat(life, sorted(set(lives), key=lives.index).index(life)) for life in lives]


@pytest.mark.parametrize(("lives", "twice"), [("aaabbb", []), ("aabab", ["a"]), ("abcab", ["a", "b"]), ("", [])])
def test_a_life_that_goes_on_beside_a_newer_one_is_a_violation(lives: str, twice: list[str]) -> None:
    assert overlapping_lives(beats(lives)) == twice


def test_a_volume_that_forgets_a_life_is_a_violation() -> None:
    assert forgotten_lives(beats("aabbc")) == []
    assert forgotten_lives([Beat("a", 0), Beat("b", 0)]) == ["b"]


def test_an_acknowledged_write_that_is_gone_is_a_violation() -> None:
    assert lost_writes({"a": 3, "b": 1}, {"a": 3, "b": 2}) == []
    assert lost_writes({"a": 3, "b": 1, "c": 0}, {"a": 2, "b": 1}) == ["a", "c"]


OUTAGE = Outage("a", 100, 200)


@pytest.mark.parametrize(
    ("at", "is_ready", "is_true"),
    [
        pytest.param(100 + UNREADY_SECONDS - 1, True, True, id="within the grace"),
        pytest.param(100 + UNREADY_SECONDS + 1, True, False, id="Ready without an agent"),
        pytest.param(100 + UNREADY_SECONDS + 1, False, True, id="not Ready without an agent"),
        pytest.param(200 + READY_AGAIN_SECONDS - 1, False, True, id="soon after"),
        pytest.param(200 + READY_AGAIN_SECONDS + 1, False, False, id="not Ready again"),
        pytest.param(200 + READY_AGAIN_SECONDS + 1, True, True, id="Ready again"),
        pytest.param(90, False, False, id="not Ready for no reason"),
    ],
)
def test_ready_tells_the_truth(at: float, is_ready: bool, is_true: bool) -> None:
    assert (untrue_conditions([Sample(at, "a", is_ready)], [OUTAGE], []) == []) is is_true


def test_conditions_count_again_when_the_server_was_there_for_long_enough() -> None:
    down = [Outage("server", 205, 240)]
    for at, is_true in ((239, True), (240 + READY_AGAIN_SECONDS - 1, True), (240 + READY_AGAIN_SECONDS + 1, False)):
        assert (untrue_conditions([Sample(at, "a", False)], [OUTAGE], down) == []) is is_true


def test_a_cluster_has_recovered_when_each_wanted_pod_is_there_once_and_each_node_ready() -> None:
    wanted, nodes = [Workload("web", 2)], {"a": True}
    good = [PodView("web", "w1", True, False), PodView("web", "w2", True, False)]
    assert unrecovered(wanted, good, nodes, ["a"]) == []
    assert unrecovered(wanted, good[:1], nodes, ["a"])
    assert unrecovered(wanted, [*good, PodView("web", "w3", False, True)], nodes, ["a"])
    assert unrecovered(wanted, good, {"a": False}, ["a"])


def test_a_schedule_is_that_of_its_seed_and_reaches_every_part() -> None:
    first, second, other = (Schedule(seed, ALL, longest=10) for seed in (7, 7, 8))
    steps = [first.next_step() for _ in range(400)]
    assert steps == [second.next_step() for _ in range(400)]
    assert steps != [other.next_step() for _ in range(400)]
    assert targets_of(steps) == {(kind, target) for kind, targets in TARGETS.items() for target in targets}
    assert {step.faults[0].kind for step in steps[: len(Kind)]} == set(Kind)


def test_a_schedule_has_no_faults_that_the_machine_cannot_make() -> None:
    schedule = Schedule(1, Abilities(fills_disks=False, moves_clocks=False), longest=10)
    kinds = {fault.kind for _ in range(200) for fault in schedule.next_step().faults}
    assert kinds.isdisjoint({Kind.FILL, Kind.JUMP})
