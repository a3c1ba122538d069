"""Bring scores into the range from 0 to 100, with the integer arithmetic of kube-scheduler."""

from __future__ import annotations

import numpy as np

from pinnace.scheduler.framework.plugin import HIGHEST_SCORE
from pinnace.scheduler.state.arrays import Integers


def normalize(scores: Integers, *, is_reversed: bool = False) -> Integers:
    """Scale so that the highest score becomes 100; reversed, the lowest is best. Scores must not be negative."""
    highest = int(scores.max()) if len(scores) else 0
    if highest == 0:
        return np.full_like(scores, HIGHEST_SCORE) if is_reversed else scores
    scaled = HIGHEST_SCORE * scores // highest
    return HIGHEST_SCORE - scaled if is_reversed else scaled
