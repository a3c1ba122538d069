"""The history of a test's cluster: each version of each object, with its writer and its differences."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

import orjson

from pinnace.model.clock import Clock
from pinnace.model.objects import Kind, Object
from pinnace.store.store import Change

_QUIET = frozenset(("resourceVersion", "managedFields", "uid", "creationTimestamp", "generation"))
_LONGEST = 90


class WriteOrigin(NamedTuple):
    """The request that writes now."""

    verb: str
    user: str
    client: str


SERVER = WriteOrigin("update", "system:apiserver", "")
current_writer: ContextVar[WriteOrigin] = ContextVar("current_writer", default=SERVER)


@dataclass(frozen=True, slots=True)
class ObjectVersion:
    """One version of an object."""

    time: datetime
    revision: int
    resource: str
    """The plural, with the group if there is one: deployments.apps."""
    key: str
    """namespace/name, or the name."""
    writer: WriteOrigin
    value: bytes | None
    previous: bytes | None

    @property
    def action(self) -> str:
        """created, updated or deleted."""
        return "deleted" if self.value is None else "created" if self.previous is None else "updated"

    @property
    def object(self) -> Object:
        """The object; its last state if it was deleted."""
        found: Object = orjson.loads(self.value if self.value is not None else self.previous or b"{}")
        return found

    @property
    def difference(self) -> list[str]:
        """The fields that differ from the version before, a line each; none for a new or deleted object."""
        if self.value is None or self.previous is None:
            return []
        return list(differences(orjson.loads(self.previous), orjson.loads(self.value)))

    def __str__(self) -> str:
        by = self.writer.client or self.writer.user
        head = f"{self.time:%H:%M:%S.%f}"[:-3] + f" {self.action} {self.resource} {self.key} by {by}"
        return "\n".join([head, *(f"    {line}" for line in self.difference)])


class ObjectHistory:
    """Every change since the cluster was made or forked."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.versions: list[ObjectVersion] = []
        """All changes, oldest first."""

    def note(self, changes: Sequence[Change]) -> None:
        """Write down a commit: the store calls this, in the task of the writer."""
        writer, now = current_writer.get(), self._clock.now()
        for change in changes:
            _, _, group, plural, key = change.key.split("/", 4)
            resource = plural if group == "core" else f"{plural}.{group}"
            previous = change.previous.value if change.previous is not None else None
            self.versions.append(ObjectVersion(now, change.revision, resource, key, writer, change.value, previous))

    def of(self, obj: Object) -> list[ObjectVersion]:
        """Return the versions of an object, oldest first: those of all objects that had its kind and name."""
        kind = Kind.parse(obj["apiVersion"], obj["kind"])
        metadata = obj["metadata"]
        namespace, name = metadata.get("namespace", ""), metadata["name"]
        keys = {f"{namespace}/{name}", name} if namespace else {f"default/{name}", name}
        return [one for one in self.versions if one.key in keys and _is_kind(one, kind)]

    def timeline(self, matches: Callable[[ObjectVersion], bool] | None = None) -> str:
        """Return the matching changes as text, oldest first. Events and Leases are left out."""
        shown = [one for one in self.versions if one.resource not in NOISE and (matches is None or matches(one))]
        return "\n".join(str(one) for one in shown)


NOISE = frozenset(("events", "events.events.k8s.io", "leases.coordination.k8s.io", "ipaddresses.networking.k8s.io"))
"""Resources whose changes tell nothing of what an operator does."""


def _is_kind(version: ObjectVersion, kind: Kind) -> bool:
    found = version.object
    return found.get("kind") == kind.name and str(found.get("apiVersion", "")).rpartition("/")[0] == kind.group


def differences(old: Any, new: Any, path: str = "") -> Iterator[str]:
    """Yield a line for each field that differs, without those that differ in every version."""
    if isinstance(old, dict) and isinstance(new, dict):
        for name in sorted(set(old) | set(new)):
            if name in _QUIET and path in ("", "metadata"):
                continue
            below = f"{path}.{name}" if path else name
            if name not in old:
                yield f"{below}: added {_short(new[name])}"
            elif name not in new:
                yield f"{below}: removed {_short(old[name])}"
            else:
                yield from differences(old[name], new[name], below)
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for at, (before, after) in enumerate(zip(old, new, strict=True)):
            yield from differences(before, after, f"{path}[{at}]")
    elif old != new:
        yield f"{path}: {_short(old)} → {_short(new)}"


def _short(value: Any) -> str:
    text = orjson.dumps(value).decode()
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
