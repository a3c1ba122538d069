"""The decisions of Kubernetes' own controller (1.36) for random cases: replicas, conditions, metrics and Events.

decisions.jsonl.xz holds one line for each case of `CaseGenerator(20)`. The cases were given to
HorizontalController.reconcileAutoscaler with fake clients, and time between the steps was made to pass.
"""

from __future__ import annotations

import asyncio
import lzma
from itertools import islice
from pathlib import Path

import orjson
import pytest
from tests.controllers.autoscaling.random_cases import CaseGenerator
from tests.controllers.autoscaling.replay import Replay, differences

RECORDED = Path(__file__).parent / "decisions.jsonl.xz"
SEED, COUNT = 20, 4000
OFTEN = 1200
"""The cases of every run; the others belong to the soak."""


@pytest.mark.parametrize(
    ("first", "last"), [(0, OFTEN), pytest.param(OFTEN, COUNT, marks=pytest.mark.soak)], ids=["often", "rest"]
)
async def test_decisions_equal_those_of_kubernetes(first: int, last: int) -> None:
    recorded = lzma.decompress(RECORDED.read_bytes()).splitlines()
    assert len(recorded) == COUNT
    replay, scaled = Replay(), 0
    for case, line in zip(islice(CaseGenerator(SEED).cases(last), first, None), recorded[first:last], strict=True):
        await asyncio.sleep(0)  # Other tasks have their turn.
        theirs = orjson.loads(line)
        assert differences(await replay.decisions(case), theirs) == []
        scaled += sum("SuccessfulRescale" in str(step["events"]) for step in theirs)
    assert scaled > (last - first) // 4  # The cases are not trivial.
