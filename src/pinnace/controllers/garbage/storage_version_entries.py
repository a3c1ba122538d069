"""Removes from StorageVersions the entries of API servers that no longer run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from pinnace.client.client import Client
from pinnace.controllers.garbage.server_leases import LABELS, NAMESPACE
from pinnace.model import errors
from pinnace.model.objects import Key, key_of
from pinnace.model.typed_objects import Lease, ServerStorageVersion, StorageVersion, StorageVersionStatus
from pinnace.process.clock import to_rfc3339
from pinnace.reconcile.controller import Controller
from pinnace.reconcile.manager import Manager

_BY_SERVER = "API server"
_EQUAL = "AllEncodingVersionsEqual"


class StorageVersionEntries:
    """Looks at a StorageVersion when it changes, and when the lease of a server that it names is deleted."""

    def __init__(self, manager: Manager, client: Client) -> None:
        self._client = client
        self._versions = manager.cache(StorageVersion)
        self._versions.add_index(_BY_SERVER, _servers_of)
        self._leases = manager.cache(Lease, namespace=NAMESPACE, labels=LABELS)
        self.controller = Controller("storage-version-garbage", self._reconcile)
        self.controller.for_(StorageVersion)
        self.controller.watches(Lease, self._named_by, when=_is_deleted, namespace=NAMESPACE, labels=LABELS)

    def _named_by(self, lease: Lease) -> Iterable[Key]:
        return self._versions.keys_by_index(_BY_SERVER, key_of(lease).name)

    async def _reconcile(self, key: Key) -> None:
        seen = self._versions.get(key)
        if seen is None or all(Key(NAMESPACE, name) in self._leases for name in _servers_of(seen)):
            return
        version = await self._client.get_or_none(StorageVersion, key.name)
        if version is None:
            return
        entries = (version.get("status") or {}).get("storageVersions") or []
        running = {name for name in _servers_of(version) if await self._is_running(name)}
        kept = [entry for entry in entries if entry.get("apiServerID", "") in running]
        if len(kept) == len(entries):
            return
        try:
            if not kept:
                await self._client.delete(StorageVersion, key.name)
                return
            version["status"] = _with_entries(version, kept, to_rfc3339(self._client.clock.now()))
            await self._client.update_status(version)
        except errors.NotFound:
            return

    async def _is_running(self, server: str) -> bool:
        lease = await self._client.get_or_none(Lease, server, namespace=NAMESPACE) if server else None
        if lease is None:
            return False
        label, _, expected = LABELS.partition("=")
        return (lease["metadata"].get("labels") or {}).get(label) == expected


def _servers_of(version: StorageVersion) -> Sequence[str]:
    entries = (version.get("status") or {}).get("storageVersions") or ()
    return tuple(dict.fromkeys(entry.get("apiServerID", "") for entry in entries))


def _is_deleted(old: Lease | None, new: Lease | None) -> bool:
    return new is None


def _with_entries(version: StorageVersion, kept: list[ServerStorageVersion], now: str) -> StorageVersionStatus:
    """Return the status with these entries, the version on which they agree, and the condition that says so."""
    status = version.get("status") or {}
    before = status.get("commonEncodingVersion")
    encodings = {entry.get("encodingVersion", "") for entry in kept}
    common = next(iter(encodings)) if len(encodings) == 1 else None
    changed: Any = {**status, "storageVersions": kept, "commonEncodingVersion": common}
    if common is None:
        del changed["commonEncodingVersion"]
    state, reason = ("False", "Unset") if common is None else ("True", "Set")
    condition: Any = {
        "type": _EQUAL,
        "status": state,
        "observedGeneration": version["metadata"].get("generation", 0),
        "lastTransitionTime": now,
        "reason": f"CommonEncodingVersion{reason}",
        "message": f"Common encoding version {reason.lower()}",
    }
    others = [each for each in status.get("conditions") or () if each.get("type") != _EQUAL]
    known = next((each for each in status.get("conditions") or () if each.get("type") == _EQUAL), None)
    is_forced = before is not None and common is not None and before != common
    if known is not None and known.get("status") == state and not is_forced:
        condition["lastTransitionTime"] = known.get("lastTransitionTime", now)
    changed["conditions"] = [*others, condition]
    result: StorageVersionStatus = changed
    return result
