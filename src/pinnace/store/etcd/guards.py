"""Guards: keys in etcd that every write of one domain changes, so that no two servers decide on the same state.

A write of node ports, say, is decided at a revision that this server has seen. Its transaction holds only if the guard
was not changed after that revision, except by this server itself, whose own writes the decision knew of.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

from pinnace.store.etcd.wire import GuardTerm


@dataclass(slots=True)
class _Chain:
    """Changes of a guard by this server alone: none of another came after `since` and up to `last`. As etcd counts."""

    since: int = 0
    last: int = 0
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class Guards:
    """The guards below one root."""

    def __init__(self, root: str) -> None:
        self._root = f"/pinnace/guards{root or '/'}"
        self._chains: dict[str, _Chain] = {}

    async def enter(self, stack: AsyncExitStack, names: tuple[str, ...]) -> None:
        """Wait until no other write of this server passes these guards, until the end of the stack."""
        for name in sorted(names):
            chain = self._chains.setdefault(name, _Chain())
            await stack.enter_async_context(chain.lock)

    def terms(self, names: tuple[str, ...], seen: int) -> list[GuardTerm]:
        """Return the comparisons for a write that was decided at revision `seen`."""
        terms = []
        for name in names:
            chain, key = self._chains[name], (self._root + name).encode()
            is_own = chain.last > seen >= chain.since
            terms.append(GuardTerm(key, chain.last if is_own else seen + 1, is_own))
        return terms

    def note(self, names: tuple[str, ...], seen: int, revision: int) -> None:
        """Take notice of a write that has passed them at `revision`."""
        for name in names:
            chain = self._chains[name]
            if not chain.last > seen >= chain.since:
                chain.since = seen
            chain.last = revision

    def forget(self) -> None:
        """Forget what this server has passed: revisions are counted anew."""
        for chain in self._chains.values():
            chain.since = chain.last = 0
