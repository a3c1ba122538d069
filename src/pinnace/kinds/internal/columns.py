"""The columns of storage versions."""

from __future__ import annotations

from datetime import datetime

from pinnace.kinds.cells import AGE, NAME, UNSET, at, first_of, reach, string
from pinnace.model.objects import Object


def _storage_versions(version: Object, now: datetime) -> str:
    found = reach(version, "status", "storageVersions") or ()
    shown = (f"{server.get('apiServerID', '')}={server.get('encodingVersion', '')}" for server in found)
    return first_of(shown, len(found))


_STORAGE_VERSION = "io.k8s.api.apiserverinternal.v1alpha1.StorageVersionStatus"
STORAGE_VERSION = (
    NAME,
    string(
        "CommonEncodingVersion",
        f"{_STORAGE_VERSION}.commonEncodingVersion",
        at("status.commonEncodingVersion", UNSET),
    ),
    string("StorageVersions", f"{_STORAGE_VERSION}.storageVersions", _storage_versions),
    AGE,
)
