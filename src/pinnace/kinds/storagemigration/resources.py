"""The row of storage version migrations."""

from __future__ import annotations

from pinnace.kinds.rows import GA, STATUS, Row, on_request
from pinnace.kinds.storagemigration import columns, validation

ROWS = (
    Row(
        group="storagemigration.k8s.io",
        name="StorageVersionMigration",
        plural="storageversionmigrations",
        columns=columns.STORAGE_VERSION_MIGRATION,
        namespaced=False,
        versions=(GA, on_request("v1beta1", deprecated="1.38", removed="1.41"), on_request("v1alpha1")),
        subresources=(STATUS,),
        strategy=validation.STORAGE_VERSION_MIGRATION,
    ),
)
