"""Backends of aggregated APIs: the Protocol, one in memory and one in SQLite. `rest.py` has one over HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any, Protocol

import orjson

from pinnace.model.objects import Key, Object

Served = Any
"""An instance of the served class, or a plain object in its wire form."""


class Overtaken(Exception):
    """Raise it in a backend after a lost race: the name is taken by now, or the object has changed since it was read.

    The client gets a 409: AlreadyExists for a `create`, Conflict with this message for everything else.
    """


class Backend(Protocol):
    """The methods that a class needs to become an API. Each may be `def` or `async def`.

    With these two the API can be read and watched. Further methods add further verbs:

        def create(self, obj): ...      # store a new object
        def update(self, obj): ...      # replace the object with this name
        def delete(self, key): ...      # remove it
        async def watch(self): ...      # yield the key of each object changed elsewhere; None if it may be any
        async def aclose(self): ...     # the API is no longer served: close what was opened for it

    `create` and `update` may return the stored object; otherwise it is read again. Labels, annotations and finalizers
    are only shown if the backend stores them. Methods may raise `Overtaken` and `Refused`.
    """

    def get(self, key: Key) -> Served:
        """Return the object with this namespace and name; None if there is none."""

    def list(self, namespace: str) -> Any:
        """Return all objects of a namespace; of all namespaces if it is empty."""


class Memory:
    """Objects in memory, which are lost when the process ends."""

    def __init__(self) -> None:
        self._bodies: dict[Key, bytes] = {}

    def get(self, key: Key) -> Object | None:
        body = self._bodies.get(key)
        return orjson.loads(body) if body is not None else None

    def list(self, namespace: str) -> Iterable[Object]:
        return [orjson.loads(body) for key, body in self._bodies.items() if namespace in ("", key.namespace)]

    def create(self, obj: Any) -> None:
        self._bodies[obj.key] = orjson.dumps(obj.to_wire())

    def update(self, obj: Any) -> None:
        self._bodies[obj.key] = orjson.dumps(obj.to_wire())

    def delete(self, key: Key) -> None:
        self._bodies.pop(key, None)


class SqliteTable:
    """Objects in a table of a SQLite file, one row each: namespace, name, and the whole object as JSON.

    Several kinds may share a file. If other programs change rows, call `changed` or serve it with `refresh`.
    """

    def __init__(self, path: Path | str, table: str) -> None:
        import sqlite3  # noqa: PLC0415 - most users of the SDK never need it

        if not table.isidentifier():
            raise ValueError(f"{table!r} cannot be the name of a table: use letters, digits and _")
        self._table = table
        self._changes: asyncio.Queue[Key] = asyncio.Queue()
        self._connection = sqlite3.connect(path, isolation_level=None)
        self._connection.execute("PRAGMA journal_mode=WAL")
        self._connection.execute(
            f"CREATE TABLE IF NOT EXISTS {table} "
            "(namespace TEXT NOT NULL, name TEXT NOT NULL, object TEXT NOT NULL, PRIMARY KEY (namespace, name))"
        )

    def get(self, key: Key) -> Object | None:
        row = self._connection.execute(
            f"SELECT object FROM {self._table} WHERE namespace = ? AND name = ?", key
        ).fetchone()
        return orjson.loads(row[0]) if row is not None else None

    def list(self, namespace: str) -> Iterable[Object]:
        rows = self._connection.execute(
            f"SELECT object FROM {self._table} WHERE ? IN ('', namespace) ORDER BY namespace, name", (namespace,)
        )
        return [orjson.loads(row[0]) for row in rows]

    def create(self, obj: Any) -> None:
        import sqlite3  # noqa: PLC0415 - as above

        try:
            self._connection.execute(f"INSERT INTO {self._table} VALUES (?, ?, ?)", (*obj.key, _text(obj)))
        except sqlite3.IntegrityError:
            raise Overtaken from None  # Another process has inserted the row.

    def update(self, obj: Any) -> None:
        self._connection.execute(
            f"UPDATE {self._table} SET object = ? WHERE namespace = ? AND name = ?", (_text(obj), *obj.key)
        )

    def delete(self, key: Key) -> None:
        self._connection.execute(f"DELETE FROM {self._table} WHERE namespace = ? AND name = ?", key)

    def changed(self, key: Key) -> None:
        """Report that a row was changed outside the API, so that watchers receive the change."""
        self._changes.put_nowait(key)

    async def watch(self) -> AsyncIterator[Key]:
        while True:
            yield await self._changes.get()

    def close(self) -> None:
        self._connection.close()


def _text(obj: Any) -> str:
    return orjson.dumps(obj.to_wire()).decode()
