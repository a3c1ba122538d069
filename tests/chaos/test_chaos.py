"""A cluster with real processes keeps its promises under random faults: for a minute here, longer with `make soak`.

`python -m tests.chaos.run --seed NUMBER` repeats the schedule of a run that failed.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from tests.chaos.run import run
from tests.machine import need
from tests.node.namespaces import need_namespaces

_SHORT_SEED = 1
_SHORT_MINUTES = 1.0
_SHORT_PAUSE = 4.0
_SOAK_MINUTES = 30.0
_SOAK_PAUSE = 60.0


async def _survive(directory: Path, *, seed: int, minutes: float, longest: float) -> None:
    need("busybox")
    need_namespaces()
    report = await run(directory, seed=seed, minutes=minutes, longest=longest)
    assert report.violations == [], str(report)
    assert report.steps > 0
    assert report.writes > 0


@pytest.mark.stalls("it starts and looks for processes between the steps")
async def test_a_cluster_survives_random_faults(tmp_path: Path) -> None:
    await _survive(tmp_path, seed=_SHORT_SEED, minutes=_SHORT_MINUTES, longest=_SHORT_PAUSE)


@pytest.mark.soak
@pytest.mark.timeout(3 * 60 * _SOAK_MINUTES)
@pytest.mark.stalls("it starts and looks for processes between the steps")
async def test_a_cluster_survives_half_an_hour_of_random_faults(tmp_path: Path) -> None:
    seed = time.time_ns() % 1_000_000
    await _survive(tmp_path, seed=seed, minutes=_SOAK_MINUTES, longest=_SOAK_PAUSE)
