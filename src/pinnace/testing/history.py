"""The history of a test's cluster: each version of each object, with its writer and its differences."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple

import orjson

from pinnace.model.objects import Key, Kind, Object
from pinnace.model.users import is_cluster_part
from pinnace.process.clock import Clock
from pinnace.reconcile.controller import Controller
from pinnace.reconcile.history import Reason, Run
from pinnace.reconcile.manager import Manager
from pinnace.store.store import Change
from pinnace.testing.faults import InjectedFault
from pinnace.testing.timeline import TimelineEntry, render_html, render_text

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
    origin: WriteOrigin
    value: bytes | None
    previous: bytes | None

    @property
    def action(self) -> str:
        """created, updated or deleted."""
        return "deleted" if self.value is None else "created" if self.previous is None else "updated"

    @property
    def object(self) -> Object:
        """The object; its last state if it was deleted."""
        obj: Object = orjson.loads(self.value if self.value is not None else self.previous or b"{}")
        return obj

    @property
    def difference(self) -> list[str]:
        """The fields that differ from the version before, a line each; none for a new or deleted object."""
        if self.value is None or self.previous is None:
            return []
        return list(differences(orjson.loads(self.previous), orjson.loads(self.value)))

    @property
    def writer(self) -> str:
        """The client's user agent; the user if it has none."""
        return self.origin.client or self.origin.user

    def entry(self) -> TimelineEntry:
        """Return the version as a line of a timeline."""
        if self.resource in EVENTS and self.value is not None:
            return _event_entry(self)
        title = f"{self.action} {self.resource} {self.key}"
        return TimelineEntry(self.time, self.writer, self.action, title, self.difference)

    def __str__(self) -> str:
        return str(self.entry())


@dataclass(slots=True, eq=False)
class ReconcileSpan:
    """One reconcile, from its begin to its end."""

    time: datetime
    operator: str
    controller: Controller
    key: Key
    reasons: tuple[Reason, ...]
    run: Run | None = None
    """None while it runs, and for ever if it was interrupted."""
    length: int = 1
    """The number of entries of the history that it spans, itself included."""

    def entry(self) -> TimelineEntry:
        kind = self.controller.kind.name if self.controller.kind is not None else self.controller.name
        title = f"reconcile {kind} {self.key}"
        details = [f"because {'; '.join(str(reason) for reason in self.reasons[:3])}"] if self.reasons else []
        if self.run is None:
            return TimelineEntry(self.time, self.operator, "failed", f"{title}: interrupted", details, self.length)
        if self.run.error:
            title += f": {self.run.error}"
        elif self.run.again:
            title += f": again in {self.run.again:.3g} s"
        return TimelineEntry(
            self.time, self.operator, "failed" if self.run.error else "reconcile", title, details, self.length
        )


@dataclass(frozen=True, slots=True)
class NotedFault:
    """A fault that was injected."""

    fault: InjectedFault

    def entry(self) -> TimelineEntry:
        fault = self.fault
        title = f"{fault.fault}: {fault.verb} {fault.resource} {fault.key}".rstrip()
        return TimelineEntry(fault.time, fault.client or fault.user, "fault", title)


HistoryEntry = ObjectVersion | ReconcileSpan | NotedFault


class ObjectHistory:
    """Every change since the cluster was made or forked."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.versions: list[ObjectVersion] = []
        """All changes, oldest first."""
        self.entries: list[HistoryEntry] = []
        """All changes, reconciles of operators and injected faults, oldest first."""

    def observe(self, manager: Manager) -> None:
        """Note the reconciles of an operator."""
        for controller in manager.controllers:
            controller.history.observer = partial(self._begin_reconcile, manager.name, controller)

    def _begin_reconcile(
        self, operator: str, controller: Controller, key: Key, reasons: tuple[Reason, ...]
    ) -> Callable[[Run], None]:
        span, at = ReconcileSpan(self._clock.now(), operator, controller, key, reasons), len(self.entries)
        self.entries.append(span)

        def end(run: Run) -> None:
            span.run = run
            span.length = len(self.entries) - at

        return end

    def note_injection(self, fault: InjectedFault) -> None:
        """Note a fault that happens now."""
        self.entries.append(NotedFault(fault))

    def note(self, changes: Sequence[Change]) -> None:
        """Write down a commit: the store calls this, in the task of the writer."""
        writer, now = current_writer.get(), self._clock.now()
        for change in changes:
            _, _, group, plural, key = change.key.split("/", 4)
            resource = plural if group == "core" else f"{plural}.{group}"
            previous = change.previous.value if change.previous is not None else None
            version = ObjectVersion(now, change.revision, resource, key, writer, change.value, previous)
            self.versions.append(version)
            self.entries.append(version)

    def __call__(self, obj: Object) -> list[ObjectVersion]:
        """Return the versions of an object: as `of`."""
        return self.of(obj)

    def of(self, obj: Object) -> list[ObjectVersion]:
        """Return the versions of an object, oldest first: those of all objects that had its kind and name."""
        kind = Kind.parse(obj["apiVersion"], obj["kind"])
        metadata = obj["metadata"]
        namespace, name = metadata.get("namespace", ""), metadata["name"]
        keys = {f"{namespace}/{name}", name} if namespace else {f"default/{name}", name}
        return [version for version in self.versions if version.key in keys and _is_kind(version, kind)]

    def timeline(self, matches: Callable[[HistoryEntry], bool] | None = None) -> str:
        """Return the matching changes, Events, reconciles and faults as text, oldest first. Leases are left out."""
        return render_text(self.timeline_entries(matches))

    def timeline_html(self, title: str = "timeline", matches: Callable[[HistoryEntry], bool] | None = None) -> str:
        """Return the same as a page in HTML, with a lane for each program."""
        return render_html(self.timeline_entries(matches), title)

    def timeline_entries(self, matches: Callable[[HistoryEntry], bool] | None = None) -> list[TimelineEntry]:
        """Return the matching entries of a timeline."""
        chosen = [
            at
            for at, entry in enumerate(self.entries)
            if not (isinstance(entry, ObjectVersion) and entry.resource in _LEFT_OUT)
            and (matches is None or matches(entry))
        ]
        entries = []
        for at in chosen:
            entry = self.entries[at].entry()
            end = at + entry.length  # It spans entries that are left out, too.
            entry.length = bisect_left(chosen, end) - bisect_left(chosen, at)
            entries.append(entry)
        return entries

    def about(self, resource: str | None, namespace: str | None, name: str | None) -> Callable[[HistoryEntry], bool]:
        """Return a filter for objects of a resource, a namespace and a name. Without a resource NOISE is left out."""

        def matches(entry: HistoryEntry) -> bool:
            key = entry.fault.key if isinstance(entry, NotedFault) else str(entry.key)
            place = entry.fault.resource if isinstance(entry, NotedFault) else ""
            if isinstance(entry, ObjectVersion):
                place = entry.resource
                if not resource and place in NOISE and place not in EVENTS:
                    return False
            own_namespace, _, own = key.rpartition("/")
            return (
                (not resource or not place or place == resource)
                and namespace in (None, own_namespace)
                and (name is None or own == name or (place in EVENTS and own.startswith(f"{name}.")))
            )

        return matches

    def recent(self, count: int = 40) -> str:
        """Return the last entries by clients as text; those of the cluster's own parts are left out."""
        return render_text(self.timeline_entries(is_by_client)[-count:])


def is_by_client(entry: HistoryEntry) -> bool:
    """Whether an entry is not one of the cluster's own parts."""
    user = entry.origin.user if isinstance(entry, ObjectVersion) else ""
    return not is_cluster_part(user)


EVENTS = frozenset(("events", "events.events.k8s.io"))
_LEFT_OUT = frozenset(("leases.coordination.k8s.io", "ipaddresses.networking.k8s.io"))
NOISE = EVENTS | _LEFT_OUT
"""Resources whose changes tell nothing of what an operator does."""


def _event_entry(version: ObjectVersion) -> TimelineEntry:
    obj = version.object
    involved = obj.get("involvedObject") or obj.get("regarding") or {}
    namespace = f"{involved['namespace']}/" if involved.get("namespace") else ""
    about = f"{involved.get('kind', '')} {namespace}{involved.get('name', '')}"
    title = f"{obj.get('type', 'Normal')} {obj.get('reason', '')}: {about}"
    message = str(obj.get("message") or obj.get("note") or "")
    return TimelineEntry(version.time, version.writer, "event", title, message.splitlines())


def _is_kind(version: ObjectVersion, kind: Kind) -> bool:
    obj = version.object
    return obj.get("kind") == kind.name and str(obj.get("apiVersion", "")).rpartition("/")[0] == kind.group


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
