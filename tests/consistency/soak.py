"""A long run with random faults over all sizes of clusters in turn; it reports each piece, and ends at a violation.

python -m tests.consistency.soak [MINUTES] [SEED]      # 30 minutes by default
"""

from __future__ import annotations

import asyncio
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.consistency.pieces import run_piece
from tests.consistency.scene import staged
from tests.consistency.test_consistency import SIZES

OPERATIONS = 3_000
PIECES = 3


async def soak(minutes: float, seed: int) -> int:
    """Run until the time is over. Return the number of violations."""
    chance = random.Random(seed)
    until = time.monotonic() + 60 * minutes
    operations, pieces = 0, 0
    faults: Counter[str] = Counter()
    while time.monotonic() < until:
        for name, size in SIZES.items():
            with tempfile.TemporaryDirectory() as directory:
                async with staged(Path(directory), size) as scene:
                    for _ in range(PIECES):
                        pieces += 1
                        piece = await run_piece(scene, f"run{pieces}", operations=OPERATIONS, chance=chance)
                        print(f"{pieces}: {name}: {piece}", flush=True)
                        operations += piece.history.operations
                        faults.update(piece.faults)
                        if piece.violations:
                            print("\n".join(piece.violations[:20]))
                            return len(piece.violations)
            if time.monotonic() >= until:
                break
    counts = ", ".join(f"{name} {number}" for name, number in faults.most_common())
    print(f"{operations} operations in {pieces} pieces, {faults.total()} faults ({counts}), no violation")
    return 0


def main() -> None:
    minutes = float(sys.argv[1]) if len(sys.argv) > 1 else 30.0
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else time.time_ns()
    print(f"{minutes:g} minutes, seed {seed}", flush=True)
    sys.exit(1 if asyncio.run(soak(minutes, seed)) else 0)


if __name__ == "__main__":
    main()
