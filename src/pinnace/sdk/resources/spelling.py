"""Find the name that was probably meant."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def nearest(name: str, known: Iterable[str]) -> str:
    """Return "; did you mean X?" for the most similar name, or nothing."""
    matches = get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f"; did you mean {matches[0]}?" if matches else ""
