"""NodeResourcesBalancedAllocation: prefer nodes whose resources would be in use to similar shares."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from pinnace.scheduler.framework.cycle import Cycle
from pinnace.scheduler.framework.plugin import HIGHEST_SCORE, Depends
from pinnace.scheduler.framework.status import SKIP, Skip
from pinnace.scheduler.plugins.resource_scores import Usage, usage_at
from pinnace.scheduler.state.arrays import At, Integers, Mask, divide
from pinnace.scheduler.state.resources import is_scalar

_HALF = HIGHEST_SCORE // 2


class NodeResourcesBalancedAllocation:
    name = "NodeResourcesBalancedAllocation"
    depends = Depends.NODE | Depends.PODS
    ignores_labels = True

    def __init__(self, resources: Sequence[tuple[str, int]]) -> None:
        self._resources = [name for name, _ in resources]

    def pre_score(self, cycle: Cycle, feasible: Mask) -> Skip | None:
        requests = cycle.template.requests
        return None if any(requests.get(name, 0) for name in self._resources) else SKIP

    def score(self, cycle: Cycle, at: At) -> Integers:
        """Compare the balance with and without the pod: 75 if it makes no difference, more if it improves."""
        usage = Usage(cycle.state, at, uses_defaults=False)
        requests = cycle.template.requests
        names = [name for name in self._resources if requests.get(name, 0) or not is_scalar(name)]
        amounts = [(*usage.of(name), requests.get(name, 0)) for name in names]
        with_pod = _balance([(used + wanted, offered) for used, offered, wanted in amounts])
        without = _balance([(used, offered) for used, offered, _ in amounts])
        return _HALF + divide(_HALF + with_pod - without, 2)

    def score_one(self, cycle: Cycle, slot: int) -> int:
        """Return the score of one node; in plain numbers if two resources count, as they do by default."""
        requests = cycle.template.requests
        names = [name for name in self._resources if requests.get(name, 0) or not is_scalar(name)]
        if len(names) != 2:
            return int(self.score(cycle, np.array([slot]))[0])
        (first, offered), (second, offered_second) = (
            usage_at(cycle.state, slot, name, uses_defaults=False) for name in names
        )
        if not offered or not offered_second:
            return _HALF + _HALF // 2
        with_pod = _balance_of_two(
            first + requests.get(names[0], 0), offered, second + requests.get(names[1], 0), offered_second
        )
        without = _balance_of_two(first, offered, second, offered_second)
        return _HALF + int((_HALF + with_pod - without) / 2)


def _balance_of_two(first: int, offered: int, second: int, offered_second: int) -> int:
    """Return the balance of one node that offers both resources, in the arithmetic of `_balance`."""
    share = min(float(first) / float(offered), 1.0)
    share_of_second = min(float(second) / float(offered_second), 1.0)
    return int((1 - abs((share - share_of_second) / 2)) * HIGHEST_SCORE)


def _balance(amounts: Sequence[tuple[Integers, Integers]]) -> Integers:
    """Return 100 × (1 - the standard deviation of the shares in use), of resources that a node offers."""
    offers = np.array([offered != 0 for _, offered in amounts])
    shares = np.array([np.minimum(used / np.maximum(offered, 1), 1.0) for used, offered in amounts])
    count = offers.sum(axis=0)
    deviation = np.zeros(shares.shape[1])
    if len(amounts) == 2:
        deviation = np.where(count == 2, np.abs((shares[0] - shares[1]) / 2), 0.0)
    elif len(amounts) > 2:
        deviation = _deviation(shares, offers, count)
    return ((1 - deviation) * HIGHEST_SCORE).astype(np.int64)


def _deviation(shares: npt.NDArray[np.float64], offers: Mask, count: Integers) -> npt.NDArray[np.float64]:
    shares = np.where(offers, shares, 0.0)
    total = np.zeros(shares.shape[1])
    for share in shares:  # One after the other: the order of additions decides the last bit, as in Go.
        total = total + share
    mean = total / np.maximum(count, 1)
    squares = np.zeros_like(total)
    for share, offered in zip(shares, offers, strict=True):
        squares = squares + np.where(offered, (share - mean) * (share - mean), 0.0)
    result = np.where(count > 2, np.sqrt(squares / np.maximum(count, 1)), 0.0)
    if (count == 2).any():
        result = np.where(count == 2, _of_two(shares, offers), result)
    return result


def _of_two(shares: npt.NDArray[np.float64], offers: Mask) -> npt.NDArray[np.float64]:
    """Return half the difference of the first two offered shares, for nodes that offer two."""
    first = np.argmax(offers, axis=0)
    last = len(offers) - 1 - np.argmax(offers[::-1], axis=0)
    columns = np.arange(shares.shape[1])
    half: npt.NDArray[np.float64] = np.abs((shares[first, columns] - shares[last, columns]) / 2)
    return half
