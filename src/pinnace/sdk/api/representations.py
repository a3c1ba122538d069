"""The representations of objects that a client can request: whole, metadata only, or the table that kubectl prints."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import orjson

from pinnace.model import errors
from pinnace.model.clock import Clock
from pinnace.model.objects import Object
from pinnace.model.resources import Resource
from pinnace.sdk.api.collection import CollectionEntry

JSON = "application/json"
TABLE = "Table"
METADATA = "PartialObjectMetadata"


class View(NamedTuple):
    """The representation that a client accepts; `name` is empty for the object itself."""

    name: str = ""
    version: str = ""


def view_of(accept: str) -> View:
    """Return the first representation in the Accept header that is supported. Raise NotAcceptable."""
    for clause in accept.split(",") if accept else ("*/*",):
        media_type, *rest = (part.strip() for part in clause.split(";"))
        parameters = {
            name.strip(): value.strip().strip('"') for name, _, value in (part.partition("=") for part in rest)
        }
        if media_type.lower() not in (JSON, "*/*", "application/*"):
            continue
        if "as" not in parameters:
            return View()
        name, version = parameters["as"].removesuffix("List"), parameters.get("v", "")
        if name in (TABLE, METADATA) and parameters.get("g") == "meta.k8s.io" and version in ("v1", "v1beta1"):
            return View(name, version)
    raise errors.NotAcceptable((JSON,))


class ViewRepresentation:
    """Encodes answers in one view."""

    def __init__(self, resource: Resource, view: View, *, include: str, clock: Clock) -> None:
        """`include` is the part of the object in each row of a table: None, Metadata or Object."""
        self._resource = resource
        self._view = view
        self._include = include or "Metadata"
        self._clock = clock
        self._has_columns = True

    def one(self, entry: CollectionEntry) -> bytes:
        if not self._view.name:
            return entry.body
        obj = entry.object
        if self._view.name == METADATA:
            return orjson.dumps(self._partial(obj))
        return orjson.dumps(self._table([obj], {"resourceVersion": obj["metadata"]["resourceVersion"]}))

    def many(self, entries: Sequence[CollectionEntry], metadata: Object) -> bytes:
        if self._view.name == TABLE:
            return orjson.dumps(self._table([entry.object for entry in entries], metadata))
        kind = self._resource.kind._replace(name=self._resource.list_kind)
        head: Object = {"kind": kind.name, "apiVersion": kind.api_version, "metadata": metadata}
        if self._view.name == METADATA:
            head |= {"kind": f"{METADATA}List", "apiVersion": f"meta.k8s.io/{self._view.version}"}
        bodies = b",".join(self.one(entry) for entry in entries)
        return b'%b,"items":[%b]}\n' % (orjson.dumps(head)[:-1], bodies)

    def event(self, type: str, entry: CollectionEntry) -> bytes:
        """Return one line of a watch. Only the first carries the columns of a table."""
        line = b'{"type":"%b","object":%b}\n' % (type.encode(), self.one(entry))
        self._has_columns = False
        return line

    def bookmark(self, revision: int, *, is_initial: bool = False) -> bytes:
        """Return a bookmark for a revision; with `is_initial` it ends the initial events."""
        metadata: Object = {"resourceVersion": str(revision), "creationTimestamp": None}
        if is_initial:
            metadata["annotations"] = {"k8s.io/initial-events-end": "true"}
        kind = self._resource.kind
        obj: Object = {"kind": kind.name, "apiVersion": kind.api_version, "metadata": metadata}
        if self._view.name == METADATA:
            obj = self._partial(obj)
        elif self._view.name == TABLE:
            row = {"cells": [None] * len(self._resource.columns), "object": self._partial(obj)}
            obj = {**self._table([], {"resourceVersion": str(revision)}), "rows": [row]}
        return orjson.dumps({"type": "BOOKMARK", "object": obj}, option=orjson.OPT_APPEND_NEWLINE)

    def _partial(self, obj: Object) -> Object:
        return {"kind": METADATA, "apiVersion": f"meta.k8s.io/{self._view.version}", "metadata": obj["metadata"]}

    def _table(self, objects: Sequence[Object], metadata: Object) -> Object:
        now = self._clock.now()
        rows = []
        for obj in objects:
            row: Object = {"cells": [column.value(obj, now) for column in self._resource.columns]}
            if self._include != "None":
                row["object"] = obj if self._include == "Object" else self._partial(obj)
            rows.append(row)
        return {
            "kind": TABLE,
            "apiVersion": f"meta.k8s.io/{self._view.version}",
            "metadata": metadata,
            "columnDefinitions": [one.definition for one in self._resource.columns] if self._has_columns else None,
            "rows": rows,
        }
