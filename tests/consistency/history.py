"""The operations of all clients in one run, with their times, revisions and values."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Version:
    """A key at a revision; `value` None: it was deleted at that revision."""

    revision: int
    key: str
    value: str | None


@dataclass(frozen=True, slots=True)
class Span:
    """When an operation began and ended, on one clock."""

    began: float
    ended: float


@dataclass(frozen=True, slots=True)
class Written:
    """An acknowledged write. `expected` is the revision that it had to replace: 0 for a create, None for any.

    A deletion has no `value`, and its `revision` is not known (0).
    """

    span: Span
    key: str
    expected: int | None
    revision: int
    value: str | None


@dataclass(frozen=True, slots=True)
class Read:
    """One object, read without a revision: `found` None if it was not there."""

    span: Span
    key: str
    version: Version | None


@dataclass(frozen=True, slots=True)
class Listed:
    """All objects, read without a revision, in one page or several."""

    span: Span
    revision: int
    versions: frozenset[Version]
    pages: int = 1


@dataclass(slots=True)
class Watched:
    """The changes that one watch showed after `since`, from wherever it was resumed."""

    since: int
    seen: list[Version] = field(default_factory=list)


@dataclass(slots=True)
class History:
    """All operations of a run. `open_writes` have an unknown outcome. `audit` is one watch over the whole run."""

    audit: Watched = field(default_factory=lambda: Watched(0))
    writes: list[Written] = field(default_factory=list)
    reads: list[Read] = field(default_factory=list)
    lists: list[Listed] = field(default_factory=list)
    watches: list[Watched] = field(default_factory=list)
    open_writes: int = 0

    @property
    def operations(self) -> int:
        """The number of answered operations and of changes that watches showed."""
        changes = sum(len(watch.seen) for watch in self.watches)
        return len(self.writes) + len(self.reads) + len(self.lists) + changes
