"""The row of storage versions, by which several API servers agree on stored versions; off by default."""

from __future__ import annotations

from pinnace.kinds.internal import columns
from pinnace.kinds.rows import STATUS, Row, on_request

ROWS = (
    Row(
        group="internal.apiserver.k8s.io",
        name="StorageVersion",
        plural="storageversions",
        columns=columns.STORAGE_VERSION,
        namespaced=False,
        versions=(on_request("v1alpha1"),),
        subresources=(STATUS,),
    ),
)
