"""internal.apiserver.k8s.io: StorageVersions, by which several API servers agree on stored versions; off by default."""

from __future__ import annotations

from datetime import datetime

from pinnace.kinds.cells import AGE, NAME, UNSET, at, first_of, reach, string
from pinnace.kinds.rows import STATUS, Row, on_request
from pinnace.model.typed_objects import StorageVersion


def _storage_versions(version: StorageVersion, now: datetime) -> str:
    versions = reach(version, "status", "storageVersions") or ()
    texts = (f"{server.get('apiServerID', '')}={server.get('encodingVersion', '')}" for server in versions)
    return first_of(texts, len(versions))


_STORAGE_VERSION = "io.k8s.api.apiserverinternal.v1alpha1.StorageVersionStatus"


ROWS = (
    Row(
        group="internal.apiserver.k8s.io",
        name="StorageVersion",
        plural="storageversions",
        columns=(
            NAME,
            string(
                "CommonEncodingVersion",
                f"{_STORAGE_VERSION}.commonEncodingVersion",
                at("status.commonEncodingVersion", UNSET),
            ),
            string("StorageVersions", f"{_STORAGE_VERSION}.storageVersions", _storage_versions),
            AGE,
        ),
        namespaced=False,
        versions=(on_request("v1alpha1"),),
        subresources=(STATUS,),
    ),
)
