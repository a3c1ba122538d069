"""Writes changes of objects that the server itself makes, where no controller is needed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from pinnace.model.objects import Object
from pinnace.model.resources import Resource
from pinnace.serving.cache.fanout import Fanout
from pinnace.serving.write.edits import encode
from pinnace.store import store as stores


class ObjectWriter:
    """A background part that writes the result of `edit(key, object)`, unless it is None, of each noted object."""

    def __init__(
        self,
        fanout: Fanout,
        store: stores.Store,
        resource: Resource,
        edit: Callable[[str, Object], Object | None],
    ) -> None:
        self._fanout = fanout
        self._store = store
        self._resource = resource
        self._edit = edit
        self._stale: set[str] = set()
        self._noted = asyncio.Event()

    def note(self, key: str) -> None:
        """Look at an object soon. Notes that come together are one."""
        self._stale.add(key)
        self._noted.set()

    async def run(self) -> None:
        """Write until cancelled. Raise StoreError if the store takes no writes; nothing noted is lost by that."""
        while True:
            while self._stale:
                key = self._stale.pop()
                try:
                    await self._write(key)
                except stores.Conflict:
                    self._stale.add(key)  # Another write came first: look again at the newer object.
                    await asyncio.sleep(0)
                except BaseException:
                    self._stale.add(key)
                    raise
            self._noted.clear()
            await self._noted.wait()

    async def _write(self, key: str) -> None:
        entry = self._fanout.cache(self._resource.prefix).entries.get(key)
        if entry is None:
            return
        edited = self._edit(key, entry.decode())
        if edited is not None:
            value = encode(edited, self._resource)
            await self._store.put(self._resource.prefix + key, value, expected=entry.revision)


class StatusWriter(ObjectWriter):
    """Writes the result of `status_of(key, object)`, unless it is None, as the status of each noted object."""

    def __init__(
        self,
        fanout: Fanout,
        store: stores.Store,
        resource: Resource,
        status_of: Callable[[str, Object], Object | None],
    ) -> None:
        def edit(key: str, obj: Object) -> Object | None:
            status = status_of(key, obj)
            return None if status is None or obj.get("status") == status else {**obj, "status": status}

        super().__init__(fanout, store, resource, edit)
