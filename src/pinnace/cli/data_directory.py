"""The directory in which a cluster and its node keep their state, apart from `pinnace up`, which is large to load."""

from __future__ import annotations

import os
from pathlib import Path


def default_data_dir() -> Path:
    base = os.environ.get("XDG_DATA_HOME") or str(Path.home() / ".local" / "share")
    return Path(base) / "pinnace"
