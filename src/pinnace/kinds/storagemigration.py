"""Rewriting what is stored in an older version."""

from __future__ import annotations

from pinnace.kinds import extension_columns, extension_rules
from pinnace.kinds.rows import GA, STATUS, Row, on_request

ROWS = (
    Row(
        group="storagemigration.k8s.io",
        name="StorageVersionMigration",
        plural="storageversionmigrations",
        columns=extension_columns.STORAGE_VERSION_MIGRATION,
        namespaced=False,
        versions=(GA, on_request("v1beta1", deprecated="1.38", removed="1.41"), on_request("v1alpha1")),
        subresources=(STATUS,),
        strategy=extension_rules.STORAGE_VERSION_MIGRATION,
    ),
)
