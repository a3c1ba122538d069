"""The history of a test's cluster: each version of each object, with its writer and its differences."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime
from html import escape
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
        found: Object = orjson.loads(self.value if self.value is not None else self.previous or b"{}")
        return found

    @property
    def difference(self) -> list[str]:
        """The fields that differ from the version before, a line each; none for a new or deleted object."""
        if self.value is None or self.previous is None:
            return []
        return list(differences(orjson.loads(self.previous), orjson.loads(self.value)))

    def __str__(self) -> str:
        by = self.origin.client or self.origin.user
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

    def __call__(self, obj: Object) -> list[ObjectVersion]:
        """Return the versions of an object: as `of`."""
        return self.of(obj)

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

    def timeline_html(self, title: str = "timeline") -> str:
        """Return the changes as a page in HTML, with a lane for each writer."""
        return render_html([one for one in self.versions if one.resource not in NOISE], title)

    def recent(self, count: int = 30) -> str:
        """Return the last changes by clients as text; those of the cluster's own parts are left out."""
        shown = [
            one for one in self.versions if one.resource not in NOISE and not one.origin.user.startswith("system:")
        ]
        return "\n".join(str(one) for one in shown[-count:])


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


_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title><style>
body {{ font: 14px sans-serif; margin: 2em }} table {{ border-collapse: collapse }}
th, td {{ border: 1px solid #ccc; padding: 4px 8px; vertical-align: top; text-align: left }}
.created {{ background: #e6f4ea }} .updated {{ background: #e8f0fe }} .deleted {{ background: #fce8e6 }}
pre {{ margin: 4px 0 0; white-space: pre-wrap; font-size: 12px }}
</style></head><body><h1>{title}</h1><table>
<tr><th>time</th>{lanes}</tr>
{rows}
</table></body></html>
"""


def render_html(versions: Sequence[ObjectVersion], title: str) -> str:
    """Return versions as a page in HTML: a row for each, a column for each writer."""
    writers = list(dict.fromkeys(_writer_of(one) for one in versions))
    rows = []
    for one in versions:
        details = f"<pre>{escape(chr(10).join(one.difference))}</pre>" if one.difference else ""
        cell = f'<td class="{one.action}">{one.action} {escape(one.resource)} {escape(one.key)}{details}</td>'
        cells = "".join(cell if writer == _writer_of(one) else "<td></td>" for writer in writers)
        rows.append(f"<tr><td>{one.time:%H:%M:%S.%f}</td>{cells}</tr>")
    lanes = "".join(f"<th>{escape(writer)}</th>" for writer in writers)
    return _PAGE.format(title=escape(title), lanes=lanes, rows="\n".join(rows))


def _writer_of(version: ObjectVersion) -> str:
    return version.origin.client or version.origin.user
