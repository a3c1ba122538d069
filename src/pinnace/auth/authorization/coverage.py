"""Whether some rules cover others in every part: a verb on a resource and name, or on a path.

A rule of a few kilobytes may have a billion parts, so they are not compared one by one. A rule is a box of verbs,
groups, resources and names: the boxes that are held are cut off, and the boxes that are left are missing. The work
grows with both numbers of rules, so it is done in slices, and has a limit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, product

from pinnace.auth.authorization.rules import Rule
from pinnace.process.work_slices import SliceQueue

MOST_STEPS = 5_000_000
"""How many values are compared before rules are refused as too many: a second of work."""
MOST_MISSING = 200
"""How many missing resources and paths are listed. The others would not change the decision."""
_MOST_VERBS = 50
_STEPS_AT_ONCE = 2_000
"""The steps between two looks at the clock."""

_Box = tuple[tuple[str, ...], ...]
"""The verbs, groups, resources and names of a rule; or its verbs and paths."""


class TooManyRules(Exception):
    """The comparison would take too long."""


def missing_from(held: Sequence[Rule], wanted: Iterable[Rule]) -> list[Rule]:
    """Return the wanted rules that are not held, one resource or path at a time, in the order of messages."""
    comparison = _Comparison(held, wanted)
    for _ in comparison.run():
        pass
    return comparison.missing


async def find_missing(held: Sequence[Rule], wanted: Iterable[Rule]) -> list[Rule]:
    """Return the first `MOST_MISSING` of `missing_from`, and leave the loop to others. Raise TooManyRules."""
    comparison, slices, steps = _Comparison(held, wanted, most=MOST_MISSING), SliceQueue.of_loop().begin(), 0
    since = 0
    for taken in comparison.run():
        steps += taken
        if steps > MOST_STEPS:
            raise TooManyRules
        if steps - since > _STEPS_AT_ONCE:
            since = steps
            await slices.pause()
    return comparison.missing


class _Comparison:
    def __init__(self, held: Sequence[Rule], wanted: Iterable[Rule], *, most: int | None = None) -> None:
        self._held = held
        self._wanted = wanted
        self._most = most
        self._resources: dict[tuple[str, str, str], list[str]] = {}
        self._paths: dict[Rule, None] = {}

    def run(self) -> Iterator[int]:
        """Compare, and yield the number of steps after each of them."""
        for rule in self._wanted:
            verbs = tuple(dict.fromkeys(rule.verbs))
            if rule.urls:
                yield from self._compare((verbs, tuple(dict.fromkeys(rule.urls))))
            box = (rule.groups, rule.resources, rule.names or ("",))
            yield from self._compare((verbs, *(tuple(dict.fromkeys(values)) for values in box)))
            if self._is_full:
                return

    @property
    def _is_full(self) -> bool:
        return self._most is not None and len(self._resources) + len(self._paths) >= self._most

    def _compare(self, box: _Box) -> Iterator[int]:
        left = [box] if all(box) else []
        for own in self._held:
            if not left:
                return
            steps, kept = 0, list[_Box]()
            for part in left:
                steps += sum(map(len, part)) + len(own.urls) * (len(part) == 2)
                kept += _cut(part, own)
            left = kept
            yield steps
        missing_by_place: dict[tuple[str, ...], set[str]] = {}
        for verbs, *places in islice(left, self._most):
            for place in islice(product(*places), self._most):
                missing_by_place.setdefault(place, set()).update(verbs)
        for place, missing in islice(missing_by_place.items(), self._most):
            most = None if self._most is None else _MOST_VERBS
            self._add(place, [*islice((verb for verb in box[0] if verb in missing), most)])

    def _add(self, place: tuple[str, ...], verbs: list[str]) -> None:
        if len(place) == 1:
            self._paths.update(dict.fromkeys(Rule((verb,), urls=place) for verb in verbs))
        else:
            group, resource, name = place
            known = self._resources.setdefault((group, resource, name), [])
            known += [verb for verb in verbs if verb not in known]

    @property
    def missing(self) -> list[Rule]:
        resources = [
            Rule(tuple(verbs), (group,), (resource,), (name,) if name else ())
            for (group, resource, name), verbs in self._resources.items()
        ]
        return sorted([*resources, *self._paths], key=str)[: self._most]


def _cut(box: _Box, own: Rule) -> list[_Box]:
    """Return the boxes that are left of a box without the part that a rule covers."""
    covered = own.part_of(box)
    if not all(covered):
        return [box]
    left, inside = list[_Box](), list(box)
    for at, values in enumerate(covered):
        if len(values) < len(box[at]):
            known = frozenset(values)
            rest = tuple(value for value in box[at] if value not in known)
            left.append((*inside[:at], rest, *inside[at + 1 :]))
            inside[at] = values
    return left
