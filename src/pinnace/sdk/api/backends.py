"""Where the objects of an API of your own are: any class with a few methods; two are ready, a third is `api_rest`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any, Protocol

import orjson

from pinnace.model.objects import Key, Object

Served = Any
"""An object of the class that is served, or a plain one as it is on the wire."""


class Overtaken(Exception):
    """Raised by a backend: somebody else was faster. There is one of that name by now, or it is not as it was read.

    Whoever wrote gets a 409: AlreadyExists of a `create`, and Conflict of all else, with what is said here.
    """


class Backend(Protocol):
    """What a class must have to become an API. Each method may be `def` or `async def`.

    With these two the API can be read and watched. What else there is, it has by further methods:

        def create(self, obj): ...      # store it
        def update(self, obj): ...      # store it in place of the one with its name
        def delete(self, key): ...      # drop it
        async def watch(self): ...      # yield the key of what somebody else has changed; None if it may be anything
        async def aclose(self): ...     # the API is no longer served: let go what was opened for it

    `create` and `update` may return the object as it was stored; it is read again otherwise. What is not kept of the
    metadata is not shown either: labels, annotations, finalizers. Methods may raise `Overtaken`, and `Refused`.
    """

    def get(self, key: Key) -> Served:
        """The object with this namespace and name; None if there is none."""

    def list(self, namespace: str) -> Any:
        """All objects of a namespace; those of all namespaces if it is empty."""


class Memory:
    """Objects that are gone when the process ends."""

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

    Several kinds may share a file. Other programs may change rows: tell `changed` of it, or serve it with `refresh`.
    """

    def __init__(self, path: Path | str, table: str) -> None:
        import sqlite3  # noqa: PLC0415 - most who import the SDK need it never

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
        found = self._connection.execute(
            f"SELECT object FROM {self._table} WHERE namespace = ? AND name = ?", key
        ).fetchone()
        return orjson.loads(found[0]) if found is not None else None

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
            raise Overtaken from None  # Another process has put a row there.

    def update(self, obj: Any) -> None:
        self._connection.execute(
            f"UPDATE {self._table} SET object = ? WHERE namespace = ? AND name = ?", (_text(obj), *obj.key)
        )

    def delete(self, key: Key) -> None:
        self._connection.execute(f"DELETE FROM {self._table} WHERE namespace = ? AND name = ?", key)

    def changed(self, key: Key) -> None:
        """Somebody has changed a row behind the API's back: those who watch are told."""
        self._changes.put_nowait(key)

    async def watch(self) -> AsyncIterator[Key]:
        while True:
            yield await self._changes.get()

    def close(self) -> None:
        self._connection.close()


def _text(obj: Any) -> str:
    return orjson.dumps(obj.to_wire()).decode()
