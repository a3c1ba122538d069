"""Concurrent clients at one and three servers, on SQLite and etcd, with faults: no history is inconsistent.

The short pieces are for every change; `make soak` runs enough of them for 100,000 operations. A long run with random
faults is `python -m tests.consistency.soak`.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from tests.consistency.pieces import run_piece
from tests.consistency.scene import SceneSize, staged

SIZES = {
    "one server on SQLite with a slow disk": SceneSize(write_seconds=0.001),
    "one server on etcd": SceneSize(members=1, is_proxied=True),
    "three servers on etcd, one of them far from it": SceneSize(servers=3, members=1, is_proxied=True),
    "three servers on three members of etcd": SceneSize(servers=3, members=3),
}
EVERY_CHANGE = ("one server on SQLite with a slow disk", "three servers on etcd, one of them far from it")
SHORT = 1_000
LONG, PIECES = 2_500, 11
"""Operations of a piece, and pieces: four times this is more than 100,000 operations."""


@pytest.mark.parametrize(
    ("size", "operations", "pieces"),
    [
        *(pytest.param(SIZES[name], SHORT, 1, id=f"short: {name}") for name in EVERY_CHANGE),
        *(pytest.param(SIZES[name], LONG, PIECES, id=name, marks=pytest.mark.soak) for name in SIZES),
    ],
)
async def test_no_history_is_inconsistent(tmp_path: Path, size: SceneSize, operations: int, pieces: int) -> None:
    chance = random.Random(19)
    async with staged(tmp_path, size) as scene:
        for number in range(pieces):
            piece = await run_piece(scene, f"run{number}", operations=operations, chance=chance)
            print(piece)
            assert piece.violations == []
            history = piece.history
            assert history.operations >= operations
            assert history.audit.seen and any(listed.pages > 1 for listed in history.lists)
