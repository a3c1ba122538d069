"""Checks a history: is there one order of all changes that explains everything that every client saw?

Every acknowledged write has a revision, so the order is known, and each check is a search in it instead of a search for
it. The audit, a watch over the whole run, must show it; the checks of writes prove that the audit has no gap.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise

from tests.consistency.history import History, Read, Version, Watched, Written

_NEVER = 1 << 62


def violations(history: History) -> list[str]:
    """Return every contradiction in a history; none for a consistent one."""
    truth = _Truth(history.audit)
    return [*truth.disorder(), *truth.check(history)]


class _Truth:
    """All versions in order."""

    def __init__(self, audit: Watched) -> None:
        self.versions = audit.seen
        self._revisions = [version.revision for version in audit.seen]
        self._of_key: dict[str, list[Version]] = defaultdict(list)
        for version in audit.seen:
            self._of_key[version.key].append(version)
        self._known = set(audit.seen)
        self._began: dict[Version, float] = {}  # Acknowledged versions: when their writes began.

    def disorder(self) -> Iterator[str]:
        for before, after in pairwise(self.versions):
            if after.revision <= before.revision:
                yield f"the audit shows {after} after {before}"

    def check(self, history: History) -> Iterator[str]:
        for written in history.writes:
            yield from self._check_write(written)
        yield from _check_order(history.writes)
        seen = _Seen(history)
        for read in history.reads:
            yield from self._check_read(read, seen.newest_before(read.span.began))
        for listed in history.lists:
            newest = seen.newest_before(listed.span.began)
            if listed.revision < newest:
                yield f"stale list: at revision {listed.revision}, though {newest} was known before: {listed.span}"
            if listed.versions != (state := self.state(listed.revision)):
                wrong = sorted(listed.versions ^ state, key=lambda version: version.revision)
                yield f"a list of {listed.pages} pages at {listed.revision} is not the state there: {wrong[:4]}"
        for watch in history.watches:
            yield from self._check_watch(watch)

    def state(self, revision: int) -> frozenset[Version]:
        """Return the objects that existed at a revision."""
        current: dict[str, Version] = {}
        for key, versions in self._of_key.items():
            at = bisect_right(versions, revision, key=lambda version: version.revision)
            if at and versions[at - 1].value is not None:
                current[key] = versions[at - 1]
        return frozenset(current.values())

    def _check_write(self, written: Written) -> Iterator[str]:
        versions = self._of_key.get(written.key, [])
        if written.value is None:
            deleted = self._deletion_of(written)
            if deleted is None:
                around = [version for version in versions if abs(version.revision - (written.expected or 0)) < 40]
                yield f"lost or wrong deletion: {written} among {around}"
            else:
                self._began[deleted] = written.span.began
            return
        at = bisect_left(versions, written.revision, key=lambda version: version.revision)
        if at == len(versions) or versions[at] != Version(written.revision, written.key, written.value):
            yield f"an acknowledged write is lost: {written}"
            return
        self._began[versions[at]] = written.span.began
        before = versions[at - 1] if at else None
        replaced = before.revision if before is not None and before.value is not None else 0
        if written.expected is not None and replaced != written.expected:
            yield f"lost update: {written} replaced {before}"

    def _deletion_of(self, written: Written) -> Version | None:
        pairs = pairwise(self._of_key.get(written.key, []))
        return next((new for old, new in pairs if old.revision == written.expected and new.value is None), None)

    def _check_read(self, read: Read, newest: int) -> Iterator[str]:
        """A version may be read until the next one; it must not have been replaced by what was known before."""
        versions = self._of_key.get(read.key, [])
        if read.version is not None:
            if read.version not in self._known:
                yield f"a read shows what was never written: {read}"
                return
            if self._began.get(read.version, 0.0) > read.span.ended:
                yield f"a read shows what was written later: {read}"
            at = bisect_right(versions, read.version.revision, key=lambda version: version.revision)
            until = versions[at].revision if at < len(versions) else _NEVER
            if until <= newest:
                yield f"stale read: {read}, though revision {newest} was known before"
            return
        ends = [after.revision for after in versions if after.value is not None]
        absences = [version for version in versions if version.value is None]
        starts = [0, *(absence.revision for absence in absences if self._began.get(absence, 0.0) <= read.span.ended)]
        if not any(self._is_absent(start, ends, newest) for start in starts):
            yield f"stale read: {read} found nothing, though revision {newest} was known before"

    def _is_absent(self, start: int, creations: list[int], newest: int) -> bool:
        at = bisect_right(creations, start)
        return (creations[at] if at < len(creations) else _NEVER) > newest

    def _check_watch(self, watch: Watched) -> Iterator[str]:
        if not watch.seen:
            return
        first = bisect_right(self._revisions, watch.since)
        last = bisect_right(self._revisions, max(version.revision for version in watch.seen))
        expected = self.versions[first:last]
        if watch.seen != expected:
            at = next(
                (n for n, (seen, right) in enumerate(zip(watch.seen, expected, strict=False)) if seen != right),
                min(len(watch.seen), len(expected)),
            )
            yield (
                f"a watch since {watch.since} has a gap, a duplicate or another order at change {at}: "
                f"{watch.seen[at : at + 2]} instead of {expected[at : at + 2]}"
            )


class _Seen:
    """The newest revision that any client knew of at a time."""

    def __init__(self, history: History) -> None:
        known = [(write.span.ended, write.revision) for write in history.writes]
        known += [(read.span.ended, read.version.revision) for read in history.reads if read.version is not None]
        known += [(listed.span.ended, listed.revision) for listed in history.lists]
        known.sort()
        self._times = [time for time, _ in known]
        self._newest: list[int] = []
        newest = 0
        for _, revision in known:
            newest = max(newest, revision)
            self._newest.append(newest)

    def newest_before(self, time: float) -> int:
        at = bisect_left(self._times, time)
        return self._newest[at - 1] if at else 0


def _check_order(writes: list[Written]) -> Iterator[str]:
    """A write that began after another was acknowledged has a greater revision."""
    numbered = [write for write in writes if write.revision]
    by_end = sorted(numbered, key=lambda write: write.span.ended)
    newest, at = 0, 0
    for write in sorted(numbered, key=lambda write: write.span.began):
        while at < len(by_end) and by_end[at].span.ended < write.span.began:
            newest = max(newest, by_end[at].revision)
            at += 1
        if write.revision <= newest:
            yield f"{write} began after revision {newest} was acknowledged"
