"""`pinnace version`."""

from __future__ import annotations

from pinnace import __version__
from pinnace.kinds.definitions import minors


def version() -> None:
    """Print the version of pinnace and the Kubernetes minors that it can serve."""
    print(f"pinnace {__version__}, serving Kubernetes {minors()[0]} to {minors()[-1]}")
