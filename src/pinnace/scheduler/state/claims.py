"""The persistent volume claims that pods on nodes use."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable


class ClaimUse:
    def __init__(self) -> None:
        self._used: Counter[tuple[str, str]] = Counter()

    def add(self, namespace: str, claims: Iterable[str], by: int) -> None:
        for claim in claims:
            self._used[namespace, claim] += by
            if not self._used[namespace, claim]:
                del self._used[namespace, claim]

    def is_used(self, namespace: str, claim: str) -> bool:
        return (namespace, claim) in self._used
